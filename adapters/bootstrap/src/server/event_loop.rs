//! The server's thread: it accepts connections, takes them through the handshake, and passes frames to the job's state.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::config::{Config, Event};
use super::connection::{Close, Connection, State, collect, is_probe};
use super::job_state::{Hub, Note, Said};
use super::listener::Listener;
use crate::key;
use crate::protocol::channel::{Channel, Kind, Side};
use crate::protocol::handshake::{self, ANSWER, Exchange, OPENING, Opening, PROBE, PROOF, Refusal};
use crate::protocol::stream::{Stream, timespec};

/// How long a connection may take to prove that it belongs to the job.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// Connections that have not proved anything; more are closed at once.
const GREETINGS_MAX: usize = 256;
/// One that proved nothing may keep others out so long; then it gives way.
const GREETING_MAY: Duration = Duration::from_millis(500);
/// Callers that are taken in one turn; the others' turn comes after that of those who are in.
const ACCEPTS: u32 = 16;
/// Reads of one connection in one turn, of 64 KiB at most: nobody has the only thread for himself.
pub(super) const READS: u32 = 4;
/// A pause in accepting, after the system had no descriptor for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a server hears from its launcher.
pub(super) struct Orders {
    pub(super) received: mpsc::Receiver<Order>,
    pub(super) stop: Arc<AtomicBool>,
}

pub(super) enum Order {
    /// A rank's process has ended.
    Gone(u32),
    /// The same, and another one is started for the rank.
    Restarts(u32),
}

pub(super) struct Serving {
    config: Config,
    pub(super) hub: Hub,
    listeners: Vec<Listener>,
    orders: Orders,
    woken: OwnedFd,
    pub(super) connections: BTreeMap<u64, Connection>,
    next_id: u64,
    pub(super) by_rank: BTreeMap<u32, u64>,
    accept_after: Option<Instant>,
    tell: Box<dyn FnMut(Event) + Send>,
}

impl Serving {
    pub(super) fn new(
        config: Config,
        listeners: Vec<Listener>,
        orders: Orders,
        woken: OwnedFd,
        tell: Box<dyn FnMut(Event) + Send>,
    ) -> Self {
        Self {
            hub: Hub::new(config.size),
            config,
            listeners,
            orders,
            woken,
            connections: BTreeMap::new(),
            next_id: 0,
            by_rank: BTreeMap::new(),
            accept_after: None,
            tell,
        }
    }

    pub(super) fn run(mut self) {
        while let Ok(ready) = self.wait() {
            if ready.woken && !self.obey() {
                return;
            }
            for listener in ready.listeners {
                self.accept(listener);
            }
            for id in ready.connections {
                self.serve(id);
            }
            self.expire();
        }
    }

    pub(super) fn wait(&mut self) -> io::Result<Ready> {
        let now = Instant::now();
        self.accept_after = self.accept_after.filter(|after| *after > now);
        let accepting = self.accept_after.is_none();
        let until = self.connections.values().filter_map(Connection::until).chain(self.accept_after).min();
        let at_once = self.connections.values().any(Connection::has_frames).then_some(now);
        let timeout = at_once.or(until).map(|until| timespec(until.saturating_duration_since(now)));
        let mut fds = vec![PollFd::new(&self.woken, PollFlags::IN)];
        let listening = if accepting { self.listeners.len() } else { 0 };
        fds.extend(self.listeners[..listening].iter().map(|l| PollFd::from_borrowed_fd(l.as_fd(), PollFlags::IN)));
        fds.extend(self.connections.values().map(|connection| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, connection.is_heard());
            flags.set(PollFlags::OUT, connection.has_output());
            PollFd::new(&connection.stream, flags)
        }));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let (woken, rest) = fds.split_at(1);
        let (listeners, connections) = rest.split_at(listening);
        Ok(Ready {
            woken: woken.iter().any(is_ready),
            listeners: (0..).zip(listeners).filter(|(_, fd)| is_ready(fd)).map(|(index, _)| index).collect(),
            connections: self
                .connections
                .iter()
                .zip(connections)
                .filter(|((_, connection), fd)| is_ready(fd) || connection.has_frames())
                .map(|((id, _), _)| *id)
                .collect(),
        })
    }

    /// Hears whose process has ended; false to stop, which does not wait for anything else.
    pub(super) fn obey(&mut self) -> bool {
        let mut bytes = [0; 1024];
        // The pipe only wakes; how many bytes there are does not matter.
        let _ = rustix::io::read(&self.woken, &mut bytes);
        while !self.orders.stop.load(Ordering::Acquire) {
            match self.orders.received.try_recv() {
                Ok(Order::Gone(rank)) => self.gone(rank),
                Ok(Order::Restarts(rank)) => self.restarts(rank),
                Err(_) => return true,
            }
        }
        false
    }

    pub(super) fn gone(&mut self, rank: u32) {
        let mut out = Vec::new();
        self.hub.gone(rank, true, &mut out);
        self.deliver(out);
    }

    fn restarts(&mut self, rank: u32) {
        // The end of the old connection may not have been seen yet, and the next process must not find it open.
        if let Some(id) = self.by_rank.get(&rank).copied() {
            self.close(id, Close::Because("its process has ended".into()));
        }
        self.hub.restarts(rank);
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS {
            match self.listeners[listener].accept() {
                Ok((_, from)) if self.greetings() >= GREETINGS_MAX && !self.make_room() => {
                    (self.tell)(Event::Refused { from, why: "too many connections that proved nothing".into() });
                }
                Ok((stream, from)) => {
                    self.admit(stream, from);
                }
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.accept_after = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    /// Closes the connection that has proved nothing for longest, if that is long enough.
    fn make_room(&mut self) -> bool {
        let greeting = self.connections.iter().filter_map(|(id, connection)| Some((connection.until()?, *id)));
        let Some((until, id)) = greeting.min() else { return false };
        if until + GREETING_MAY > Instant::now() + GREETING_LIMIT {
            return false;
        }
        self.close(id, Close::Because("it proved nothing, and others wait".into()));
        true
    }

    /// Begins with a connection; gives its number.
    pub(super) fn admit(&mut self, stream: Stream, from: String) -> u64 {
        let state = State::Opening { read: Vec::new(), until: Instant::now() + GREETING_LIMIT };
        let id = self.next_id;
        self.connections.insert(id, Connection { stream, from, state, greeting: Vec::new() });
        self.next_id += 1;
        id
    }

    pub(super) fn greetings(&self) -> usize {
        self.connections.len() - self.by_rank.len()
    }

    pub(super) fn serve(&mut self, id: u64) {
        if let Err(close) = self.read(id).and_then(|()| self.flush(id)) {
            self.close(id, close);
        }
    }

    fn flush(&mut self, id: u64) -> Result<(), Close> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        connection.flush()?;
        if matches!(connection.state, State::Refused { .. }) && !connection.has_output() {
            return Err(Close::Quietly);
        }
        Ok(())
    }

    fn read(&mut self, id: u64) -> Result<(), Close> {
        if let Some(Connection { state: State::Open { rank, .. }, .. }) = self.connections.get(&id) {
            self.frames(id, *rank)?; // those that had to wait
        }
        let mut bytes = vec![0; 1 << 16];
        for _ in 0..READS {
            let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
            if !connection.is_heard() {
                return Ok(());
            }
            match connection.stream.read(&mut bytes) {
                Ok(0) if matches!(&connection.state, State::Proof { opening, .. } if is_probe(opening)) => {
                    return Err(Close::Quietly);
                }
                Ok(0) => return Err(Close::Because("it closed the connection".into())),
                Ok(count) => self.take(id, &bytes[..count])?,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(())
    }

    /// Takes bytes of a connection through as many steps as they are good for.
    fn take(&mut self, id: u64, mut bytes: &[u8]) -> Result<(), Close> {
        while !bytes.is_empty() {
            let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
            match &mut connection.state {
                State::Opening { read, until } => {
                    let until = *until;
                    if let Some(opening) = collect::<OPENING>(read, &mut bytes) {
                        self.opened(id, opening, until)?;
                    }
                }
                State::Proof { read, opening, nonce, .. } => {
                    if let Some(proof) = collect::<PROOF>(read, &mut bytes) {
                        let (opening, nonce) = (*opening, *nonce);
                        self.proved(id, &opening, &nonce, &proof)?;
                    }
                }
                State::Refused { .. } => return Ok(()),
                State::Open { rank, channel } => {
                    let rank = *rank;
                    channel.feed(bytes);
                    bytes = &[];
                    self.frames(id, rank)?;
                }
            }
        }
        Ok(())
    }

    fn opened(&mut self, id: u64, bytes: [u8; OPENING], until: Instant) -> Result<(), Close> {
        let checked = Opening::parse(&bytes).and_then(|opening| {
            if opening.job != self.config.job {
                Err(Refusal::Job)
            } else if opening.rank >= self.config.size && opening.rank != PROBE {
                Err(Refusal::Rank)
            } else if opening.size != self.config.size {
                Err(Refusal::Size)
            } else {
                Ok(())
            }
        });
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        if let Err(refusal) = checked {
            connection.greeting.extend(handshake::answer(refusal as u32, &[0; 32], &[0; PROOF]));
            connection.state = State::Refused { until };
            let from = connection.from.clone();
            let why = match refusal {
                Refusal::Foreign => "it speaks another protocol",
                Refusal::Version => "it speaks another version of the protocol",
                Refusal::Job => "it belongs to another job",
                Refusal::Rank => "it has a rank that the job has not",
                Refusal::Size => "it expects a job of another size",
            };
            (self.tell)(Event::Refused { from, why: why.into() });
            return Ok(());
        }
        let mut nonce = [0; 32];
        key::random(&mut nonce)?;
        let exchange = Exchange { key: &self.config.key, opening: &bytes, nonce: &nonce };
        let answer: [u8; ANSWER] = handshake::answer(0, &nonce, &exchange.server_proof());
        connection.greeting.extend(answer);
        connection.state = State::Proof { read: Vec::new(), until, opening: bytes, nonce };
        Ok(())
    }

    fn proved(&mut self, id: u64, opening: &[u8; OPENING], nonce: &[u8; 32], proof: &[u8]) -> Result<(), Close> {
        let exchange = Exchange { key: &self.config.key, opening, nonce };
        if !exchange.rank_proves(proof) {
            return Err(Close::Because("it does not hold the job's key".into()));
        }
        let session = exchange.session();
        let Ok(Opening { rank, .. }) = Opening::parse(opening) else { return Err(Close::Quietly) };
        let mut channel = Channel::new(session, Side::Server);
        let mut out = Vec::new();
        let joined = self.hub.join(rank, &mut out);
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        match joined {
            Ok(()) => {
                connection.state = State::Open { rank, channel };
                self.by_rank.insert(rank, id);
                (self.tell)(Event::Joined { rank });
                self.deliver(out);
            }
            Err(why) => {
                channel.send(Kind::Refuse, why.as_bytes());
                connection.greeting.extend_from_slice(channel.output());
                connection.state = State::Refused { until: Instant::now() + GREETING_LIMIT };
                let from = connection.from.clone();
                (self.tell)(Event::Refused { from, why });
            }
        }
        Ok(())
    }

    fn frames(&mut self, id: u64, rank: u32) -> Result<(), Close> {
        loop {
            let Some(connection) = self.connections.get_mut(&id).filter(|connection| connection.is_heard()) else {
                return Ok(());
            };
            let State::Open { channel, .. } = &mut connection.state else { return Ok(()) };
            let Some((kind, payload)) = channel.next().map_err(Close::Because)? else { return Ok(()) };
            let mut out = Vec::new();
            match self.hub.frame(rank, kind, &payload, &mut out).map_err(Close::Because)? {
                Said::Nothing => {}
                // The launcher hears of it before the rank does, so before the rank can exit.
                Said::Finished => (self.tell)(Event::Finished { rank }),
                Said::Aborted { code, message } => (self.tell)(Event::Aborted { rank, code, message }),
            }
            self.deliver(out);
        }
    }

    /// Queues notes to ranks, and writes what goes out without waiting.
    fn deliver(&mut self, notes: Vec<Note>) {
        let mut touched: Vec<u64> = Vec::new();
        for note in notes {
            let Some(id) = self.by_rank.get(&note.to) else { continue };
            if let Some(Connection { state: State::Open { channel, .. }, .. }) = self.connections.get_mut(id) {
                channel.send(note.kind, &note.payload);
                touched.push(*id);
            }
        }
        touched.dedup();
        for id in touched {
            // A broken connection is found again, and closed, by the next `poll`.
            let _ = self.connections.get_mut(&id).map(Connection::flush);
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let late = self.connections.iter().filter(|(_, c)| c.until().is_some_and(|until| until <= now));
        for id in late.map(|(id, _)| *id).collect::<Vec<_>>() {
            let why = format!("it proved nothing within {} s", GREETING_LIMIT.as_secs());
            self.close(id, Close::Because(why));
        }
    }

    fn close(&mut self, id: u64, close: Close) {
        let Some(connection) = self.connections.remove(&id) else { return };
        let why = match close {
            Close::Because(why) => Some(why),
            Close::Quietly => None,
        };
        match connection.state {
            State::Open { rank, .. } => {
                self.by_rank.remove(&rank);
                self.hub.left(rank);
                if self.config.left_is_gone {
                    self.gone(rank);
                }
                (self.tell)(Event::Left { rank, why: why.unwrap_or_default() });
            }
            // Was told about when it was refused.
            State::Refused { .. } => {}
            State::Opening { .. } | State::Proof { .. } => {
                if let Some(why) = why {
                    (self.tell)(Event::Refused { from: connection.from, why });
                }
            }
        }
    }
}

pub(super) struct Ready {
    woken: bool,
    listeners: Vec<usize>,
    pub(super) connections: Vec<u64>,
}
