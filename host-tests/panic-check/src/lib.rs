//! Calls every function of the core with arguments that are opaque to the optimiser. So the optimiser cannot remove a panic
//! that some argument could cause.
//!
//! - `bin/any.rs`, for bare metal: it links only if no panic is reachable from the core.
//! - `bin/real.rs`, for the host: the engine over the real rails. It may contain no panic from the core's sources.
#![no_std]

pub mod btl;
pub mod bundle;
pub mod convertor;
pub mod engine;
pub mod floor0;
pub mod link;
pub mod loopback;
pub mod matching;
pub mod modex;
pub mod opaque;

/// A value that is opaque to the optimiser: it may be any value of its type.
#[inline(always)]
pub fn any<T>(value: T) -> T {
    core::hint::black_box(value)
}

/// Uses a value, so that the optimiser cannot remove its computation.
#[inline(always)]
pub fn keep<T>(value: T) {
    core::hint::black_box(value);
}

/// A slice of any content and any length up to `N`.
pub fn bytes<const N: usize>(buffer: &mut [u8; N]) -> &mut [u8] {
    let len = any(N);
    any(buffer.get_mut(..len).unwrap_or(&mut []))
}

/// Formats a value, and discards the text.
pub fn format(value: impl core::fmt::Display) {
    struct Discard;
    impl core::fmt::Write for Discard {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            keep(text);
            any(Ok(()))
        }
    }
    keep(core::fmt::Write::write_fmt(&mut Discard, format_args!("{value}")));
}

/// Reaches all functions of the core, with rails that are opaque to the optimiser.
pub fn reach() {
    floor0::reach();
    convertor::reach();
    modex::reach();
    loopback::reach();
    link::reach();
    bundle::reach();
    btl::reach();
    matching::reach();
    engine::reach();
}
