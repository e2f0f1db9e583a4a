//! Opening a rail: its interface, its socket and its card.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use socket2::Socket;
use towline_core::rail::attributes::EXCLUSIVITY_LOW;
use towline_core::rail::native::OneSided;
use towline_core::rail::{AcceleratorLimits, Attributes, Capabilities, HEAD};
use towline_core::time::Instant;
use towline_net::card::{Card, CardAddress};
use towline_net::interfaces::{self, Interface};
use towline_net::{PeerTable, SetupError, random};
use zeroize::Zeroizing;

use crate::config::{Config, MAX_DATAGRAM};
use crate::counters::Counters;
use crate::probes::host::ReservedSocket;
use crate::queues::inbox::Inbox;
use crate::queues::outbox::Outbox;
use crate::queues::pacing::TokenBucket;
use crate::rail::Rail;
use crate::system::{segmentation, socket as sys};
use crate::wire::card;
use crate::wire::datagram::{PREFIX, SEALED};

impl Rail {
    /// Opens a rail with a socket on an allowed interface. Contacts no peer.
    ///
    /// # Errors
    /// [`SetupError`] says what is missing.
    pub fn new(config: Config) -> Result<Self, SetupError> {
        let failed = |what| move |why| SetupError::System(what, why);
        let config = config.clamped();
        let own = choose_interface(&config)?;
        let (socket, port) = bind(&config, &own).map_err(failed("open a socket"))?;
        let set_up = failed("set up a socket");
        socket.set_send_buffer_size(config.socket_send_buffer_bytes as usize).map_err(set_up)?;
        socket.set_recv_buffer_size(config.socket_receive_buffer_bytes as usize).map_err(set_up)?;
        let mtu = sys::mtu(&socket, &own.name).map_err(set_up)?;
        let datagram = config.max_datagram(mtu, own.address.is_ipv4()).map_err(SetupError::Setting)?;
        let segmentation = config.segmentation && segmentation::enable(&socket, own.address);
        let instance = random::instance().map_err(failed("draw random bytes"))?;
        let host = interfaces::host_id();
        let address = SocketAddr::new(own.address, port);
        let published = config.advertise.unwrap_or(address);
        let addresses = vec![CardAddress { address: published.ip(), prefix: own.prefix, port: published.port() }];
        let card = Card { link: config.link, job: config.job, instance, host, rank: config.rank, addresses };
        let encrypts = config.encrypt.applies(own.loopback);
        log::debug!("udp link {}: {} at {}, datagrams of {datagram} bytes", config.link, own.name, own.address);
        Ok(Self {
            attributes: attributes(&config, datagram, encrypts),
            card: card::encode(&card, config.advertise.is_some()),
            signs: config.sign.unwrap_or(!own.loopback),
            inbox: Inbox::new(&config),
            outbox: Outbox::new(&config, datagram, segmentation),
            pacing: TokenBucket::new(config.pacing_megabytes_per_second),
            own: [own],
            address,
            host,
            instance,
            socket,
            peers: PeerTable::new(u32::MAX),
            events: VecDeque::new(),
            requested: Vec::new(),
            connecting: Vec::new(),
            renewing: Vec::new(),
            closing: Vec::new(),
            closing_receives: 0,
            checked_ports: Vec::new(),
            next_port_check: None,
            hosts: Vec::new(),
            reserved: ReservedSocket::new(address).map_err(failed("reserve a socket for probes"))?,
            goodbyes: Vec::new(),
            granted: None,
            scratch: Zeroizing::new(vec![0; if encrypts { MAX_DATAGRAM as usize } else { 0 }]),
            encrypts,
            sent_at_once: 0,
            now: Instant::ZERO,
            next_hello: None,
            send_retry_at: None,
            idle: 0,
            counters: Counters::default(),
            config,
        })
    }

    /// Longest datagram, in bytes.
    pub const fn datagram_bytes(&self) -> u32 {
        self.attributes.max_send_size + overhead(self.encrypts)
    }
}

/// Maximum number of bytes of a datagram beside its frame.
const fn overhead(encrypts: bool) -> u32 {
    (PREFIX + if encrypts { SEALED } else { 0 }) as u32
}

fn attributes(config: &Config, datagram: u32, encrypts: bool) -> Attributes {
    let frame = datagram - overhead(encrypts);
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

/// The interface of this link. Interfaces that leave the host are preferred, unless the job is within the host; equally good ones
/// are used by the links in turn.
fn choose_interface(config: &Config) -> Result<Interface, SetupError> {
    let allowed = interfaces::allowed(&config.filter, "udp", config.link)
        .map_err(|why| SetupError::System("list the interfaces", why))?;
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
