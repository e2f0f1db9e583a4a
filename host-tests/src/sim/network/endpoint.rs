//! One rail of one node, and one direction between two of them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use towline_core::convertor::Span;
use towline_core::rail::Peer;

/// A body that one node lent to another.
#[derive(Clone, Copy)]
pub(super) struct Exposed {
    pub from: u32,
    pub to: u32,
    pub rail: u32,
    /// The lender's epoch of the borrower: when it has changed, the body is void.
    pub epoch: u32,
    /// So when the connection is another.
    pub session: u32,
    pub body: Span,
    pub recalled: bool,
}

/// One rail of one node.
#[derive(Default)]
pub(super) struct End {
    pub inbox: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// What came from nodes that are not known here yet.
    pub waiting: Vec<(u64, u64, u32)>,
    pub outbox: VecDeque<u32>,
    pub events: BinaryHeap<Reverse<(u64, u64, PendingEvent)>>,
    /// The peers that are known here, by node.
    pub peers: Vec<Option<KnownPeer>>,
    /// Times that each peer was added here; what happened to an earlier one is not reported.
    pub epochs: Vec<u32>,
    /// What is known of each peer's host.
    pub hosts: Vec<HostState>,
    pub held: u32,
}

/// What an end knows of a peer's host.
#[derive(Clone, Copy, Default)]
pub(super) struct HostState {
    /// A question that is under way: when it was asked, when its answer is here, and whether one comes.
    pub question: Option<(u64, u64, bool)>,
    /// When the latest was asked that was answered.
    pub there: Option<u64>,
}

/// A peer that is known at an end.
#[derive(Clone, Copy)]
pub(super) struct KnownPeer {
    /// What it is called there.
    pub peer: Peer,
    /// The connection to it; `None` where it could not be made.
    pub session: Option<u32>,
    /// Its incarnation.
    pub incarnation: u32,
}

/// One direction between two ends.
#[derive(Clone, Default)]
pub(super) struct Path {
    /// Frames under way or unreleased, by lane.
    pub used: [u32; 3],
    pub busy_until: u64,
    pub refuses_until: u64,
    pub latest: u64,
    /// Number of the connection, the same in both directions. What belongs to an older one is void.
    pub session: u32,
}

/// What an end will report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PendingEvent {
    /// A packet's body is in its sink.
    Delivered(u32),
    /// A body of that node's is no longer read.
    Sent { node: u32, epoch: u32, cookie: u64 },
    /// The node is lost.
    Lost { node: u32, epoch: u32 },
    /// Somebody says so.
    FalseRefusal { node: u32, epoch: u32 },
    /// A device is through with that.
    Performed(u64),
}

impl End {
    /// When the end must be polled, with at most `keep` frames held.
    pub fn next_at(&self, keep: u32) -> Option<u64> {
        let arrival = self.inbox.peek().map(|next| next.0.0).filter(|_| self.held < keep);
        let event = self.events.peek().map(|next| next.0.0);
        let outbox = if self.outbox.is_empty() { None } else { Some(0) };
        [arrival, event, outbox].into_iter().flatten().min()
    }
}

impl End {
    /// An end that knows nobody.
    pub fn unknown(nodes: usize, epochs: Vec<u32>) -> Self {
        Self { peers: vec![None; nodes], epochs, hosts: vec![HostState::default(); nodes], ..Self::default() }
    }
}
