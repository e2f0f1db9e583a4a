//! The handlers that the system calls at each fork, and the list of what they mark in the child.

use std::io;
use std::mem::forget;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks lie between this process and the one that its program began in; wraps.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The marks of all worlds of this process. The lock has no queue of waiting threads, so the child can release it.
static MARKS: spin::Mutex<Vec<Mark>> = spin::Mutex::new(Vec::new());

/// What is called in a child.
struct Mark {
    at: *const (),
    set: unsafe fn(*const ()),
}

// SAFETY: the address is used in a child only, which has one thread, and in comparisons.
unsafe impl Send for Mark {}

/// What must know that it is in a forked child.
pub(crate) trait Markable {
    /// Marks this as a copy in a child. The child has one thread then. Other threads may have been using this at the time of the
    /// fork, and may have been changing it. Only calls that are safe in a signal handler are allowed.
    fn mark_as_copy(&self);
}

/// Something is marked in children as long as this exists.
#[derive(Debug)]
pub(crate) struct Marked(usize);

/// Installs the handlers, once for all worlds.
pub(crate) fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<i32> = OnceLock::new();
    // SAFETY: the handlers are functions of this program. The system forgets them if their library is unloaded.
    let code =
        INSTALLED.get_or_init(|| unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) });
    if *code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(*code)) }
}

/// Has `target` marked in each child that is forked from now on.
///
/// # Safety
/// `target` stays where it is until the result was dropped.
pub(crate) unsafe fn mark_in_children<T: Markable>(target: *const T) -> Marked {
    /// # Safety
    /// `at` is the address of a `T`.
    unsafe fn set<T: Markable>(at: *const ()) {
        // SAFETY: the caller's promise.
        unsafe { &*at.cast::<T>() }.mark_as_copy();
    }
    MARKS.lock().push(Mark { at: target.cast(), set: set::<T> });
    Marked(target.addr())
}

/// How many forks lie between this process and the one that its program began in; wraps.
#[inline]
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

impl Drop for Marked {
    fn drop(&mut self) {
        let mut marks = MARKS.lock();
        if let Some(index) = marks.iter().position(|mark| mark.at.addr() == self.0) {
            marks.swap_remove(index);
        }
    }
}

/// Runs before a fork: waits until no other thread changes the list, which the child would get half changed.
unsafe extern "C" fn prepare() {
    forget(MARKS.lock());
}

/// Runs in the parent after a fork.
unsafe extern "C" fn in_parent() {
    // SAFETY: this thread has locked it in `prepare`, and forgotten the guard.
    unsafe { MARKS.force_unlock() };
}

/// Runs in the child, whose only thread is a copy of the one that called `fork`.
unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: this thread has locked it in `prepare`, and forgotten the guard.
    unsafe { MARKS.force_unlock() };
    for mark in MARKS.lock().iter() {
        // SAFETY: what is in the list exists, as the callers of `mark_in_children` have promised.
        unsafe { (mark.set)(mark.at) };
    }
}
