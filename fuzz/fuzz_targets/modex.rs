//! See `towline_fuzz::modex`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towline_fuzz::modex::run(data));
