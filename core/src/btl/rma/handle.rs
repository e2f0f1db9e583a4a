//! How a peer names memory that was registered here.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::pool::Handle;

/// Bytes of a [`RemoteMemory`] (`btl_registration_handle_size`, CHECKLIST B26).
pub const HANDLE_BYTES: usize = 32;

/// Version of what is in these bytes.
const VERSION: u8 = 1;

/// Registered memory as others name it: bytes to be sent to them in whatever way. Made up of a slot and a generation, which
/// the target checks together with rights and bounds: what was deregistered since is refused there (CHECKLIST B25). It is no
/// secret: what all peers may do, each can do, whether it was given the handle or not. The address is a mere label.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RemoteMemory {
    version: u8,
    reserved: u8,
    window: U16,
    reserved_too: U32,
    handle: U64,
    base: U64,
    len: U64,
}

const _: () =
    assert!(size_of::<RemoteMemory>() == HANDLE_BYTES && HANDLE_BYTES <= crate::btl::descriptor::REG_HANDLE_MAX);

impl RemoteMemory {
    pub(super) fn new(handle: Handle, base: u64, len: u64, window: u16) -> Self {
        Self {
            version: VERSION,
            reserved: 0,
            window: window.into(),
            reserved_too: 0.into(),
            handle: handle.to_bits().into(),
            base: base.into(),
            len: len.into(),
        }
    }

    /// What a peer has sent; `None` for other lengths and versions.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::read_from_bytes(bytes).ok().filter(|memory| memory.version == VERSION)
    }

    /// To be sent to peers.
    pub const fn to_bytes(self) -> [u8; HANDLE_BYTES] {
        zerocopy::transmute!(self)
    }

    /// Bytes of the memory, as its owner says.
    pub const fn len(&self) -> u64 {
        self.len.get()
    }

    /// Whether it has no bytes at all.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where it begins in the memory of its owner. Nothing is done with it but to turn addresses into offsets, for those who
    /// have addresses.
    pub const fn base(&self) -> u64 {
        self.base.get()
    }

    /// Slot and generation.
    pub(super) const fn handle(&self) -> u64 {
        self.handle.get()
    }

    /// How many operations of one peer its owner keeps in mind.
    pub(super) const fn window(&self) -> u16 {
        self.window.get()
    }
}
