//! The job's server: lets ranks in that hold the key, and passes on what they publish.
//!
//! `towline run` has one inside. A launcher of another kind starts one where all ranks can reach it:
//!
//! ```
//! use std::time::{Duration, Instant};
//! use towline_bootstrap::server::{Config, Server};
//! use towline_bootstrap::{Environment, Job};
//!
//! let mut environment = Environment::singleton(); // a random job number and key
//! let listen = Some("127.0.0.1:0".parse().unwrap());
//! let config = Config { size: 1, job: environment.job, key: environment.key.clone(), name: None, listen, left_is_gone: true };
//! let server = Server::start(config, |event| println!("{event:?}"))?;
//! environment.root = server.addresses().to_vec();
//!
//! let mut job = Job::join(environment, Instant::now() + Duration::from_secs(10)).unwrap();
//! job.exchange(Instant::now() + Duration::from_secs(10)).unwrap();
//! job.finish().unwrap();
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::PipeFlags;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod hub;
#[cfg(test)]
mod tests;

use self::hub::{Hub, Note, Said};
use crate::channel::{Channel, Kind, Side};
use crate::handshake::{self, ANSWER, Exchange, OPENING, Opening, PROBE, PROOF, Refusal};
use crate::stream::{Stream, timespec};
use crate::{Address, JobKey, RANKS_MAX};

/// How long a connection may take to prove that it belongs to the job.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// Connections that have not proved anything; more are closed at once.
const GREETINGS_MAX: usize = 256;
/// One that proved nothing may keep others out so long; then it gives way.
const GREETING_MAY: Duration = Duration::from_millis(500);
/// Callers that the kernel keeps until they are taken.
const BACKLOG: i32 = 4096;
/// Callers that are taken in one turn; the others' turn comes after that of those who are in.
const ACCEPTS: u32 = 16;
/// Reads of one connection in one turn, of 64 KiB at most: nobody has the only thread for himself.
const READS: u32 = 4;
/// Bytes that may wait for a rank to read them; before it has, nothing more is heard from it. What others say to it comes on top.
const BACKLOG_BYTES: usize = 1 << 20;
/// A pause in accepting, after the system had no descriptor for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a server serves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of ranks.
    pub size: u32,
    /// The job's number.
    pub job: u64,
    /// The job's secret.
    pub key: JobKey,
    /// Name of an abstract Unix socket for ranks on this host.
    pub name: Option<String>,
    /// Address for ranks on other hosts; port 0 lets the system choose.
    pub listen: Option<SocketAddr>,
    /// Whether a rank whose connection closes counts as gone: for a job that has no launcher to tell of its end. It
    /// may still come back.
    pub left_is_gone: bool,
}

/// What a server has to tell its launcher.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A rank proved itself and is in.
    Joined {
        /// Which.
        rank: u32,
    },
    /// A rank will take part in nothing further.
    Finished {
        /// Which.
        rank: u32,
    },
    /// A rank's connection closed. If it had not finished, it is dead or breaks the protocol.
    Left {
        /// Which.
        rank: u32,
        /// Why.
        why: String,
    },
    /// A rank asks for the end of the job.
    Aborted {
        /// Which.
        rank: u32,
        /// The exit status that it wants.
        code: i32,
        /// What it has to say.
        message: String,
    },
    /// Somebody connected who does not belong to the job; the job goes on.
    Refused {
        /// From where.
        from: String,
        /// Why.
        why: String,
    },
}

/// A running server; it stops when dropped.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<Address>,
    orders: mpsc::Sender<Order>,
    stop: Arc<AtomicBool>,
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens, and serves in a thread of its own, which also calls `tell`.
    ///
    /// # Errors
    /// What the system says, where an address cannot be bound; for more than [`RANKS_MAX`] ranks.
    pub fn start(config: Config, tell: impl FnMut(Event) + Send + 'static) -> io::Result<Self> {
        if config.size > RANKS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a job of more ranks than there can be"));
        }
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        if let Some(name) = &config.name {
            let socket = std::os::unix::net::SocketAddr::from_abstract_name(name.as_bytes())?;
            listeners.push(Listener::Unix(UnixListener::bind_addr(&socket)?));
            addresses.push(Address::Abstract(name.clone()));
        }
        if let Some(listen) = config.listen {
            let listener = TcpListener::bind(listen)?;
            // The standard library has the kernel keep 128 callers; those of a large job that comes up, or of a flood, would be
            // dropped and try again a second later.
            rustix::net::listen(&listener, BACKLOG)?;
            addresses.push(Address::Tcp(listener.local_addr()?.to_string()));
            listeners.push(Listener::Tcp(listener));
        }
        for listener in &listeners {
            listener.set_nonblocking()?;
        }
        // Never waits, and whoever rings does not either: a pipe that is full wakes as well.
        let (woken, wake) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (orders, received) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let serving =
            Serving::new(config, listeners, Orders { received, stop: Arc::clone(&stop) }, woken, Box::new(tell));
        let thread = std::thread::Builder::new().name("towline-server".into()).spawn(move || serving.run())?;
        Ok(Self { addresses, orders, stop, wake, thread: Some(thread) })
    }

    /// Where ranks find it, as `TOWLINE_ROOT` wants it.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// A rank's process is known to have ended: whoever waits for it hears of it at once.
    pub fn gone(&self, rank: u32) {
        self.order(Order::Gone(rank));
    }

    /// A rank's process is known to have ended, and another is about to be started in its place: whoever waits for the rank
    /// goes on waiting, and those who ask for the [ends](crate::Job::ask_for_ends) of others hear of this one. What the rank
    /// publishes when it has joined again replaces what it published before, at all ranks.
    pub fn restarts(&self, rank: u32) {
        self.order(Order::Restarts(rank));
    }

    fn order(&self, order: Order) {
        // Fails only where the thread has ended, which nobody waits for.
        let _ = self.orders.send(order);
        self.ring();
    }

    fn ring(&self) {
        // Fails where the pipe is full, too: then the thread has yet to wake.
        let _ = rustix::io::write(&self.wake, &[0]);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(listener) => listener.set_nonblocking(true),
            Self::Tcp(listener) => listener.set_nonblocking(true),
        }
    }

    fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Self::Unix(listener) => Ok((Stream::unix(listener.accept()?.0)?, "a process on this host".into())),
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                Ok((Stream::tcp(stream)?, from.to_string()))
            }
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

struct Connection {
    stream: Stream,
    from: String,
    state: State,
    /// Bytes of the handshake that are to be written.
    greeting: Vec<u8>,
}

enum State {
    /// Waits for the opening.
    Opening { read: Vec<u8>, until: Instant },
    /// Waits for the rank's proof.
    Proof { read: Vec<u8>, until: Instant, opening: [u8; OPENING], nonce: [u8; 32] },
    /// Has been refused; closes when that is written.
    Refused { until: Instant },
    /// Belongs to the job.
    Open { rank: u32, channel: Channel },
}

impl Connection {
    fn until(&self) -> Option<Instant> {
        match &self.state {
            State::Opening { until, .. } | State::Proof { until, .. } | State::Refused { until } => Some(*until),
            State::Open { .. } => None,
        }
    }

    /// Whether anything that it says would be heard: not what comes after a refusal, nor more questions of a rank that does not
    /// read the answers.
    fn is_heard(&self) -> bool {
        match &self.state {
            State::Opening { .. } | State::Proof { .. } => true,
            State::Refused { .. } => false,
            State::Open { channel, .. } => channel.output().len() < BACKLOG_BYTES,
        }
    }

    /// Whether frames that are here already could be heard now.
    fn has_frames(&self) -> bool {
        self.is_heard() && matches!(&self.state, State::Open { channel, .. } if channel.has_frame())
    }

    fn has_output(&self) -> bool {
        !self.greeting.is_empty() || matches!(&self.state, State::Open { channel, .. } if !channel.output().is_empty())
    }

    /// Writes what it can without waiting.
    fn flush(&mut self) -> io::Result<()> {
        loop {
            let bytes = match &self.state {
                _ if !self.greeting.is_empty() => &self.greeting[..],
                State::Open { channel, .. } => channel.output(),
                _ => &[],
            };
            if bytes.is_empty() {
                return Ok(());
            }
            match self.stream.write(bytes) {
                Ok(count) if !self.greeting.is_empty() => drop(self.greeting.drain(..count)),
                Ok(count) => {
                    if let State::Open { channel, .. } = &mut self.state {
                        channel.wrote(count);
                    }
                }
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
    }
}

/// Why a connection is closed, and whether that is worth a word.
enum Close {
    Quietly,
    Because(String),
}

impl From<io::Error> for Close {
    fn from(why: io::Error) -> Self {
        Self::Because(why.to_string())
    }
}

/// What a server hears from its launcher.
struct Orders {
    received: mpsc::Receiver<Order>,
    stop: Arc<AtomicBool>,
}

enum Order {
    /// A rank's process has ended.
    Gone(u32),
    /// The same, and another one is started for the rank.
    Restarts(u32),
}

struct Serving {
    config: Config,
    hub: Hub,
    listeners: Vec<Listener>,
    orders: Orders,
    woken: OwnedFd,
    connections: BTreeMap<u64, Connection>,
    next_id: u64,
    by_rank: BTreeMap<u32, u64>,
    accept_after: Option<Instant>,
    tell: Box<dyn FnMut(Event) + Send>,
}

impl Serving {
    fn new(
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

    fn run(mut self) {
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

    fn wait(&mut self) -> io::Result<Ready> {
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
    fn obey(&mut self) -> bool {
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

    fn gone(&mut self, rank: u32) {
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
    fn admit(&mut self, stream: Stream, from: String) -> u64 {
        let state = State::Opening { read: Vec::new(), until: Instant::now() + GREETING_LIMIT };
        let id = self.next_id;
        self.connections.insert(id, Connection { stream, from, state, greeting: Vec::new() });
        self.next_id += 1;
        id
    }

    fn greetings(&self) -> usize {
        self.connections.len() - self.by_rank.len()
    }

    fn serve(&mut self, id: u64) {
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
        towline_net::random::fill(&mut nonce)?;
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

struct Ready {
    woken: bool,
    listeners: Vec<usize>,
    connections: Vec<u64>,
}

fn is_probe(opening: &[u8; OPENING]) -> bool {
    Opening::parse(opening).is_ok_and(|opening| opening.rank == PROBE)
}

/// Moves bytes to `read` until there are `N` of them, which it then gives.
fn collect<const N: usize>(read: &mut Vec<u8>, bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (front, rest) = bytes.split_at(bytes.len().min(N - read.len()));
    read.extend_from_slice(front);
    *bytes = rest;
    read.as_slice().try_into().ok()
}
