//! What comes in: who says it, and what becomes of it.

use std::os::fd::AsRawFd;

use socket2::SockAddr;
use towline_core::rail::{Event, Frame, FrameId, HEAD, Lost};

use crate::datagram::{BadDatagram, Datagram, INNER, PREFIX, SEALED, START, What, read, read_inner};
use crate::hello::{BadHello, Hello};
use crate::queues::inbox::{Arrived, Received};
use crate::rail::peer::Way;
use crate::rail::progress::FIRST_INTERVAL;
use crate::rail::{Rail, draw};
use crate::session::handshake::Session;

/// Datagrams that one poll looks at, if none of them is a frame.
const LOOKS: usize = 64;
/// Polls without anything after which not each of them looks at the socket.
const AWAKE: u32 = 64;
/// Messages that may come between a report that a port is closed and the loss of who was there. What it had sent is waiting in
/// the socket when the report comes.
pub(crate) const PATIENCE: u32 = 1024;

/// What became of a datagram.
enum Look {
    Event(Event),
    /// It is done with.
    Next,
    /// It has to wait until the reader gives a frame back.
    Wait,
}

impl Rail {
    /// The next event, from what is here or else from the socket.
    #[inline]
    pub(crate) fn take_in(&mut self) -> Option<Event> {
        for _ in 0..LOOKS {
            let Some(arrived) = self.inbox.front() else {
                if self.is_to_skip() || !self.receive() {
                    break;
                }
                continue;
            };
            match self.look(arrived) {
                Look::Event(event) => {
                    self.inbox.pass();
                    return Some(event);
                }
                Look::Next => self.inbox.pass(),
                Look::Wait => break,
            }
        }
        self.events.pop_front().map(|(_, event)| event)
    }

    /// Whether the socket is not looked at this time, because nothing came for a while.
    #[inline]
    fn is_to_skip(&mut self) -> bool {
        self.idle = self.idle.wrapping_add(1).max(1);
        self.idle > AWAKE && !self.idle.is_multiple_of(self.config.idle_interval_polls)
    }

    /// Asks the socket; whether there is something to look at.
    #[inline]
    fn receive(&mut self) -> bool {
        match self.inbox.receive(self.socket.as_raw_fd()) {
            Received::Some { short } => {
                self.idle = 0;
                self.counters.receives += 1;
                self.counters.dropped_malformed += short as u64;
                if !self.closing.is_empty() {
                    self.closing_patience = self.closing_patience.saturating_sub(1);
                    if self.closing_patience == 0 {
                        self.lose_closed();
                    }
                }
                true
            }
            Received::Nothing => {
                self.lose_closed();
                false
            }
            Received::NoRoom => false,
            Received::Failed(_) => {
                // The failure of a datagram that was sent; what came is still there.
                self.hear_reports();
                true
            }
        }
    }

    /// All that peers with a closed port had sent is looked at.
    #[inline]
    fn lose_closed(&mut self) {
        while let Some(endpoint) = self.closing.pop() {
            // Unless something proved came meanwhile.
            if self.peers.get(endpoint).is_some_and(|known| known.way == Way::Closing) {
                self.lose(endpoint, Lost::Broken);
            }
        }
    }

    /// Asks the socket once more before a sleep; whether there was nothing.
    pub(crate) fn look_for_more(&mut self) -> bool {
        self.idle = 0;
        self.inbox.front().is_none() && !self.receive() && self.events.is_empty()
    }

    #[inline]
    fn look(&mut self, arrived: Arrived) -> Look {
        let bytes = self.inbox.bytes(arrived);
        let (index, proof, what, frame) = match read(bytes) {
            Ok(Datagram::Marked { index, proof, what, frame }) => (index, proof, what, frame),
            Ok(Datagram::Sealed { index, number, .. }) => return self.open(arrived, index, number),
            Ok(Datagram::Hello(hello)) => {
                let hello = Hello::decode(hello, &self.config.key);
                self.hear(hello, arrived);
                return Look::Next;
            }
            Err(why) => {
                self.drop_bad(why);
                return Look::Next;
            }
        };
        if frame.len() > HEAD && !self.inbox.can_hold() {
            return Look::Wait;
        }
        let Some(known) = self.peers.get_mut(index) else { return self.drop_unproved(index) };
        if !matches!(known.way, Way::Up | Way::Closing) {
            return self.drop_unproved(index);
        }
        let Some(start) = bytes.first_chunk::<START>() else { return Look::Next };
        let is_of = |session: &Session| session.sealed.is_none() && session.into.accepts(start, frame, &proof);
        let which = known.meeting.each_mut().find_map(|(which, session)| is_of(session).then_some(which));
        let Some(which) = which else { return self.drop_unproved(index) };
        known.meeting.took(which);
        known.proved();
        let What::Frame { tag, .. } = what else {
            self.lose(index, Lost::Closed);
            return Look::Next;
        };
        let (from, len) = (known.peer, frame.len());
        let valid = len.min(HEAD);
        let mut head = [0; HEAD];
        head[..valid].copy_from_slice(&frame[..valid]);
        let held = if len > HEAD { self.inbox.hold(arrived, PREFIX, len, index) } else { Some(FrameId(u64::MAX)) };
        let Some(id) = held else { return Look::Wait };
        self.counters.frames += 1;
        Look::Event(Event::Frame(Frame { id, from, tag, valid: valid as u8, len: len as u32, head }))
    }

    /// Opens what only this end can read.
    fn open(&mut self, arrived: Arrived, index: u32, number: u64) -> Look {
        let bytes = self.inbox.bytes(arrived).get(PREFIX..).unwrap_or_default();
        if bytes.len() > HEAD + SEALED && !self.inbox.can_hold() {
            return Look::Wait;
        }
        let Some(known) = self.peers.get_mut(index) else { return self.drop_unproved(index) };
        if !matches!(known.way, Way::Up | Way::Closing) {
            return self.drop_unproved(index);
        }
        let scratch = &mut self.scratch;
        let opened = known.meeting.each_mut().find_map(|(which, session)| {
            let sealed = session.sealed.as_mut()?;
            let count = sealed.cipher.open_as(number, bytes, scratch).ok()?;
            let is_new = sealed.came.is_new(number);
            sealed.came.take(number);
            Some((which, count, is_new))
        });
        // Only who has the keys can say something again.
        let Some((which, count, is_new)) = opened else { return self.drop_unproved(index) };
        if !is_new {
            self.counters.dropped_again += 1;
            return Look::Next;
        }
        known.meeting.took(which);
        known.proved();
        let plain = self.scratch.get(..count).unwrap_or_default();
        let (tag, frame) = match read_inner(plain) {
            Ok((What::Frame { tag, .. }, frame)) => (tag, frame),
            Ok((What::Bye, _)) => {
                self.lose(index, Lost::Closed);
                return Look::Next;
            }
            Err(why) => {
                self.drop_bad(why);
                return Look::Next;
            }
        };
        let (from, len) = (known.peer, frame.len());
        let valid = len.min(HEAD);
        let mut head = [0; HEAD];
        head[..valid].copy_from_slice(&frame[..valid]);
        let mut id = Some(FrameId(u64::MAX));
        if len > HEAD {
            self.inbox.put(arrived, PREFIX, plain);
            id = self.inbox.hold(arrived, PREFIX + INNER, len, index);
        }
        let Some(id) = id else { return Look::Next }; // not to be: it was asked before
        self.counters.frames += 1;
        Look::Event(Event::Frame(Frame { id, from, tag, valid: valid as u8, len: len as u32, head }))
    }

    #[cold]
    fn drop_unproved(&mut self, index: u32) -> Look {
        self.counters.dropped_unproved += 1;
        self.say_last_word(index);
        Look::Next
    }

    #[cold]
    fn drop_bad(&mut self, why: BadDatagram) {
        let counter = match why {
            BadDatagram::Foreign => &mut self.counters.dropped_foreign,
            BadDatagram::Version(_) => &mut self.counters.dropped_version,
            BadDatagram::Malformed => &mut self.counters.dropped_malformed,
        };
        *counter += 1;
    }

    /// Somebody says who he is.
    #[cold]
    fn hear(&mut self, hello: Result<Hello, BadHello>, arrived: Arrived) {
        let hello = match hello {
            Ok(hello) => hello,
            Err(BadHello::Datagram(why)) => return self.drop_bad(why),
            Err(BadHello::Key) => return self.counters.dropped_key += 1,
        };
        let mut fresh = [0; 16];
        let known = self.peers.of_rank(hello.from).and_then(|endpoint| Some((endpoint, self.peers.get_mut(endpoint)?)));
        let (Some((endpoint, known)), Some(from), Ok(())) = (known, self.inbox.sender(arrived), draw(&mut fresh))
        else {
            return self.counters.dropped_stray += 1; // perhaps to be added soon: it says hello again
        };
        if matches!(known.way, Way::Gone | Way::Closing) || !known.meeting.concerns(&hello) {
            return self.counters.dropped_stray += 1;
        }
        let own = *known.meeting.base();
        if own.encrypted != hello.encrypted {
            self.counters.refused_encryption += 1;
            let does = |encrypted: bool| if encrypted { "encrypts" } else { "does not encrypt" };
            log::error!(
                "udp link {}: rank {} {} its datagrams (its setting is `{}`), this rank {} them (its setting is `{}`): set \
                 TOWLINE_ENCRYPT to the same for all ranks",
                self.config.link,
                hello.from,
                does(hello.encrypted),
                hello.encrypt,
                does(own.encrypted),
                own.encrypt
            );
            let answer = known.meeting.call(&self.config.key);
            self.say(&answer, from); // so that it can say so as well
            return self.lose(endpoint, Lost::Broken);
        }
        let is_up = known.way == Way::Up;
        // Whoever else says or repeats something is not to keep this end busy, nor make it send much.
        let is_itself = known.candidates.contains(&from)
            || known.remote.as_ref().and_then(SockAddr::as_socket).is_some_and(|remote| remote == from);
        if is_up && !is_itself {
            if known.answered.is_some_and(|last| self.now < last + FIRST_INTERVAL) {
                return self.counters.dropped_stray += 1;
            }
            known.answered = Some(self.now);
        }
        let heard = known.meeting.hear(&hello, fresh, &self.config.key);
        // With a session, the address is that of the card or stays: who passes a proof on must not get in the way by it.
        if heard.established && (!is_up || known.candidates.contains(&from)) {
            log::debug!("udp link {}: rank {} is up at {from}", self.config.link, known.rank);
            known.remote = Some(from.into());
        }
        let waits = known.meeting.is_unsettled();
        known.way = if heard.established { Way::Up } else { known.way };
        self.counters.established += u64::from(heard.established);
        if heard.established && !is_up {
            self.leave_lists(endpoint);
        } else if heard.established && waits {
            self.say_again(endpoint, self.now + FIRST_INTERVAL);
        }
        if let Some(answer) = heard.answer {
            self.say(&answer, from);
        }
    }
}
