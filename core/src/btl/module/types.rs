//! What a module's methods take, and what its callbacks are told.

use core::fmt;

use bitflags::bitflags;

use crate::btl::descriptor::{Descriptor, DescriptorFlags};
use crate::btl::endpoint::EndpointId;
use crate::btl::errors::Failure;
use crate::convertor::Span;
use crate::error::Blame;
use crate::pool::Handle;
use crate::rma::{Failure as RmaFailure, Registration};

/// A send that is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Completion {
    /// Where it went; stale if the peer was removed.
    pub endpoint: EndpointId,
    /// What was sent.
    pub descriptor: Descriptor,
    /// Whether it left.
    pub status: Result<(), Failure>,
    /// The order value of what is complete: what is allocated with it from now on arrives after this (CONTRACTS B47).
    pub order: u8,
}

bitflags! {
    /// What an error callback is about, with the values of `btl.h`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ErrorFlags: i32 {
        /// The job cannot go on: what was sent may be lost.
        const FATAL = 0x1;
        /// Another rail may take over.
        const NONFATAL = 0x2;
        /// No error: device memory can be mapped from now on.
        const ADD_ACCELERATOR_IPC = 0x4;
    }
}

/// What became of a send that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Outcome {
    /// 0: the callback will tell.
    Queued,
    /// 1: complete. No callback, unless the descriptor asks for one always.
    Sent,
}

/// What [`Btl::sendi`](crate::btl::module::Btl::sendi) sends.
#[derive(Clone, Copy, Debug)]
pub struct Immediate<'h> {
    /// Whose frame it is.
    pub tag: u8,
    /// Arrives in one piece with the payload.
    pub header: &'h [u8],
    /// Packed behind the header; may be empty.
    pub payload: Span,
    /// [`NO_ORDER`](crate::btl::descriptor::NO_ORDER), or the order of what it is to follow; also of the descriptor that may be given instead.
    pub order: u8,
    /// As of a descriptor, and for the one that may be given.
    pub flags: DescriptorFlags,
    /// Whether a descriptor is wanted where the rail is busy.
    pub or_descriptor: bool,
}

/// What happened so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Counters {
    /// Frames handed to a consumer.
    pub received: u64,
    /// Frames accepted for sending.
    pub sent: u64,
    /// Callbacks made or due, and sends complete at once.
    pub completed: u64,
    /// Frames dropped because nobody is registered for their tag.
    pub unregistered: u64,
    /// Frames dropped because they were longer than any that this rail sends.
    pub oversize: u64,
}

/// A one-sided operation that is complete, with what it was begun with (CONTRACTS B18).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Performance {
    /// Whose memory it was; stale if the peer was removed.
    pub endpoint: EndpointId,
    /// Where local memory begins; 0 where it is not contiguous, and for atomics.
    pub local: usize,
    /// Its registration, if it has one.
    pub registration: Option<Registration>,
    /// The caller's own words.
    pub context: [usize; 2],
    /// Whether it was done. Of an atomic, the word that was there before; else 0.
    pub status: Result<u64, RmaFailure>,
}

/// What goes with a one-sided operation. `C` is [`Told`](crate::btl::module::Told).
#[derive(Clone, Copy, Debug)]
pub struct Terms<C> {
    /// Local memory lies within this, and it is not deregistered before the operation is complete. Without one nothing is
    /// checked: rails that emulate need no registration of local memory, of whatever length
    /// (`btl_put_local_registration_threshold`, CONTRACTS B53).
    pub registration: Option<Registration>,
    /// Whom to tell.
    pub callback: Option<C>,
    /// Told with it.
    pub context: [usize; 2],
}

impl<C> Terms<C> {
    /// Nothing goes with it, and nobody is told.
    pub const NONE: Self = Self { registration: None, callback: None, context: [0; 2] };
}

/// What is kept for an operation beside what [`rma`](crate::rma) keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note<C> {
    pub(super) endpoint: EndpointId,
    pub(super) local: usize,
    pub(super) terms: Terms<C>,
}

impl<C> Note<C> {
    pub(super) const NONE: Self = Self { endpoint: EndpointId(Handle::NONE), local: 0, terms: Terms::NONE };
}

/// Memory was not registered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum RegisterMemoryError {
    /// As much is registered as there are slots.
    Full,
    /// The module was made without slots, so there are no one-sided operations on memory of this side:
    /// [`registration_handle_bytes`](crate::btl::module::Btl::registration_handle_bytes) is 0.
    NotAvailable,
    /// The peer that it was to be for is lost or was removed.
    Unreachable,
}

impl RegisterMemoryError {
    /// Who has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Full => Blame::Resource,
            Self::NotAvailable => Blame::Caller,
            Self::Unreachable => Blame::Peer,
        }
    }
}

impl fmt::Display for RegisterMemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "too many pieces of memory are registered: deregister some",
            Self::NotAvailable => {
                "the module has no slots for registered memory: make it with some (`rma::Config::regions`)"
            }
            Self::Unreachable => "the peer is lost or was removed",
        })
    }
}

impl core::error::Error for RegisterMemoryError {}
