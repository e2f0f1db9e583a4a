//! See `towline_fuzz::link`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towline_fuzz::link::run(data));
