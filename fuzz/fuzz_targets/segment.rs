//! See `towline_fuzz::segment`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towline_fuzz::segment::run(data));
