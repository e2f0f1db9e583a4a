//! Reaches every function of the core with arguments that the optimiser knows nothing about, so that what can panic is
//! still there when the linker looks.
//!
//! - `bin/any.rs`, for bare metal: links only if no panic can be reached from the core at all.
//! - `bin/real.rs`, for the host: the engine over the real rails; no panic of the core's sources may be left in it.
#![no_std]

pub mod btl;
pub mod convertor;
pub mod engine;
pub mod floor0;
pub mod link;
pub mod loopback;
pub mod matching;
pub mod modex;
pub mod opaque;

/// Any value at all, as far as the optimiser can tell.
#[inline(always)]
pub fn any<T>(value: T) -> T {
    core::hint::black_box(value)
}

/// Keeps what a function computes.
#[inline(always)]
pub fn keep<T>(value: T) {
    core::hint::black_box(value);
}

/// A slice of any content and any length up to `N`.
pub fn bytes<const N: usize>(room: &mut [u8; N]) -> &mut [u8] {
    let len = any(N);
    any(room.get_mut(..len).unwrap_or(&mut []))
}

/// Formats a value to nowhere.
pub fn say(what: impl core::fmt::Display) {
    struct Nowhere;
    impl core::fmt::Write for Nowhere {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            keep(text);
            any(Ok(()))
        }
    }
    keep(core::fmt::Write::write_fmt(&mut Nowhere, format_args!("{what}")));
}

/// Reaches all of the core, with rails of which nothing is known.
pub fn reach() {
    floor0::reach();
    convertor::reach();
    modex::reach();
    loopback::reach();
    link::reach();
    btl::reach();
    matching::reach();
    engine::reach();
}
