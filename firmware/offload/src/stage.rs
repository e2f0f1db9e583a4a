//! Buffers between the fragments of a message and the memory of the host, so that a copy to or from there has the bytes of several
//! fragments: each copy takes time of its own, whatever its length.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use towline_core::arena::{Arena, OutOfMemory};

/// Bytes of a buffer.
pub const BYTES: usize = 16 << 10;

/// What a buffer has.
#[derive(Debug)]
pub struct Content<'m> {
    /// The operation that uses it, or `None`.
    pub owner: Option<u32>,
    /// Whether the bytes are still to be written to the host.
    pub is_outgoing: bool,
    /// Where the bytes belong in the body.
    pub begin: usize,
    /// How many there are.
    pub len: usize,
    bytes: &'m mut [u8],
}

/// A buffer for one operation at a time.
#[derive(Debug)]
pub struct Stage<'m> {
    is_busy: AtomicBool,
    content: UnsafeCell<Content<'m>>,
}

// SAFETY: the content is only accessed by `with`, for one caller at a time.
unsafe impl Sync for Stage<'_> {}

impl<'m> Stage<'m> {
    /// The bytes of a table of `count` buffers.
    pub const fn cost(count: usize) -> usize {
        Arena::cost::<Self>(count).saturating_add(Arena::cost::<u8>(BYTES).saturating_mul(count))
    }

    /// An empty buffer.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        let content = Content { owner: None, is_outgoing: false, begin: 0, len: 0, bytes: arena.table(BYTES)? };
        Ok(Self { is_busy: AtomicBool::new(false), content: UnsafeCell::new(content) })
    }

    /// Calls `work` with the content, unless another caller has it.
    pub fn with<T>(&self, work: impl FnOnce(&mut Content<'m>) -> T) -> Option<T> {
        if self.is_busy.swap(true, Ordering::Acquire) {
            return None;
        }
        // SAFETY: only one caller at a time gets here, since the flag was not set.
        let done = work(unsafe { &mut *self.content.get() });
        self.is_busy.store(false, Ordering::Release);
        Some(done)
    }
}

impl Content<'_> {
    /// The bytes that the buffer has.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Copies bytes of a body from an offset on. Returns whether all of them are here.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        let found = offset.checked_sub(self.begin).and_then(|at| self.bytes().get(at..)?.get(..into.len()));
        if let Some(found) = found {
            into.copy_from_slice_checked(found);
        }
        found.is_some()
    }

    /// Makes room for the bytes of a body from an offset on. `None`: there are more than fit.
    pub fn fill(&mut self, owner: u32, begin: usize, len: usize) -> Option<&mut [u8]> {
        let room = self.bytes.get_mut(..len)?;
        (self.owner, self.is_outgoing, self.begin, self.len) = (Some(owner), false, begin, len);
        Some(room)
    }

    /// Adds bytes of a body behind those that are here. Returns whether they belong and fit there.
    pub fn append(&mut self, offset: usize, from: &[u8]) -> bool {
        let fits = self.begin.checked_add(self.len) == Some(offset);
        let room = self.bytes.get_mut(self.len..).and_then(|rest| rest.get_mut(..from.len())).filter(|_| fits);
        let Some(room) = room else { return false };
        room.copy_from_slice_checked(from);
        self.len = self.len.wrapping_add(from.len());
        true
    }

    /// Begins with bytes that are to be written to the host. Returns whether they fit.
    pub fn start(&mut self, owner: u32, begin: usize, from: &[u8]) -> bool {
        (self.owner, self.is_outgoing, self.begin, self.len) = (Some(owner), true, begin, 0);
        let fits = self.append(begin, from);
        if !fits {
            self.owner = None;
        }
        fits
    }
}

/// A copy between slices of the same length, without a panic if they are not.
trait CopyChecked {
    fn copy_from_slice_checked(&mut self, from: &[u8]);
}

impl CopyChecked for [u8] {
    fn copy_from_slice_checked(&mut self, from: &[u8]) {
        if self.len() == from.len() {
            self.copy_from_slice(from);
        }
    }
}
