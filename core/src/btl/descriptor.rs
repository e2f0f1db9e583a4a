//! Descriptors: the bytes of a send, and its callback.

use core::fmt;
use core::mem::size_of;

use bitflags::bitflags;
use zerocopy::FromZeros;

use crate::arena::{Arena, OutOfMemory};
use crate::convertor::Span;
use crate::error::Blame;
use crate::pool::{Handle, Pool};

/// The most segments of a descriptor: `MCA_BTL_DES_MAX_SEGMENTS`.
pub const MAX_SEGMENTS: usize = 16;
/// The most bytes of the segment structure of a C module: `MCA_BTL_SEG_MAX_SIZE`. (This is not the length of the memory that the
/// segment describes, which has 64 bits.)
pub const SEG_MAX_SIZE: usize = 256;
pub use crate::rma::REG_HANDLE_MAX;
/// The order value of a send that needs no order: `MCA_BTL_NO_ORDER`.
pub const NO_ORDER: u8 = 255;
/// The order value of all complete operations to a peer: the value of
/// [`Completion::order`](crate::btl::module::Completion::order). A descriptor that is allocated with it arrives after all
/// frames that were sent to that peer before (CONTRACTS B47). The module asks the peer for a reply before such a send leaves,
/// which takes a round trip. Later sends wait behind it, unless they have priority.
///
/// If only one of two sides has removed the other and added it again, their counts of frames differ. Then such sends may wait
/// until the peer is removed, or leave too early. A complete one-sided operation is done at the target, so every later send
/// comes after it.
pub const ORDER: u8 = 0;

bitflags! {
    /// Flags of a descriptor, with the values of `btl.h` (CONTRACTS B46). Flags without an effect are kept with the descriptor
    /// for its owner.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct DescriptorFlags: u32 {
        /// The send goes before waiting sends without priority. It does not overtake frames that the rail already has. A send
        /// with an order ignores this flag.
        const PRIORITY = 0x0001;
        /// The module frees the descriptor when its last operation is complete and its callback was made.
        const BTL_OWNERSHIP = 0x0002;
        /// The callback is made even if `send` has returned that the send is complete.
        const SEND_ALWAYS_CALLBACK = 0x0004;
        /// The copy is made asynchronously, by an accelerator. It has no effect here.
        const ACCELERATOR_COPY_ASYNC = 0x0008;
        /// The descriptor is for a put (3.0 only). It has no effect here.
        const PUT = 0x0010;
        /// The descriptor is for a get (3.0 only). It has no effect here.
        const GET = 0x0020;
        /// The send wakes the peer. Every frame does that, unless
        /// [`Btl::wake_on_demand`](crate::btl::module::Btl::wake_on_demand) has set that only sends with this flag do.
        const SIGNAL = 0x0040;
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for DescriptorFlags {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "DescriptorFlags({=u32:#x})", self.bits());
    }
}

/// Memory, for callbacks: `mca_btl_base_segment_t`. It is never sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(C)]
pub struct Segment {
    /// The address, in 64 bits on all machines.
    pub addr: u64,
    /// The length in bytes.
    pub len: u64,
}

/// The first field of every header: `mca_btl_base_header_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(C)]
pub struct Header {
    /// The active-message tag.
    pub tag: u8,
}

const _: () = assert!(size_of::<Segment>() == 16 && size_of::<Header>() == 1 && size_of::<Segment>() <= SEG_MAX_SIZE);

/// The handle of a descriptor. It is valid until the descriptor is freed. Methods refuse a stale one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Descriptor(pub(super) Handle);

crate::btl::word_handle!(Descriptor);

/// The properties of a descriptor. Its owner sets them, and reads them in the callback. `C` is a reference to the callback.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Properties<C> {
    /// The callback for sends that are complete locally, if there is one.
    pub callback: Option<C>,
    /// The flags.
    pub flags: DescriptorFlags,
    /// The order value: [`NO_ORDER`], or [`ORDER`] if the descriptor has to arrive after all frames that were sent before.
    pub order: u8,
    /// A word of the owner.
    pub cbdata: usize,
    /// Another word of the owner.
    pub context: usize,
}

impl<C> Properties<C> {
    const fn new(flags: DescriptorFlags, order: u8) -> Self {
        Self { callback: None, flags, order, cbdata: 0, context: 0 }
    }
}

/// The descriptors of a module, and the memory of each.
#[derive(Debug)]
pub(super) struct Descriptors<'m, C> {
    states: Pool<'m, DescriptorState>,
    properties: &'m mut [Properties<C>],
    segments: &'m mut [[Span; MAX_SEGMENTS]],
    memory: *mut u8,
    /// Bytes of each descriptor's own memory.
    bytes: usize,
    /// `bytes`, rounded up so that the memory of each descriptor is aligned.
    stride: usize,
}

#[derive(Clone, Copy, FromZeros, Debug)]
struct DescriptorState {
    segments: usize,
    /// Sends that are not complete yet.
    sends: u32,
}

impl<'m, C: Copy> Descriptors<'m, C> {
    pub(super) fn new(arena: &mut Arena<'m>, count: u32, bytes: u32) -> Result<Self, OutOfMemory> {
        let words = (bytes as usize).div_ceil(8);
        Ok(Self {
            states: Pool::new(arena, count)?,
            properties: arena.filled(count as usize, Properties::new(DescriptorFlags::empty(), NO_ORDER))?,
            segments: arena.table(count as usize)?,
            memory: arena.table::<u64>(words.saturating_mul(count as usize))?.as_mut_ptr().cast(),
            bytes: bytes as usize,
            stride: words.saturating_mul(8),
        })
    }

    pub(super) const fn cost(count: u32, bytes: u32) -> usize {
        let words = (bytes as usize).div_ceil(8).saturating_mul(count as usize);
        Pool::<DescriptorState>::cost(count)
            .saturating_add(Arena::cost::<Properties<C>>(count as usize))
            .saturating_add(Arena::cost::<[Span; MAX_SEGMENTS]>(count as usize))
            .saturating_add(Arena::cost::<u64>(words))
    }

    /// Takes a descriptor whose first segment is up to `len` bytes of its own memory.
    pub(super) fn take(&mut self, len: usize, flags: DescriptorFlags, order: u8) -> Option<Descriptor> {
        let handle = self.states.take(DescriptorState { segments: 1, sends: 0 }).ok()?;
        let slot = handle.slot() as usize;
        let base = self.memory.wrapping_add(slot.saturating_mul(self.stride));
        *self.segments.get_mut(slot)?.first_mut()? = Span::contiguous(base, len.min(self.bytes));
        *self.properties.get_mut(slot)? = Properties::new(flags, order);
        Some(Descriptor(handle))
    }

    pub(super) fn free(&mut self, descriptor: Descriptor) -> Result<(), DescriptorError> {
        self.check_idle(descriptor)?;
        self.states.free(descriptor.0);
        Ok(())
    }

    /// The segment of the descriptor's own memory.
    pub(super) fn own(&self, descriptor: Descriptor) -> Result<Span, DescriptorError> {
        self.segments(descriptor).and_then(|segments| segments.first()).copied().ok_or(DescriptorError::Stale)
    }

    pub(super) fn shorten(&mut self, descriptor: Descriptor, len: u64) -> Result<(), DescriptorError> {
        let own = self.check_idle(descriptor).and_then(|()| self.own(descriptor))?;
        if len > own.len() {
            return Err(DescriptorError::TooLong);
        }
        if let Some(first) = self.segments.get_mut(descriptor.0.slot() as usize).and_then(|all| all.first_mut()) {
            *first = own.window(0, len);
        }
        Ok(())
    }

    pub(super) fn attach(&mut self, descriptor: Descriptor, memory: Span) -> Result<(), DescriptorError> {
        self.check_idle(descriptor)?;
        let state = self.states.get_mut(descriptor.0).ok_or(DescriptorError::Stale)?;
        let place = self.segments.get_mut(descriptor.0.slot() as usize).and_then(|all| all.get_mut(state.segments));
        *place.ok_or(DescriptorError::TooManySegments)? = memory;
        state.segments += 1;
        Ok(())
    }

    pub(super) fn segments(&self, descriptor: Descriptor) -> Option<&[Span]> {
        let count = self.states.get(descriptor.0)?.segments;
        self.segments.get(descriptor.0.slot() as usize)?.get(..count)
    }

    pub(super) fn properties(&self, descriptor: Descriptor) -> Option<&Properties<C>> {
        self.states.get(descriptor.0)?;
        self.properties.get(descriptor.0.slot() as usize)
    }

    pub(super) fn properties_mut(&mut self, descriptor: Descriptor) -> Option<&mut Properties<C>> {
        self.states.get(descriptor.0)?;
        self.properties.get_mut(descriptor.0.slot() as usize)
    }

    /// A send of a descriptor begins.
    pub(super) fn begin(&mut self, descriptor: Descriptor) {
        if let Some(state) = self.states.get_mut(descriptor.0) {
            state.sends = state.sends.saturating_add(1);
        }
    }

    /// A send of a descriptor is complete.
    pub(super) fn end(&mut self, descriptor: Descriptor) {
        if let Some(state) = self.states.get_mut(descriptor.0) {
            state.sends = state.sends.saturating_sub(1);
        }
    }

    /// Checks that the descriptor exists, and that no send of it is in progress.
    pub(super) fn check_idle(&self, descriptor: Descriptor) -> Result<(), DescriptorError> {
        match self.states.get(descriptor.0) {
            None => Err(DescriptorError::Stale),
            Some(state) if state.sends != 0 => Err(DescriptorError::InFlight),
            Some(_) => Ok(()),
        }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn used(&self) -> u32 {
        self.states.used()
    }

    pub(super) fn most_used(&self) -> u32 {
        self.states.most_used()
    }

    pub(super) fn capacity(&self) -> u32 {
        self.states.capacity()
    }
}

/// Why a descriptor cannot be freed or changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum DescriptorError {
    /// The descriptor was freed already, or belongs to another module.
    Stale,
    /// A send of the descriptor is in progress.
    InFlight,
    /// The descriptor already has [`MAX_SEGMENTS`] segments.
    TooManySegments,
    /// The descriptor's own segment is shorter than the new length.
    TooLong,
}

impl DescriptorError {
    /// The side that has to act.
    pub const fn blame(self) -> Blame {
        Blame::Caller
    }
}

impl fmt::Display for DescriptorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => f.write_str("the descriptor was freed, or belongs to another module: allocate a new one"),
            Self::InFlight => f.write_str("a send of the descriptor is not complete: wait for its callback"),
            Self::TooManySegments => write!(f, "the descriptor has {MAX_SEGMENTS} segments already: use another"),
            Self::TooLong => f.write_str(
                "the new length is longer than the segment of the descriptor: a segment can only be made shorter",
            ),
        }
    }
}

impl core::error::Error for DescriptorError {}

crate::debug_as_display!(DescriptorError);
