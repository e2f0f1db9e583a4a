//! The body of an announcement, a message that has a length and no bytes.

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::convertor::{Accelerator, Layout, Span};
use towline_window::command::MOST_ANNOUNCED;

/// Bytes of a block, which any processor has addresses for.
const BLOCK: u64 = 1 << 30;
/// Blocks for the longest announcement.
const BLOCKS: u64 = (MOST_ANNOUNCED + 1) / BLOCK;
const _: () = assert!(BLOCK <= i32::MAX as u64 && BLOCKS * BLOCK > MOST_ANNOUNCED && BLOCKS * BLOCK <= i64::MAX as u64);

/// Memory that cannot be read. The engine tells the receiver of a message in such memory that no bytes come.
#[derive(Debug, Default)]
struct Unreadable {
    failures: AtomicU32,
}

impl Unreadable {
    fn fail(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}

impl Accelerator for Unreadable {
    unsafe fn read(&self, _: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller vouches for the memory.
        unsafe { ptr::write_bytes(to, 0, len) };
        self.fail();
    }

    unsafe fn write(&self, _: *const u8, _: *mut u8, _: usize) {
        self.fail();
    }

    fn failures(&self) -> Option<u32> {
        Some(self.failures.load(Ordering::Relaxed))
    }
}

/// The bodies of all announcements.
#[derive(Clone, Copy, Debug)]
pub struct Announcement<'m>(&'m Layout<'m>);

impl<'m> Announcement<'m> {
    /// The bytes that it takes of an arena.
    pub const BYTES: usize = Arena::cost::<Unreadable>(1).saturating_add(Arena::cost::<Layout<'m>>(1));

    /// Takes memory from `arena`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        let none = OutOfMemory { asked: 0, left: arena.left() }; // never, but for the tables themselves
        let unreadable: &'m [Unreadable] = arena.each(1, |_, _| Ok(Unreadable::default()))?;
        let layouts: &'m [Layout<'m>] = arena.each(1, |_, _| {
            // One block again and again, since a processor of 32 bits has no addresses for so many bytes.
            let all = Layout::vector(BLOCKS, BLOCK, 0).map_err(|_| none)?;
            all.on(unreadable.first().ok_or(none)?).map_err(|_| none)
        })?;
        layouts.first().map(Self).ok_or(none)
    }

    /// A body of this length.
    pub fn body(&self, length: u64) -> Span {
        // SAFETY: the layout is in memory of the engine, which outlives its operations, and does not change.
        unsafe { Span::laid_out(ptr::null_mut(), self.0) }.window(0, length)
    }
}
