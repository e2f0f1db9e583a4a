//! Towline's shared-memory rail: lock-free rings between processes of one host.
//!
//! Each rank has a *board*, a page in a file system in memory with its doorbell and the word it sleeps on. A sender makes a
//! ring to a peer with its first frame, and another with its first long message; it announces them through the peer's
//! doorbell, the peer maps them, and their names vanish. Long messages are read by their receiver from where they lie
//! where the kernel allows that ([`SingleCopyState`]), and copied in and out of a ring where not, or where many follow each
//! other. See [`ring`] for how frames lie in them, [`sleep`] for how
//! sleepers are woken without a fence on the message path, [`Config`] for sizes and what they cost.
//!
//! One-sided operations reach into memory that both sides map ([`Area`]).
//!
//! [`Rail`] implements [`towline_core::rail::Rail`]. Use it from one thread at a time.
#![cfg(target_os = "linux")]

pub mod atomics;
pub mod doorbell;
pub mod ring;
pub mod sleep;

#[cfg(not(loom))]
mod card;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod host;
#[cfg(not(loom))]
mod rail;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
mod single_copy;
#[cfg(not(loom))]
mod rma;

#[cfg(not(loom))]
pub use {
    config::{Config, Tunable},
    error::OpenError,
    rail::Rail,
    single_copy::sender::SingleCopy,
    rma::regions::Area,
};
