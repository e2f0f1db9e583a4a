//! The matching transport on a device: it takes the commands of a host from the window, and matches, sends and receives for it. So
//! messages make progress while the host computes. It also serves puts, gets and atomics of peers on memory of the window.
//!
//! | module | subject |
//! |---|---|
//! | [`server`] | a server: one host, one transport |
//! | `numbers` | the numbers that a host gets for what its device makes |
//! | [`tables`] | what a server keeps of a session: operations, communicators, messages that probes took out |
//! | [`one_sided_tables`] | the same of one-sided operations: registered memory, and operations on memory of peers |
//! | [`host_memory`] | memory of the host outside the window, and the bodies of messages there |
//! | `announcement` | the body of messages that have a length and no bytes |
//! | [`stage`] | buffers between fragments and that memory |
//! | [`cards`] | the card of a device, by which other devices reach it |
//! | [`keys`] | the key of registered memory, by which hosts of other devices name it |
//! | [`failures`] | what the host learns of refusals and failures of the transport |
//!
//! A server takes all its memory at its start. All that a session made ends with it.
#![no_std]

mod announcement;
pub mod cards;
pub mod failures;
pub mod host_memory;
pub mod keys;
mod numbers;
pub mod one_sided_tables;
pub mod server;
pub mod stage;
pub mod tables;

pub use server::{InUse, Limits, Server, SetUpError};
