//! The operations of windows in progress, and the slots for their bytes.

use std::collections::VecDeque;

use towline_core::convertor::Span;
use towline_core::rma::Denied;

use crate::one_sided::Accessing;
use crate::owners::Owners;
use crate::transport::Buffer;

/// Why an operation has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AccessFailure {
    /// The owner of the memory does not allow it.
    Denied(Denied),
    /// The peer was lost, or has ended.
    PeerLost,
    /// The device of this process or of the peer has failed. It is not known whether the operation was done.
    DeviceFailed,
}

/// What an operation in progress has.
#[derive(Debug)]
pub(crate) struct Owner {
    /// The peer.
    pub peer: u32,
    /// The slot with the bytes.
    pub slot: Option<u64>,
    /// Where the bytes of a get go.
    pub into: Option<Span>,
}

/// What a [`Matching`] keeps for windows.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// The memory of the slots, once it is needed.
    pub slots: Option<Buffer>,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// The slots that are not in use.
    pub free: Vec<u64>,
    /// The operations in progress.
    pub owners: Owners<Owner>,
    /// The operations that have ended, and whose user does not know it yet.
    pub ended: VecDeque<(Accessing, Result<u64, AccessFailure>)>,
}

impl Windows {
    /// Whether an operation is in progress, or its end was not taken.
    pub fn is_busy(&self) -> bool {
        !self.owners.is_empty() || !self.ended.is_empty()
    }

    /// The memory of gets in progress is not written any more.
    pub fn abandon(&mut self) {
        self.owners.values_mut().for_each(|owner| owner.into = None);
        self.ended.clear();
    }
}
