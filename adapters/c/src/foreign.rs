//! Types of the program that the library knows by functions only: the functions pack and unpack any part of a message.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use towline::raw::Accelerator;

/// Copies a part of a message from memory of the program to memory of the library.
///
/// @param state   What the layout was made with.
/// @param buffer  What the operation was called with, as is `count`.
/// @param offset  Where the part begins in the packed message, in bytes.
/// @param to      Gets the part.
/// @param bytes   The length of the part. It lies within the message.
/// @return        0 for success. Any other number makes the operation fail once it is complete.
///
/// It is called by any thread that uses the context, also by a progress thread, while the library holds a lock: it must not call
/// the library, and must return (no `longjmp`, no exception). Since ABI version 0.1.
pub type PackFn = Option<
    unsafe extern "C" fn(
        state: *mut c_void,
        buffer: *const c_void,
        count: usize,
        offset: u64,
        to: *mut c_void,
        bytes: usize,
    ) -> c_int,
>;

/// Copies a part of a message from memory of the library to memory of the program. Parts may come in any order. Otherwise as
/// `towline_pack_fn`. Since ABI version 0.1.
pub type UnpackFn = Option<
    unsafe extern "C" fn(
        state: *mut c_void,
        buffer: *mut c_void,
        count: usize,
        offset: u64,
        from: *const c_void,
        bytes: usize,
    ) -> c_int,
>;

/// The functions of a type, and how long a message of it is.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    pub state: *mut c_void,
    pub pack: PackFn,
    pub unpack: UnpackFn,
}

// SAFETY: `state` is for the program's functions alone, which any thread may call: see `PackFn`.
unsafe impl Send for Functions {}
// SAFETY: the same.
unsafe impl Sync for Functions {}

/// The memory of one operation, as the library sees it: `BASE` is the address of the first byte of the packed message. The library
/// never accesses such an address; it calls the functions.
pub(crate) struct Foreign {
    functions: Functions,
    buffer: *mut c_void,
    count: usize,
    has_failed: AtomicBool,
}

// SAFETY: `buffer` is for the program's functions alone, which any thread may call: see `PackFn`.
unsafe impl Send for Foreign {}
// SAFETY: the same.
unsafe impl Sync for Foreign {}

/// Not null, and no address of memory.
const BASE: usize = 4096;

impl Foreign {
    pub const fn new(functions: Functions, buffer: *mut c_void, count: usize) -> Self {
        Self { functions, buffer, count, has_failed: AtomicBool::new(false) }
    }

    /// The address of the first byte of the packed message.
    pub const fn base() -> *mut u8 {
        ptr::without_provenance_mut(BASE)
    }

    /// Whether a function has failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    fn note(&self, outcome: Option<c_int>) {
        if outcome != Some(0) {
            self.has_failed.store(true, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Accelerator for Foreign {
    unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize) {
        let (Functions { state, pack, .. }, offset) = (self.functions, from.addr().wrapping_sub(BASE) as u64);
        // SAFETY: the program has given the function and the buffer for this; `to` is writable for `len` bytes.
        let outcome = pack.map(|pack| unsafe { pack(state, self.buffer, self.count, offset, to.cast(), len) });
        if outcome.is_none() {
            // SAFETY: as above. The bytes must be some.
            unsafe { to.write_bytes(0, len) };
        }
        self.note(outcome);
    }

    unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) {
        let (Functions { state, unpack, .. }, offset) = (self.functions, to.addr().wrapping_sub(BASE) as u64);
        // SAFETY: the program has given the function and the buffer for this; `from` is readable for `len` bytes.
        self.note(unpack.map(|unpack| unsafe { unpack(state, self.buffer, self.count, offset, from.cast(), len) }));
    }
}
