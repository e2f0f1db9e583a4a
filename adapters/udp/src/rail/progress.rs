//! Polling: hellos and checks that are due, frames that wait to be sent, and received datagrams.

use std::os::fd::AsRawFd;

use towline_core::rail::Event;
use towline_core::time::{Duration, Instant};

use crate::queues::outbox::Flushed;
use crate::rail::Rail;
use crate::rail::peer::remote_of;

/// Time until frames that the socket did not accept are sent again.
const RETRY: Duration = Duration::from_nanos(200_000);

impl Rail {
    #[inline]
    pub(super) fn progress(&mut self, now: Instant) -> Option<Event> {
        self.now = now;
        self.sent_at_once = 0;
        if let Some((_, event)) = self.events.pop_front() {
            return Some(event);
        }
        if !self.requested.is_empty() {
            self.connect_requested();
        }
        if self.next_hello.is_some_and(|next| next <= now) {
            self.send_due_hellos();
        }
        if self.next_port_check.is_some_and(|next| next <= now) {
            self.check_ports();
        }
        if !self.outbox.is_empty() {
            self.flush_outbox();
        }
        self.receive_next()
    }

    /// Sends frames that wait.
    #[inline]
    pub(super) fn flush_outbox(&mut self) {
        self.send_retry_at = None;
        for _ in 0..4 {
            let allowance = self.pacing.allowance(self.now);
            let (socket, peers) = (self.socket.as_raw_fd(), &self.peers);
            let to = |endpoint| remote_of(peers, endpoint);
            let (sent, flushed) = self.outbox.flush(socket, to, allowance, &mut self.counters);
            self.pacing.spend(sent);
            match flushed {
                Flushed::Empty => return,
                Flushed::Full => return self.send_retry_at = Some(self.now + RETRY),
                Flushed::Paced => return self.send_retry_at = Some(self.pacing.next()),
                Flushed::Failed(number) => self.send_failed(number),
            }
        }
        self.send_retry_at = Some(self.now + RETRY);
    }

    /// A call did not send the first frame: because an earlier datagram failed, whose report is taken now, or because the frame
    /// cannot be sent as it is.
    #[cold]
    fn send_failed(&mut self, number: i32) {
        if self.handle_reports() {
            return;
        }
        match number {
            // No device on the path can segment. Or the MTU of the path is smaller than that of the interface, and the kernel
            // fragments datagrams but does not segment them.
            libc::EIO | libc::EINVAL | libc::EMSGSIZE if self.outbox.stop_segmentation() => {
                log::warn!("udp link {}: the kernel does not segment datagrams on this path", self.config.link);
            }
            _ => {
                log::debug!(
                    "udp: the kernel refuses a frame, which is dropped: {}",
                    std::io::Error::from_raw_os_error(number)
                );
                self.counters.frames_refused += 1;
                self.outbox.drop_first();
            }
        }
    }
}
