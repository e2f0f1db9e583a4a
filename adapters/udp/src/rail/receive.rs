//! Received datagrams: the check of their sender, and their handling.

use std::os::fd::AsRawFd;

use towline_core::rail::{Event, Frame, FrameId, HEAD, Lost, Peer};

use crate::queues::inbox::{Arrived, Received};
use crate::rail::Rail;
use crate::rail::peer::ConnState;
use crate::session::state::Session;
use crate::wire::datagram::{Content, Datagram, INNER, PREFIX, SEALED, START, read, read_inner};
use crate::wire::format::BadDatagram;
use crate::wire::hello::Hello;

/// Maximum number of datagrams that one poll handles, if none of them is a frame.
const DATAGRAMS: usize = 64;
/// Number of polls without a datagram after which only some polls read the socket.
const AWAKE: u32 = 64;

/// The result of handling a datagram.
enum Handled {
    Event(Event),
    /// It was handled or dropped.
    Next,
    /// It waits until the reader releases a frame.
    Wait,
}

impl Rail {
    /// The next event, from datagrams that were received, or else from the socket.
    #[inline]
    pub(super) fn receive_next(&mut self) -> Option<Event> {
        for _ in 0..DATAGRAMS {
            let Some(arrived) = self.inbox.front() else {
                if self.skips_socket() || !self.receive() {
                    break;
                }
                continue;
            };
            match self.handle(arrived) {
                Handled::Event(event) => {
                    self.inbox.pop();
                    return Some(event);
                }
                Handled::Next => self.inbox.pop(),
                Handled::Wait => break,
            }
        }
        self.events.pop_front().map(|(_, event)| event)
    }

    /// Whether this poll does not read the socket, because nothing has arrived for a while.
    #[inline]
    fn skips_socket(&mut self) -> bool {
        self.idle = self.idle.wrapping_add(1).max(1);
        self.idle > AWAKE && !self.idle.is_multiple_of(self.config.idle_interval_polls)
    }

    /// Reads the socket. Returns whether there may be datagrams to handle.
    #[inline]
    fn receive(&mut self) -> bool {
        match self.inbox.receive(self.socket.as_raw_fd()) {
            Received::Some { truncated } => {
                self.idle = 0;
                self.counters.receives += 1;
                self.counters.dropped_malformed += truncated as u64;
                if !self.closing.is_empty() {
                    self.closing_receives = self.closing_receives.saturating_sub(1);
                    if self.closing_receives == 0 {
                        self.lose_closing();
                    }
                }
                true
            }
            Received::WouldBlock => {
                self.lose_closing();
                false
            }
            Received::NoBuffer => false,
            Received::Failed(_) => {
                // The error of a datagram that was sent. Received datagrams are still in the socket.
                self.handle_reports();
                true
            }
        }
    }

    /// All datagrams that peers with a closed port had sent are handled: loses these peers.
    #[inline]
    fn lose_closing(&mut self) {
        while let Some(endpoint) = self.closing.pop() {
            // If an authenticated datagram has arrived meanwhile, the peer is not closing any more.
            if self.peers.get(endpoint).is_some_and(|entry| entry.state == ConnState::Closing) {
                self.lose(endpoint, Lost::Broken);
            }
        }
    }

    /// Reads the socket once more before a sleep. Returns whether nothing has arrived.
    pub(super) fn is_drained(&mut self) -> bool {
        self.idle = 0;
        self.inbox.front().is_none() && !self.receive() && self.events.is_empty()
    }

    #[inline]
    fn handle(&mut self, arrived: Arrived) -> Handled {
        let bytes = self.inbox.bytes(arrived);
        let (index, proof, content, frame) = match read(bytes) {
            Ok(Datagram::Plain { index, proof, content, frame }) => (index, proof, content, frame),
            Ok(Datagram::Sealed { index, number, .. }) => return self.handle_sealed(arrived, index, number),
            Ok(Datagram::Hello(hello)) => {
                let hello = Hello::decode(hello, &self.config.key);
                self.on_hello(hello, arrived);
                return Handled::Next;
            }
            Err(why) => {
                self.drop_bad(why);
                return Handled::Next;
            }
        };
        if frame.len() > HEAD && !self.inbox.can_hold() {
            return Handled::Wait;
        }
        let Some(entry) = self.peers.get_mut(index) else { return self.drop_unauthenticated(index) };
        if !matches!(entry.state, ConnState::Established | ConnState::Closing) {
            return self.drop_unauthenticated(index);
        }
        let Some(start) = bytes.first_chunk::<START>() else { return Handled::Next };
        let is_of = |session: &Session| session.encryption.is_none() && session.inbound.accepts(start, frame, &proof);
        let slot = entry.handshake.sessions_mut().find_map(|(slot, session)| is_of(session).then_some(slot));
        let Some(slot) = slot else { return self.drop_unauthenticated(index) };
        entry.handshake.received_under(slot);
        entry.authenticated();
        let Content::Frame { tag, .. } = content else {
            self.lose(index, Lost::Closed);
            return Handled::Next;
        };
        let (from, len, head) = (entry.peer, frame.len(), head_of(frame));
        let held = if len > HEAD { self.inbox.hold(arrived, PREFIX, len, index) } else { Some(FrameId(u64::MAX)) };
        let Some(id) = held else { return Handled::Wait };
        self.frame(id, from, tag, len, head)
    }

    /// Handles an encrypted datagram.
    fn handle_sealed(&mut self, arrived: Arrived, index: u32, number: u64) -> Handled {
        let bytes = self.inbox.bytes(arrived).get(PREFIX..).unwrap_or_default();
        if bytes.len() > HEAD + SEALED && !self.inbox.can_hold() {
            return Handled::Wait;
        }
        let Some(entry) = self.peers.get_mut(index) else { return self.drop_unauthenticated(index) };
        if !matches!(entry.state, ConnState::Established | ConnState::Closing) {
            return self.drop_unauthenticated(index);
        }
        let scratch = &mut self.scratch;
        let opened = entry.handshake.sessions_mut().find_map(|(slot, session)| {
            let encryption = session.encryption.as_mut()?;
            let count = encryption.cipher.open_as(number, bytes, scratch).ok()?;
            let is_new = encryption.received.is_new(number);
            encryption.received.accept(number);
            Some((slot, count, is_new))
        });
        let Some((slot, count, is_new)) = opened else { return self.drop_unauthenticated(index) };
        if !is_new {
            self.counters.dropped_replayed += 1;
            return Handled::Next;
        }
        entry.handshake.received_under(slot);
        entry.authenticated();
        let plain = self.scratch.get(..count).unwrap_or_default();
        let (tag, frame) = match read_inner(plain) {
            Ok((Content::Frame { tag, .. }, frame)) => (tag, frame),
            Ok((Content::Goodbye, _)) => {
                self.lose(index, Lost::Closed);
                return Handled::Next;
            }
            Err(why) => {
                self.drop_bad(why);
                return Handled::Next;
            }
        };
        let (from, len, head) = (entry.peer, frame.len(), head_of(frame));
        let mut id = Some(FrameId(u64::MAX));
        if len > HEAD {
            self.inbox.overwrite(arrived, PREFIX, plain);
            id = self.inbox.hold(arrived, PREFIX + INNER, len, index);
        }
        let Some(id) = id else { return Handled::Next }; // cannot happen, as `can_hold` was true
        self.frame(id, from, tag, len, head)
    }

    /// The event of a frame.
    #[inline]
    fn frame(&mut self, id: FrameId, from: Peer, tag: u8, len: usize, head: [u8; HEAD]) -> Handled {
        self.counters.frames += 1;
        let valid = len.min(HEAD) as u8;
        Handled::Event(Event::Frame(Frame { id, from, tag, valid, len: len as u32, head }))
    }

    #[cold]
    fn drop_unauthenticated(&mut self, index: u32) -> Handled {
        self.counters.dropped_unauthenticated += 1;
        self.repeat_goodbye(index);
        Handled::Next
    }

    #[cold]
    pub(super) fn drop_bad(&mut self, why: BadDatagram) {
        let counter = match why {
            BadDatagram::Foreign => &mut self.counters.dropped_foreign,
            BadDatagram::Version(_) => &mut self.counters.dropped_version,
            BadDatagram::Malformed => &mut self.counters.dropped_malformed,
        };
        *counter += 1;
    }
}

/// The first bytes of a frame.
#[inline]
fn head_of(frame: &[u8]) -> [u8; HEAD] {
    let valid = frame.len().min(HEAD);
    let mut head = [0; HEAD];
    head[..valid].copy_from_slice(&frame[..valid]);
    head
}
