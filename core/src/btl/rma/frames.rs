//! Headers of the frames by which put, get and atomics are emulated: see `WIRE.md`.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::atomics::{Atomic, AtomicFlags};
use crate::btl::LINKED_HEAD;

/// Version, in the high half of a header's first byte.
const VERSION: u8 = 1 << 4;

/// The body goes to the target's memory.
pub const PUT: u8 = VERSION | 1;
/// Bytes of the target's memory are wanted.
pub const GET: u8 = VERSION | 2;
/// A word of the target's memory is to be changed, and its old value is wanted.
pub const ATOMIC: u8 = VERSION | 3;
/// It is done, or refused.
pub const DONE: u8 = VERSION | 4;
/// The bytes that were wanted.
pub const DATA: u8 = VERSION | 5;

/// Something that a target is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Request {
    /// [`PUT`], [`GET`] or [`ATOMIC`].
    pub kind: u8,
    /// Of an atomic, the value of its [`AtomicOp`](super::AtomicOp); 0 for compare and swap, whose body is the word to
    /// compare with.
    pub operation: u8,
    /// The values of [`AtomicFlags`].
    pub flags: u8,
    pub reserved: u8,
    /// Bytes to be put or gotten.
    pub len: U32,
    /// The initiator's name for the operation; comes back with the answer.
    pub id: U64,
    /// The target's name for the memory.
    pub memory: U64,
    /// Where in that memory.
    pub offset: U64,
    /// Of an atomic, the operand. Of a get, where the initiator wants the data.
    pub operand: U64,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Answer {
    /// [`DONE`] or [`DATA`].
    pub kind: u8,
    /// 0, or why not: the values of [`Denied`](super::Denied).
    pub status: u8,
    /// 1, unless more data follows for the same request.
    pub last: u8,
    pub reserved: u8,
    /// Bytes that were put, or that follow.
    pub len: U32,
    /// The initiator's name for the operation.
    pub id: U64,
    /// Of an atomic, the word that was there. Of data, where it belongs: the operand of the get, and
    /// what came before.
    pub value: U64,
}

/// Bytes of a request's header.
pub const REQUEST: usize = size_of::<Request>();
/// Bytes of an answer's header.
pub const ANSWER: usize = size_of::<Answer>();

const _: () = assert!(REQUEST <= LINKED_HEAD && ANSWER <= LINKED_HEAD);

impl Request {
    /// What an atomic is to do, with its body; `None` for what this version does not know.
    pub fn wanted(&self, body: &[u8]) -> Option<(Atomic, AtomicFlags)> {
        let flags = AtomicFlags::from_bits(self.flags.into())?;
        let compare = body.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let atomic = Atomic::of_parts((self.operation, self.operand.get(), compare))?;
        atomic.takes(flags).then_some((atomic, flags))
    }
}
