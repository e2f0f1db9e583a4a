//! The core of Towline: descriptors, matching, fragmentation and flow control for messages between processes, without
//! an allocator, an operating system or a clock.
//!
//! Time, randomness and memory are arguments. Frames leave and arrive by the trait [`rail::Rail`], which adapters implement
//! (shared memory, TCP, UDP, verbs, or the user's own). The modules form floors. A floor imports nothing from a higher one:
//! rails are polled, and results and events are returned, or handed to a trait that the higher floor implements
//! ([`ptl::Upcalls`]). `ARCHITECTURE.md` beside this crate describes the structure, `WIRE.md` specifies the bytes.
//!
//! | floor | module | subject |
//! |---|---|---|
//! | 4 | [`mtl`] | matching transport: communicators, modes, send, receive, probe, cancel |
//! | 3 | [`pml`] | requests, matching, MPI order, credits, scheduling over rails |
//! | 2 | [`ptl`], [`btl`] | the frames of one message on one rail; the BTL face: modules, descriptors, active messages |
//! | 1 | [`link`](mod@link), [`rma`] | the reliable link; one-sided operations: registration, emulation, atomics |
//! | 0.5 | [`rail`] | the path to a peer: the rail trait and its extensions, attributes, loopback, forwarding, stacking |
//! | 0 | [`wire`], [`pool`], [`arena`], [`convertor`], [`modex`], [`time`], [`error`], [`counts`] | types and tables that all floors use |
//!
//! By default the core has all parts. Without the feature `one-sided`, engines have no one-sided operations. Without `devices`, no
//! device moves messages. Without `layouts`, the memory of a message is contiguous. An engine over an array with one rail has no code for failover. A small device saves a quarter of the code
//! by this. `defmt` and `log` choose where log lines go.
#![no_std]
#![deny(missing_docs)]

#[cfg(test)]
extern crate std;

#[macro_use]
mod log;

pub mod arena;
pub mod btl;
pub mod convertor;
pub mod counts;
pub mod error;
pub mod link;
mod list;
pub mod modex;
pub mod mtl;
pub mod pml;
pub mod pool;
pub mod ptl;
mod queue;
pub mod rail;
pub mod rma;
pub mod time;
pub mod wire;
