//! The machine as a DPU: its window is a part of its memory, which the emulator shares with the host, and its network is one or
//! two virtio devices.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use dpu::Dpu;
use dpu::rails::LINKS;
#[cfg(feature = "network")]
use runtime::Board as _;
use towline_core::time::Duration;
use towline_window::doorbell::Doorbell;
use towline_window::fault::{Fault, report};
use towline_window::memory::Memory;
#[cfg(feature = "network")]
use virtio::{Network, Slots, interrupts};

use crate::{Machine, plic, timer, uart};

/// Where the window is: 32 MiB after the begin of memory. protection.rs gives access to it.
const WINDOW: usize = 0x8200_0000;
/// Its size.
const BYTES: usize = 16 << 20;
#[cfg(feature = "network")]
const SLOTS: Slots = Slots { base: 0x1000_1000, step: 0x1000, count: 8 };

/// The interrupt of the first slot. The others follow.
#[cfg(feature = "network")]
const INTERRUPT: u32 = 1;

/// Microseconds of a pause while no host rings. A frame ends it, a command does not.
const PAUSE: u32 = 200;
/// Microseconds of the longest sleep, after which the host sees a heartbeat.
const LONGEST: u64 = 100_000;
/// The character that wakes the host: whoever reads the console rings for the board.
const BELL: u8 = 0x07;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// The memory of the window.
fn window() -> Option<Memory<'static>> {
    let base = NonNull::new(WINDOW as *mut u8)?;
    // SAFETY: the memory is mapped, and neither the linker script nor anything else uses it.
    unsafe { Memory::new(base, BYTES) }
}

/// Tells the host that the firmware ends, if the program has taken the window.
pub fn fail(fault: &Fault) {
    if TAKEN.load(Ordering::Acquire)
        && let Some(memory) = window()
    {
        let _ = report(&memory, fault); // the window has a header
    }
}

impl Dpu for Machine {
    #[cfg(feature = "network")]
    type Interface = Network;
    #[cfg(not(feature = "network"))]
    type Interface = dpu::unplugged::Unplugged;

    /// The emulator may stop for some tens of milliseconds at any time.
    const PATIENCE_MILLIS: u64 = 50;

    fn window() -> Option<Memory<'static>> {
        if TAKEN.swap(true, Ordering::AcqRel) {
            return None;
        }
        window()
    }

    #[cfg(not(feature = "network"))]
    fn interfaces() -> [Option<dpu::unplugged::Unplugged>; LINKS] {
        [const { Some(dpu::unplugged::Unplugged) }; LINKS]
    }

    #[cfg(feature = "network")]
    fn interfaces() -> [Option<Network>; LINKS] {
        // SAFETY: the machine has its virtio devices there, and memory is mapped to its own address.
        let found = unsafe { Network::find(SLOTS, Self::micros) };
        interrupts::slots().for_each(|slot| plic::enable(INTERRUPT + slot));
        found
    }

    fn boot() -> u32 {
        0 // the machine has no clock and no random numbers
    }

    fn pause() {
        wait(PAUSE);
    }

    /// The pipe of the device is the input of the UART.
    fn doorbell() -> Doorbell {
        uart::listen();
        plic::enable(uart::INTERRUPT);
        Doorbell::Pipes
    }

    fn awake() -> Duration {
        Duration::from_millis(1)
    }

    fn sleep(most: Option<Duration>) {
        let micros = most.map_or(LONGEST, |most| most.as_nanos() / 1000).min(LONGEST);
        wait(micros as u32);
    }

    fn ring() {
        uart::put(BELL);
    }
}

/// Waits for a time, or until something arrives.
fn wait(micros: u32) {
    timer::sleep(micros);
    #[cfg(feature = "network")]
    // SAFETY: the machine has its virtio devices there.
    unsafe {
        interrupts::acknowledge(SLOTS);
    }
    uart::drop_received();
    plic::take_back();
    // The request of a byte that has arrived meanwhile may be among those that were taken back.
    uart::drop_received();
}
