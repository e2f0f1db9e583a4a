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
//! A connection that ends goes to its error state first, and its queue pair is destroyed once the device says that it holds no
//! buffer of it any more, or a second later: what is destroyed at once takes the buffer of a frame that was half there with it, and
//! with some providers what has come and was not looked at yet.
//!
//! Which port and which of its addresses is used is decided in [`port`]; every tunable is in [`Config`]. The device is in reach
//! of the feature `device` alone; without it there is everything but the rail, which says so. Hosts whose ports are of several
//! networks must have the same ones, or name those to use ([`Config::devices`]): links of one number are to meet. Networks of
//! IPv4 are taken for one, as there may be routers between them.
//!
//! A process may fork: what devices write to is not shared with the child, which must not use a rail, nor drop it. (Kernels before
//! 5.12 do not see to that themselves; for those libibverbs is asked to: then a child has none of the pages either that the user has
//! registered, nor what else is in them, so such memory had better be of whole pages.)
//!
//! Proved on Soft-RoCE (RoCE v2). RoCE v1, InfiniBand and devices with several ports are covered by unit tests of the choices
//! alone: nobody has run those. Soft-RoCE does not show, and no test but of the bookkeeping does: a device that says when a queue
//! pair is empty, a queue pair that is not destroyed, a hello that is under way when its peer is forgotten, a queue or a device
//! that fails, more quiet peers than there are markers, an old kernel and a child.
//!
//! Linux only. Not thread-safe: a rail is used by one thread at a time, and may move between threads.

#[cfg(not(feature = "device"))]
mod stub;
#[cfg_attr(not(feature = "device"), allow(dead_code, reason = "of the rail, which is not built in"))]
mod bookkeeping;
mod config;
mod counters;
#[cfg(feature = "device")]
mod device;
mod error;
pub mod port;
mod wire;

#[cfg(not(feature = "device"))]
pub use stub::Rail;
pub use config::{Config, HARDWARE_PIPELINE, LONGEST_PEER_TIMEOUT, SOFT_ROCE_PIPELINE};
pub use counters::Counters;
pub use error::SetupError;
#[cfg(feature = "device")]
pub use rail::Rail;
pub use wire::{card, hello, remote_key as key};

#[cfg(feature = "device")]
mod rail;
