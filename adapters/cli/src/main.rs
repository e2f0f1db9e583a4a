//! The `towline` command: run, perf, info.
fn main() {}
