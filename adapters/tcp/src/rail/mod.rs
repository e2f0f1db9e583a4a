//! The rail: its listeners, its peers, and their connections.

mod connect;
mod dead_hosts;
mod progress;
mod transfer;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::{Domain, Protocol, Socket, Type};
use towline_core::rail::attributes::EXCLUSIVITY_LOW;
use towline_core::rail::native::OneSided;
use towline_core::rail::{AcceleratorLimits, Attributes, Capabilities, Event, Lost, Peer, Ticket};
use towline_core::time::Instant;
use towline_crypt::Cipher;
use towline_net::SetupError;

use crate::config::Config;
use crate::counters::Counters;
use crate::framing::{GOODBYE, PREFIX};
use crate::handshake::pending::{Me, Pending};
use crate::handshake::replay_limit::Answered;
use crate::stream::channel::{Channel, Sealed};
use crate::stream::inbox::Inbox;
use crate::stream::outbox::{IN_PLACE_MAX, Outbox, Place, Queue};
use crate::stream::pack_buffers::Large;
use crate::stream::splice::Pipe;
use crate::system::options;
use crate::system::socket::{self as sys, Epoll, Interest, Moved};
use towline_net::card::{Card, CardAddress, MAX_ADDRESSES};
use towline_net::interfaces::{self, Interface};

/// Connections that a listener's queue in the kernel holds.
const BACKLOG: i32 = 4096;

/// What a word given to epoll names. The serial tells a new owner of a place from the old one.
pub(crate) const WORD_LISTENER: u64 = 1;
pub(crate) const WORD_PENDING: u64 = 2;
pub(crate) const WORD_STREAM: u64 = 3;

/// One TCP link to all peers: a rail of its own.
///
/// ```
/// use towline_core::rail::Rail as _;
/// use towline_tcp::{Config, JobKey, Rail};
///
/// let key = JobKey::new([7; 32]);
/// let rail = Rail::new(Config::new(1, 0, key)).unwrap();
/// assert_eq!(rail.attributes().name, "tcp");
/// assert!(!rail.card().is_empty(), "to be published");
/// ```
#[derive(Debug)]
pub struct Rail {
    pub(crate) config: Config,
    pub(crate) attributes: Attributes,
    pub(crate) card: Vec<u8>,
    /// The addresses of this host that may be used.
    pub(crate) own: Vec<Interface>,
    pub(crate) host: u64,
    pub(crate) instance: u64,
    pub(crate) answered: Answered,
    pub(crate) epoll: Epoll,
    pub(crate) listeners: Vec<Socket>,
    pub(crate) listening: bool,
    /// When a listener that ran out of descriptors is tried again.
    pub(crate) listen_again: Option<Instant>,

    /// When callers in the middle of a hello may have to give way to those that wait.
    pub(crate) crowded_until: Option<Instant>,

    /// By endpoint.
    pub(crate) peers: Vec<Option<PeerEntry>>,
    /// Endpoints without a peer.
    pub(crate) free: Vec<u32>,
    /// Endpoints by rank.
    pub(crate) ranks: HashMap<u32, u32>,
    pub(crate) pendings: Vec<Option<Pending>>,
    /// How many of them there are.
    pub(crate) pending: u32,
    pub(crate) inbound: u32,
    /// Connections that carry frames.
    pub(crate) up: usize,
    pub(crate) serial: u32,

    /// What is to be reported, with the endpoint that it is of.
    pub(crate) events: VecDeque<(u32, Event)>,
    /// Endpoints whose connection may have something to read; each once.
    pub(crate) ready: VecDeque<u32>,
    /// Endpoints whose outbox is not empty; each once.
    pub(crate) sending: VecDeque<u32>,
    /// Endpoints that are to be connected to.
    pub(crate) wanted: VecDeque<u32>,
    /// Endpoints whose own attempt gave way to one of the peer's that is not here yet.
    pub(crate) awaiting: Vec<u32>,
    /// Endpoints that there was no descriptor for to connect to; each once.
    pub(crate) resting: Vec<u32>,
    /// When they are tried again.
    pub(crate) rested: Option<Instant>,
    /// Endpoints that data came from last, latest first.
    pub(crate) hot: Vec<u32>,
    pub(crate) large: Large,
    pub(crate) pipe: Pipe,
    /// The endpoint whose frame is held by the reader.
    pub(crate) held: Option<u32>,
    pub(crate) granted: Option<Granted>,

    pub(crate) now: Instant,
    /// Not later than the earliest deadline of anything.
    pub(crate) next_deadline: Option<Instant>,
    /// When it is to be looked which hosts answer; `None` while there is no connection.
    pub(crate) watch_at: Option<Instant>,
    pub(crate) polls: u32,
    pub(crate) send_turn: bool,
    pub(crate) counters: Counters,
}

/// A grant that was given out last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) ticket: Ticket,
    pub(crate) queue: Queue,
    pub(crate) place: Place,
}

#[derive(Debug)]
pub(crate) struct PeerEntry {
    pub(crate) peer: Peer,
    pub(crate) rank: u32,
    pub(crate) instance: u64,
    pub(crate) host: u64,
    pub(crate) candidates: Vec<SocketAddr>,
    pub(crate) way: Way,
    /// In `Rail::ready`.
    pub(crate) ready: bool,
    /// In `Rail::sending`.
    pub(crate) sending: bool,
}

/// How it stands with a peer.
#[derive(Debug)]
pub(crate) enum Way {
    /// Not used yet.
    Unused,
    /// A connection is wanted; the next poll begins.
    Wanted,
    /// On the way there.
    Connecting(Attempt),
    /// Frames can travel.
    Up(Box<Stream>),
    /// No way any more.
    Gone,
}

/// Our own attempts to reach a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// The pending connection; `None` while one of the peer's is awaited.
    pub(crate) pending: Option<u32>,
    /// Which candidate is being tried.
    pub(crate) candidate: usize,
    /// Tries of this candidate.
    pub(crate) tries: u32,
    /// The last one ended by a deadline.
    pub(crate) timed_out: bool,
    /// For all attempts together.
    pub(crate) deadline: Instant,
}

/// A connection that carries frames.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) socket: Socket,
    pub(crate) remote: SocketAddr,
    pub(crate) word: u64,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    /// Keys, where the connection is encrypted.
    pub(crate) sealed: Option<Box<Sealed>>,
    /// Epoll watches for room to write.
    pub(crate) watches_writes: bool,
}

impl Stream {
    /// The way to the socket, with what is received and what is to be sent by it.
    #[inline]
    pub(crate) fn parts(&mut self) -> (Channel<'_>, &mut Inbox, &mut Outbox) {
        let channel = Channel { socket: self.socket.as_raw_fd(), word: self.word, sealed: self.sealed.as_deref_mut() };
        (channel, &mut self.inbox, &mut self.outbox)
    }
}

impl Rail {
    /// Listens on the allowed interfaces. Contacts nobody.
    ///
    /// # Errors
    /// [`SetupError`] says what is missing.
    pub fn new(config: Config) -> Result<Self, SetupError> {
        let config = config.sane();
        let own = allowed(&config)?;
        let epoll = Epoll::new().map_err(|error| SetupError::System("make an epoll set", error))?;
        let mut random = [0; 8];
        towline_net::random::fill(&mut random)
            .map_err(|error| SetupError::System("draw random bytes", io::Error::other(error)))?;
        let instance = u64::from_le_bytes(random);
        let (listeners, mut addresses) = listen(&config, &own)?;
        if let Some(told) = config.advertise {
            let prefix = if told.is_ipv4() { 32 } else { 128 };
            addresses = vec![CardAddress { address: told.ip(), prefix, port: told.port() }];
        }
        for (at, listener) in listeners.iter().enumerate() {
            epoll
                .add(listener.as_raw_fd(), Interest::Read, word(WORD_LISTENER, 0, at as u32))
                .map_err(|error| SetupError::System("watch a listener", error))?;
        }
        let host = config.host.unwrap_or_else(interfaces::host_id);
        let card = Card { link: config.link, job: config.job, instance, host, rank: config.rank, addresses };
        let large = Large::new(config.large_buffers, config.max_send_size_bytes as usize + PREFIX);
        Ok(Self {
            attributes: attributes(&config),
            card: card.encode(),
            own,
            host,
            instance,
            answered: Answered::new(),
            epoll,
            listeners,
            listening: true,
            listen_again: None,
            crowded_until: None,
            peers: Vec::new(),
            free: Vec::new(),
            ranks: HashMap::new(),
            pendings: Vec::new(),
            pending: 0,
            inbound: 0,
            up: 0,
            serial: 0,
            events: VecDeque::new(),
            ready: VecDeque::new(),
            sending: VecDeque::new(),
            wanted: VecDeque::new(),
            awaiting: Vec::new(),
            resting: Vec::new(),
            rested: None,
            hot: Vec::with_capacity(config.direct_connections as usize + 1),
            large,
            pipe: Pipe::new(config.pipe_bytes, config.splice_from_bytes),
            held: None,
            granted: None,
            now: Instant::ZERO,
            next_deadline: None,
            watch_at: None,
            polls: 0,
            send_turn: false,
            counters: Counters::default(),
            config,
        })
    }

    /// What happened so far, in numbers.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What the rail was made from, after impossible values were made possible.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The addresses of this host that the lists allow.
    pub fn interfaces(&self) -> &[Interface] {
        &self.own
    }

    pub(crate) fn me(&self) -> Me<'_> {
        Me { config: &self.config, instance: self.instance, host: self.host, answered: &self.answered, now: self.now }
    }

    #[inline]
    pub(crate) fn entry(&mut self, endpoint: u32) -> Option<&mut PeerEntry> {
        self.peers.get_mut(endpoint as usize)?.as_mut()
    }

    #[inline]
    pub(crate) fn stream(&mut self, endpoint: u32) -> Option<&mut Stream> {
        match &mut self.entry(endpoint)?.way {
            Way::Up(stream) => Some(stream),
            _ => None,
        }
    }

    /// The word for a new connection.
    pub(crate) fn new_word(&mut self, kind: u64, index: u32) -> u64 {
        self.serial = self.serial.wrapping_add(1);
        word(kind, self.serial, index)
    }

    /// Puts an endpoint in line for reading.
    #[inline]
    pub(crate) fn mark_ready(&mut self, endpoint: u32) {
        if let Some(entry) = self.entry(endpoint)
            && !entry.ready
        {
            entry.ready = true;
            self.ready.push_back(endpoint);
        }
    }

    /// Puts an endpoint in line for writing.
    #[inline]
    pub(crate) fn mark_sending(&mut self, endpoint: u32) {
        if let Some(entry) = self.entry(endpoint)
            && !entry.sending
        {
            entry.sending = true;
            self.sending.push_back(endpoint);
        }
    }

    /// Makes a connection carry frames. All that its messages will need is allocated here.
    pub(crate) fn establish(&mut self, endpoint: u32, socket: Socket, remote: SocketAddr, cipher: Option<Cipher>) {
        let word = self.new_word(WORD_STREAM, endpoint);
        if let Err(error) = self.epoll.change(socket.as_raw_fd(), Interest::Read, word) {
            log::error!("tcp: cannot watch the connection to {remote}: {error}");
            return self.lose(endpoint, Lost::Broken);
        }
        if let Err(error) = options::tune(&self.config, &socket) {
            log::warn!("tcp: {remote}: a socket option is refused: {error}");
        }
        let stream = Stream {
            socket,
            remote,
            word,
            inbox: Inbox::new(self.config.receive_staging_bytes, self.config.max_send_size_bytes),
            outbox: Outbox::new(&self.config),
            sealed: cipher.map(Sealed::new),
            watches_writes: false,
        };
        let Some(entry) = self.entry(endpoint) else { return };
        entry.way = Way::Up(Box::new(stream));
        let rank = entry.rank;
        self.up += 1;
        self.begin_watch();
        self.counters.established += 1;
        // Room for all that one connection can have to report at once, for each.
        self.events.reserve(self.up * (IN_PLACE_MAX + 4));
        log::debug!("tcp link {}: rank {rank} connected at {remote}", self.config.link);
        self.warm(endpoint);
        self.mark_ready(endpoint);
    }

    /// Remembers that data came from there last.
    #[inline]
    pub(crate) fn warm(&mut self, endpoint: u32) {
        if self.hot.first() == Some(&endpoint) || self.config.direct_connections == 0 {
            return;
        }
        if let Some(at) = self.hot.iter().position(|it| *it == endpoint) {
            self.hot.remove(at);
        }
        self.hot.truncate(self.config.direct_connections as usize - 1);
        self.hot.insert(0, endpoint);
    }

    /// Ends the way to a peer and reports it, once.
    pub(crate) fn lose(&mut self, endpoint: u32, why: Lost) {
        let Some(entry) = self.entry(endpoint) else { return };
        if matches!(entry.way, Way::Gone) {
            return;
        }
        let peer = entry.peer;
        let rank = entry.rank;
        match &entry.way {
            Way::Up(stream) if why == Lost::Closed => log::debug!("tcp: rank {rank} at {}: {why}", stream.remote),
            Way::Up(stream) => log::error!("tcp: rank {rank} at {} is lost: {why}", stream.remote),
            _ => log::error!("tcp: rank {rank} cannot be reached: {why}"),
        }
        self.disconnect(endpoint);
        self.counters.lost += 1;
        self.events.push_back((endpoint, Event::Lost(peer, why)));
    }

    /// Closes what leads to a peer, and touches no memory given for it from then on.
    pub(crate) fn disconnect(&mut self, endpoint: u32) {
        let Some(entry) = self.entry(endpoint) else { return };
        match std::mem::replace(&mut entry.way, Way::Gone) {
            Way::Up(mut stream) => {
                self.up -= 1;
                self.pipe.forget(stream.word);
                stream.outbox.abandon(&mut self.large);
            }
            Way::Connecting(Attempt { pending: Some(pending), .. }) => drop(self.take_pending(pending)),
            _ => {}
        }
        if let Some(entry) = self.entry(endpoint) {
            (entry.ready, entry.sending) = (false, false);
        }
        self.ready.retain(|it| *it != endpoint);
        self.sending.retain(|it| *it != endpoint);
        self.hot.retain(|it| *it != endpoint);
        self.awaiting.retain(|it| *it != endpoint);
        self.resting.retain(|it| *it != endpoint);
        if self.held == Some(endpoint) {
            self.held = None;
        }
        if self.granted.is_some_and(|granted| granted.ticket.endpoint.0 == endpoint) {
            self.granted = None;
        }
    }

    /// Forgets a peer.
    pub(crate) fn forget(&mut self, endpoint: u32) {
        self.disconnect(endpoint);
        self.events.retain(|(of, _)| *of != endpoint);
        self.wanted.retain(|it| *it != endpoint);
        if let Some(entry) = self.peers.get_mut(endpoint as usize).and_then(Option::take) {
            self.ranks.remove(&entry.rank);
            self.free.push(endpoint);
        }
    }

    /// Tells a peer that no more will come, so that it does not take the end for an accident.
    pub(crate) fn say_goodbye(&mut self, endpoint: u32) {
        let Some(stream) = self.stream(endpoint) else { return };
        let (mut channel, _, outbox) = stream.parts();
        if outbox.is_empty() && outbox.at_boundary() {
            // SAFETY: the goodbye is a constant.
            let _ = unsafe { channel.send(GOODBYE.as_ptr(), GOODBYE.len()) };
            if channel.lags() {
                // SAFETY: there are no pieces.
                let _ = unsafe { channel.send_pieces(&mut []) };
            }
        }
        self.hang_up(endpoint);
    }

    /// Ends a connection, so that all that was sent arrives; without a goodbye this is an accident to the peer.
    pub(crate) fn hang_up(&mut self, endpoint: u32) {
        let Some(stream) = self.stream(endpoint) else { return };
        let socket = stream.socket.as_raw_fd();
        let _ = stream.socket.shutdown(std::net::Shutdown::Write);
        // What is unread at the close would make the kernel send a reset, and that could overtake what we sent.
        let mut bin = [0; 4096];
        for _ in 0..256 {
            // SAFETY: the bin is writable.
            let Moved::Bytes(_) = (unsafe { sys::receive(socket, bin.as_mut_ptr(), bin.len()) }) else { break };
        }
    }
}

impl Drop for Rail {
    fn drop(&mut self) {
        // Who is in trouble has not come to its end in good order: peers are to take it for an accident.
        if std::thread::panicking() {
            return;
        }
        for endpoint in 0..self.peers.len() as u32 {
            self.say_goodbye(endpoint);
        }
    }
}

impl AsFd for Rail {
    /// The wait handle: ready to read when there is work for `poll`, once `arm` has answered `true`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.descriptor().as_fd()
    }
}

const fn word(kind: u64, serial: u32, index: u32) -> u64 {
    kind << 60 | (serial as u64 & 0x0FFF_FFFF) << 32 | index as u64
}

/// Kind and index of a word.
pub(crate) const fn unword(word: u64) -> (u64, u32) {
    (word >> 60, word as u32)
}

fn attributes(config: &Config) -> Attributes {
    let thread = if config.progress_thread { Capabilities::PROGRESS_THREAD } else { Capabilities::empty() };
    Attributes {
        name: "tcp",
        capabilities: Capabilities::SEND.union(Capabilities::SEND_INPLACE).union(thread),
        exclusivity: EXCLUSIVITY_LOW,
        latency: config.latency_nanos,
        bandwidth: config.bandwidth_megabytes_per_second,
        eager_limit: config.eager_limit_bytes,
        rendezvous_eager_limit: config.rendezvous_eager_limit_bytes,
        min_fragment: config.min_fragment_bytes,
        max_send_size: config.max_send_size_bytes,
        cache_size: 0,
        cache_bytes: 0,
        accelerator: AcceleratorLimits::NONE,
        frames_kept: 1,
        one_sided: OneSided::NONE,
    }
}

fn allowed(config: &Config) -> Result<Vec<Interface>, SetupError> {
    let all = interfaces::survey(&config.filter).map_err(|error| SetupError::System("list the interfaces", error))?;
    let mut own = Vec::new();
    for (it, verdict) in all {
        match verdict {
            Ok(()) => own.push(it),
            Err(reason) => {
                log::debug!("tcp link {}: {} at {} is left out: {reason}", config.link, it.name, it.address);
            }
        }
    }
    if own.is_empty() {
        return Err(SetupError::NoInterface);
    }
    Ok(own)
}

/// One listener for each family: bound to the one address that is allowed, or to all where there are several.
fn listen(config: &Config, own: &[Interface]) -> Result<(Vec<Socket>, Vec<CardAddress>), SetupError> {
    let mut listeners = Vec::new();
    let mut reach = Vec::new();
    let mut refused = None;
    for v4 in [true, false] {
        let mine: Vec<&Interface> = own.iter().filter(|it| it.address.is_ipv4() == v4).collect();
        let at = match mine[..] {
            [] => continue,
            [only] => only.address,
            _ if v4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            _ => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        match listen_at(config, at) {
            Ok((listener, port)) => {
                listeners.push(listener);
                reach.extend(mine.iter().map(|it| CardAddress { address: it.address, prefix: it.prefix, port }));
            }
            Err(error) => {
                log::warn!("tcp link {}: cannot listen at {at}: {error}", config.link);
                refused = Some(error);
            }
        }
    }
    if listeners.is_empty() {
        let error = refused.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into());
        return Err(SetupError::System("listen", error));
    }
    reach.truncate(MAX_ADDRESSES);
    Ok((listeners, reach))
}

fn listen_at(config: &Config, at: IpAddr) -> io::Result<(Socket, u16)> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in config.ports.clone() {
        let address = SocketAddr::new(at, port);
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        if at.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        if port != 0 {
            socket.set_reuse_address(true)?; // connections of an earlier job may still be fading at that port
        }
        options::set_buffers(config, &socket)?;
        match socket.bind(&address.into()).and_then(|()| socket.listen(BACKLOG)) {
            Ok(()) => {
                let bound = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
                return Ok((socket, bound.port()));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

const _: () = {
    const fn may_move_between_threads<T: Send>() {}
    may_move_between_threads::<Rail>();
};
