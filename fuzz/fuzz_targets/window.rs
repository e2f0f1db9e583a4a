//! See `towline_fuzz::window`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towline_fuzz::window::run(data));
