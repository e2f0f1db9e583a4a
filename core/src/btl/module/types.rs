//! The parameters of a module's methods, and of its callbacks.

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
    /// The receiving peer. The handle is stale if the peer was removed.
    pub endpoint: EndpointId,
    /// The descriptor that was sent.
    pub descriptor: Descriptor,
    /// Whether the frame has left.
    pub status: Result<(), Failure>,
    /// The order value of the send: descriptors that are allocated with this value from now on arrive after the send (CONTRACTS
    /// B47).
    pub order: u8,
}

bitflags! {
    /// The severity of an error callback, with the values of `btl.h`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ErrorFlags: i32 {
        /// The job cannot go on: messages may be lost.
        const FATAL = 0x1;
        /// Another rail may take over.
        const NONFATAL = 0x2;
        /// Not an error: device memory can be mapped from now on.
        const ADD_ACCELERATOR_IPC = 0x4;
    }
}

format_by_debug!(ErrorFlags);

/// The result of a send or a one-sided operation that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Outcome {
    /// 0: the callback reports the completion.
    Queued,
    /// 1: complete. There is no callback, unless the descriptor has `SEND_ALWAYS_CALLBACK`.
    Sent,
}

/// The parameters of [`Btl::sendi`](crate::btl::module::Btl::sendi).
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Immediate<'h> {
    /// The tag of the frame. The peer hands the frame to the consumer of this tag.
    pub tag: u8,
    /// The first bytes of the frame. They arrive in one piece with the payload.
    pub header: &'h [u8],
    /// Packed after the header. It may be empty.
    pub payload: Span,
    /// [`NO_ORDER`](crate::btl::descriptor::NO_ORDER), or the order of the sends that it follows. A descriptor that is returned
    /// gets it, too.
    pub order: u8,
    /// As the flags of a descriptor. A descriptor that is returned gets them, too.
    pub flags: DescriptorFlags,
    /// Whether the caller wants a descriptor if the rail is full.
    pub or_descriptor: bool,
}

/// Counts of a module since set-up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Counters {
    /// Frames handed to a consumer.
    pub received: u64,
    /// Frames accepted for sending.
    pub sent: u64,
    /// Complete sends and one-sided operations, with or without a callback.
    pub completed: u64,
    /// Frames that were dropped because their tag has no consumer.
    pub unregistered: u64,
    /// Frames that were dropped because they were longer than the longest frame of the rail.
    pub oversize: u64,
}

/// A one-sided operation that is complete, with the parameters that it was begun with (CONTRACTS B18).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RmaCompletion {
    /// The peer whose memory was accessed. The handle is stale if the peer was removed.
    pub endpoint: EndpointId,
    /// The address of local memory. 0 if local memory is not contiguous, and for atomics.
    pub local: usize,
    /// The registration of local memory, if there is one.
    pub registration: Option<Registration>,
    /// Two words of the caller.
    pub context: [usize; 2],
    /// `Ok` if the operation was done, with the old value of the word for an atomic, and 0 for a put or get.
    pub status: Result<u64, RmaFailure>,
}

/// Optional parameters of a one-sided operation. `C` is [`RmaCallback`](crate::btl::module::RmaCallback).
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RmaParams<C> {
    /// The registration of local memory. The operation's local memory has to lie within it, and cannot be deregistered before
    /// the operation is complete. Without a registration nothing is checked: emulated operations need none, whatever the length
    /// of local memory (`btl_put_local_registration_threshold`, CONTRACTS B53).
    pub registration: Option<Registration>,
    /// The callback for the completion.
    pub callback: Option<C>,
    /// Two words of the caller, which the callback gets.
    pub context: [usize; 2],
}

impl<C> RmaParams<C> {
    /// No registration and no callback.
    pub const NONE: Self = Self { registration: None, callback: None, context: [0; 2] };
}

/// The state that a module keeps for an operation, in addition to that of [`rma`](crate::rma).
#[derive(Clone, Copy, Debug)]
pub(super) struct RmaContext<C> {
    pub(super) endpoint: EndpointId,
    pub(super) local: usize,
    pub(super) params: RmaParams<C>,
}

impl<C> RmaContext<C> {
    pub(super) const NONE: Self = Self { endpoint: EndpointId(Handle::NONE), local: 0, params: RmaParams::NONE };
}

/// Why memory was not registered.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum RegisterMemoryError {
    /// All slots for registered memory are in use.
    Full,
    /// The module has no slots for registered memory, so there are no one-sided operations on memory of this side:
    /// [`registration_handle_bytes`](crate::btl::module::Btl::registration_handle_bytes) is 0.
    NotAvailable,
    /// The peer that the memory was registered for is lost or was removed.
    Unreachable,
}

impl RegisterMemoryError {
    /// The side that has to act.
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
            Self::Full => "all slots for registered memory are in use: deregister some memory",
            Self::NotAvailable => "the module has no slots for registered memory: set `rma::Config::regions`",
            Self::Unreachable => "the peer is lost or was removed: register the memory for another peer",
        })
    }
}

impl core::error::Error for RegisterMemoryError {}

crate::debug_as_display!(RegisterMemoryError);
