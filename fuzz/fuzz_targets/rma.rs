//! See `towline_fuzz::rma`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| towline_fuzz::rma::run(data));
