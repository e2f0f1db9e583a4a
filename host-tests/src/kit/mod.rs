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
