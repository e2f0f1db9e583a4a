//! See `towline_fuzz::ring`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towline_fuzz::ring::run(data));
