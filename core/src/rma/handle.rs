//! The handle with which a peer accesses memory that was registered here.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::registry::Registered;
use crate::pool::Handle;
use crate::rail::native;

/// Bytes of a [`RemoteMemory`] (`btl_registration_handle_size`, CONTRACTS B26).
pub const HANDLE_BYTES: usize = 56;

/// The most bytes of a registration handle: `MCA_BTL_REG_HANDLE_MAX_SIZE`.
pub const REG_HANDLE_MAX: usize = 256;

/// Version of the format.
const VERSION: u8 = 2;

/// Flag: the handle has a key.
const KEY: u8 = 1;
/// Flag: all atomics on the memory are done by the device.
const OWNS_ATOMICS: u8 = 2;
/// Flag: words of the memory have their most significant byte first.
const BIG_ENDIAN: u8 = 4;

/// The handle of registered memory for peers. The owner sends its bytes to peers by any means. The handle has a slot and a
/// generation. The target checks them together with rights and bounds, so it denies operations on memory that was deregistered
/// meanwhile (CONTRACTS B25). The handle is not a secret: a peer without it can still access the memory, if the memory was
/// registered for all peers. The address is only a label, from which offsets are computed. In a handle
/// [by address](Self::by_address), it is 0, so that offsets are addresses.
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

format_by_debug!(RemoteMemory);

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

    /// The handle from the bytes that a peer has sent. `None` if they have another length or version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::read_from_bytes(bytes).ok().filter(|memory| memory.version == VERSION)
    }

    /// The bytes to send to peers.
    pub const fn to_bytes(self) -> [u8; HANDLE_BYTES] {
        zerocopy::transmute!(self)
    }

    /// A handle of all memory that the owner has registered for a peer: offsets are addresses in the process of the owner. It serves
    /// callers that know an address, and not the registration in which it lies.
    ///
    /// The owner looks for a registration that allows the access for each request, of which a long put or get has several. So a put
    /// may be denied after some of its bytes were written, and it also reaches memory that was registered after it began. Such
    /// operations are slower, and no device does them: memory of an accelerator is not reached. `self` has to be of the same kind as
    /// the memory: whether the device does all atomics is taken from it.
    pub fn by_address(&self) -> Self {
        Self {
            flags: self.flags & (BIG_ENDIAN | OWNS_ATOMICS),
            handle: Handle::NONE.to_bits().into(),
            base: 0.into(),
            len: u64::MAX.into(),
            key: native::Key([0; native::KEY]),
            ..*self
        }
    }

    /// Bytes of the memory, according to its owner.
    pub const fn len(&self) -> u64 {
        self.len.get()
    }

    /// Whether the memory has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of the memory in the process of its owner. It serves only to turn addresses into offsets, for callers that
    /// have addresses.
    pub const fn base(&self) -> u64 {
        self.base.get()
    }

    /// Slot and generation.
    pub(super) const fn handle(&self) -> u64 {
        self.handle.get()
    }

    /// The key from the owner's rail, if that rail has operations of its own.
    pub(super) fn key(&self) -> Option<native::Key> {
        (self.flags & KEY != 0).then_some(self.key)
    }

    /// Whether all atomics on the memory are done by the device.
    pub(super) const fn owns_atomics(&self) -> bool {
        self.flags & OWNS_ATOMICS != 0
    }

    /// Whether words of the memory have their most significant byte first.
    pub(super) const fn is_big_endian(&self) -> bool {
        self.flags & BIG_ENDIAN != 0
    }

    /// How many unanswered requests of one peer the owner accepts.
    pub(super) const fn window(&self) -> u16 {
        self.window.get()
    }
}
