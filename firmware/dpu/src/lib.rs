//! The program of a DPU: it executes the commands that its host writes to the window, and moves the messages over a network to other
//! DPUs.
//!
//! | module | subject |
//! |---|---|
//! | [`board`] | what the program needs of its board beside [`runtime::Board`] |
//! | [`rails`] | the rails: one to this device itself, and one to others for each network interface |
//! | [`unplugged`] | a network interface without a network |
//! | [`program`] | set-up, and the loop |
#![no_std]

#[cfg(feature = "program")]
pub mod board;
#[cfg(feature = "program")]
pub mod program;
pub mod rails;
pub mod unplugged;

#[cfg(feature = "program")]
pub use board::Dpu;
#[cfg(feature = "program")]
pub use program::{Failed, run};
