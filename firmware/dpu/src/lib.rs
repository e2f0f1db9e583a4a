//! The program of a DPU: it executes the commands that its host writes to the window, and moves the messages over a network to other
//! DPUs.
//!
//! | module | subject |
//! |---|---|
//! | [`board`] | what the program needs of its board beside [`runtime::Board`] |
//! | [`rails`] | the two rails: to this device itself, and to others |
//! | [`unplugged`] | a network interface without a network |
//! | [`program`] | set-up, and the loop |
#![no_std]

pub mod board;
pub mod program;
pub mod rails;
pub mod unplugged;

pub use board::Dpu;
pub use program::{Failed, run};
