//! Sleeping in an event loop of the program.

use std::ffi::c_int;
use std::os::fd::AsRawFd;

use crate::border::{border, check_pointer, put};
use crate::error::{Code, Failure, Fault};
use crate::handles::ContextHandle;
use crate::levels::with;
use crate::worlds::find_context;

/// A descriptor that becomes readable when something may have happened in a context, for `poll`, `epoll` and event loops. A program
/// that waits for nothing but operations of one context needs none: `towline_wait` and the like sleep by themselves.
///
/// The program looks at its operations, arms the descriptor, and sleeps if it may:
///
/// ```c
/// for (;;) {
///     towline_test(&request, &done, &status); // makes progress
///     if (done) break;
///     towline_arm(context, &may_sleep);
///     if (may_sleep) poll(descriptors, 2, -1); // this one with POLLIN, and others
/// }
/// ```
///
/// An event makes the descriptor readable, and so does the end of half a second (the setting `idle_sleep_ms`), since the context has
/// to look at other ranks now and then. A sleep may also end without a reason. The program does not read from the descriptor.
///
/// @param context  The context.
/// @param fd       Gets the descriptor. It is the context's: the program does not close it, and it is closed when the context ends. It
///                 is always the same one.
/// @return         `TOWLINE_ERR_OTHER` if the system has no descriptor left; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`,
///                 `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the context's level says. It works at all levels. Since ABI version 0.1.
///
/// # Safety
/// `fd` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_wait_fd(context: ContextHandle, fd: *mut c_int) -> c_int {
    border(|| {
        check_pointer("fd", fd)?;
        let found = find_context(context.bits)?;
        let number = with!(found.all_ranks(), comm => comm.wait_fd_raw().map_err(refused)?.as_raw_fd());
        // SAFETY: the caller's promise.
        unsafe { put("fd", fd, number) }
    })
}

/// Prepares for a sleep on the descriptor of `towline_wait_fd`: from now on the next event makes it readable. Makes no progress.
///
/// One thread at a time arms and sleeps so, in a loop as `towline_wait_fd` shows it. Other threads may use the context meanwhile: what
/// they make happen ends the sleep, too. Between this call and the sleep, the thread itself calls no function of the context.
///
/// @param context    The context.
/// @param may_sleep  Gets whether the program may sleep. If not, something has happened since the last call, or there is work: look at
///                   the operations again first.
/// @return           As `towline_wait_fd`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `may_sleep` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_arm(context: ContextHandle, may_sleep: *mut bool) -> c_int {
    border(|| {
        check_pointer("may_sleep", may_sleep)?;
        let found = find_context(context.bits)?;
        let is_armed = with!(found.all_ranks(), comm => comm.arm_raw().map_err(refused)?);
        // SAFETY: the caller's promise.
        unsafe { put("may_sleep", may_sleep, is_armed) }
    })
}

#[cold]
#[allow(clippy::needless_pass_by_value)] // for `map_err`
fn refused(why: std::io::Error) -> Failure {
    Failure {
        code: Code::TOWLINE_ERR_OTHER,
        fault: Fault::TOWLINE_FAULT_RESOURCE,
        text: format!("the system gives no descriptor to wait on ({why}): close some, or raise the limit (ulimit -n)"),
    }
}
