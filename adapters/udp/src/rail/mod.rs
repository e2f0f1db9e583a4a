//! The rail: its socket, its peers, and what it says of itself.

mod goodbye;
mod liveness;
pub(crate) mod peer;
mod progress;
mod receive;
mod transfer;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::Socket;
use towline_core::rail::attributes::EXCLUSIVITY_LOW;
use towline_core::rail::native::OneSided;
use towline_core::rail::{AcceleratorLimits, Attributes, Capabilities, Event, HEAD, Lost, Ticket};
use towline_core::time::Instant;
use towline_net::SetupError;
use towline_net::card::{Card, CardAddress};
use towline_net::interfaces::{self, Interface};
use zeroize::Zeroizing;

use crate::card;
use crate::config::{Config, MOST};
use crate::counters::Counters;
use crate::datagram::{PREFIX, SEALED};
use crate::queues::inbox::Inbox;
use crate::queues::outbox::Outbox;
use crate::queues::pacing::Pace;
use crate::rail::goodbye::LastWord;
use crate::rail::liveness::{Host, Kept};
use crate::rail::peer::{Peers, Way};
use crate::system::{segmentation, socket as sys};

/// One UDP socket that reaches all peers: a rail that loses frames, to be wrapped in a link.
///
/// ```
/// use towline_core::rail::{Capabilities, Rail as _};
/// use towline_net::JobKey;
/// use towline_udp::{Config, Rail};
///
/// let rail = Rail::new(Config::new(1, 0, JobKey::new([7; 32]))).unwrap();
/// assert!(rail.attributes().capabilities.contains(Capabilities::NEED_ACK | Capabilities::NEED_CSUM));
/// assert!(!rail.card().is_empty(), "to be published");
/// ```
#[derive(Debug)]
pub struct Rail {
    pub(crate) config: Config,
    pub(crate) attributes: Attributes,
    pub(crate) card: Vec<u8>,
    /// The address of this host that is used.
    pub(crate) own: [Interface; 1],
    address: SocketAddr,
    pub(crate) host: u64,
    pub(crate) instance: u64,
    pub(crate) signs: bool,
    /// Whether any peer's datagrams are to be encrypted: on the loopback there are none of other hosts.
    pub(crate) seals: bool,
    pub(crate) socket: Socket,
    pub(crate) peers: Peers,
    /// What is to be reported, with the endpoint that it is of.
    pub(crate) events: VecDeque<(u32, Event)>,
    /// Endpoints that are to be called.
    pub(crate) wanted: Vec<u32>,
    /// Endpoints that are called.
    pub(crate) calling: Vec<u32>,
    /// Endpoints that there is a session with, while another one is made.
    pub(crate) renewing: Vec<u32>,
    /// Endpoints whose port is closed, and the messages that may still come before they are lost.
    pub(crate) closing: Vec<u32>,
    pub(crate) closing_patience: u32,
    /// Endpoints whose port was reported closed: these are asked.
    pub(crate) doubted: Vec<u32>,
    /// Not later than the next question to them.
    pub(crate) next_question: Option<Instant>,
    /// Hosts that were asked for a sign of life.
    pub(crate) hosts: Vec<Host>,
    /// For questions to them when there is no descriptor left.
    pub(crate) kept: Kept,
    /// Of peers that were forgotten, by their endpoints.
    pub(crate) last_words: Vec<Option<LastWord>>,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    pub(crate) granted: Option<Ticket>,
    /// Where datagrams are sealed and opened; empty where none is.
    pub(crate) scratch: Zeroizing<Vec<u8>>,
    /// Short frames that left by calls of their own since the last poll.
    pub(crate) at_once: u32,
    pub(crate) pace: Pace,
    pub(crate) now: Instant,
    /// Not later than the next hello.
    pub(crate) next_hello: Option<Instant>,
    /// When to try again what the socket did not take, or was not to leave yet.
    pub(crate) send_again: Option<Instant>,
    /// Polls since something came.
    pub(crate) idle: u32,
    pub(crate) counters: Counters,
}

/// Bytes of the kernel's buffers of a socket, as it counts them: with its own book-keeping, which may be most of a short
/// datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Buffers {
    /// For what leaves.
    pub send: usize,
    /// For what comes.
    pub receive: usize,
    /// Datagrams that were lost because there was no room in the latter.
    pub overflowed: u64,
}

impl Rail {
    /// Opens a socket on an allowed interface. Contacts nobody.
    ///
    /// # Errors
    /// [`SetupError`] says what is missing.
    pub fn new(config: Config) -> Result<Self, SetupError> {
        let config = config.sane();
        let own = choose(&config)?;
        let (socket, port) = bind(&config, &own).map_err(|why| SetupError::System("open a socket", why))?;
        let failed = |why| SetupError::System("set up a socket", why);
        socket.set_send_buffer_size(config.socket_send_buffer_bytes as usize).map_err(failed)?;
        socket.set_recv_buffer_size(config.socket_receive_buffer_bytes as usize).map_err(failed)?;
        let mtu = sys::mtu(&socket, &own.name).map_err(failed)?;
        let datagram = config.datagram(mtu, own.address.is_ipv4());
        let cuts = config.segmentation && segmentation::enable(&socket, own.address);
        let mut random = [0; 8];
        draw(&mut random).map_err(|why| SetupError::System("draw random bytes", why))?;
        let instance = u64::from_le_bytes(random);
        let host = interfaces::host_id();
        let address = SocketAddr::new(own.address, port);
        let told = config.advertise.unwrap_or(address);
        let addresses = vec![CardAddress { address: told.ip(), prefix: own.prefix, port: told.port() }];
        let card = Card { link: config.link, job: config.job, instance, host, rank: config.rank, addresses };
        let seals = config.encrypt.applies(own.loopback);
        log::debug!("udp link {}: {} at {}, datagrams of {datagram} bytes", config.link, own.name, own.address);
        Ok(Self {
            attributes: attributes(&config, datagram, seals),
            card: card::encode(&card, config.advertise.is_some()),
            signs: config.sign.unwrap_or(!own.loopback),
            inbox: Inbox::new(&config),
            outbox: Outbox::new(&config, datagram, cuts),
            pace: Pace::new(config.pacing_megabytes_per_second),
            own: [own],
            address,
            host,
            instance,
            socket,
            peers: Peers::default(),
            events: VecDeque::new(),
            wanted: Vec::new(),
            calling: Vec::new(),
            renewing: Vec::new(),
            closing: Vec::new(),
            closing_patience: 0,
            doubted: Vec::new(),
            next_question: None,
            hosts: Vec::new(),
            kept: Kept::new(address).map_err(|why| SetupError::System("keep a socket for questions", why))?,
            last_words: Vec::new(),
            granted: None,
            scratch: Zeroizing::new(vec![0; if seals { MOST as usize } else { 0 }]),
            seals,
            at_once: 0,
            now: Instant::ZERO,
            next_hello: None,
            send_again: None,
            idle: 0,
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

    /// The address of this host that is used.
    pub const fn interface(&self) -> &Interface {
        let [own] = &self.own;
        own
    }

    /// The address and port of its socket.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Longest datagram, in bytes.
    pub const fn datagram_bytes(&self) -> u32 {
        self.attributes.max_send_size + overhead(self.seals)
    }

    /// What the kernel gave for its buffers, and whether that was enough.
    pub fn buffers(&self) -> Buffers {
        let (send, receive) = (self.socket.send_buffer_size(), self.socket.recv_buffer_size());
        Buffers { send: send.unwrap_or(0), receive: receive.unwrap_or(0), overflowed: sys::overflowed(&self.socket) }
    }

    /// Ends the way to a peer and reports it, once.
    pub(crate) fn lose(&mut self, endpoint: u32, why: Lost) {
        let Some(known) = self.peers.get_mut(endpoint) else { return };
        if known.way == Way::Gone {
            return;
        }
        known.way = Way::Gone;
        let (peer, rank) = (known.peer, known.rank);
        if why == Lost::Closed {
            log::debug!("udp: rank {rank}: {why}");
        } else {
            log::warn!("udp: rank {rank} is lost: {why}");
        }
        self.counters.lost += 1;
        self.outbox.forget(endpoint);
        self.stop_asking(endpoint);
        self.leave_lists(endpoint);
        self.events.push_back((endpoint, Event::Lost(peer, why)));
    }

    pub(crate) fn leave_lists(&mut self, endpoint: u32) {
        let Self { wanted, calling, renewing, closing, doubted, .. } = self;
        for list in [wanted, calling, renewing, closing, doubted] {
            list.retain(|it| *it != endpoint);
        }
        if self.granted.is_some_and(|ticket| ticket.endpoint.0 == endpoint) {
            self.granted = None;
        }
    }
}

impl Drop for Rail {
    fn drop(&mut self) {
        self.push_out();
        for endpoint in 0..self.peers.len() as u32 {
            self.say_bye(endpoint);
        }
    }
}

impl AsFd for Rail {
    /// The wait handle: ready to read when there is work for `poll`, once `arm` has answered `true`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Rail {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.socket.as_raw_fd()
    }
}

pub(crate) fn draw(into: &mut [u8]) -> io::Result<()> {
    getrandom::fill(into).map_err(io::Error::other)
}

/// What of a datagram is no frame, at most.
const fn overhead(seals: bool) -> u32 {
    (PREFIX + if seals { SEALED } else { 0 }) as u32
}

fn attributes(config: &Config, datagram: u32, seals: bool) -> Attributes {
    let frame = datagram - overhead(seals);
    let thread = if config.progress_thread { Capabilities::PROGRESS_THREAD } else { Capabilities::empty() };
    let lossy = Capabilities::NEED_ACK.union(Capabilities::NEED_CSUM);
    Attributes {
        name: "udp",
        capabilities: Capabilities::SEND.union(lossy).union(thread),
        exclusivity: EXCLUSIVITY_LOW,
        latency: config.latency_nanos,
        bandwidth: config.bandwidth_megabytes_per_second,
        eager_limit: frame,
        rendezvous_eager_limit: (frame - HEAD as u32).min(8 * 1024),
        min_fragment: frame,
        max_send_size: frame,
        cache_size: 0,
        cache_bytes: 0,
        accelerator: AcceleratorLimits::NONE,
        frames_kept: config.frames_kept,
        one_sided: OneSided::NONE,
    }
}

/// The interface of this link: those beyond the host come first, unless the job stays on it; links take turns.
fn choose(config: &Config) -> Result<Interface, SetupError> {
    let all = interfaces::survey(&config.filter).map_err(|why| SetupError::System("list the interfaces", why))?;
    let allowed: Vec<Interface> = all.into_iter().filter(|(_, verdict)| verdict.is_ok()).map(|(it, _)| it).collect();
    let rank = |it: &Interface| (it.loopback != config.within_host, !it.address.is_ipv4());
    let best = allowed.iter().map(rank).min().ok_or(SetupError::NoInterface)?;
    let mut equals: Vec<Interface> = allowed.into_iter().filter(|it| rank(it) == best).collect();
    let turn = usize::from(config.link) % equals.len();
    Ok(equals.swap_remove(turn))
}

fn bind(config: &Config, own: &Interface) -> io::Result<(Socket, u16)> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in config.ports.clone() {
        match sys::open(SocketAddr::new(own.address, port)) {
            Ok(socket) => {
                let bound = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
                return Ok((socket, bound.port()));
            }
            Err(why) => last = why,
        }
    }
    Err(last)
}

const _: () = {
    const fn may_move_between_threads<T: Send>() {}
    may_move_between_threads::<Rail>();
};
