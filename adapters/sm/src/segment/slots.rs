//! The slots of a mapped ring.

use towline_core::rail::HEAD;

use super::file::Segment;
use super::layout::{CREDIT, PAGE};
use crate::atomics::{AtomicU32, AtomicU64};
use crate::ring::{PREFIX, RingMemory, SLOT};

/// Stands for a ring's memory before there is a ring: one slot without a frame.
#[repr(align(64))]
struct EmptySlot([AtomicU64; 8]);

static EMPTY_SLOT: EmptySlot = EmptySlot([const { AtomicU64::new(0) }; 8]);
static NO_CREDIT: AtomicU32 = AtomicU32::new(0);

/// Addresses of a ring's slots and credit.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    base: *mut u8,
    credit: *const AtomicU32,
    mask: u32,
}

// SAFETY: plain addresses of process-wide memory, which is accessed by atomics, or by the side that owns a slot just then.
unsafe impl Send for Slots {}

impl Slots {
    /// No ring.
    pub fn none() -> Self {
        Self { base: EMPTY_SLOT.0.as_ptr().cast_mut().cast(), credit: &raw const NO_CREDIT, mask: 0 }
    }

    /// The ring in a segment of at least `PAGE` bytes and `slots` slots; `slots` is a power of two.
    ///
    /// # Safety
    /// The segment outlives every use of the answer and its copies.
    pub unsafe fn of(segment: &Segment, slots: u32) -> Self {
        assert!(slots.is_power_of_two() && segment.len() >= PAGE + slots as usize * SLOT, "checked before mapping");
        Self { base: segment.at(PAGE), credit: core::ptr::from_ref(segment.half(CREDIT)), mask: slots - 1 }
    }

    #[inline(always)]
    fn slot(&self, position: u32) -> *mut u8 {
        self.base.wrapping_add((position & self.mask) as usize * SLOT)
    }

    /// The first byte of a frame that begins at `position`.
    #[inline(always)]
    pub fn frame(&self, position: u32) -> *mut u8 {
        self.slot(position).wrapping_add(PREFIX)
    }

    /// The header word of `frame`, an address from [`frame`](Self::frame). For callers that keep that address: the compiler would
    /// compute it again behind each load and store.
    ///
    /// # Safety
    /// As [`of`](Self::of): the segment outlives the answer's use.
    #[inline(always)]
    pub unsafe fn header_of<'m>(frame: *mut u8) -> &'m AtomicU64 {
        // SAFETY: the slot begins there, within the mapping and aligned to 64; atomics may be shared.
        unsafe { AtomicU64::from_ptr(frame.wrapping_sub(PREFIX).cast()) }
    }

    /// Prefetches the slot at `position` for writing, without waiting for it.
    #[inline(always)]
    pub fn prefetch_for_write(&self, position: u32) {
        Self::prefetch_line_for_write::<0>(self.slot(position));
    }

    /// As [`prefetch_for_write`](Self::prefetch_for_write), for the cache line `OFFSET` bytes after an address. No memory has to
    /// be there.
    #[inline(always)]
    pub fn prefetch_line_for_write<const OFFSET: usize>(from: *mut u8) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch is a hint without visible effects, for any address.
        unsafe {
            core::arch::asm!("prefetchw [{} + {}]", in(reg) from, const OFFSET, options(nostack, preserves_flags, readonly));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!("prfm pstl1keep, [{}]", in(reg) from.wrapping_add(OFFSET), options(nostack, preserves_flags, readonly));
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = from;
    }

    /// The first three words of a frame's bytes; `frame` is an address from [`frame`](Self::frame).
    ///
    /// # Safety
    /// As [`header_of`](Self::header_of).
    #[inline(always)]
    pub unsafe fn first_words(frame: *const u8) -> [u64; 3] {
        // SAFETY: as in `head`; the frame begins at a word of its slot.
        unsafe { frame.cast::<[u64; 3]>().read() }
    }

    /// A copy of the bytes in the first slot of a frame; `frame` is an address from [`frame`](Self::frame).
    ///
    /// # Safety
    /// As [`header_of`](Self::header_of).
    #[inline(always)]
    pub unsafe fn head(frame: *const u8) -> [u8; HEAD] {
        // SAFETY: within one slot of the mapping. A peer that writes there at the same time makes the bytes arbitrary, and
        // no more: they are plain data.
        unsafe { frame.cast::<[u8; HEAD]>().read() }
    }
}

impl RingMemory for Slots {
    #[inline(always)]
    fn header(&self, position: u32) -> &AtomicU64 {
        // SAFETY: within the mapping by the mask, aligned to 64, alive by the contract of `of`; atomics may be shared.
        unsafe { AtomicU64::from_ptr(self.slot(position).cast()) }
    }

    #[inline]
    fn credit(&self) -> &AtomicU32 {
        // SAFETY: a word of the segment's first page, alive by the contract of `of`.
        unsafe { &*self.credit }
    }
}
