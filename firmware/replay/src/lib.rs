//! Replays a recorded trace of matching operations, and prints what became of each.
//!
//! The trace is `trace.txt`, its results are `results.txt`. Wherever the trace is replayed, the results are the same: on the core
//! of a host, on each board, in the simulator with faults of the network, and by the commands of hosts whose devices match. No
//! operation of the trace has a result that depends on time.
//!
//! | module | subject |
//! |---|---|
//! | [`step`] | one line of a trace |
//! | [`contexts`] | what a trace needs: contexts that execute its operations |
//! | [`replay`] | the steps one by one, and their results |
//! | [`direct`] | contexts that call the matching transport of the core, over any rails |
//! | [`loopback`] | such contexts in one thread, over loopback rails |
#![no_std]

pub mod contexts;
pub mod direct;
pub mod loopback;
pub mod replay;
pub mod step;

pub use contexts::{Contexts, Place};
pub use direct::Direct;
pub use replay::{Replay, Stopped};

/// The recorded trace.
pub const TRACE: &[u8] = include_bytes!("../trace.txt");
