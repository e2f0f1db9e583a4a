//! Conformance kits: one generic suite for any rail, one for any matching transport. A test file names what is to be
//! tested once, and a macro makes one test of each check.

pub mod accelerator;
pub mod bench;
pub mod mtl;
pub mod onesided;
mod patience;
pub mod pml;
pub mod rail;
pub mod recorder;
pub mod relay;
pub mod sockets;
pub mod world;

/// How long a link of a kit in real time waits for a peer: no peer of a kit dies in silence, and on a busy machine its turn may
/// come late.
pub const LINK_PATIENCE: towline_core::time::Duration = towline_core::time::Duration::from_secs(300);
