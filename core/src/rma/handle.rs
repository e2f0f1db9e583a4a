//! How a peer names memory that was registered here.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::registry::Registered;
use crate::pool::Handle;
use crate::rail::native;

/// Bytes of a [`RemoteMemory`] (`btl_registration_handle_size`, CONTRACTS B26).
pub const HANDLE_BYTES: usize = 56;

/// Bytes of a registration handle at most: `MCA_BTL_REG_HANDLE_MAX_SIZE`.
pub const REG_HANDLE_MAX: usize = 256;

/// Version of what is in these bytes.
const VERSION: u8 = 2;

/// In the flags: there is a key.
const KEY: u8 = 1;
/// In the flags: atomics are the device's alone.
const OWNS_ATOMICS: u8 = 2;
/// In the flags: words lie there with their most significant byte first.
const BIG_ENDIAN: u8 = 4;

/// Registered memory as others name it: bytes to be sent to them in whatever way. Made up of a slot and a generation, which
/// the target checks together with rights and bounds: what was deregistered since is refused there (CONTRACTS B25). It is no
/// secret: what all peers may do, each can do, whether it was given the handle or not. The address is a mere label.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RemoteMemory {
    version: u8,
    flags: u8,
    window: U16,
    reserved: U32,
    handle: U64,
    base: U64,
    len: U64,
    key: native::Key,
}

const _: () = assert!(size_of::<RemoteMemory>() == HANDLE_BYTES && HANDLE_BYTES <= REG_HANDLE_MAX);

impl RemoteMemory {
    pub(super) fn new(handle: Handle, base: u64, len: u64, window: u16, native: Option<Registered>) -> Self {
        let key = native.and_then(|native| native.key);
        let owns_atomics = native.is_some_and(|native| native.owns_atomics);
        Self {
            version: VERSION,
            flags: if key.is_some() { KEY } else { 0 }
                | if owns_atomics { OWNS_ATOMICS } else { 0 }
                | if cfg!(target_endian = "big") { BIG_ENDIAN } else { 0 },
            window: window.into(),
            reserved: 0.into(),
            handle: handle.to_bits().into(),
            base: base.into(),
            len: len.into(),
            key: key.unwrap_or(native::Key([0; native::KEY])),
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

    /// How the rail of its owner has named it, where that does things itself.
    pub(super) fn key(&self) -> Option<native::Key> {
        (self.flags & KEY != 0).then_some(self.key)
    }

    /// Whether atomics on it are the device's alone.
    pub(super) const fn owns_atomics(&self) -> bool {
        self.flags & OWNS_ATOMICS != 0
    }

    /// Whether words lie there with their most significant byte first.
    pub(super) const fn is_big_endian(&self) -> bool {
        self.flags & BIG_ENDIAN != 0
    }

    /// How many operations of one peer its owner keeps in mind.
    pub(super) const fn window(&self) -> u16 {
        self.window.get()
    }
}
