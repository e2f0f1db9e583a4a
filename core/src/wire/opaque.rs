//! Bytes that travel in headers and that only one kind of rail looks into, and the longest header.

/// Bytes of a frame that come with `rail::Event::Frame`: what fits in one 64-byte slot beside the slot's own mark.
/// Headers are never longer.
pub const HEAD: usize = 56;

/// Bytes of a [`RemoteBuffer`]: with the header of a rendezvous they make up one head.
pub const REMOTE_BUFFER_BYTES: usize = 16;

/// How the other end of a rail finds memory that was lent to it (see `rail::SingleCopy::expose`). Opaque to all but that rail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RemoteBuffer(pub [u8; REMOTE_BUFFER_BYTES]);

/// Bytes of a [`Key`]: room for an address, a length and a device's own key.
pub const KEY: usize = 24;

/// How a peer's rail finds registered memory. Opaque to all but that kind of rail.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Debug,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::Immutable,
    zerocopy::KnownLayout,
    zerocopy::Unaligned,
)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(transparent)]
pub struct Key(pub [u8; KEY]);
