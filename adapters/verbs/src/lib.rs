//! Towline's verbs rail: reliable queue pairs of InfiniBand and RoCE devices.
//!
//! A [`Rail`] is one port of a device that reaches all peers. Each peer gets a queue pair of its own on first use; buffers for
//! what comes are shared by all of them, so memory does not grow with the peers. Short frames go within their work request, and
//! the device tells of each n-th frame only. A peer that has no buffers left is waited for by the device. A process that ends is
//! noticed by its device: what is written to it, even if it is nothing, is not acknowledged any more.
//!
//! Connections are made by datagrams of the device itself ([`hello`]), whose ends prove that they know the job's key. What
//! travels then is neither signed nor encrypted: the network must be one that others do not reach.
//!
//! Which port and which of its addresses is used is decided in [`port`]; every tunable is in [`Config`]. The device is in reach
//! of the feature `device` alone; without it there is everything but the rail, which says so.
//!
//! Proved on Soft-RoCE (RoCE v2). RoCE v1, InfiniBand and devices with several ports are covered by unit tests of the choices
//! alone: nobody has run those.
//!
//! Linux only. Not thread-safe: a rail is used by one thread at a time, and may move between threads.

#[cfg(not(feature = "device"))]
mod absent;
pub mod card;
mod config;
mod counters;
#[cfg(feature = "device")]
mod device;
mod error;
pub mod hello;
#[cfg_attr(not(feature = "device"), allow(dead_code, reason = "of the rail, which is not built in"))]
mod layout;
pub mod port;
#[cfg_attr(not(feature = "device"), allow(dead_code, reason = "of the rail, which is not built in"))]
mod slots;

#[cfg(not(feature = "device"))]
pub use absent::Rail;
pub use config::Config;
pub use counters::Counters;
pub use error::SetupError;
#[cfg(feature = "device")]
pub use rail::Rail;

#[cfg(feature = "device")]
mod meeting;
#[cfg(feature = "device")]
mod progress;
#[cfg(feature = "device")]
mod rail;
#[cfg(feature = "device")]
mod transfer;
