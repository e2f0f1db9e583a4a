//! The server's thread. It accepts connections, runs their handshakes, and passes frames to the state of the job.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::config::{Config, Event};
use super::connection::{Close, ConnState, Connection, is_probe, take_exactly};
use super::job_state::{Effect, JobState, Message};
use super::listener::Listener;
use crate::protocol::channel::{Channel, Kind, Side};
use crate::protocol::handshake::{self, ANSWER, Exchange, OPENING, Opening, PROBE, PROOF, Refusal};
use crate::protocol::stream::{Stream, timespec};

/// Time in which a connection must complete the handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of connections in the handshake. Further ones are refused.
const HANDSHAKES_MAX: usize = 256;
/// Time for which a connection in the handshake keeps its place although others are waiting. Then it may be closed for
/// them.
const HANDSHAKE_MIN: Duration = Duration::from_millis(500);
/// Connections accepted in one turn. Then the accepted connections have their turn.
const ACCEPTS_PER_TURN: u32 = 16;
/// Reads from one connection in one turn, of at most 64 KiB each, so that no connection occupies the only thread.
pub(crate) const READS_PER_TURN: u32 = 4;
/// Pause in accepting after the system had no descriptor for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Orders from the launcher.
pub(crate) struct Orders {
    pub(crate) received: mpsc::Receiver<Order>,
    pub(crate) stop: Arc<AtomicBool>,
}

pub(crate) enum Order {
    /// A rank's process has ended.
    Ended(u32),
    /// A rank's process has ended, and a new one is about to be started.
    Restarts(u32),
    /// Ranks are asked for their reports. The number of the question.
    AskForReports(u32),
}

pub(crate) struct EventLoop {
    config: Config,
    pub(crate) job: JobState,
    listeners: Vec<Listener>,
    orders: Orders,
    wake_receiver: OwnedFd,
    pub(crate) connections: BTreeMap<u64, Connection>,
    next_id: u64,
    pub(crate) by_rank: BTreeMap<u32, u64>,
    accept_after: Option<Instant>,
    on_event: Box<dyn FnMut(Event) + Send>,
}

impl EventLoop {
    pub(crate) fn new(
        config: Config,
        listeners: Vec<Listener>,
        orders: Orders,
        wake_receiver: OwnedFd,
        on_event: Box<dyn FnMut(Event) + Send>,
    ) -> Self {
        Self {
            job: JobState::new(config.size),
            config,
            listeners,
            orders,
            wake_receiver,
            connections: BTreeMap::new(),
            next_id: 0,
            by_rank: BTreeMap::new(),
            accept_after: None,
            on_event,
        }
    }

    pub(crate) fn run(mut self) {
        while let Ok(ready) = self.wait() {
            if ready.wake_receiver && !self.run_orders() {
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

    pub(crate) fn wait(&mut self) -> io::Result<Ready> {
        let now = Instant::now();
        self.accept_after = self.accept_after.filter(|after| *after > now);
        let accepting = self.accept_after.is_none();
        let until = self.connections.values().filter_map(Connection::until).chain(self.accept_after).min();
        let at_once = self.connections.values().any(Connection::has_frames).then_some(now);
        let timeout = at_once.or(until).map(|until| timespec(until.saturating_duration_since(now)));
        let mut fds = vec![PollFd::new(&self.wake_receiver, PollFlags::IN)];
        let listening = if accepting { self.listeners.len() } else { 0 };
        fds.extend(self.listeners[..listening].iter().map(|l| PollFd::from_borrowed_fd(l.as_fd(), PollFlags::IN)));
        fds.extend(self.connections.values().map(|connection| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, connection.may_read());
            flags.set(PollFlags::OUT, connection.has_output());
            PollFd::new(&connection.stream, flags)
        }));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let (wake_receiver, rest) = fds.split_at(1);
        let (listeners, connections) = rest.split_at(listening);
        Ok(Ready {
            wake_receiver: wake_receiver.iter().any(is_ready),
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

    /// Carries out the launcher's orders. Returns `false` to stop, and then does not carry out the rest.
    pub(crate) fn run_orders(&mut self) -> bool {
        let mut bytes = [0; 1024];
        // The pipe only wakes the thread. The number of bytes in it does not matter.
        let _ = rustix::io::read(&self.wake_receiver, &mut bytes);
        while !self.orders.stop.load(Ordering::Acquire) {
            match self.orders.received.try_recv() {
                Ok(Order::Ended(rank)) => self.rank_ended(rank),
                Ok(Order::Restarts(rank)) => self.rank_restarts(rank),
                Ok(Order::AskForReports(question)) => self.ask_for_reports(question),
                Err(_) => return true,
            }
        }
        false
    }

    pub(crate) fn rank_ended(&mut self, rank: u32) {
        let mut out = Vec::new();
        self.job.rank_ended(rank, true, &mut out);
        self.send_all(out);
    }

    pub(crate) fn ask_for_reports(&mut self, question: u32) {
        let mut out = Vec::new();
        self.job.ask_for_reports(question, &mut out);
        self.send_all(out);
    }

    fn rank_restarts(&mut self, rank: u32) {
        // The server may not have noticed the end of the old connection yet. It must not still be open when the new
        // process joins.
        if let Some(id) = self.by_rank.get(&rank).copied() {
            self.close(id, Close::Because("its process has ended".into()));
        }
        self.job.rank_restarts(rank);
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            match self.listeners[listener].accept() {
                Ok((_, from)) if self.handshakes() >= HANDSHAKES_MAX && !self.evict_oldest_handshake() => {
                    (self.on_event)(Event::Refused { from, why: "too many connections are in the handshake".into() });
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

    /// Closes the connection that has been in the handshake for longest, if it has been there for [`HANDSHAKE_MIN`].
    fn evict_oldest_handshake(&mut self) -> bool {
        let greeting = self.connections.iter().filter_map(|(id, connection)| Some((connection.until()?, *id)));
        let Some((until, id)) = greeting.min() else { return false };
        if until + HANDSHAKE_MIN > Instant::now() + HANDSHAKE_LIMIT {
            return false;
        }
        self.close(id, Close::Because("it did not complete the handshake, and other connections are waiting".into()));
        true
    }

    /// Adds a new connection. Returns its id.
    pub(crate) fn admit(&mut self, stream: Stream, from: String) -> u64 {
        let state = ConnState::Opening { read: Vec::new(), until: Instant::now() + HANDSHAKE_LIMIT };
        let id = self.next_id;
        self.connections.insert(id, Connection { stream, from, state, handshake_output: Vec::new() });
        self.next_id += 1;
        id
    }

    pub(crate) fn handshakes(&self) -> usize {
        self.connections.len() - self.by_rank.len()
    }

    pub(crate) fn serve(&mut self, id: u64) {
        if let Err(close) = self.read(id).and_then(|()| self.flush(id)) {
            self.close(id, close);
        }
    }

    fn flush(&mut self, id: u64) -> Result<(), Close> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        connection.flush()?;
        if matches!(connection.state, ConnState::Refused { .. }) && !connection.has_output() {
            return Err(Close::Quietly);
        }
        Ok(())
    }

    fn read(&mut self, id: u64) -> Result<(), Close> {
        if let Some(Connection { state: ConnState::Joined { rank, .. }, .. }) = self.connections.get(&id) {
            self.handle_frames(id, *rank)?; // frames that had to wait
        }
        let mut bytes = vec![0; 1 << 16];
        for _ in 0..READS_PER_TURN {
            let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
            if !connection.may_read() {
                return Ok(());
            }
            match connection.stream.read(&mut bytes) {
                Ok(0) if matches!(&connection.state, ConnState::Proof { opening, .. } if is_probe(opening)) => {
                    return Err(Close::Quietly);
                }
                Ok(0) => return Err(Close::Because("it closed the connection".into())),
                Ok(count) => self.handle_bytes(id, &bytes[..count])?,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(())
    }

    /// Handles received bytes, which may complete several steps of the connection.
    fn handle_bytes(&mut self, id: u64, mut bytes: &[u8]) -> Result<(), Close> {
        while !bytes.is_empty() {
            let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
            match &mut connection.state {
                ConnState::Opening { read, until } => {
                    let until = *until;
                    if let Some(opening) = take_exactly::<OPENING>(read, &mut bytes) {
                        self.handle_opening(id, opening, until)?;
                    }
                }
                ConnState::Proof { read, opening, nonce, .. } => {
                    if let Some(proof) = take_exactly::<PROOF>(read, &mut bytes) {
                        let (opening, nonce) = (*opening, *nonce);
                        self.handle_proof(id, &opening, &nonce, &proof)?;
                    }
                }
                ConnState::Refused { .. } => return Ok(()),
                ConnState::Joined { rank, channel } => {
                    let rank = *rank;
                    channel.feed(bytes);
                    bytes = &[];
                    self.handle_frames(id, rank)?;
                }
            }
        }
        Ok(())
    }

    fn handle_opening(&mut self, id: u64, bytes: [u8; OPENING], until: Instant) -> Result<(), Close> {
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
            connection.handshake_output.extend(handshake::answer(refusal as u32, &[0; 32], &[0; PROOF]));
            connection.state = ConnState::Refused { until };
            let from = connection.from.clone();
            let why = match refusal {
                Refusal::Foreign => "it uses another protocol",
                Refusal::Version => "it uses another version of the protocol",
                Refusal::Job => "it belongs to another job",
                Refusal::Rank => "its rank does not exist in this job",
                Refusal::Size => "it expects a job of another size",
            };
            (self.on_event)(Event::Refused { from, why: why.into() });
            return Ok(());
        }
        let mut nonce = [0; 32];
        towline_net::random::fill(&mut nonce)?;
        let exchange = Exchange { key: &self.config.key, opening: &bytes, nonce: &nonce };
        let answer: [u8; ANSWER] = handshake::answer(0, &nonce, &exchange.server_proof());
        connection.handshake_output.extend(answer);
        connection.state = ConnState::Proof { read: Vec::new(), until, opening: bytes, nonce };
        Ok(())
    }

    fn handle_proof(&mut self, id: u64, opening: &[u8; OPENING], nonce: &[u8; 32], proof: &[u8]) -> Result<(), Close> {
        let exchange = Exchange { key: &self.config.key, opening, nonce };
        if !exchange.rank_proves(proof) {
            return Err(Close::Because("it does not hold the job key".into()));
        }
        let session = exchange.session();
        let Ok(Opening { rank, .. }) = Opening::parse(opening) else { return Err(Close::Quietly) };
        let mut channel = Channel::new(session, Side::Server);
        let mut out = Vec::new();
        let joined = self.job.join(rank, &mut out);
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        match joined {
            Ok(()) => {
                connection.state = ConnState::Joined { rank, channel };
                self.by_rank.insert(rank, id);
                (self.on_event)(Event::Joined { rank });
                self.send_all(out);
            }
            Err(why) => {
                channel.send(Kind::Refuse, why.as_bytes());
                connection.handshake_output.extend_from_slice(channel.output());
                connection.state = ConnState::Refused { until: Instant::now() + HANDSHAKE_LIMIT };
                let from = connection.from.clone();
                (self.on_event)(Event::Refused { from, why });
            }
        }
        Ok(())
    }

    fn handle_frames(&mut self, id: u64, rank: u32) -> Result<(), Close> {
        loop {
            let Some(connection) = self.connections.get_mut(&id).filter(|connection| connection.may_read()) else {
                return Ok(());
            };
            let ConnState::Joined { channel, .. } = &mut connection.state else { return Ok(()) };
            let Some((kind, payload)) = channel.next().map_err(Close::Because)? else { return Ok(()) };
            let mut out = Vec::new();
            match self.job.frame(rank, kind, &payload, &mut out).map_err(Close::Because)? {
                Effect::Nothing => {}
                // The launcher learns of it before the rank does, and so before the rank can exit.
                Effect::Finished => (self.on_event)(Event::Finished { rank }),
                Effect::Warned { text } => (self.on_event)(Event::Warned { rank, text }),
                Effect::Aborted { code, message } => (self.on_event)(Event::Aborted { rank, code, message }),
                Effect::LostPeer { peer } => (self.on_event)(Event::LostPeer { rank, peer }),
                Effect::Failing { panic, text } => (self.on_event)(Event::Failing { rank, panic, text }),
                Effect::Reported { question, report } => (self.on_event)(Event::Reported { rank, question, report }),
                Effect::Unmatched(unmatched, policy) => {
                    (self.on_event)(Event::Unmatched { rank, unmatched, policy });
                }
            }
            self.send_all(out);
        }
    }

    /// Queues messages to ranks, and writes as much as possible without waiting.
    fn send_all(&mut self, notes: Vec<Message>) {
        let mut touched: Vec<u64> = Vec::new();
        for note in notes {
            let Some(id) = self.by_rank.get(&note.to) else { continue };
            if let Some(Connection { state: ConnState::Joined { channel, .. }, .. }) = self.connections.get_mut(id) {
                channel.send(note.kind, &note.payload);
                touched.push(*id);
            }
        }
        touched.dedup();
        for id in touched {
            // The next `poll` reports a broken connection again, and it is closed then.
            let _ = self.connections.get_mut(&id).map(Connection::flush);
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let late = self.connections.iter().filter(|(_, c)| c.until().is_some_and(|until| until <= now));
        for id in late.map(|(id, _)| *id).collect::<Vec<_>>() {
            let why = format!("it did not complete the handshake within {} s", HANDSHAKE_LIMIT.as_secs());
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
            ConnState::Joined { rank, .. } => {
                self.by_rank.remove(&rank);
                self.job.disconnected(rank);
                if self.config.disconnect_ends_rank {
                    self.rank_ended(rank);
                }
                (self.on_event)(Event::Disconnected { rank, why: why.unwrap_or_default() });
            }
            // The refusal was reported when it happened.
            ConnState::Refused { .. } => {}
            ConnState::Opening { .. } | ConnState::Proof { .. } => {
                if let Some(why) = why {
                    (self.on_event)(Event::Refused { from: connection.from, why });
                }
            }
        }
    }
}

pub(crate) struct Ready {
    wake_receiver: bool,
    listeners: Vec<usize>,
    pub(crate) connections: Vec<u64>,
}
