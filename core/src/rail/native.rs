//! One-sided operations that a rail does itself: its device reaches into a peer's memory, and nobody has to poll there.
//!
//! What a rail can do it says in [`OneSided`]; what it does not say is emulated above ([`rma`](crate::rma)), over any rail.
//!
//! # Contract
//! - [`DeviceMemory::register`](crate::rail::DeviceMemory::register) gives a [`Region`] for this side and a [`Key`] for peers, who hand its bytes to their own rail. A key
//!   holds all that a peer's rail needs, an address where it uses such; nobody else looks into it.
//! - Keys come from peers that may lie: a forged one reaches what its owner has registered for peers, or nothing.
//! - [`DeviceMemory::perform`](crate::rail::DeviceMemory::perform) begins an operation, or answers with its result where it is over already. Otherwise
//!   [`Event::Performed`](crate::rail::Event::Performed) tells its end, once, with its cookie.
//! - **Over means done at the target**: whoever reads there from then on, in whatever way, finds it. A device that tells of
//!   less than that has its rail do what is missing before it tells. So there is nothing to flush below, and such rails set
//!   `RDMA_REMOTE_COMPLETION` and `RDMA_FLUSH`.
//! - Operations may overtake each other and frames. None is done twice.
//! - From [`Event::Lost`](crate::rail::Event::Lost), [`Event::Down`](crate::rail::Event::Down) or `del_peer` on no memory is touched for operations with that peer, and no event of
//!   them follows: of those that are not over nobody knows whether the target did them.
//! - All native atomics on a word agree with each other, whoever begins them. With the target's processor, and so with
//!   emulated ones, they agree only where [`OneSided::atomics`] has [`GLOB`](AtomicSupport::GLOB).
//!
//! [`DeviceMemory::register`]: crate::rail::DeviceMemory::register
//! [`DeviceMemory::perform`]: crate::rail::DeviceMemory::perform
//! [`Event::Performed`]: crate::rail::Event::Performed
//! [`Event::Lost`]: crate::rail::Event::Lost
//! [`Event::Down`]: crate::rail::Event::Down

use core::fmt;

use crate::error::Blame;
use crate::rail::atomics::{Atomic, AtomicFlags, AtomicSupport};
pub use crate::wire::{KEY, Key};

/// What a rail does by itself, and with which limits. Constant over its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct OneSided {
    /// How it puts.
    pub put: Reach,
    /// How it gets.
    pub get: Reach,
    /// Its atomics. 64-bit words, and those of 32 bits where `BITS_32` is set, aligned to their size; `FLOAT`: floating-point
    /// numbers, too. What is not set here is not asked for.
    pub atomics: AtomicSupport,
    /// Whether an operation that [`DeviceMemory::perform`](crate::rail::DeviceMemory::perform) takes is over when that returns: the peer's
    /// memory is mapped here.
    pub at_once: bool,
    /// Which messages it moves without copying them.
    pub pipeline: Pipeline,
}

/// Which messages a device moves from the sender's memory to the receiver's, and in which pieces: from `least` bytes on.
/// While the memory for the first piece is registered, the first bytes come in frames (CONTRACTS B51).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Pipeline {
    /// Bytes of the shortest such message: `min_rdma_pipeline_size`. `u64::MAX`: none.
    pub least: u64,
    /// Bytes that frames bring, beside those of the first fragment, before a device moves any: `rdma_pipeline_send_length`.
    pub by_frames: u64,
    /// Bytes of a piece, at most: `rdma_pipeline_frag_size`. So much is registered, and moved, at a time. 0: none are moved.
    pub piece: u32,
    /// The receiver's device gets where it can; else the sender's puts where it can.
    pub gets: bool,
}

impl Pipeline {
    /// None.
    pub const NONE: Self = Self { least: u64::MAX, by_frames: 0, piece: u32::MAX, gets: false };
}

impl OneSided {
    /// Nothing: the rail only sends.
    pub const NONE: Self = Self {
        put: Reach::NONE,
        get: Reach::NONE,
        atomics: AtomicSupport::empty(),
        at_once: false,
        pipeline: Pipeline::NONE,
    };

    /// Whether it does anything at all, so that registering memory with it makes sense.
    pub const fn any(&self) -> bool {
        self.put.limit != 0 || self.get.limit != 0 || !self.atomics.is_empty()
    }

    /// Whether each operation may go by this rail or be emulated, whichever is there just then, and what goes by it is
    /// over at once.
    pub const fn mixes_at_once(&self) -> bool {
        self.at_once && self.atomics.contains(AtomicSupport::GLOB)
    }

    /// Whether it does this to such words.
    pub const fn does(&self, atomic: Atomic, flags: AtomicFlags) -> bool {
        let wide = !flags.contains(AtomicFlags::BITS_32) || self.atomics.contains(AtomicSupport::BITS_32);
        let float = !flags.contains(AtomicFlags::FLOAT) || self.atomics.contains(AtomicSupport::FLOAT);
        wide && float && self.atomics.contains(atomic.support())
    }
}

/// How a rail puts or gets (CONTRACTS B52, B53).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Reach {
    /// Bytes of one operation at most; 0: it does none.
    pub limit: u64,
    /// What offset, local address and length are multiples of: a power of two, 1 for any.
    pub alignment: u64,
    /// From so many bytes on local memory has to be registered; `u64::MAX`: never.
    pub local_registration: u64,
}

impl Reach {
    /// None.
    pub const NONE: Self = Self { limit: 0, alignment: 1, local_registration: u64::MAX };

    /// Any number of bytes, anywhere, from and to any memory.
    pub const ANY: Self = Self { limit: u64::MAX, ..Self::NONE };

    /// Whether one operation takes these words.
    pub const fn takes(&self, offset: u64, local: u64, len: u64) -> bool {
        len <= self.limit && (offset | local | len) & self.alignment.wrapping_sub(1) == 0
    }
}

/// Memory that a rail has registered, as the rail numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, zerocopy::FromZeros)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Region(pub u64);

/// Something to be done with a peer's memory.
#[derive(Clone, Copy, Debug)]
pub struct Native {
    /// What.
    pub work: Work,
    /// Which memory, as the peer's rail has named it.
    pub key: Key,
    /// From where in it on. Who asks has checked that it lies within what the peer says it registered; the device checks
    /// for itself.
    pub offset: u64,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Local bytes become remote ones.
    Put(Local),
    /// Remote bytes become local ones.
    Get(Local),
    /// A remote word is changed, and its old value is the result.
    Atomic(Atomic, AtomicFlags),
}

/// Memory of this side.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// Its first byte.
    pub base: *mut u8,
    /// Bytes.
    pub len: u64,
    /// What it lies in; given from [`Reach::local_registration`] bytes on, and perhaps for less.
    pub region: Option<Region>,
}

/// A rail did not do something.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum NativeError {
    /// No room now: try again after polling.
    Busy,
    /// The peer was lost, is not known here, or the link to it is down.
    Unreachable,
    /// The rail does no such thing, or not with such a length or alignment, or has no room for more registrations.
    NotAvailable,
    /// The target's device refused: no such memory (any more), no right, or out of bounds.
    Refused,
}

impl NativeError {
    /// Who has to act.
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
            Self::Unreachable => "the peer is lost, was never added to this rail, or cannot be reached now",
            Self::NotAvailable => "the rail does not do that, or not with such a length, alignment or so much memory",
            Self::Refused => "the target's device refused: no such memory, no right, or out of bounds",
        })
    }
}

impl core::error::Error for NativeError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rail::atomics::AtomicOp;

    /// What a verbs device has.
    const VERBS: OneSided = OneSided {
        put: Reach::ANY,
        get: Reach::ANY,
        atomics: AtomicSupport::ADD.union(AtomicSupport::CSWAP),
        at_once: false,
        pipeline: Pipeline::NONE,
    };

    #[test]
    fn b22_only_what_is_set_is_done() {
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
