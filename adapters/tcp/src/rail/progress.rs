//! Polling: reads from connections, sends frames that wait, and calls epoll at intervals.

use std::os::fd::AsRawFd;

use towline_core::rail::{Event, Frame, FrameId, Lost};
use towline_core::time::Instant;

use crate::rail::peer::ConnState;
use crate::rail::{Rail, TokenKind, read_token};
use crate::stream::connection::Connection;
use crate::stream::inbox::{Next, ReadResult};
use crate::stream::outbox::Flush;
use crate::system::epoll::{BATCH, Interest, Ready};

/// Maximum number of reads from one connection in one poll, before other connections have their turn.
const READS: usize = 8;

/// The result of polling one connection.
enum Polled {
    Event(Event),
    /// It has nothing more now.
    Empty,
    /// It may have more, which must wait for a later poll.
    Later,
}

impl Rail {
    #[inline]
    pub(super) fn progress(&mut self, now: Instant) -> Option<Event> {
        self.now = now;
        if let Some((_, event)) = self.events.pop_front() {
            return Some(event);
        }
        if self.next_deadline.is_some_and(|deadline| deadline <= now) {
            self.expire();
        }
        if !self.requested.is_empty() {
            self.connect_requested();
        }
        self.polls += 1;
        if self.polls >= self.epoll_interval() {
            self.poll_epoll();
        }
        if !self.sending.is_empty() {
            self.send_turn = !self.send_turn;
            if self.send_turn || self.ready.is_empty() {
                self.send_next();
            }
        }
        if let Some(event) = self.receive_next() {
            return Some(event);
        }
        self.events.pop_front().map(|(_, event)| event)
    }

    /// Whether [`progress`](Self::progress) would do nothing, whatever the time is. Not directly after epoll was called, as it is for
    /// each sleep: the next poll takes the time, which deadlines of callers count from.
    #[inline]
    pub(super) fn has_nothing_to_do(&self) -> bool {
        self.next_deadline.is_none()
            && self.recent.is_empty()
            && self.ready.is_empty()
            && self.sending.is_empty()
            && self.requested.is_empty()
            && self.events.is_empty()
            && self.polls != 0
            && self.polls + 1 < self.epoll_interval()
    }

    #[inline]
    fn epoll_interval(&self) -> u32 {
        if self.pending != 0 {
            1 // handshakes are in progress, and only epoll reports them
        } else if self.connected > self.recent.len() {
            self.config.epoll_interval_many_polls
        } else {
            self.config.epoll_interval_polls
        }
    }

    /// Calls epoll, and handles or queues the sockets that are ready. Returns how many there are.
    pub(super) fn poll_epoll(&mut self) -> usize {
        self.polls = 0;
        let mut ready = [Ready { token: 0 }; BATCH];
        let count = self.epoll.ready(&mut ready);
        for report in &ready[..count] {
            match read_token(report.token) {
                (TokenKind::Listener, _) => self.accept(),
                (TokenKind::Pending, slot) => self.step_pending(slot, report.token),
                (TokenKind::Connection, endpoint) => {
                    if let Some(connection) = self.connection(endpoint)
                        && connection.token == report.token
                    {
                        connection.inbox.more = true;
                        self.mark_ready(endpoint);
                    }
                }
            }
        }
        count
    }

    /// Sends frames that wait, of the next connection in turn.
    fn send_next(&mut self) {
        let Some(endpoint) = self.sending.pop_front() else { return };
        let Some(entry) = self.peers.get_mut(endpoint) else { return };
        let ConnState::Connected(connection) = &mut entry.state else { return };
        let socket = connection.socket.as_raw_fd();
        let events = &mut self.events;
        let (mut channel, _, outbox) = connection.parts();
        let flushed = outbox.flush(&mut channel, &mut self.buffers, &mut self.pipe, &mut self.counters, |cookie| {
            events.push_back((endpoint, Event::Sent(cookie)));
        });
        match flushed {
            Flush::Full => self.sending.push_back(endpoint),
            Flush::Empty => {
                entry.sending = false;
                if connection.watches_writes {
                    connection.watches_writes = false;
                    // If this fails, epoll reports more often than necessary.
                    let _ = self.epoll.change(socket, Interest::Read, connection.token);
                }
            }
            Flush::Broken(_) => {
                // Bytes that arrived before are still read; the end of the stream shows how the peer ended.
                entry.sending = false;
                connection.inbox.more = true;
                self.mark_ready(endpoint);
            }
        }
    }

    /// The next frame or delivery: first of connections that are queued for reading, then of those from which data came last.
    #[inline]
    fn receive_next(&mut self) -> Option<Event> {
        for _ in 0..self.ready.len() {
            let endpoint = self.ready.pop_front()?;
            match self.poll_connection(endpoint) {
                Polled::Empty => {
                    if let Some(entry) = self.peers.get_mut(endpoint) {
                        entry.ready = false;
                    }
                }
                Polled::Later => self.ready.push_back(endpoint),
                Polled::Event(event) => {
                    // Unless it was lost, the connection may have more.
                    match self.connection(endpoint).map(has_more) {
                        Some(true) => self.ready.push_back(endpoint),
                        Some(false) => self.peers.get_mut(endpoint).into_iter().for_each(|entry| entry.ready = false),
                        None => {}
                    }
                    return Some(event);
                }
            }
        }
        for at in 0..self.recent.len() {
            let Some(endpoint) = self.recent.get(at).copied() else { break };
            let Some(connection) = self.connection(endpoint) else { continue };
            connection.inbox.more = true;
            match self.poll_connection(endpoint) {
                Polled::Event(event) => {
                    if self.connection(endpoint).is_some_and(has_more) {
                        self.mark_ready(endpoint);
                    }
                    return Some(event);
                }
                Polled::Later => self.mark_ready(endpoint),
                Polled::Empty => {}
            }
        }
        None
    }

    /// Polls one connection: its staged bytes, then its socket.
    #[inline]
    fn poll_connection(&mut self, endpoint: u32) -> Polled {
        let held = self.held;
        let Some(entry) = self.peers.get_mut(endpoint) else { return Polled::Empty };
        let peer = entry.peer;
        let ConnState::Connected(connection) = &mut entry.state else { return Polled::Empty };
        let remote = connection.remote;
        let (mut channel, inbox, outbox) = connection.parts();
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
                        self.mark_recent(endpoint);
                        return Polled::Event(Event::Frame(frame));
                    }
                    Next::Goodbye => return self.ended(endpoint, Lost::Closed),
                    Next::Malformed => return self.ended(endpoint, Lost::Misbehaved),
                    Next::Incomplete | Next::Held | Next::Delivering => {}
                }
            } else if inbox.has_staged() && held != Some(endpoint) && !inbox.is_delivering() {
                return Polled::Later; // perhaps a frame, and the reader holds one already
            }
            if !inbox.more {
                // With a broken outbox the connection ends once all bytes that arrived are read.
                return if outbox.broken { self.ended(endpoint, Lost::Broken) } else { Polled::Empty };
            }
            let result = inbox.read_from(&mut channel);
            self.counters.reads += u64::from(matches!(result, ReadResult::Some | ReadResult::Delivered(_)));
            match result {
                ReadResult::Some | ReadResult::WouldBlock | ReadResult::Delivered(None) => {}
                ReadResult::Delivered(Some(cookie)) => {
                    self.mark_recent(endpoint);
                    return Polled::Event(Event::Delivered(cookie));
                }
                ReadResult::End => {
                    if channel.ended_mid_record() {
                        self.counters.records_truncated += 1;
                        log::warn!("tcp: {peer:?} at {remote}: the stream ends in the middle of a record");
                    }
                    return self.ended(endpoint, Lost::Broken);
                }
                ReadResult::Forged => {
                    self.counters.records_forged += 1;
                    log::error!(
                        "tcp: {peer:?} at {remote}: a record is forged, or was changed, left out or sent again on the way"
                    );
                    return self.ended(endpoint, Lost::Misbehaved);
                }
                ReadResult::Broken(number) => {
                    let error = std::io::Error::from_raw_os_error(number);
                    log::warn!("tcp: {peer:?} at {remote}: {error}");
                    let unreachable = matches!(number, libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH);
                    return self.ended(endpoint, if unreachable { Lost::TimedOut } else { Lost::Broken });
                }
            }
        }
        Polled::Later
    }

    /// A connection has ended. The events that it reported before come first.
    #[cold]
    fn ended(&mut self, endpoint: u32, why: Lost) -> Polled {
        self.lose(endpoint, why);
        match self.events.pop_front() {
            Some((_, event)) => Polled::Event(event),
            None => Polled::Empty,
        }
    }
}

fn has_more(connection: &mut Connection) -> bool {
    connection.inbox.more || connection.inbox.has_staged()
}
