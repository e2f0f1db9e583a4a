//! The state of a peer, apart from its rings.

use std::fs::File;
use std::os::fd::OwnedFd;

use towline_core::rail::{Lost, Peer};

use crate::error::OpenError;
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
    /// Whether it could not be woken for lack of a descriptor.
    pub is_to_be_woken: bool,
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
    /// No more frames are sent to the peer, since there was no room for a ring in one direction. The peer's frames are received.
    Left {
        /// Whether that was reported.
        reported: bool,
    },
    /// The peer's loss is known, and is reported once all frames that it sent have been read.
    Failing(Lost),
    /// The peer's loss was reported.
    LossReported,
    /// The peer was deleted, and may be added again: its rings stay mapped, since it may still write to them.
    Deleted,
    /// The entry may be used for another peer.
    Vacant,
}

impl PeerState {
    /// Frees a descriptor for something that is needed more: that of the peer's process, whose end is then noticed by its process
    /// id. Returns whether there was one.
    pub fn free_descriptor(&mut self) -> bool {
        self.pidfd.take().is_some()
    }
}

/// Whether a file could not be opened because this process, or the system, has no descriptor left.
pub fn is_out_of_descriptors<T>(opened: &Result<T, OpenError>) -> bool {
    let full = |error: &std::io::Error| matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
    matches!(opened, Err(OpenError::System { error, .. }) if full(error))
}

impl PeerStatus {
    /// Whether an event about the peer is still to be reported.
    pub const fn is_to_be_reported(self) -> bool {
        matches!(self, Self::Left { reported: false } | Self::Failing(_))
    }

    /// Whether frames of the peer are received.
    pub const fn receives(self) -> bool {
        matches!(self, Self::Connected | Self::Left { .. } | Self::Failing(_))
    }
}
