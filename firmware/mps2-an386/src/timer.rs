//! The time, by the processor's SysTick counter and its interrupt.

use core::cell::Cell;

use cortex_m::peripheral::syst::SystClkSource;
use cortex_m::peripheral::{SCB, SYST};
use critical_section::Mutex;

/// Frequency of the processor.
const TICKS_PER_MICROSECOND: u32 = 25;
/// Microseconds between two interrupts.
const PERIOD: u32 = 10_000;
const LAST_TICK: u32 = PERIOD * TICKS_PER_MICROSECOND - 1;

/// Number of interrupts so far.
static PERIODS: Mutex<Cell<u64>> = Mutex::new(Cell::new(0));

/// Starts the counter.
pub fn start(counter: &mut SYST) {
    counter.set_clock_source(SystClkSource::Core);
    counter.set_reload(LAST_TICK);
    counter.clear_current();
    counter.enable_counter();
    counter.enable_interrupt();
}

/// Microseconds since [`start`].
pub fn micros() -> u64 {
    critical_section::with(|section| {
        let mut periods = PERIODS.borrow(section).get();
        let mut left = SYST::get_current();
        if SCB::is_pendst_pending() {
            // The counter has begun a new period, and its interrupt waits for the end of this section.
            left = SYST::get_current();
            periods = periods.wrapping_add(1);
        }
        let within = LAST_TICK.saturating_sub(left) / TICKS_PER_MICROSECOND;
        periods.wrapping_mul(u64::from(PERIOD)).wrapping_add(u64::from(within))
    })
}

/// The interrupt at the end of each period.
pub fn next_period() {
    critical_section::with(|section| {
        let periods = PERIODS.borrow(section);
        periods.set(periods.get().wrapping_add(1));
    });
}
