//! Inbound connections: callers of the listeners, and the slots of pending connections.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use socket2::Socket;
use towline_core::time::Instant;
use towline_net::time::core_duration;

use crate::handshake::failure::Failure;
use crate::handshake::pending::{LocalEnd, Pending, Step};
use crate::rail::connect::{DESCRIPTOR_RETRY, is_out_of_descriptors};
use crate::rail::{Rail, TokenKind, token};
use crate::system::epoll::Interest;
use crate::wire::hello::BadHello;

/// Maximum number of connections that are accepted from a listener at a time.
const ACCEPTS: usize = 16;

impl Rail {
    /// Accepts connections from the listeners, as many as may be in the middle of a hello.
    pub(super) fn accept(&mut self) {
        for at in 0..self.listeners.len() {
            for _ in 0..ACCEPTS {
                if self.inbound >= self.config.pending_inbound && !self.replace_slowest_caller() {
                    return self.set_listening(false);
                }
                match self.listeners[at].accept() {
                    Ok((socket, remote)) => self.accepted(socket, remote.as_socket()),
                    Err(error) if is_out_of_descriptors(&error) => {
                        self.counters.out_of_descriptors += 1;
                        self.pipe.release_descriptors();
                        log::error!(
                            "tcp link {}: cannot accept a connection: {error}; raise the limit (ulimit -n)",
                            self.config.link
                        );
                        let retry = self.now + DESCRIPTOR_RETRY;
                        self.listen_retry_at = Some(retry);
                        self.note_deadline(retry);
                        return self.set_listening(false);
                    }
                    Err(_) => break,
                }
            }
        }
    }

    /// Frees a slot while callers wait and all slots are in use. If the time of a connection is over, closes the one whose time
    /// was over first, and returns `true`. Otherwise sets the deadline at which the next time is over.
    fn replace_slowest_caller(&mut self) -> bool {
        let timeout = core_duration(self.config.hello_timeout);
        let slots = (0..).zip(&self.pendings);
        let unfinished = slots.filter_map(|(slot, pending)| {
            let (since, time) = pending.as_ref()?.may_keep_place(timeout)?;
            Some((since + time, slot))
        });
        let Some((due, slot)) = unfinished.min() else { return false };
        if due > self.now {
            self.replace_caller_at = Some(due);
            self.note_deadline(due);
            return false;
        }
        self.pending_failed(slot, false, &Failure::TimedOut("hello"));
        true
    }

    fn accepted(&mut self, socket: Socket, remote: Option<SocketAddr>) {
        self.counters.accepted += 1;
        let Some(remote) = remote else { return };
        let slot = self.free_pending();
        let token = self.new_token(TokenKind::Pending, slot);
        let pending = Pending::inbound(socket, remote, token, self.now, core_duration(self.config.hello_timeout));
        let deadline = pending.deadline;
        if let Err(error) = pending.socket.set_nonblocking(true).and_then(|()| pending.register(&self.epoll)) {
            log::error!("tcp link {}: cannot accept caller {remote}: {error}", self.config.link);
            return;
        }
        self.note_deadline(deadline);
        self.inbound += 1;
        self.pending += 1;
        self.pendings[slot as usize] = Some(pending);
        self.step_pending(slot, token);
    }

    /// Watches the listeners, or leaves their callers in the kernel's queue.
    pub(super) fn set_listening(&mut self, on: bool) {
        if self.listening == on {
            return;
        }
        self.listening = on;
        if on {
            self.polls = self.config.epoll_interval_polls; // a caller may have waited for long: the next poll looks
        }
        let interest = if on { Interest::Read } else { Interest::Nothing };
        for (at, listener) in self.listeners.iter().enumerate() {
            let token = token(TokenKind::Listener, 0, at as u32);
            if let Err(error) = self.epoll.change(listener.as_raw_fd(), interest, token) {
                log::error!("tcp link {}: cannot watch the listener: {error}", self.config.link);
            }
        }
    }

    /// Continues a handshake whose socket epoll reported.
    pub(super) fn step_pending(&mut self, slot: u32, token: u64) {
        let now = self.now;
        let local = LocalEnd {
            config: &self.config,
            instance: self.instance,
            host: self.host,
            replay_limit: &self.replay_limit,
            now,
        };
        let Some(Some(pending)) = self.pendings.get_mut(slot as usize) else { return };
        if pending.token != token {
            return;
        }
        let proved = pending.awaits_verdict();
        match pending.step(local, &self.epoll) {
            Step::Wait => {}
            Step::Responding => {
                // From now on the peer's engine has to answer, and it may be busy.
                let timeout = core_duration(self.config.connect_timeout);
                pending.deadline = pending.target.map_or(now + timeout, |target| target.deadline);
                let deadline = pending.deadline;
                self.note_deadline(deadline);
            }
            Step::Authenticated { rank, instance } => self.arbitrate(slot, rank, instance),
            Step::Verdict(verdict) => self.on_verdict(slot, verdict),
            Step::Failed(failure) => self.pending_failed(slot, proved, &failure),
        }
    }

    /// A handshake has failed. `proved`: it is an outbound one, and this end had sent its proof.
    pub(super) fn pending_failed(&mut self, slot: u32, proved: bool, failure: &Failure) {
        let Some(pending) = self.take_pending(slot) else { return };
        if let Some(target) = pending.target {
            return self.attempt_failed(target, pending.remote, proved, failure);
        }
        if pending.authenticated().is_some() {
            // The peer has chosen another connection between the two.
            self.counters.duplicates += 1;
            return;
        }
        let counter = match failure {
            Failure::TimedOut(_) => &mut self.counters.refused_slow,
            Failure::System(_) | Failure::Closed => &mut self.counters.refused_silent,
            Failure::Hello(BadHello::Foreign) => &mut self.counters.refused_foreign,
            Failure::Hello(BadHello::Version(_)) => &mut self.counters.refused_version,
            Failure::Hello(BadHello::Malformed) | Failure::Role => &mut self.counters.refused_malformed,
            Failure::Identity(_) | Failure::Link => &mut self.counters.refused_misdirected,
            Failure::Key => &mut self.counters.refused_key,
            Failure::Replayed => &mut self.counters.refused_replayed,
            Failure::Encryption(_) => &mut self.counters.refused_encryption,
        };
        *counter += 1;
        log::info!("tcp link {}: caller {} is refused: {failure}", self.config.link, pending.remote);
    }

    /// A slot for a pending connection.
    pub(super) fn free_pending(&mut self) -> u32 {
        if let Some(at) = self.pendings.iter().position(Option::is_none) {
            return at as u32;
        }
        self.pendings.push(None);
        self.pendings.len() as u32 - 1
    }

    /// Removes a pending connection from its slot.
    pub(super) fn take_pending(&mut self, slot: u32) -> Option<Pending> {
        let pending = self.pendings.get_mut(slot as usize)?.take()?;
        self.pending -= 1;
        if pending.target.is_none() {
            self.inbound -= 1;
            if self.listen_retry_at.is_none() {
                self.set_listening(true);
            }
        }
        Some(pending)
    }

    /// Watches the listeners again if that is due.
    pub(super) fn listen_if_due(&mut self, now: Instant) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.listen_retry_at) {
            self.listen_retry_at = None;
            self.set_listening(true);
        }
        if is_due(self.replace_caller_at) {
            self.replace_caller_at = None;
            if self.listen_retry_at.is_none() {
                self.set_listening(true);
            }
        }
    }
}
