//! The machine as a DPU.

use core::ffi::CStr;
use core::fmt::Arguments;
use core::marker::PhantomData;

use dpu::Dpu;
use dpu::rails::LINKS;
use runtime::{Board, Stack};
use towline_core::time::Duration;
use towline_window::doorbell::Doorbell;
use towline_window::memory::Memory;
#[cfg(feature = "network")]
use virtio::{Network, Slots, interrupts};

use crate::machine::Machine;
use crate::{times, window};

/// Microseconds of a pause while no host rings. A frame ends it, a command does not.
const PAUSE: u64 = 200;
/// The character that wakes the host: whoever reads the console rings for the board.
const BELL: u8 = 0x07;

/// A machine as a DPU.
#[derive(Debug)]
pub struct Card<M>(PhantomData<M>);

impl<M: Machine> Board for Card<M> {
    type Log = M::Log;

    fn micros() -> u64 {
        M::micros()
    }

    fn print(text: Arguments<'_>) {
        M::print(text);
    }

    fn open_log(name: &CStr) -> Option<M::Log> {
        M::open_log(name)
    }

    fn stack() -> Option<Stack> {
        M::stack()
    }
}

impl<M: Machine> Dpu for Card<M> {
    #[cfg(feature = "network")]
    type Interface = Network;
    #[cfg(not(feature = "network"))]
    type Interface = dpu::unplugged::Unplugged;

    /// The emulator may stop for some tens of milliseconds at any time.
    const PATIENCE_MILLIS: u64 = 50;

    fn window() -> Option<Memory<'static>> {
        window::take::<M>()
    }

    #[cfg(not(feature = "network"))]
    fn interfaces() -> [Option<dpu::unplugged::Unplugged>; LINKS] {
        [const { Some(dpu::unplugged::Unplugged) }; LINKS]
    }

    #[cfg(feature = "network")]
    fn interfaces() -> [Option<Network>; LINKS] {
        // SAFETY: the machine guarantees that its virtio devices are there, and that memory is mapped to its own address.
        let found = unsafe { Network::find(slots::<M>(), M::micros) };
        interrupts::slots().for_each(|slot| M::enable(M::DEVICES.interrupt + slot));
        found
    }

    fn boot() -> u32 {
        0 // the machine has no clock and no random numbers
    }

    fn pause() {
        wait::<M>(PAUSE);
    }

    /// The pipe of the device is the input of the UART.
    fn doorbell() -> Doorbell {
        times::read::<M>();
        M::listen();
        M::enable(M::UART_INTERRUPT);
        Doorbell::Pipes
    }

    fn awake() -> Duration {
        Duration::from_nanos(times::awake().saturating_mul(1000))
    }

    fn sleep(most: Option<Duration>) {
        let longest = times::longest();
        wait::<M>(most.map_or(longest, |most| most.as_nanos() / 1000).min(longest));
    }

    fn ring() {
        M::put(BELL);
    }
}

#[cfg(feature = "network")]
const fn slots<M: Machine>() -> Slots {
    Slots { base: M::DEVICES.base, step: M::DEVICES.step, count: M::DEVICES.count }
}

/// Waits for a time, or until something arrives.
fn wait<M: Machine>(micros: u64) {
    M::sleep(micros);
    #[cfg(feature = "network")]
    // SAFETY: the machine guarantees that its virtio devices are there.
    unsafe {
        interrupts::acknowledge(slots::<M>());
    }
    M::take_back();
}
