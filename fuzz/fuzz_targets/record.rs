//! See `towline_fuzz::record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towline_fuzz::record::run(data));
