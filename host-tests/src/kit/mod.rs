//! Conformance kits: generic test suites for any rail, any matching transport, and one-sided operations. A test file
//! names the setup once, and a macro makes one test of each check.

pub mod fake_accelerator;
pub mod loopback;
pub mod lossy_network;
pub mod mesh;
pub mod mtl;
pub mod nodes;
pub mod one_sided;
pub mod pml;
pub mod rail;
pub mod recorder;
pub mod socket_setup;
mod wait_limit;

/// Time for which a link of a kit in real time waits for a silent peer. It is long because a peer may get its turn late on a busy
/// machine. It is shorter than the limit of a check, since a network that loses frames can lose every goodbye of a peer.
pub const LINK_TIMEOUT: towline_core::time::Duration = towline_core::time::Duration::from_secs(20);
