//! The matching transport on a device: it takes the commands of a host from the window, and matches, sends and receives for it. So
//! messages make progress while the host computes.
//!
//! | module | subject |
//! |---|---|
//! | [`server`] | a server: one host, one transport |
//! | [`tables`] | what a server keeps of a session: operations, communicators, messages that probes took out |
//! | [`cards`] | the card of a device, by which other devices reach it |
//! | [`failures`] | what the host learns of refusals and failures of the transport |
//!
//! A server takes all its memory at its start. All that a session made ends with it.
#![no_std]

pub mod cards;
pub mod failures;
pub mod server;
pub mod tables;

pub use server::{InUse, Limits, Server, SetUpError};
