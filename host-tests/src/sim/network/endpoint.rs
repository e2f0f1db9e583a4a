//! The state of one rail of one node, and of one direction between two nodes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use towline_core::convertor::Span;
use towline_core::rail::Peer;

/// A body that one node has exposed to another.
#[derive(Clone, Copy)]
pub(super) struct Exposed {
    pub from: u32,
    pub to: u32,
    pub rail: u32,
    /// The owner's epoch of the reader. When it has changed, the buffer is void.
    pub epoch: u32,
    /// The connection. When it has changed, the buffer is void.
    pub session: u32,
    pub body: Span,
    pub revoked: bool,
}

/// One rail of one node.
#[derive(Default)]
pub(super) struct End {
    pub inbox: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// Frames from nodes that are not known at this end yet.
    pub waiting: Vec<(u64, u64, u32)>,
    pub outbox: VecDeque<u32>,
    pub events: BinaryHeap<Reverse<(u64, u64, PendingEvent)>>,
    /// The known peers, by node.
    pub peers: Vec<Option<KnownPeer>>,
    /// How often each peer was deleted at this end. Events of an earlier epoch are not reported.
    pub epochs: Vec<u32>,
    /// The known state of each peer's host.
    pub hosts: Vec<HostState>,
    pub held: u32,
}

/// The state of a peer's host, as an end knows it.
#[derive(Clone, Copy, Default)]
pub(super) struct HostState {
    /// A request in flight: when it was sent, when its reply arrives, and whether there is a reply.
    pub question: Option<(u64, u64, bool)>,
    /// When the latest answered request was sent.
    pub answered_at: Option<u64>,
}

/// A peer that an end knows.
#[derive(Clone, Copy)]
pub(super) struct KnownPeer {
    /// Its name at that end.
    pub peer: Peer,
    /// The connection to it, or `None` if it could not be made.
    pub session: Option<u32>,
    /// Its incarnation.
    pub incarnation: u32,
}

/// One direction between two ends.
#[derive(Clone, Default)]
pub(super) struct Path {
    /// Frames in flight or unreleased, by lane.
    pub used: [u32; 3],
    pub busy_until: u64,
    pub refuses_until: u64,
    pub latest: u64,
    /// Number of the connection, the same in both directions. Frames of an older connection are void.
    pub session: u32,
}

/// An event that an end will report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PendingEvent {
    /// The body of a packet is in its sink.
    Delivered(u32),
    /// A body that was left in place for that node has been read.
    Sent { node: u32, epoch: u32, cookie: u64 },
    /// The node is lost.
    Lost { node: u32, epoch: u32 },
    /// A false report that the node is lost.
    FalseRefusal { node: u32, epoch: u32 },
    /// A device has completed an operation.
    Performed(u64),
}

impl End {
    /// When the end must be polled next, if it may hold at most `keep` frames.
    pub fn next_at(&self, keep: u32) -> Option<u64> {
        let arrival = self.inbox.peek().map(|next| next.0.0).filter(|_| self.held < keep);
        let event = self.events.peek().map(|next| next.0.0);
        let outbox = if self.outbox.is_empty() { None } else { Some(0) };
        [arrival, event, outbox].into_iter().flatten().min()
    }
}

impl End {
    /// An end that knows no peer.
    pub fn unknown(nodes: usize, epochs: Vec<u32>) -> Self {
        Self { peers: vec![None; nodes], epochs, hosts: vec![HostState::default(); nodes], ..Self::default() }
    }
}
