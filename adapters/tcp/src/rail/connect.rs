//! Outbound connections: attempts at the addresses of a peer, in order, on first use.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, Socket, Type};
use towline_core::rail::Lost;
use towline_core::time::Duration;
use towline_crypt::Cipher;
use towline_net::time::core_duration;

use crate::handshake::failure::Failure;
use crate::handshake::pending::{Pending, Target};
use crate::rail::peer::{Attempts, ConnState};
use crate::rail::{Rail, TokenKind};
use crate::stream::connection::Connection;
use crate::stream::inbox::Inbox;
use crate::stream::outbox::{MAX_IN_PLACE, Outbox};
use crate::stream::records::RecordLayer;
use crate::system::epoll::Interest;
use crate::system::options;

/// Attempts at one address whose owner accepts the connection but closes it during the hello.
const TRIES: u32 = 4;
/// Time until the next attempt after the process ran out of descriptors.
pub(super) const DESCRIPTOR_RETRY: Duration = Duration::from_millis(100);

impl Rail {
    /// Begins the connections that `reserve` requested.
    #[cold]
    pub(super) fn connect_requested(&mut self) {
        while let Some(endpoint) = self.requested.pop_front() {
            let deadline = self.now + core_duration(self.config.connect_timeout);
            let Some(entry) = self.peers.get_mut(endpoint) else { continue };
            if matches!(entry.state, ConnState::Requested) {
                let attempts = Attempts { pending: None, candidate: 0, tries: 0, timed_out: false, deadline };
                entry.state = ConnState::Connecting(attempts);
                self.attempt(endpoint);
            }
        }
    }

    /// Begins an attempt at the current candidate of a peer, or at the next ones if the attempt cannot be begun.
    pub(super) fn attempt(&mut self, endpoint: u32) {
        loop {
            let address_deadline = self.now + core_duration(self.config.address_timeout);
            let Some(entry) = self.peers.get(endpoint) else { return };
            let ConnState::Connecting(attempts) = entry.state else { return };
            let deadline = attempts.deadline;
            let target = Target { endpoint, rank: entry.rank, instance: entry.instance, host: entry.host, deadline };
            let Some(remote) = entry.candidates.get(attempts.candidate).copied() else {
                return self.lose(endpoint, if attempts.timed_out { Lost::TimedOut } else { Lost::Broken });
            };
            self.counters.attempts += 1;
            let slot = self.free_pending();
            let token = self.new_token(TokenKind::Pending, slot);
            let deadline = address_deadline.min(deadline);
            let begun = connect_to(&self.config, remote).and_then(|socket| {
                let pending = Pending::outbound(socket, remote, target, token, deadline);
                pending.register(&self.epoll)?;
                Ok(pending)
            });
            match begun {
                Ok(pending) => {
                    self.note_deadline(deadline);
                    self.pending += 1;
                    self.pendings[slot as usize] = Some(pending);
                    if let Some(entry) = self.peers.get_mut(endpoint) {
                        entry.state = ConnState::Connecting(Attempts { pending: Some(slot), ..attempts });
                    }
                    return;
                }
                Err(error) if is_out_of_descriptors(&error) => return self.wait_for_descriptor(target, &error),
                Err(error) => {
                    self.counters.attempts_failed += 1;
                    log::warn!("tcp link {}: rank {} at {remote}: {error}", self.config.link, target.rank);
                    if let Some(entry) = self.peers.get_mut(endpoint) {
                        let candidate = attempts.candidate + 1;
                        entry.state = ConnState::Connecting(Attempts { candidate, tries: 0, ..attempts });
                    }
                }
            }
        }
    }

    /// The process has no descriptor for an attempt. The attempt is made again at intervals, until the peer's deadline.
    #[cold]
    fn wait_for_descriptor(&mut self, target: Target, error: &io::Error) {
        let (link, rank) = (self.config.link, target.rank);
        self.counters.out_of_descriptors += 1;
        self.pipe.release_descriptors();
        if self.now >= target.deadline {
            log::error!("tcp link {link}: cannot connect to rank {rank}: {error}; raise the limit (ulimit -n)");
            return self.lose(target.endpoint, Lost::TimedOut);
        }
        if !self.awaiting_descriptor.contains(&target.endpoint) {
            log::warn!("tcp link {link}: the connection to rank {rank} waits: {error}; raise the limit (ulimit -n)");
            self.awaiting_descriptor.push(target.endpoint);
        }
        let retry = (self.now + DESCRIPTOR_RETRY).min(target.deadline);
        self.descriptor_retry_at = Some(self.descriptor_retry_at.map_or(retry, |other| other.min(retry)));
        self.note_deadline(retry);
    }

    /// Makes the attempts again that had no descriptor. While there is still none, all of them wait again.
    pub(super) fn retry_without_descriptor(&mut self) {
        self.descriptor_retry_at = None;
        for _ in 0..self.awaiting_descriptor.len() {
            let Some(endpoint) = self.awaiting_descriptor.first().copied() else { return };
            self.attempt(endpoint);
            // If it does not wait again, the attempt was begun, or the peer was lost.
            let waits = self.descriptor_retry_at.is_some() && self.is_without_attempt(endpoint);
            self.awaiting_descriptor.retain(|it| *it != endpoint);
            if waits {
                self.awaiting_descriptor.push(endpoint);
            }
        }
    }

    /// Whether a connection is being made to a peer, but this rank has no attempt of its own.
    pub(super) fn is_without_attempt(&self, endpoint: u32) -> bool {
        let state = self.peers.get(endpoint).map(|entry| &entry.state);
        matches!(state, Some(ConnState::Connecting(Attempts { pending: None, .. })))
    }

    /// An attempt of this rank has failed: accepts a waiting connection of the peer, or begins the next attempt. `proved`: this
    /// end had sent its proof.
    pub(super) fn attempt_failed(&mut self, target: Target, remote: SocketAddr, proved: bool, failure: &Failure) {
        self.counters.attempts_failed += 1;
        let link = self.config.link;
        if matches!(failure, Failure::Encryption(_)) {
            self.counters.refused_encryption += 1;
            log::error!("tcp link {link}: {remote}: {failure}");
        } else {
            log::warn!("tcp link {link}: rank {} at {remote}: {failure}", target.rank);
        }
        let now = self.now;
        let Some(entry) = self.peers.get_mut(target.endpoint) else { return };
        let ConnState::Connecting(mut attempts) = entry.state else { return };
        if now >= attempts.deadline {
            log::error!("tcp link {link}: rank {} did not answer in time at any address", target.rank);
            return self.lose(target.endpoint, Lost::TimedOut);
        }
        attempts.pending = None;
        attempts.timed_out = matches!(failure, Failure::TimedOut(_));
        attempts.tries += 1;
        // A peer that closes during the hello may have been too busy to send it in time, or may have too many callers.
        if !matches!(failure, Failure::Closed) || attempts.tries >= TRIES {
            attempts.candidate += 1;
            attempts.tries = 0;
        }
        entry.state = ConnState::Connecting(attempts);
        // Once this rank has sent its proof, the peer may have accepted that connection, and then it closes its own.
        if !proved && let Some(waiting) = self.waiting_from(target.rank) {
            return self.accept_waiting(target.endpoint, waiting);
        }
        self.attempt(target.endpoint);
    }

    /// Turns a connection whose handshake is done into one that carries frames. Allocates all the memory that its frames will
    /// need.
    pub(super) fn establish(&mut self, endpoint: u32, socket: Socket, remote: SocketAddr, cipher: Option<Cipher>) {
        let token = self.new_token(TokenKind::Connection, endpoint);
        if let Err(error) = self.epoll.change(socket.as_raw_fd(), Interest::Read, token) {
            log::error!("tcp: cannot watch the connection to {remote}: {error}");
            return self.lose(endpoint, Lost::Broken);
        }
        if let Err(error) = options::set_up(&self.config, &socket) {
            log::warn!(
                "tcp: {remote}: the system refuses a socket option, so the connection is used without it: {error}"
            );
        }
        let connection = Connection {
            socket,
            remote,
            token,
            inbox: Inbox::new(self.config.receive_staging_bytes, self.config.max_send_size_bytes),
            outbox: Outbox::new(&self.config),
            records: cipher.map(RecordLayer::new),
            watches_writes: false,
        };
        let Some(entry) = self.peers.get_mut(endpoint) else { return };
        entry.state = ConnState::Connected(Box::new(connection));
        let rank = entry.rank;
        self.connected += 1;
        self.schedule_host_check();
        self.counters.established += 1;
        // Room for the most events of one connection, for each connection.
        self.events.reserve(self.connected * (MAX_IN_PLACE + 4));
        log::debug!("tcp link {}: rank {rank} is connected at {remote}", self.config.link);
        self.mark_recent(endpoint);
        self.mark_ready(endpoint);
    }
}

/// Begins a TCP connection.
fn connect_to(config: &crate::Config, remote: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(remote), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    options::set_buffers(config, &socket)?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&remote.into()) {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Whether the process, or the system, has no descriptor or no memory left for a socket.
pub(super) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}
