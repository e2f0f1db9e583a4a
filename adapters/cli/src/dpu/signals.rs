//! Signals that ask for the end before the job begins. They wait until the job's launcher handles them, so that this process never
//! ends without removing its files.

use std::mem::MaybeUninit;

/// The signals by which users end this command.
const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Lets the signals wait, for this thread and those that it starts.
pub fn hold() {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call makes `set` an empty set. The others read it, and write nothing else.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in ENDING {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        // These calls fail only for arguments that do not exist.
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// A signal that waits.
pub fn waiting() -> Option<i32> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call writes `set`, and nothing else.
    let known = unsafe { libc::sigpending(set.as_mut_ptr()) } == 0;
    // SAFETY: `set` was written.
    ENDING.into_iter().find(|signal| known && unsafe { libc::sigismember(set.as_ptr(), *signal) } == 1)
}
