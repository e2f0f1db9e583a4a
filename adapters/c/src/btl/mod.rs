//! The BTL face: transports for a runtime that does its own matching, with the contract of Open MPI's `btl.h`.
//!
//! | module | subject |
//! |---|---|
//! | [`handles`] | what C programs have of modules, endpoints, descriptors and registrations |
//! | [`module`] | to open and to close, progress |
//! | [`attributes`] | what a module can do |
//! | [`peers`] | cards, endpoints |
//! | [`active`] | functions for frames that arrive, and for lost peers |
//! | [`descriptors`], [`sends`] | descriptors and sends |
//! | [`memory`], [`one_sided`] | registered memory, put, get, atomics, flush |
//! | [`inspect`] | counters, a dump |
//!
//! **Callbacks.** The core makes callbacks in its progress, and gives them the module for the time of the call. A C function that is
//! called back uses the module by its handle. So `state` keeps the module that the core has given, and calls within the callback use
//! that one. The bytes of a frame end with the function that gets them: `lent` shows that in builds with debug assertions.

pub mod active;
pub mod attributes;
mod callbacks;
pub mod descriptors;
pub mod handles;
pub mod inspect;
mod lent;
pub mod memory;
pub mod module;
pub mod one_sided;
pub mod peers;
pub mod sends;
mod state;
