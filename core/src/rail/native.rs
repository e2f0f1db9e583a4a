//! The contract of a rail's device for one-sided operations: the device accesses a peer's memory, and the peer need not poll.
//!
//! [`OneSided`] says which operations a rail has. The floor above ([`rma`](crate::rma)) emulates all others, over any rail.
//!
//! # Contract
//! - [`DeviceMemory::register`] returns a [`Region`] for this side and a [`Key`] for peers. A peer passes the bytes of the key
//!   to its own rail. A key has everything that the peer's rail needs, such as an address. Only rails interpret it.
//! - Keys come from peers that may be hostile. A forged key gives access to memory that its owner has registered for peers, or
//!   to none.
//! - [`DeviceMemory::perform`] begins an operation, or returns its result if it is over already. Otherwise [`Event::Performed`]
//!   reports its completion, once, with its cookie.
//! - **Complete means done at the target**: any later read there, of any kind, finds the new bytes. If the device reports
//!   completion earlier, the rail waits until the bytes are at the target before it reports. So no flush is needed, and such
//!   rails set `RDMA_REMOTE_COMPLETION` and `RDMA_FLUSH`.
//! - Operations may overtake each other and frames. No operation is done twice.
//! - From [`Event::Lost`], [`Event::Down`] or `del_peer` on, the rail accesses no memory for operations with that peer, and
//!   reports none of them. If an operation was not over by then, it is unknown whether the target's memory was accessed.
//! - All native atomics on a word agree with each other, whichever side begins them. With atomics of the target's processor,
//!   which emulated atomics use, they agree only if [`OneSided::atomics`] has [`GLOB`](AtomicSupport::GLOB).
//!
//! [`DeviceMemory::register`]: crate::rail::DeviceMemory::register
//! [`DeviceMemory::perform`]: crate::rail::DeviceMemory::perform
//! [`Event::Performed`]: crate::rail::Event::Performed
//! [`Event::Lost`]: crate::rail::Event::Lost
//! [`Event::Down`]: crate::rail::Event::Down

use core::fmt;

use super::atomics::{Atomic, AtomicFlags, AtomicSupport};
use crate::error::Blame;
pub use crate::wire::{KEY, Key};

/// The one-sided operations of a rail's device, and their limits. Constant over the rail's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct OneSided {
    /// The limits of puts.
    pub put: Reach,
    /// The limits of gets.
    pub get: Reach,
    /// The atomics: on words of 64 bits, with `BITS_32` also of 32 bits, aligned to their size; with `FLOAT` also on
    /// floating-point numbers. A caller asks the rail for no other atomics.
    pub atomics: AtomicSupport,
    /// Whether each operation is over when [`DeviceMemory::perform`](crate::rail::DeviceMemory::perform) returns, since the
    /// peer's memory is mapped here.
    pub at_once: bool,
    /// Which messages the device moves without a copy.
    pub pipeline: Pipeline,
}

/// Which messages a device moves from the sender's memory to the receiver's, and in which pieces. While the memory for the first
/// piece is registered, the first bytes arrive in frames (CONTRACTS B51).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Pipeline {
    /// Bytes of the shortest such message: `min_rdma_pipeline_size` of Open MPI. `u64::MAX`: the device moves no messages.
    pub least: u64,
    /// Bytes that arrive in frames, in addition to those of the first fragment, before the device moves any:
    /// `rdma_pipeline_send_length`.
    pub by_frames: u64,
    /// The most bytes that are registered and moved at a time (a piece): `rdma_pipeline_frag_size`. 0: the device moves no
    /// messages.
    pub piece: u32,
    /// Which device moves the bytes. `true`: the receiver's device gets them if it can. `false`: the sender's device puts them
    /// if it can.
    pub gets: bool,
}

impl Pipeline {
    /// The device moves no messages.
    pub const NONE: Self = Self { least: u64::MAX, by_frames: 0, piece: u32::MAX, gets: false };
}

impl OneSided {
    /// No operations: the rail only sends frames.
    pub const NONE: Self = Self {
        put: Reach::NONE,
        get: Reach::NONE,
        atomics: AtomicSupport::empty(),
        at_once: false,
        pipeline: Pipeline::NONE,
    };

    /// Whether there is any operation, so that memory is registered with the rail.
    pub const fn any(&self) -> bool {
        self.put.limit != 0 || self.get.limit != 0 || !self.atomics.is_empty()
    }

    /// Whether operations of this rail and emulated ones may be mixed on the same memory, and those of the rail are over at
    /// once.
    pub const fn mixes_at_once(&self) -> bool {
        self.at_once && self.atomics.contains(AtomicSupport::GLOB)
    }

    /// Whether the rail has this atomic on words of this type.
    pub const fn does(&self, atomic: Atomic, flags: AtomicFlags) -> bool {
        let wide = !flags.contains(AtomicFlags::BITS_32) || self.atomics.contains(AtomicSupport::BITS_32);
        let float = !flags.contains(AtomicFlags::FLOAT) || self.atomics.contains(AtomicSupport::FLOAT);
        wide && float && self.atomics.contains(atomic.support())
    }
}

/// The limits of puts or gets of a rail (CONTRACTS B52, B53).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Reach {
    /// The most bytes of one operation; 0: the rail has no such operation.
    pub limit: u64,
    /// Offset, local address and length are multiples of this: a power of two, 1 for any.
    pub alignment: u64,
    /// Operations of at least this many bytes need registered local memory; `u64::MAX`: no operation does.
    pub local_registration: u64,
}

impl Reach {
    /// No operations.
    pub const NONE: Self = Self { limit: 0, alignment: 1, local_registration: u64::MAX };

    /// Any number of bytes, at any address, from and to unregistered local memory.
    pub const ANY: Self = Self { limit: u64::MAX, ..Self::NONE };

    /// Whether one operation may have this offset, local address and length.
    pub const fn takes(&self, offset: u64, local: u64, len: u64) -> bool {
        len <= self.limit && (offset | local | len) & self.alignment.wrapping_sub(1) == 0
    }
}

/// The rail's number of a piece of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, zerocopy::FromZeros)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Region(pub u64);

/// A one-sided operation on a peer's memory.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Native {
    /// The kind of operation, and this side's part of it.
    pub work: Work,
    /// The key of the memory, from the peer's rail.
    pub key: Key,
    /// The offset in that memory, in bytes. The caller has checked it against the length that the peer has reported. The device
    /// checks it again.
    pub offset: u64,
}

/// The kind of a one-sided operation.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Work {
    /// Copies local bytes to the peer's memory.
    Put(Local),
    /// Copies bytes of the peer's memory to local memory.
    Get(Local),
    /// Changes a word of the peer's memory. The result is its old value.
    Atomic(Atomic, AtomicFlags),
}

/// Memory of this side of an operation.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Local {
    /// The first byte.
    pub base: *mut u8,
    /// The length in bytes.
    pub len: u64,
    /// The registered memory that contains these bytes. Required from [`Reach::local_registration`] bytes on; optional for
    /// fewer.
    pub region: Option<Region>,
}

/// A rail did not perform or register something.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum NativeError {
    /// There is no room now: try again after polling.
    Busy,
    /// The peer was lost or was never added, or the link to it is down.
    Unreachable,
    /// The rail has no such operation, or not with such a length or alignment, or has no room for more registrations.
    NotAvailable,
    /// The target's device refused: the memory is not registered (any more), the right is missing, or the range is out of bounds.
    Refused,
}

impl NativeError {
    /// The side that has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Busy => Blame::Resource,
            Self::Unreachable => Blame::Peer,
            Self::NotAvailable | Self::Refused => Blame::Caller,
        }
    }
}

impl fmt::Display for NativeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the rail is full: poll, then try again",
            Self::Unreachable => "the peer is lost, was never added to this rail, or the link to it is down: add it, or use another rail",
            Self::NotAvailable => {
                "the rail does not have this operation, or not with this length, alignment or amount of memory: send frames"
            }
            Self::Refused => {
                "the target's device refused: the memory is not registered, the right is missing, or the range is out of bounds"
            }
        })
    }
}

impl core::error::Error for NativeError {}

crate::debug_as_display!(NativeError);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rail::atomics::AtomicOp;

    /// The operations of a verbs device.
    const VERBS: OneSided = OneSided {
        put: Reach::ANY,
        get: Reach::ANY,
        atomics: AtomicSupport::ADD.union(AtomicSupport::CSWAP),
        at_once: false,
        pipeline: Pipeline::NONE,
    };

    #[test]
    fn b22_only_atomics_whose_bits_are_set_are_available() {
        let (wide, narrow, float) = (AtomicFlags::empty(), AtomicFlags::BITS_32, AtomicFlags::FLOAT);
        let (add, xor) = (Atomic::Op(AtomicOp::Add, 1), Atomic::Op(AtomicOp::Xor, 1));
        assert!(VERBS.does(add, wide) && VERBS.does(Atomic::CompareSwap(1, 2), wide));
        assert!(!VERBS.does(add, narrow) && !VERBS.does(add, float) && !VERBS.does(xor, wide));
        let all = OneSided { atomics: AtomicSupport::all(), ..VERBS };
        assert!(all.does(add, narrow | float) && all.does(xor, narrow));
        assert!(VERBS.any() && !OneSided::NONE.any());
    }

    #[test]
    fn b52_limits_and_alignments() {
        let reach = Reach { limit: 64, alignment: 8, ..Reach::ANY };
        assert!(reach.takes(8, 16, 64) && reach.takes(0, 0, 0));
        assert!(!reach.takes(8, 16, 72) && !reach.takes(4, 16, 8) && !reach.takes(8, 1, 8) && !reach.takes(8, 16, 7));
        assert!(Reach::ANY.takes(1, 3, u64::MAX) && !Reach::NONE.takes(0, 0, 1));
    }
}
