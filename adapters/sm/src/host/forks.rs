//! Shared memory and forked children.

use core::ffi::c_void;

use rustix::mm::{Advice, madvise};

/// Keeps a new mapping of this process, of `len` bytes from `base` on, from children that are forked. A child that wrote to it would
/// write in its parent's name. Without this advice, which is not needed for anything else, the child could.
pub fn keep_from_children(base: *mut c_void, len: usize) {
    // SAFETY: the advice changes nothing for this process.
    let _ = unsafe { madvise(base, len, Advice::LinuxDontFork) };
}
