//! The headers of the frames that emulate put, get and atomics: see `WIRE.md`.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::rail::LINKED_HEAD;
use crate::rail::atomics::{Atomic, AtomicFlags};

/// Version, in the high half of a header's first byte.
const VERSION: u8 = 1 << 4;

/// Request: the body goes to the target's memory.
pub const PUT: u8 = VERSION | 1;
/// Request: the initiator wants bytes of the target's memory.
pub const GET: u8 = VERSION | 2;
/// Request: the target changes a word of its memory, and returns the old value.
pub const ATOMIC: u8 = VERSION | 3;
/// Answer: the request is done or denied.
pub const DONE: u8 = VERSION | 4;
/// Answer: bytes that a get has asked for.
pub const DATA: u8 = VERSION | 5;
/// As [`PUT`], but the body is a [`RemoteBuffer`](crate::rail::RemoteBuffer) of the bytes.
pub const PUT_EXPOSED: u8 = VERSION | 8;
/// As [`GET`], and the answer may be a remote buffer of the bytes.
pub const GET_EXPOSED: u8 = VERSION | 9;
/// Answer: a remote buffer of the bytes that a get has asked for.
pub const EXPOSED: u8 = VERSION | 10;

/// Status of an answer: the target could not read the exposed bytes. It has done nothing, and the initiator has to send the
/// bytes in frames.
pub const NOT_READ: u8 = 0xff;

/// The header of a request to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Request {
    /// [`PUT`], [`GET`], [`ATOMIC`], [`PUT_EXPOSED`] or [`GET_EXPOSED`].
    pub kind: u8,
    /// In an atomic: the value of its [`AtomicOp`](super::AtomicOp). 0 means compare and swap: the body is the word to compare
    /// with.
    pub operation: u8,
    /// The values of [`AtomicFlags`].
    pub flags: u8,
    pub reserved: u8,
    /// Bytes to put or get.
    pub len: U32,
    /// The initiator's handle of the operation. The answer returns it.
    pub id: U64,
    /// The target's handle of the memory.
    pub memory: U64,
    /// Offset in that memory, in bytes.
    pub offset: U64,
    /// In an atomic: the operand. In a get: the offset in the initiator's memory at which the data belongs.
    pub operand: U64,
}

/// The header of an answer to an initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Answer {
    /// [`DONE`], [`DATA`] or [`EXPOSED`].
    pub kind: u8,
    /// 0, or why the request was not done: the values of [`Denied`](super::Denied), or [`NOT_READ`].
    pub status: u8,
    /// 1, unless more data follows for the same request.
    pub last: u8,
    pub reserved: u8,
    /// Bytes that were put, that follow, or that are exposed; with [`NOT_READ`], bytes that were not put.
    pub len: U32,
    /// The initiator's handle of the operation.
    pub id: U64,
    /// In the answer to an atomic: the old word. In the answer to a get: the offset in the initiator's memory at which the data
    /// belongs, which is the operand of the get, plus the bytes that earlier frames of this answer had.
    pub value: U64,
}

/// Bytes of the header of a request.
pub const REQUEST: usize = size_of::<Request>();
/// Bytes of the header of an answer.
pub const ANSWER: usize = size_of::<Answer>();

const _: () = assert!(REQUEST <= LINKED_HEAD && ANSWER <= LINKED_HEAD);

impl Request {
    /// The atomic operation of a request with this body. `None` if this version has no such operation.
    pub fn atomic(&self, body: &[u8]) -> Option<(Atomic, AtomicFlags)> {
        let flags = AtomicFlags::from_bits(self.flags.into())?;
        let compare = body.first_chunk().map(|word| u64::from_le_bytes(*word));
        let atomic = Atomic::of_parts((self.operation, self.operand.get(), compare))?;
        atomic.takes(flags).then_some((atomic, flags))
    }

    /// Bytes of the memory that a request means.
    pub fn bytes(&self) -> u64 {
        match self.kind {
            ATOMIC => AtomicFlags::from_bits_retain(self.flags.into()).word_bytes(),
            _ => self.len.get().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Handle;
    use crate::rail::native::{KEY, Key, Region};
    use crate::rma::registry::Registered;
    use crate::rma::{Access, AtomicOp, HANDLE_BYTES, RemoteMemory};
    use std::vec::Vec;
    use zerocopy::FromZeros;

    #[test]
    fn frames_have_the_golden_bytes_of_wire_md() {
        let request = Request {
            kind: ATOMIC,
            operation: AtomicOp::Max as u8,
            flags: AtomicFlags::BITS_32.bits() as u8,
            reserved: 0,
            len: 0x0102_0304.into(),
            id: 0x1112_1314_1516_1718.into(),
            memory: 0x2122_2324_2526_2728.into(),
            offset: 0x3132_3334_3536_3738.into(),
            operand: 0x4142_4344_4546_4748.into(),
        };
        let mut golden = [0x13, 0x21, 1, 0, 4, 3, 2, 1].to_vec();
        let words = |from: u8| (1..=8).rev().map(move |byte| from + byte).collect::<Vec<u8>>();
        golden.extend([0x10, 0x20, 0x30, 0x40].into_iter().flat_map(words));
        assert_eq!(request.as_bytes(), golden);
        assert_eq!(request.atomic(&[]), Some((Atomic::Op(AtomicOp::Max, request.operand.get()), AtomicFlags::BITS_32)));
        let answer = Answer {
            kind: DATA,
            status: 0,
            last: 1,
            reserved: 0,
            len: 0x0102_0304.into(),
            id: request.id,
            value: request.memory,
        };
        let mut golden = [0x15, 0, 1, 0, 4, 3, 2, 1].to_vec();
        golden.extend([0x10, 0x20].into_iter().flat_map(words));
        assert_eq!(answer.as_bytes(), golden);
        assert_eq!([PUT, GET, DONE], [0x11, 0x12, 0x14]);
        assert_eq!([PUT_EXPOSED, GET_EXPOSED, EXPOSED, NOT_READ], [0x18, 0x19, 0x1a, 0xff]);
        assert_eq!(Access::ANY.bits(), 0xf);
    }

    #[test]
    fn b26_handles_have_the_golden_bytes_of_wire_md() {
        let handle = RemoteMemory::new(
            Handle::from_bits(0x0000_0007_0000_0009),
            0x1112_1314_1516_1718,
            0x2a,
            0x0102,
            Some(Registered { region: Region(5), key: Some(Key([0xcc; KEY])), owns_atomics: true }),
        );
        let mut golden = [0; HANDLE_BYTES];
        (golden[0], golden[1], golden[2], golden[3], golden[8], golden[12], golden[24]) = (2, 3, 2, 1, 9, 7, 0x2a);
        golden[32..].fill(0xcc);
        golden[16..24].copy_from_slice(&[0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
        assert_eq!(handle.to_bytes(), golden);
        assert_eq!(RemoteMemory::from_bytes(&golden), Some(handle));
        let mut by_address = [0; HANDLE_BYTES];
        by_address[..4].copy_from_slice(&[2, 2, 2, 1]);
        by_address[24..32].fill(0xff);
        assert_eq!(handle.by_address().to_bytes(), by_address);
    }

    /// Compare and swap needs its body: the word to compare with.
    #[test]
    fn unknown_atomics_are_rejected() {
        let request = |operation, flags| Request { operation, flags, ..Request::new_zeroed() };
        let add = Atomic::Op(AtomicOp::Add, 0);
        assert_eq!(request(1, 0).atomic(&[]), Some((add, AtomicFlags::empty())));
        assert_eq!(
            request(0, 0).atomic(&[7; 8]),
            Some((Atomic::CompareSwap(0x0707_0707_0707_0707, 0), AtomicFlags::empty()))
        );
        for (operation, flags, body) in [(0, 0, &[7; 7][..]), (0, 2, &[7; 8]), (2, 0, &[]), (1, 4, &[]), (0x11, 2, &[])]
        {
            assert_eq!(request(operation, flags).atomic(body), None, "{operation} {flags}");
        }
    }
}
