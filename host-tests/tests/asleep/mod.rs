//! Devices and hosts that sleep as often as they can.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use towline_dpu::{Request, Transport};

/// Settings of a firmware that sleeps when it finds nothing to do, and for up to 1000 seconds.
pub const SLEEPY: [(&str, &str); 2] = [("TOWLINE_FIRMWARE_AWAKE_US", "0"), ("TOWLINE_FIRMWARE_SLEEP_MS", "1000000")];

/// Waits for a request, and sleeps whenever there is no completion. Returns how often it has slept.
pub fn wait_asleep(transport: &mut Transport, request: Request) -> u32 {
    let mut sleeps = 0;
    loop {
        if let Some(outcome) = transport.test(request) {
            outcome.unwrap();
            return sleeps;
        }
        if transport.progress() != 0 || !transport.arm() {
            continue;
        }
        assert!(has_rung(transport.bell(), 60_000), "the device has not rung");
        sleeps += 1;
    }
}

/// Whether the bell of a host rings within this time. It stays rung.
pub fn has_rung(bell: Option<BorrowedFd<'_>>, millis: i32) -> bool {
    let fd = bell.expect("the device has a doorbell").as_raw_fd();
    let mut bell = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: there is one entry.
    unsafe { libc::poll(&raw mut bell, 1, millis) == 1 }
}
