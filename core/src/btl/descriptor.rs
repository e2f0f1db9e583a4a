//! Descriptors: what is to be sent, and whom to tell.

use core::fmt;
use core::mem::size_of;

use bitflags::bitflags;
use zerocopy::FromZeros;

use crate::arena::{Arena, OutOfMemory};
use crate::convertor::Span;
use crate::error::Blame;
use crate::pool::{Handle, Pool};

/// Segments of one descriptor at most: `MCA_BTL_DES_MAX_SEGMENTS`.
pub const MAX_SEGMENTS: usize = 16;
/// Bytes of a segment structure of a C module at most: `MCA_BTL_SEG_MAX_SIZE`. (Not of the memory that it describes,
/// whose length has 64 bits.)
pub const SEG_MAX_SIZE: usize = 256;
pub use crate::rma::REG_HANDLE_MAX;
/// No order is asked for: `MCA_BTL_NO_ORDER`.
pub const NO_ORDER: u8 = 255;
/// The order of all operations to a peer that are complete, as [`Completion::order`](crate::btl::module::Completion::order) tells it. A
/// descriptor that is allocated with it is sent so that it arrives after everything that was sent to that peer before: the module
/// asks the other side for that, which takes a round trip, and what follows waits behind it, unless it has priority (CONTRACTS B47).
/// Where only one of two has removed the other and added it again, their counts differ: then such sends may wait until the peer is
/// removed, or leave too early. One-sided operations that are complete are done, so whatever is sent comes after them.
pub const ORDER: u8 = 0;

bitflags! {
    /// Hints and wishes of a descriptor, with the values of `btl.h` (CONTRACTS B46). Those that are not acted on are kept with the
    /// descriptor, and found again by its owner.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct DescriptorFlags: u32 {
        /// Urgent: it goes before what waits for room and is not. What the rail has already it does not overtake, nor is it
        /// heeded where an order is asked for.
        const PRIORITY = 0x0001;
        /// The module frees the descriptor when its last operation is complete and its callback was made.
        const BTL_OWNERSHIP = 0x0002;
        /// The callback is made even where `send` has said that all is done.
        const SEND_ALWAYS_CALLBACK = 0x0004;
        /// The copy is made asynchronously, by an accelerator. Kept, not acted on.
        const ACCELERATOR_COPY_ASYNC = 0x0008;
        /// The descriptor is for a put (3.0 only). Kept, not acted on.
        const PUT = 0x0010;
        /// The descriptor is for a get (3.0 only). Kept, not acted on.
        const GET = 0x0020;
        /// The other side is to be woken. Any frame does that, unless [`Btl::wake_on_demand`](crate::rail::Btl::wake_on_demand) says
        /// that only these do.
        const SIGNAL = 0x0040;
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for DescriptorFlags {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "DescriptorFlags({=u32:#x})", self.bits());
    }
}

/// Memory as callbacks see it: `mca_btl_base_segment_t`. Never on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Segment {
    /// Address, in 64 bits on all machines.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
}

/// What every header begins with: `mca_btl_base_header_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Header {
    /// The active-message tag.
    pub tag: u8,
}

const _: () = assert!(size_of::<Segment>() == 16 && size_of::<Header>() == 1 && size_of::<Segment>() <= SEG_MAX_SIZE);

/// Names a descriptor until it is freed. A name that is used later finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Descriptor(pub(super) Handle);

/// What the owner of a descriptor sets, and finds again in the callback. `C` refers to the callback.
#[derive(Clone, Copy, Debug)]
pub struct Properties<C> {
    /// Whom to tell when a send is complete locally; nobody, if none.
    pub callback: Option<C>,
    /// Hints and wishes.
    pub flags: DescriptorFlags,
    /// Order value: [`NO_ORDER`], or, so that it arrives after what was sent before, [`ORDER`].
    pub order: u8,
    /// A word of the owner's.
    pub cbdata: usize,
    /// Another.
    pub context: usize,
}

impl<C> Properties<C> {
    const fn new(flags: DescriptorFlags, order: u8) -> Self {
        Self { callback: None, flags, order, cbdata: 0, context: 0 }
    }
}

/// All descriptors of a module, and the memory of each.
#[derive(Debug)]
pub(super) struct Descriptors<'m, C> {
    states: Pool<'m, State>,
    properties: &'m mut [Properties<C>],
    segments: &'m mut [[Span; MAX_SEGMENTS]],
    memory: *mut u8,
    /// Bytes of each descriptor's own memory.
    bytes: usize,
    /// The same, rounded up to keep all aligned.
    stride: usize,
}

#[derive(Clone, Copy, FromZeros, Debug)]
struct State {
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
        Pool::<State>::cost(count)
            .saturating_add(Arena::cost::<Properties<C>>(count as usize))
            .saturating_add(Arena::cost::<[Span; MAX_SEGMENTS]>(count as usize))
            .saturating_add(Arena::cost::<u64>(words))
    }

    /// A descriptor whose first segment is up to `len` bytes of its own memory.
    pub(super) fn take(&mut self, len: usize, flags: DescriptorFlags, order: u8) -> Option<Descriptor> {
        let handle = self.states.take(State { segments: 1, sends: 0 }).ok()?;
        let slot = handle.slot() as usize;
        let base = self.memory.wrapping_add(slot.saturating_mul(self.stride));
        *self.segments.get_mut(slot)?.first_mut()? = Span::contiguous(base, len.min(self.bytes));
        *self.properties.get_mut(slot)? = Properties::new(flags, order);
        Some(Descriptor(handle))
    }

    pub(super) fn free(&mut self, descriptor: Descriptor) -> Result<(), DescriptorError> {
        self.idle(descriptor)?;
        self.states.free(descriptor.0);
        Ok(())
    }

    /// The descriptor's own segment.
    pub(super) fn own(&self, descriptor: Descriptor) -> Result<Span, DescriptorError> {
        self.segments(descriptor).and_then(|segments| segments.first()).copied().ok_or(DescriptorError::Stale)
    }

    pub(super) fn shorten(&mut self, descriptor: Descriptor, len: u64) -> Result<(), DescriptorError> {
        let own = self.idle(descriptor).and_then(|()| self.own(descriptor))?;
        if len > own.len() {
            return Err(DescriptorError::TooLong);
        }
        if let Some(first) = self.segments.get_mut(descriptor.0.slot() as usize).and_then(|all| all.first_mut()) {
            *first = own.window(0, len);
        }
        Ok(())
    }

    pub(super) fn attach(&mut self, descriptor: Descriptor, memory: Span) -> Result<(), DescriptorError> {
        self.idle(descriptor)?;
        let state = self.states.get_mut(descriptor.0).ok_or(DescriptorError::Stale)?;
        let room = self.segments.get_mut(descriptor.0.slot() as usize).and_then(|all| all.get_mut(state.segments));
        *room.ok_or(DescriptorError::TooManySegments)? = memory;
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

    /// Counts a send that begins.
    pub(super) fn begin(&mut self, descriptor: Descriptor) {
        if let Some(state) = self.states.get_mut(descriptor.0) {
            state.sends = state.sends.saturating_add(1);
        }
    }

    /// Counts a send that is complete.
    pub(super) fn end(&mut self, descriptor: Descriptor) {
        if let Some(state) = self.states.get_mut(descriptor.0) {
            state.sends = state.sends.saturating_sub(1);
        }
    }

    /// Whether no send of it is under way.
    pub(super) fn idle(&self, descriptor: Descriptor) -> Result<(), DescriptorError> {
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

/// A descriptor cannot be used that way now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum DescriptorError {
    /// It was freed already, or is another module's.
    Stale,
    /// A send of it is not complete yet.
    InFlight,
    /// It has [`MAX_SEGMENTS`] already.
    TooManySegments,
    /// It is not as long as that.
    TooLong,
}

impl DescriptorError {
    /// Who has to act.
    pub const fn blame(self) -> Blame {
        Blame::Caller
    }
}

impl fmt::Display for DescriptorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => f.write_str("the descriptor was freed, or is another module's"),
            Self::InFlight => f.write_str("a send of the descriptor is not complete: wait for its callback"),
            Self::TooManySegments => write!(f, "the descriptor has {MAX_SEGMENTS} segments already: use another"),
            Self::TooLong => f.write_str("the descriptor is shorter than that: it can only be made shorter"),
        }
    }
}

impl core::error::Error for DescriptorError {}
