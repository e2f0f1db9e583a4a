//! See `towline_fuzz::bootstrap`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towline_fuzz::bootstrap::run(data));
