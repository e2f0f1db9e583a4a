//! Links only if no panic can be reached from the core's functions.
//!
//! The panic handler calls a function that does not exist. Whatever the optimiser can prove unreachable is gone before
//! the linker looks for it; what is left makes the link fail with the handler's name. Every function of the core is
//! reached from `_start` with arguments that the optimiser knows nothing about.
#![no_std]
#![no_main]

mod convertor;
mod engine;
mod floor0;
mod loopback;
mod matching;
mod modex;
mod opaque;

unsafe extern "C" {
    /// Exists nowhere. It takes the information so that what panics, and where, can be looked up.
    safe fn A_PANIC_IS_REACHABLE_IN_THE_CORE(info: *const ()) -> !;
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    A_PANIC_IS_REACHABLE_IN_THE_CORE((&raw const *info).cast())
}

/// Any value at all, as far as the optimiser can tell.
#[inline(always)]
fn any<T>(value: T) -> T {
    core::hint::black_box(value)
}

/// Keeps what a function computes.
#[inline(always)]
fn keep<T>(value: T) {
    core::hint::black_box(value);
}

/// A slice of any content and any length up to `N`.
fn bytes<const N: usize>(room: &mut [u8; N]) -> &mut [u8] {
    let len = any(N);
    any(room.get_mut(..len).unwrap_or(&mut []))
}

/// Formats a value to nowhere.
fn say(what: impl core::fmt::Display) {
    struct Nowhere;
    impl core::fmt::Write for Nowhere {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            keep(text);
            any(Ok(()))
        }
    }
    keep(core::fmt::Write::write_fmt(&mut Nowhere, format_args!("{what}")));
}

/// Where the linker starts. Never run.
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    floor0::reach();
    convertor::reach();
    modex::reach();
    loopback::reach();
    matching::reach();
    engine::reach();
    #[cfg(feature = "bad")]
    keep(bytes(&mut [0; 16])[any(3)]);
    loop {
        core::hint::spin_loop();
    }
}
