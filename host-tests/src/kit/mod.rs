//! Conformance kits: generic test suites for any rail, any matching transport, and one-sided operations. A test file
//! names the setup once, and a macro makes one test of each check.

pub mod fake_accelerator;
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

/// How long a link of a kit in real time waits for a peer: no peer of a kit dies in silence, and on a busy machine its turn may
/// come late.
pub const LINK_PATIENCE: towline_core::time::Duration = towline_core::time::Duration::from_secs(300);
