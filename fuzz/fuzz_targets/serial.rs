//! See `towline_fuzz::serial`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towline_fuzz::serial::run(data));
