//! Signals that a launcher passes on.

use std::io;
use std::mem::MaybeUninit;

use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

/// Calls `tell` with each signal that arrives, in a thread of its own. To be called before other threads start.
///
/// A hangup that is ignored from the start stays so: that is what `nohup` is for. Everything else is heard, also where
/// whoever started this process ignores or blocks it, as shells do with SIGINT for what they run in the background: who
/// interrupts a launcher means the job.
pub(super) fn watch(tell: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
    let passed = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    let wanted = passed.into_iter().filter(|signal| *signal != SIGHUP || !ignored(SIGHUP)).chain([SIGCHLD]);
    let mut signals = Signals::new(wanted)?;
    block_none()?;
    std::thread::Builder::new().name("towline-signals".into()).spawn(move || signals.forever().for_each(tell))?;
    Ok(())
}

fn ignored(signal: i32) -> bool {
    // SAFETY: a valid value of a plain structure of numbers and flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks only, and writes to `action`, which lives.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Gives a process that is about to become another program what programs expect to start with: no signal blocked, and
/// none ignored but a hangup. What this process handles, the system resets by itself. Async-signal-safe.
pub(super) fn reset(last: i32) -> io::Result<()> {
    for signal in (1..=last).filter(|signal| *signal != SIGHUP) {
        // Refused for signals that cannot be ignored in the first place, and for those of the C library.
        // SAFETY: the default action runs no code of this process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    block_none()
}

/// The last signal's number, for [`reset`].
pub(super) fn last() -> i32 {
    libc::SIGRTMAX()
}

fn block_none() -> io::Result<()> {
    let mut none = MaybeUninit::uninit();
    // SAFETY: the first call makes `none` an empty set, which the second reads; nothing else is written.
    let error = unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut())
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Whether a signal asks for the end.
pub(super) fn ends(signal: i32) -> bool {
    matches!(signal, SIGHUP | SIGINT | SIGQUIT | SIGTERM)
}

/// A signal's name, such as `SIGTERM`.
pub(super) fn name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal).map_or_else(|| format!("signal {signal}"), Into::into)
}

/// The signal of that number.
pub(super) fn named(signal: i32) -> Option<Signal> {
    Signal::from_named_raw(signal)
}
