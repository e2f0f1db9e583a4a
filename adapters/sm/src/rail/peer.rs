//! The state of a peer, apart from its rings.

use std::fs::File;
use std::os::fd::OwnedFd;

use towline_core::rail::{Lost, Peer};

use crate::host::Process;
use crate::rma::PeerRegions;
use crate::segment::control::ControlSegment;

/// A peer, apart from its rings.
#[derive(Debug)]
pub struct PeerState {
    pub rank: u32,
    pub peer: Peer,
    pub status: PeerStatus,
    /// Its incarnation.
    pub nonce: u64,
    pub process: Process,
    pub control: Option<ControlSegment>,
    /// A descriptor that is ready once its process has ended; `None` where there is none.
    pub pidfd: Option<OwnedFd>,
    /// The pipe that wakes it, once it was opened.
    pub pipe: Option<File>,
    /// Whether we execute a full fence before we look whether the peer sleeps, since its barrier does not reach this process.
    pub needs_fence: bool,
    /// Whether the ring to it was made without single copy, because too many locks were held.
    pub over_lock_limit: bool,
    /// Regions of its memory that are mapped here.
    pub regions: PeerRegions,
}

/// Status of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerStatus {
    /// Frames are sent and received.
    Connected,
    /// The peer's loss is known, and is reported once all frames that it sent have been read.
    Failing(Lost),
    /// The peer's loss was reported.
    LossReported,
    /// The peer was deleted, and may be added again: its rings stay mapped, since it may still write to them.
    Deleted,
    /// The entry may be used for another peer.
    Vacant,
}
