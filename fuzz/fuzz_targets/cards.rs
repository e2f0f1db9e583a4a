//! See `towline_fuzz::cards`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towline_fuzz::cards::run(data));
