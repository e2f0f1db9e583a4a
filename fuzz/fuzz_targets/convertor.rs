//! See `towline_fuzz::convertor`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towline_fuzz::convertor::run(data));
