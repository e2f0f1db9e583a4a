//! Signals that a launcher forwards.

use std::io;
use std::mem::MaybeUninit;

use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

/// Calls `tell` with each signal that arrives, in a thread of its own. Must be called before other threads start.
///
/// A hangup that was ignored at start stays ignored, since that is the purpose of `nohup`. All other signals are
/// handled, even if they were ignored or blocked at start, as shells do with SIGINT for background processes. A user who
/// interrupts a launcher wants to end the job.
///
/// The launcher also ignores the signal for a file that becomes longer than its limit (`ulimit -f`). The write fails then, as it
/// does on a full disk. Otherwise the launcher would end, and its ranks with it. Ranks have the signal as usual, see [`reset`].
pub(super) fn watch(tell: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
    let passed = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    let wanted = passed.into_iter().filter(|signal| *signal != SIGHUP || !ignored(SIGHUP)).chain([SIGCHLD]);
    let mut signals = Signals::new(wanted)?;
    unblock_all()?;
    // SAFETY: a signal that is ignored runs no code.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    std::thread::Builder::new().name("towline-signals".into()).spawn(move || signals.forever().for_each(tell))?;
    Ok(())
}

fn ignored(signal: i32) -> bool {
    // SAFETY: all zeros are a valid value of this plain structure of numbers and flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the call changes nothing, and writes only to `action`, which is alive.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Resets the signal state of a process before exec to what programs expect: no signal blocked, and none ignored except
/// a hangup. The system itself resets handled signals. Async-signal-safe.
pub(super) fn reset(last: i32) -> io::Result<()> {
    for signal in (1..=last).filter(|signal| *signal != SIGHUP) {
        // The system refuses this for signals that cannot be ignored, and for those of the C library.
        // SAFETY: the default action runs no code of this process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    unblock_all()
}

/// The highest signal number, for [`reset`].
pub(super) fn last() -> i32 {
    libc::SIGRTMAX()
}

fn unblock_all() -> io::Result<()> {
    let mut none = MaybeUninit::uninit();
    // SAFETY: the first call makes `none` an empty set, which the second reads; nothing else is written.
    let error = unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut())
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Whether a signal asks the process to end. SIGQUIT asks a launcher for a report instead, as it does a Java runtime.
pub(super) fn is_terminating(signal: i32) -> bool {
    matches!(signal, SIGHUP | SIGINT | SIGTERM)
}

/// A signal's name, such as `SIGTERM`.
pub(super) fn name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal).map_or_else(|| format!("signal {signal}"), Into::into)
}

/// The signal with this number.
pub(super) fn from_number(signal: i32) -> Option<Signal> {
    Signal::from_named_raw(signal)
}
