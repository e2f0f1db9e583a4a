//! The rail: its socket, its peers, and its queues.
//!
//! This file holds the state. The other files implement its parts:
//!
//! | file | subject |
//! |---|---|
//! | `open` | interface, socket, card |
//! | `transfer` | the rail trait: adding peers, sending, reading |
//! | `progress` | polling, and sending frames that wait |
//! | `receive` | received datagrams |
//! | `connect` | hellos: connecting, and renewing sessions |
//! | `goodbye` | goodbyes, and the removal and loss of peers |
//! | `liveness` | closed ports, and hosts |
//! | `peer` | the state of a peer |

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::Socket;
use towline_core::rail::{Attributes, Event, Ticket};
use towline_core::time::Instant;
use towline_net::PeerTable;
use towline_net::interfaces::Interface;
use zeroize::Zeroizing;

use crate::config::Config;
use crate::counters::Counters;
use crate::probes::host::{HostProbe, ReservedSocket};
use crate::queues::inbox::Inbox;
use crate::queues::outbox::Outbox;
use crate::queues::pacing::TokenBucket;
use crate::rail::peer::{Goodbye, PeerEntry};
use crate::system::socket as sys;

mod connect;
mod goodbye;
mod liveness;
mod open;
mod peer;
mod progress;
mod receive;
mod transfer;

/// One UDP socket that reaches all peers. The rail loses frames, so it is to be wrapped in a link.
///
/// ```
/// use towline_core::rail::{Capabilities, Rail as _};
/// use towline_udp::{Config, JobKey, Rail};
///
/// let rail = Rail::new(Config::new(1, 0, JobKey::new([7; 32]))).unwrap();
/// assert!(rail.attributes().capabilities.contains(Capabilities::NEED_ACK | Capabilities::NEED_CSUM));
/// assert!(!rail.card().is_empty(), "to be published");
/// ```
#[derive(Debug)]
pub struct Rail {
    config: Config,
    attributes: Attributes,
    card: Vec<u8>,
    /// The address of this host that is used.
    own: [Interface; 1],
    address: SocketAddr,
    host: u64,
    instance: u64,
    /// Whether this end wants datagrams to have a MAC.
    signs: bool,
    /// Whether the datagrams of any peer may be encrypted; on the loopback interface there is no peer of another host.
    encrypts: bool,
    socket: Socket,
    peers: PeerTable<PeerEntry>,
    /// Events to be reported, with the endpoint of each.
    events: VecDeque<(u32, Event)>,
    /// Endpoints to which a session is to be made.
    requested: Vec<u32>,
    /// Endpoints without a session to which hellos are sent.
    connecting: Vec<u32>,
    /// Endpoints with a session beside which another one is made.
    renewing: Vec<u32>,
    /// Endpoints whose port is closed.
    closing: Vec<u32>,
    /// How many more receive calls may find datagrams before those endpoints are lost.
    closing_receives: u32,
    /// Endpoints whose port was reported closed, which is being checked.
    checked_ports: Vec<u32>,
    /// A time that is not later than the next nonce of those checks.
    next_port_check: Option<Instant>,
    /// Hosts that are or were probed.
    hosts: Vec<HostProbe>,
    /// The socket for probes while there is no free descriptor.
    reserved: ReservedSocket,
    /// The goodbyes of peers that were removed, by endpoint.
    goodbyes: Vec<Option<Goodbye>>,
    inbox: Inbox,
    outbox: Outbox,
    granted: Option<Ticket>,
    /// The buffer in which datagrams are sealed and opened; empty if none is encrypted.
    scratch: Zeroizing<Vec<u8>>,
    /// Short frames that were sent by calls of their own since the last poll.
    sent_at_once: u32,
    pacing: TokenBucket,
    now: Instant,
    /// A time that is not later than the next hello.
    next_hello: Option<Instant>,
    /// When to send again frames that the socket or the pacing has held back.
    send_retry_at: Option<Instant>,
    /// Polls since a datagram arrived.
    idle: u32,
    counters: Counters,
}

/// Bytes of the kernel's buffers of a socket, as the kernel counts them: with its own bookkeeping, which may be most of the bytes
/// of a short datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Buffers {
    /// For sent datagrams.
    pub send: usize,
    /// For received datagrams.
    pub receive: usize,
    /// Datagrams that were lost because the receive buffer was full.
    pub overflowed: u64,
}

impl Rail {
    /// Numbers of events so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The configuration of the rail, with each value clamped to its range.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The address of this host that is used.
    pub const fn interface(&self) -> &Interface {
        let [own] = &self.own;
        own
    }

    /// The address and port of the socket.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The sizes of the kernel's buffers, and whether they were large enough.
    pub fn buffers(&self) -> Buffers {
        let (send, receive) = (self.socket.send_buffer_size(), self.socket.recv_buffer_size());
        Buffers { send: send.unwrap_or(0), receive: receive.unwrap_or(0), overflowed: sys::overflowed(&self.socket) }
    }
}

impl AsFd for Rail {
    /// The wait handle: it is ready to read when there is work for `poll`, once `arm` has returned `true`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Rail {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.socket.as_raw_fd()
    }
}

const _: () = {
    const fn may_move_between_threads<T: Send>() {}
    may_move_between_threads::<Rail>();
};
