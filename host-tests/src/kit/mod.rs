//! Conformance kits: one generic suite for any rail, one for any matching transport. A test file names what is to be
//! tested once, and a macro makes one test of each check.

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
