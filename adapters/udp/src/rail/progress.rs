//! What a poll does: call who is wanted, push out what waits, take in what came.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use socket2::SockAddr;
use towline_core::rail::{Event, Lost};
use towline_core::time::{Duration, Instant};

use crate::datagram::{PREFIX, SEALED, What, inner, sealed_start, start};
use crate::hello::Hello;
use crate::queues::outbox::Flushed;
use crate::rail::Rail;
use crate::rail::goodbye::LastWord;
use crate::rail::peer::{Call, Way};

/// Time between the first two hellos; it doubles from one to the next.
pub(crate) const FIRST_INTERVAL: Duration = Duration::from_millis(1);
/// Longest time between two hellos about a session beside the one that there is.
const LONGEST_INTERVAL: Duration = Duration::from_millis(1000);
/// After this time what the socket did not take is tried again.
const AGAIN: Duration = Duration::from_nanos(200_000);

impl Rail {
    #[inline]
    pub(crate) fn progress(&mut self, now: Instant) -> Option<Event> {
        self.now = now;
        self.at_once = 0;
        if let Some((_, event)) = self.events.pop_front() {
            return Some(event);
        }
        if !self.wanted.is_empty() {
            self.call_wanted();
        }
        if self.next_hello.is_some_and(|next| next <= now) {
            self.call_again();
        }
        if self.next_question.is_some_and(|next| next <= now) {
            self.ask_doubted();
        }
        if !self.outbox.is_empty() {
            self.push_out();
        }
        self.take_in()
    }

    /// Begins what `reserve` asked for.
    #[cold]
    fn call_wanted(&mut self) {
        let deadline = self.now + span(self.config.connect_timeout);
        while let Some(endpoint) = self.wanted.pop() {
            if let Some(known) = self.peers.get_mut(endpoint)
                && known.way == Way::Unused
            {
                known.way = Way::Calling(Call { said: 0, next: self.now, deadline });
                self.calling.push(endpoint);
            }
        }
        self.call_again();
    }

    /// Says hello to all whose time has come.
    #[cold]
    fn call_again(&mut self) {
        self.next_hello = None;
        self.call_strangers();
        self.renew_again();
    }

    /// From this time on there is a hello to be said to a peer that there is a session with.
    #[cold]
    pub(crate) fn say_again(&mut self, endpoint: u32, next: Instant) {
        let Some(known) = self.peers.get_mut(endpoint) else { return };
        known.again = Some(Call { said: 0, next, deadline: next });
        if !self.renewing.contains(&endpoint) {
            self.renewing.push(endpoint);
        }
        self.next_hello = Some(self.next_hello.map_or(next, |other| other.min(next)));
    }

    /// Says hello to all that a session is made with beside the one that there is. That one goes on, so there is no deadline:
    /// whether the peer is there the link knows.
    fn renew_again(&mut self) {
        let (now, longest) = (self.now, LONGEST_INTERVAL.as_nanos());
        let mut at = 0;
        while let Some(endpoint) = self.renewing.get(at).copied() {
            let known = self.peers.get_mut(endpoint).filter(|it| it.way == Way::Up && it.meeting.is_unsettled());
            let Some((known, mut call)) = known.and_then(|known| known.again.map(|call| (known, call))) else {
                self.renewing.swap_remove(at);
                continue;
            };
            if call.next <= now {
                let interval = (FIRST_INTERVAL.as_nanos() << call.said.min(20)).min(longest);
                call = Call { said: call.said.saturating_add(1), next: now + Duration::from_nanos(interval), ..call };
                known.again = Some(call);
                let hello = known.meeting.call(&self.config.key);
                if let Some(to) = known.remote.as_ref().and_then(SockAddr::as_socket) {
                    self.say(&hello, to);
                }
            }
            self.next_hello = Some(self.next_hello.map_or(call.next, |other| other.min(call.next)));
            at += 1;
        }
    }

    /// Says hello to all that there is no session with, each time at the next of their addresses.
    fn call_strangers(&mut self) {
        let (now, longest) = (self.now, span(self.config.hello_interval).as_nanos());
        let mut at = 0;
        while let Some(endpoint) = self.calling.get(at).copied() {
            let Some(known) = self.peers.get_mut(endpoint) else { break };
            let Way::Calling(call) = known.way else { break };
            if call.deadline <= now {
                self.lose(endpoint, Lost::TimedOut); // and leaves the list
                continue;
            }
            let mut next = call.next;
            if next <= now {
                let turn = call.said as usize % known.candidates.len().max(1);
                let interval = (FIRST_INTERVAL.as_nanos() << call.said.min(20)).min(longest);
                next = now + Duration::from_nanos(interval);
                known.way = Way::Calling(Call { said: call.said.saturating_add(1), next, ..call });
                let hello = known.meeting.call(&self.config.key);
                if let Some(to) = known.candidates.get(turn).copied() {
                    self.say(&hello, to);
                }
            }
            let next = next.min(call.deadline);
            self.next_hello = Some(self.next_hello.map_or(next, |other| other.min(next)));
            at += 1;
        }
    }

    /// Sends a hello. If it is lost, another one follows.
    pub(crate) fn say(&mut self, hello: &Hello, to: SocketAddr) {
        let bytes = hello.encode(&self.config.key);
        self.counters.hellos_sent += 1;
        self.send_alone(&bytes, &to.into());
    }

    /// Sends a datagram past those that wait.
    pub(crate) fn send_alone(&mut self, bytes: &[u8], to: &SockAddr) {
        // The first try may come back with the failure of an earlier datagram.
        for _ in 0..2 {
            match self.socket.send_to(bytes, to) {
                Err(why) if why.kind() != std::io::ErrorKind::WouldBlock => drop(self.hear_reports()),
                _ => return,
            }
        }
    }

    /// Tells a peer that no more will come. What was said.
    pub(crate) fn say_bye(&mut self, endpoint: u32) -> Option<LastWord> {
        let known = self.peers.get_mut(endpoint).filter(|known| known.way == Way::Up)?;
        let (remote, session) = (known.remote.clone()?, known.meeting.session_mut()?);
        let rank = known.rank;
        let mut bytes = [0; PREFIX + SEALED];
        let mut len = PREFIX;
        if let Some(sealed) = &mut session.sealed {
            bytes[..PREFIX].copy_from_slice(&sealed_start(session.index, sealed.next));
            len += sealed.cipher.seal_as(sealed.next, &inner(What::Bye), &mut bytes[PREFIX..]);
            sealed.next += 1;
        } else {
            let start = start(What::Bye, session.index);
            bytes[..start.len()].copy_from_slice(&start);
            bytes[start.len()..PREFIX].copy_from_slice(&session.out.proof(&start, &[]));
        }
        self.send_alone(&bytes[..len], &remote);
        Some(LastWord { rank, remote, bytes, len, said: self.now })
    }

    /// Gives the kernel what waits.
    #[inline]
    pub(crate) fn push_out(&mut self) {
        self.send_again = None;
        for _ in 0..4 {
            let allowance = self.pace.allowance(self.now);
            let (socket, peers) = (self.socket.as_raw_fd(), &self.peers);
            let to = |endpoint| peers.remote(endpoint);
            let (left, flushed) = self.outbox.flush(socket, to, allowance, &mut self.counters);
            self.pace.spend(left);
            match flushed {
                Flushed::Empty => return,
                Flushed::Full => return self.send_again = Some(self.now + AGAIN),
                Flushed::Paced => return self.send_again = Some(self.pace.next()),
                Flushed::Failed(number) => self.send_failed(number),
            }
        }
        self.send_again = Some(self.now + AGAIN);
    }

    /// A call did not take the first frame: because an earlier one failed, which is heard of now, or because it cannot go as it
    /// is.
    #[cold]
    fn send_failed(&mut self, number: i32) {
        if self.hear_reports() {
            return;
        }
        match number {
            // No device on the way can cut; or the path is narrower than the interface, and the kernel makes fragments of what it
            // need not cut.
            libc::EIO | libc::EINVAL | libc::EMSGSIZE if self.outbox.cut_no_more() => {
                log::warn!("udp link {}: datagrams are not cut by the kernel here", self.config.link);
            }
            _ => {
                log::debug!("udp: a frame is refused: {}", std::io::Error::from_raw_os_error(number));
                self.counters.frames_refused += 1;
                self.outbox.drop_first();
            }
        }
    }
}

fn span(duration: std::time::Duration) -> Duration {
    Duration::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
