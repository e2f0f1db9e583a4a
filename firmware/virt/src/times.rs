//! How long the machine looks for work before it sleeps, and its longest sleep. The command line of the emulator may have others, as the
//! environment of board `linux`: `-semihosting-config arg=dpu,arg=NAME=VALUE`.

use core::sync::atomic::{AtomicU64, Ordering};

use bare::semihosting;
use runtime::Board;

/// Microseconds for which the machine looks for work before it sleeps.
static AWAKE: AtomicU64 = AtomicU64::new(1000);
/// Microseconds of the longest sleep, after which the host sees a heartbeat.
static LONGEST: AtomicU64 = AtomicU64::new(100_000);

/// The names on the command line, where the values go, and the microseconds of their units.
static NAMES: [(&str, &AtomicU64, u64); 2] =
    [("TOWLINE_FIRMWARE_AWAKE_US=", &AWAKE, 1), ("TOWLINE_FIRMWARE_SLEEP_MS=", &LONGEST, 1000)];

/// Reads the command line. A value that is not a number is reported and has no effect.
pub fn read<B: Board>() {
    let mut line = [0; 256];
    for word in semihosting::command_line(&mut line).unwrap_or_default().split_ascii_whitespace() {
        for (name, value, unit) in NAMES {
            let Some(text) = word.strip_prefix(name) else { continue };
            match text.parse::<u64>() {
                Ok(number) => value.store(number.saturating_mul(unit), Ordering::Relaxed),
                Err(_) => B::print(format_args!("dpu: {word} has no effect, since {text} is not a number\n")),
            }
        }
    }
}

/// Microseconds for which the machine looks for work before it sleeps.
pub fn awake() -> u64 {
    AWAKE.load(Ordering::Relaxed)
}

/// Microseconds of the longest sleep.
pub fn longest() -> u64 {
    LONGEST.load(Ordering::Relaxed)
}
