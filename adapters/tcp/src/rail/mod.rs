//! The rail: its listeners, its peers, and their connections.
//!
//! This file holds the state. The other files implement its parts:
//!
//! | file | subject |
//! |---|---|
//! | `open` | interfaces, listeners, card |
//! | `transfer` | the rail trait: adding peers, sending, reading |
//! | `progress` | polling |
//! | `connect`, `accept` | outbound and inbound connections |
//! | `arbitrate` | which of several connections between two ranks is used |
//! | `close` | loss, goodbye, removal of a peer |
//! | `deadlines`, `dead_hosts` | timeouts, and hosts that do not answer |
//! | `peer` | the state of a peer |

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;
use towline_core::rail::{Attributes, Event, Ticket};
use towline_core::time::Instant;
use towline_net::PeerTable;
use towline_net::interfaces::Interface;

use crate::config::Config;
use crate::counters::Counters;
use crate::handshake::pending::{LocalEnd, Pending};
use crate::handshake::replay_limit::ReplayLimit;
use crate::rail::peer::{ConnState, PeerEntry};
use crate::stream::connection::Connection;
use crate::stream::outbox::{Queue, QueuedFrame};
use crate::stream::pack_buffers::PackBuffers;
use crate::stream::splice::SplicePipe;
use crate::system::epoll::Epoll;

mod accept;
mod arbitrate;
mod close;
mod connect;
mod dead_hosts;
mod deadlines;
mod open;
mod peer;
mod progress;
mod transfer;

/// The object to which a token of epoll belongs. The serial number in a token tells the new owner of a slot from the old one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TokenKind {
    Listener = 1,
    Pending = 2,
    Connection = 3,
}

/// One TCP link to all peers, which is a rail of its own.
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
    config: Config,
    attributes: Attributes,
    card: Vec<u8>,
    /// The addresses of this host that may be used.
    own: Vec<Interface>,
    host: u64,
    instance: u64,
    replay_limit: ReplayLimit,
    epoll: Epoll,
    listeners: Vec<Socket>,
    /// Whether epoll reports callers of the listeners.
    listening: bool,
    /// The end of this rail is a failure for its peers.
    fails_at_end: bool,
    /// When the listeners are tried again after the process ran out of descriptors.
    listen_retry_at: Option<Instant>,
    /// When a caller in the middle of a hello may lose its place to one that waits.
    replace_caller_at: Option<Instant>,

    peers: PeerTable<PeerEntry>,
    pendings: Vec<Option<Pending>>,
    /// How many pending connections there are.
    pending: u32,
    /// How many of them are inbound.
    inbound: u32,
    /// How many established connections there are.
    connected: usize,
    /// The serial number of the latest token.
    serial: u32,

    /// Events to be reported, with the endpoint of each.
    events: VecDeque<(u32, Event)>,
    /// Endpoints whose connection may have bytes to read; each once.
    ready: VecDeque<u32>,
    /// Endpoints whose outbox is not empty; each once.
    sending: VecDeque<u32>,
    /// Endpoints to which a connection is to be made.
    requested: VecDeque<u32>,
    /// Endpoints whose own attempt was given up for a connection of the peer that has not arrived yet.
    awaiting_peer: Vec<u32>,
    /// Endpoints whose attempt waits for a descriptor; each once.
    awaiting_descriptor: Vec<u32>,
    /// When those attempts are made again.
    descriptor_retry_at: Option<Instant>,
    /// Endpoints from which data came last, the latest first. They are read directly, without a report of epoll.
    recent: Vec<u32>,
    buffers: PackBuffers,
    pipe: SplicePipe,
    /// The endpoint whose frame the reader holds.
    held: Option<u32>,
    granted: Option<Granted>,

    now: Instant,
    /// A time that is not later than the earliest deadline.
    next_deadline: Option<Instant>,
    /// When to look next for hosts that do not answer; `None` while there is no connection.
    check_hosts_at: Option<Instant>,
    /// Polls since the last call of epoll.
    polls: u32,
    /// Whether the next poll sends before it reads.
    send_turn: bool,
    counters: Counters,
}

/// The latest grant.
#[derive(Clone, Copy, Debug)]
struct Granted {
    ticket: Ticket,
    queue: Queue,
    frame: QueuedFrame,
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

    /// The addresses of this host that the filter allows.
    pub fn interfaces(&self) -> &[Interface] {
        &self.own
    }

    fn local_end(&self) -> LocalEnd<'_> {
        LocalEnd {
            config: &self.config,
            instance: self.instance,
            host: self.host,
            replay_limit: &self.replay_limit,
            now: self.now,
        }
    }

    #[inline]
    fn connection(&mut self, endpoint: u32) -> Option<&mut Connection> {
        match &mut self.peers.get_mut(endpoint)?.state {
            ConnState::Connected(connection) => Some(connection),
            _ => None,
        }
    }

    /// A token that was not used before.
    fn new_token(&mut self, kind: TokenKind, index: u32) -> u64 {
        self.serial = self.serial.wrapping_add(1);
        token(kind, self.serial, index)
    }

    /// Queues an endpoint for reading.
    #[inline]
    fn mark_ready(&mut self, endpoint: u32) {
        if let Some(entry) = self.peers.get_mut(endpoint)
            && !entry.ready
        {
            entry.ready = true;
            self.ready.push_back(endpoint);
        }
    }

    /// Queues an endpoint for writing.
    #[inline]
    fn mark_sending(&mut self, endpoint: u32) {
        if let Some(entry) = self.peers.get_mut(endpoint)
            && !entry.sending
        {
            entry.sending = true;
            self.sending.push_back(endpoint);
        }
    }

    /// Notes that data came from this endpoint last.
    #[inline]
    fn mark_recent(&mut self, endpoint: u32) {
        if self.recent.first() == Some(&endpoint) || self.config.direct_connections == 0 {
            return;
        }
        if let Some(at) = self.recent.iter().position(|it| *it == endpoint) {
            self.recent.remove(at);
        }
        self.recent.truncate(self.config.direct_connections as usize - 1);
        self.recent.insert(0, endpoint);
    }

    /// Notes that something is due at this time.
    fn note_deadline(&mut self, deadline: Instant) {
        self.next_deadline = Some(self.next_deadline.map_or(deadline, |next| next.min(deadline)));
    }
}

impl AsFd for Rail {
    /// The wait handle: it is ready to read when there is work for `poll`, once `arm` has returned `true`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.descriptor().as_fd()
    }
}

const fn token(kind: TokenKind, serial: u32, index: u32) -> u64 {
    (kind as u64) << 60 | (serial as u64 & 0x0FFF_FFFF) << 32 | index as u64
}

/// The kind and the index in a token.
const fn read_token(token: u64) -> (TokenKind, u32) {
    let kind = match token >> 60 {
        1 => TokenKind::Listener,
        2 => TokenKind::Pending,
        _ => TokenKind::Connection,
    };
    (kind, token as u32)
}

const _: () = {
    const fn may_move_between_threads<T: Send>() {}
    may_move_between_threads::<Rail>();
};
