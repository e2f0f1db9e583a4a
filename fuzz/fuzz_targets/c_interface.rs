//! See `towline_fuzz::c_interface`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towline_fuzz::c_interface::run(data));
