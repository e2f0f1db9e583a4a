//! See `towline_fuzz::matcher`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towline_fuzz::matcher::run(data));
