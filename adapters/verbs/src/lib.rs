//! Towline's verbs rail: reliable queue pairs of InfiniBand and RoCE devices.
//!
//! A [`Rail`] is one port of a device, through which it reaches all peers. Each peer gets a queue pair of its own on first
//! use. The receive buffers are shared by all peers, so memory does not grow with their number. Short frames travel inline,
//! within their work request, and the device reports the completion of each n-th frame only. The device waits for a peer that
//! has no receive buffer left. It also notices that a peer's process has ended, because the peer's device acknowledges no
//! write any more. The rail sends a *marker*, a write of no bytes, as a keepalive, and to get the completion of all frames
//! before it.
//!
//! Connections are made by datagrams of the device itself ([`hello`]), whose senders prove that they know the job's key. The data
//! on a connection is not signed and not encrypted: the network must not be accessible to others.
//!
//! When a connection ends, its queue pair is first moved to its error state. It is destroyed when the device reports that it
//! holds no receive buffer for this queue pair any more, and after a second at the latest. A queue pair that is destroyed at
//! once loses the buffer of a frame that was partly received, and with some providers also completions that were not
//! processed yet.
//!
//! [`port`] decides which port and which of its addresses is used; [`Config`] has all settings. The rail needs the feature
//! `device` of this crate. Without it, all other parts are there, and opening a rail fails with [`SetupError::NotBuiltIn`].
//!
//! Links of the same number are connected. So hosts whose ports are on several networks must have the same networks, or name the
//! ports to use ([`Config::devices`]). All IPv4 networks count as one, since there may be routers between them.
//!
//! A process may fork. Memory that the device writes to is not shared with the child, which must not use or drop a rail. Kernels
//! before 5.12 do not ensure that themselves; there the rail asks libibverbs to do it. Then the child also lacks all pages that
//! contain memory that the user has registered, so such memory should consist of whole pages.
//!
//! Tested on Soft-RoCE (RoCE v2). RoCE v1, InfiniBand and devices with several ports were never run; only unit tests of the
//! choice of a port cover them. Soft-RoCE does not show the following cases, which only tests of the bookkeeping cover: a
//! device that reports when a queue pair is empty, a queue pair that cannot be destroyed, a hello in flight to a peer that is
//! deleted, a queue or a device that fails, more silent peers than markers, an old kernel with a forked child.
//!
//! Linux only. Not thread-safe: a rail is used by one thread at a time, and may move between threads.
//!
//! # Source layout
//! Types stand below, behaviour above: `sizes` and `address` at the bottom; `wire` (card, hello, key), `bookkeeping` (buffers,
//! queues, operations, without a device), `config` and `port`; `device` (the device's objects); and `rail`, which uses all of
//! them. `stub` takes the place of the rail where that is not built in.

mod address;
#[cfg_attr(not(feature = "device"), allow(dead_code, reason = "used by the rail, which is not built in"))]
mod bookkeeping;
mod config;
mod counters;
#[cfg(feature = "device")]
mod device;
mod error;
pub mod port;
#[cfg(feature = "device")]
mod rail;
mod settings;
mod sizes;
#[cfg(not(feature = "device"))]
mod stub;
mod wire;

pub use address::{Gid, GidKind, Mtu};
pub use config::{Config, HARDWARE_PIPELINE, LONGEST_PEER_TIMEOUT, SHORTEST_PEER_TIMEOUT, SOFT_ROCE_PIPELINE};
pub use counters::Counters;
pub use error::SetupError;
#[cfg(feature = "device")]
pub use rail::Rail;
pub use settings::Settings;
#[cfg(not(feature = "device"))]
pub use stub::Rail;
pub use wire::{card, hello, remote_key};
