//! The BTL face: the contract of Open MPI's byte transfer layer on top of one rail, for consumers other than the engine.
//!
//! [`module::Btl`] is a module with its endpoints, descriptors, active messages and one-sided operations; [`selection`] chooses
//! the rails for a peer.

pub mod active;
mod counts;
pub mod descriptor;
pub mod endpoint;
pub mod errors;
pub mod module;
mod receives;
pub mod selection;
mod sends;
