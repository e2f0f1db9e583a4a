//! Signals that a launcher passes on.

use std::io;

use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

/// Calls `tell` with each signal that arrives, in a thread of its own. What is ignored from the start, as under
/// `nohup`, stays ignored.
pub(super) fn watch(tell: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
    let ignored = ignored();
    let passed = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    let wanted = passed.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0).chain([SIGCHLD]);
    let mut signals = Signals::new(wanted)?;
    std::thread::Builder::new().name("towline-signals".into()).spawn(move || signals.forever().for_each(tell))?;
    Ok(())
}

/// The signals that this process ignores, bit n - 1 for signal n.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
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
