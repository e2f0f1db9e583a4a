//! What a poll does: receive first, push out what waits, and look at epoll now and then.

use std::os::fd::AsRawFd;

use towline_core::rail::{Event, Frame, FrameId, Lost, Peer};
use towline_core::time::Instant;

use crate::rail::{Rail, Stream, WORD_LISTENER, WORD_PENDING, Way, unword};
use crate::stream::inbox::{Filled, Next};
use crate::stream::outbox::Flush;
use crate::system::socket::{BATCH, Interest, Ready};

/// Reads from one connection in one poll at most, before others have their turn.
const READS: usize = 8;

/// What came of looking at one connection.
enum Look {
    Event(Event),
    /// Nothing is left there now.
    Dry,
    /// Something may be left, but not now.
    Later,
}

impl Rail {
    #[inline]
    pub(crate) fn progress(&mut self, now: Instant) -> Option<Event> {
        self.now = now;
        if let Some((_, event)) = self.events.pop_front() {
            return Some(event);
        }
        if self.next_deadline.is_some_and(|deadline| deadline <= now) {
            self.expire();
        }
        if !self.wanted.is_empty() {
            self.start_wanted();
        }
        self.polls += 1;
        if self.polls >= self.epoll_interval() {
            self.look_around();
        }
        if !self.sending.is_empty() {
            self.send_turn = !self.send_turn;
            if self.send_turn || self.ready.is_empty() {
                self.push_out();
            }
        }
        if let Some(event) = self.take_in() {
            return Some(event);
        }
        self.events.pop_front().map(|(_, event)| event)
    }

    #[inline]
    fn epoll_interval(&self) -> u32 {
        if self.pending != 0 {
            1 // connections are being made: nothing else tells of them
        } else if self.up > self.hot.len() {
            self.config.epoll_interval_many_polls
        } else {
            self.config.epoll_interval_polls
        }
    }

    /// Asks epoll what is ready, and deals with it or puts it in line. Returns how much that was.
    pub(crate) fn look_around(&mut self) -> usize {
        self.polls = 0;
        let mut ready = [Ready { word: 0 }; BATCH];
        let count = self.epoll.ready(&mut ready);
        for report in &ready[..count] {
            match unword(report.word) {
                (WORD_LISTENER, _) => self.accept(),
                (WORD_PENDING, slot) => self.step_pending(slot, report.word),
                (_, endpoint) => {
                    if let Some(stream) = self.stream(endpoint)
                        && stream.word == report.word
                    {
                        stream.inbox.more = true;
                        self.mark_ready(endpoint);
                    }
                }
            }
        }
        count
    }

    /// Gives the kernel frames that wait, of one connection after another.
    fn push_out(&mut self) {
        let Some(endpoint) = self.sending.pop_front() else { return };
        let Some(entry) = self.peers.get_mut(endpoint as usize).and_then(Option::as_mut) else { return };
        let Way::Up(stream) = &mut entry.way else { return };
        let socket = stream.socket.as_raw_fd();
        let events = &mut self.events;
        let (mut channel, _, outbox) = stream.parts();
        let flushed = outbox.flush(&mut channel, &mut self.large, &mut self.pipe, &mut self.counters, |cookie| {
            events.push_back((endpoint, Event::Sent(cookie)));
        });
        match flushed {
            Flush::Full => self.sending.push_back(endpoint),
            Flush::Empty => {
                entry.sending = false;
                if stream.watches_writes {
                    stream.watches_writes = false;
                    // If this fails, epoll wakes more often than it must.
                    let _ = self.epoll.change(socket, Interest::Read, stream.word);
                }
            }
            Flush::Broken(_) => {
                // What arrived before is still read; its end tells how the peer went.
                entry.sending = false;
                stream.inbox.more = true;
                self.mark_ready(endpoint);
            }
        }
    }

    /// The next frame or delivery, from connections that are in line, or else that were busy last.
    #[inline]
    fn take_in(&mut self) -> Option<Event> {
        for _ in 0..self.ready.len() {
            let endpoint = self.ready.pop_front()?;
            match self.look(endpoint) {
                Look::Dry => {
                    if let Some(entry) = self.entry(endpoint) {
                        entry.ready = false;
                    }
                }
                Look::Later => self.ready.push_back(endpoint),
                Look::Event(event) => {
                    // Unless it was lost, it may have more.
                    match self.stream(endpoint).map(has_more) {
                        Some(true) => self.ready.push_back(endpoint),
                        Some(false) => self.entry(endpoint).into_iter().for_each(|entry| entry.ready = false),
                        None => {}
                    }
                    return Some(event);
                }
            }
        }
        for at in 0..self.hot.len() {
            let Some(endpoint) = self.hot.get(at).copied() else { break };
            let Some(stream) = self.stream(endpoint) else { continue };
            stream.inbox.more = true;
            match self.look(endpoint) {
                Look::Event(event) => {
                    if self.stream(endpoint).is_some_and(has_more) {
                        self.mark_ready(endpoint);
                    }
                    return Some(event);
                }
                Look::Later => self.mark_ready(endpoint),
                Look::Dry => {}
            }
        }
        None
    }

    /// Looks at one connection: what is staged, then what the socket has.
    #[inline]
    fn look(&mut self, endpoint: u32) -> Look {
        let held = self.held;
        let Some(entry) = self.peers.get_mut(endpoint as usize).and_then(Option::as_mut) else { return Look::Dry };
        let peer = entry.peer;
        let Way::Up(stream) = &mut entry.way else { return Look::Dry };
        let remote = stream.remote;
        let (mut channel, inbox, outbox) = stream.parts();
        for _ in 0..READS {
            if held.is_none() {
                match inbox.next() {
                    Next::Frame(arrived) => {
                        if arrived.len as usize > arrived.head.len() {
                            self.held = Some(endpoint);
                        }
                        let id = FrameId(u64::from(endpoint));
                        let (tag, len) = (arrived.tag, arrived.len);
                        let frame = Frame { id, from: peer, tag, valid: arrived.valid, len, head: arrived.head };
                        self.warm(endpoint);
                        return Look::Event(Event::Frame(frame));
                    }
                    Next::Goodbye => return self.ended(endpoint, peer, Lost::Closed),
                    Next::Garbage => return self.ended(endpoint, peer, Lost::Misbehaved),
                    Next::Missing | Next::Held | Next::Sinking => {}
                }
            } else if inbox.has_staged() && held != Some(endpoint) && !inbox.is_sinking() {
                return Look::Later; // perhaps a frame, and none may be given now
            }
            if !inbox.more {
                // A broken outbox has nothing to wait for once all that arrived is read.
                return if outbox.broken { self.ended(endpoint, peer, Lost::Broken) } else { Look::Dry };
            }
            let filled = inbox.fill(&mut channel);
            self.counters.reads += u64::from(matches!(filled, Filled::Some | Filled::Delivered(_)));
            match filled {
                Filled::Some | Filled::Nothing => {}
                Filled::Delivered(None) => {}
                Filled::Delivered(Some(cookie)) => {
                    self.warm(endpoint);
                    return Look::Event(Event::Delivered(cookie));
                }
                Filled::End => {
                    if channel.is_cut() {
                        self.counters.records_cut += 1;
                        log::warn!("tcp: {peer:?} at {remote}: its stream ends in the middle of a record");
                    }
                    return self.ended(endpoint, peer, Lost::Broken);
                }
                Filled::Forged => {
                    self.counters.records_refused += 1;
                    log::error!(
                        "tcp: {peer:?} at {remote}: what came is forged, or was changed, left out or sent again on the way"
                    );
                    return self.ended(endpoint, peer, Lost::Misbehaved);
                }
                Filled::Broken(number) => {
                    let error = std::io::Error::from_raw_os_error(number);
                    log::warn!("tcp: {peer:?} at {remote}: {error}");
                    let gone = matches!(number, libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH);
                    return self.ended(endpoint, peer, if gone { Lost::TimedOut } else { Lost::Broken });
                }
            }
        }
        Look::Later
    }

    /// A connection is at its end. Of what it reported before, nothing is lost.
    #[cold]
    fn ended(&mut self, endpoint: u32, peer: Peer, why: Lost) -> Look {
        let _ = peer;
        self.lose(endpoint, why);
        match self.events.pop_front() {
            Some((_, event)) => Look::Event(event),
            None => Look::Dry,
        }
    }
}

fn has_more(stream: &mut Stream) -> bool {
    stream.inbox.more || stream.inbox.has_staged()
}
