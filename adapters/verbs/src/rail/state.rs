//! The state of a rail.

use towline_core::rail::{Attributes, Endpoint};
use towline_core::time::Instant;

use super::endpoint_lists::{EndpointLists, Timers};
use super::hello_channel::HelloChannel;
use super::local_port::LocalPort;
use super::peers::Peers;
use super::queues::Queues;
use super::receive::ReceiveState;
use super::send::{SendState, UserMemory};
use crate::bookkeeping::closing::ClosingQueuePairs;
use crate::bookkeeping::round_robin::RoundRobin;
use crate::config::Config;
use crate::counters::Counters;
use crate::device::ReliableQueuePair;
use crate::port::GidChoice;

/// One port of a device that reaches all peers, each by a queue pair of its own. A rail is used by one thread at a time, and may
/// move between threads.
#[derive(Debug)]
pub struct Rail {
    pub(super) config: Config,
    pub(super) attributes: Attributes,
    pub(super) local: LocalPort,
    pub(super) peers: Peers,
    pub(super) lists: EndpointLists,
    pub(super) timers: Timers,
    pub(super) receive: ReceiveState,
    pub(super) send: SendState,
    pub(super) user_memory: UserMemory,
    /// Queue pairs of connections that have ended.
    pub(super) closing: ClosingQueuePairs<ReliableQueuePair>,
    /// The order in which peers are looked at for keepalives.
    pub(super) keepalive_order: RoundRobin,
    pub(super) health: Health,
    /// Whether a notification was requested, so that the completion channel may have become ready.
    pub(super) armed: bool,
    /// Time of the last poll.
    pub(super) now: Instant,
    pub(super) counters: Counters,
    // These two are dropped in this order: the queue pair of hellos before the queues and the memory that it uses.
    pub(super) hellos: HelloChannel,
    pub(super) queues: Queues,
}

/// Failures that end the whole rail.
#[derive(Debug, Default)]
pub struct Health {
    /// A failure that was noticed and not acted on yet.
    pub(super) fault: Option<&'static str>,
    /// The failure that was acted on: no peer can be reached.
    pub(super) dead: Option<&'static str>,
}

impl Health {
    /// Notes a failure that ends the whole rail. The next poll acts on it: at this moment a connection may be ending, and its
    /// completions are still to be processed.
    pub fn fail(&mut self, why: &'static str) {
        if self.dead.is_none() {
            self.fault = Some(why);
        }
    }
}

impl Rail {
    /// How often each event has happened so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The settings in force, after impossible values were replaced.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The port that is used, as `device:port`.
    pub fn port(&self) -> &str {
        &self.local.port.name
    }

    /// The address that is used, and why it was chosen.
    pub const fn address(&self) -> &GidChoice {
        &self.local.port.address
    }

    /// Moves the connection to a peer to its error state, as a fault of the network does: for tests.
    pub fn inject_connection_error(&self, to: Endpoint) {
        if let Some(connection) = self.peers.connection(to.0)
            && let Err(why) = connection.queue_pair.set_error()
        {
            log::warn!("verbs: a connection cannot be moved to its error state: {why}");
        }
    }

    /// Moves the queue pair of hellos to its error state: for tests.
    pub fn inject_hello_error(&self) {
        if let Err(why) = self.hellos.queue_pair.set_error() {
            log::warn!("verbs: the queue pair of hellos cannot be moved to its error state: {why}");
        }
    }
}

const _: () = {
    const fn may_move_between_threads<T: Send>() {}
    may_move_between_threads::<Rail>();
};
