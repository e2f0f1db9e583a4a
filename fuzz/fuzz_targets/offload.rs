//! See `towline_fuzz::offload`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towline_fuzz::offload::run(data));
