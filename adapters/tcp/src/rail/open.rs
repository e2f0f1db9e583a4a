//! Opening a rail: its interfaces, its listeners and its card.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, Socket, Type};
use towline_core::rail::attributes::EXCLUSIVITY_LOW;
use towline_core::rail::native::OneSided;
use towline_core::rail::{AcceleratorLimits, Attributes, Capabilities};
use towline_core::time::Instant;
use towline_net::card::{Card, CardAddress, MAX_ADDRESSES};
use towline_net::interfaces::{self, Interface};
use towline_net::{PeerTable, SetupError, random};

use crate::config::Config;
use crate::counters::Counters;
use crate::handshake::replay_limit::ReplayLimit;
use crate::rail::{Rail, TokenKind, token};
use crate::stream::pack_buffers::PackBuffers;
use crate::stream::splice::SplicePipe;
use crate::system::epoll::{Epoll, Interest};
use crate::system::options;
use crate::wire::framing::PREFIX;

/// Connections that the kernel queues at a listener.
const BACKLOG: i32 = 4096;

impl Rail {
    /// Opens a rail that listens on the allowed interfaces. Contacts no peer.
    ///
    /// # Errors
    /// [`SetupError`] says what is missing.
    pub fn new(config: Config) -> Result<Self, SetupError> {
        let failed = |what| move |error| SetupError::System(what, error);
        let config = config.clamped();
        let own = interfaces::allowed(&config.filter, "tcp", config.link).map_err(failed("list the interfaces"))?;
        if own.is_empty() {
            return Err(SetupError::NoInterface);
        }
        let epoll = Epoll::new().map_err(failed("make an epoll set"))?;
        let instance = random::instance().map_err(failed("draw random bytes"))?;
        let (listeners, mut addresses) = listen(&config, &own)?;
        if let Some(published) = config.advertise {
            let prefix = if published.is_ipv4() { 32 } else { 128 };
            addresses = vec![CardAddress { address: published.ip(), prefix, port: published.port() }];
        }
        for (at, listener) in listeners.iter().enumerate() {
            epoll
                .add(listener.as_raw_fd(), Interest::Read, token(TokenKind::Listener, 0, at as u32))
                .map_err(failed("watch a listener"))?;
        }
        let host = config.host.unwrap_or_else(interfaces::host_id);
        let card = Card { link: config.link, job: config.job, instance, host, rank: config.rank, addresses };
        Ok(Self {
            attributes: attributes(&config),
            card: card.encode(),
            own,
            host,
            instance,
            replay_limit: ReplayLimit::new(),
            epoll,
            listeners,
            listening: true,
            fails_at_end: false,
            listen_retry_at: None,
            replace_caller_at: None,
            peers: PeerTable::new(u32::MAX),
            pendings: Vec::new(),
            pending: 0,
            inbound: 0,
            connected: 0,
            serial: 0,
            events: VecDeque::new(),
            ready: VecDeque::new(),
            sending: VecDeque::new(),
            requested: VecDeque::new(),
            awaiting_peer: Vec::new(),
            awaiting_descriptor: Vec::new(),
            descriptor_retry_at: None,
            recent: Vec::with_capacity(config.direct_connections as usize + 1),
            buffers: PackBuffers::new(config.large_buffers, config.max_send_size_bytes as usize + PREFIX),
            pipe: SplicePipe::new(config.pipe_bytes, config.splice_from_bytes),
            held: None,
            granted: None,
            now: Instant::ZERO,
            next_deadline: None,
            check_hosts_at: None,
            polls: 0,
            send_turn: false,
            counters: Counters::default(),
            config,
        })
    }
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

/// Makes one listener for each address family. It is bound to the one address that is allowed, or to all addresses where several
/// are allowed.
fn listen(config: &Config, own: &[Interface]) -> Result<(Vec<Socket>, Vec<CardAddress>), SetupError> {
    let mut listeners = Vec::new();
    let mut addresses = Vec::new();
    let mut refused = None;
    for v4 in [true, false] {
        let family: Vec<&Interface> = own.iter().filter(|it| it.address.is_ipv4() == v4).collect();
        let at = match family[..] {
            [] => continue,
            [only] => only.address,
            _ if v4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            _ => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        match listen_at(config, at) {
            Ok((listener, port)) => {
                listeners.push(listener);
                addresses.extend(family.iter().map(|it| CardAddress { address: it.address, prefix: it.prefix, port }));
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
    addresses.truncate(MAX_ADDRESSES);
    Ok((listeners, addresses))
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
            socket.set_reuse_address(true)?; // the port may have connections of an earlier job in TIME_WAIT
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
