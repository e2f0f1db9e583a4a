//! The hub of a context's loopback rail, at an address that does not change.

use std::ptr::NonNull;

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::rail::Attributes;
use towline_core::rail::loopback::Hub;

/// Frames that may wait in the hub.
const SLOTS: u32 = 32;

/// A boxed hub.
pub(crate) struct LoopbackHub(NonNull<Hub<'static>>);

impl LoopbackHub {
    /// Bytes that the hub takes from an arena, for frames of at most `frame` bytes.
    pub fn bytes(frame: u32) -> usize {
        Hub::cost(1, SLOTS, frame)
    }

    /// The attributes of its rail.
    pub fn attributes(frame: u32) -> Attributes {
        Hub::attributes(frame)
    }

    pub fn new(arena: &mut Arena<'static>, frame: u32) -> Result<Self, OutOfMemory> {
        let hub = Hub::new(arena, 1, SLOTS, frame)?;
        Ok(Self(NonNull::from(Box::leak(Box::new(hub)))))
    }

    /// Whether no frame of this context to itself waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // SAFETY: a live box of this hub's, freed in `drop` only.
        unsafe { self.0.as_ref() }.is_empty()
    }

    /// The hub, with an unbounded lifetime.
    ///
    /// # Safety
    /// Everything that is made from the result is dropped before this is.
    pub unsafe fn hub(&self) -> &'static Hub<'static> {
        // SAFETY: a live box of this hub's, freed in `drop` only; the caller ensures that the result is not used after that.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for LoopbackHub {
    fn drop(&mut self) {
        // SAFETY: made from a box in `new`. The callers of `hub` promised that nothing refers to it any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
