//! Opaque bytes in headers, which only one kind of rail interprets; and the length of the longest header.

/// The most bytes of a frame that come with `rail::Event::Frame`: a slot of 64 bytes has that many, beside its own word of 8
/// bytes. Headers are never longer.
pub const HEAD: usize = 56;

/// The bytes of a [`RemoteBuffer`]. Together with the header of a rendezvous they are one head.
pub const REMOTE_BUFFER_BYTES: usize = 16;

/// The description of exposed memory. With it, the other end of a rail reads the memory (see `rail::SingleCopy::expose`). Only
/// that kind of rail interprets it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RemoteBuffer(pub [u8; REMOTE_BUFFER_BYTES]);

/// The bytes of a [`Key`]: enough for an address, a length and a device's own key.
pub const KEY: usize = 24;

/// The key of registered memory. With it, a peer's rail accesses the memory. Only that kind of rail interprets it.
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
