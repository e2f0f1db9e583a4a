//! The C interface of Towline. `include/towline.h` declares it, and its comments are the reference for C programs; it is generated
//! from the comments in this crate.
//!
//! | module | subject |
//! |---|---|
//! | [`error`] | codes, and the text of the last error |
//! | [`handles`] | what C programs have of objects |
//! | [`context`] | to begin and to end, settings, progress, reports |
//! | [`exchange`] | to begin with an exchange of the program |
//! | [`communicator`] | ranks, further communicators |
//! | [`layout`] | the places of bytes: contiguous, strided, indexed, and types that only the program knows |
//! | [`send`], [`receive`], [`probe`] | messages |
//! | [`request`], [`queue`] | operations in progress, and a queue of completions |
//! | [`place`], [`worker`] | contexts for a runtime with an exchange of its own |
//! | [`window`], [`atomic`] | one-sided operations |
//! | [`sleep`] | a descriptor for event loops |
//! | [`counters`] | what was counted, by name |
//! | [`btl`] | the BTL face: transports for a runtime that does its own matching |
//! | [`settings`] | the list of all settings |
//! | [`version`] | versions of the interface and of the library |
//!
//! **Handles** are numbers with a slot and a generation. A handle that was freed, or that never was one, is refused, whatever its
//! bits are. Addresses cannot be checked: a null pointer is refused, and any other one is taken for what it should be.
//!
//! **Panics** do not cross the border: a function that panics returns `TOWLINE_ERR_INTERNAL`.
//!
//! **Rust programs** use the crate `towline`, which this one is built on.
// Not under loom, which models single files: see `tests/loom.rs`.
#![cfg(all(target_os = "linux", not(loom)))]
#![deny(missing_docs)]
// The names that C programs see; `cbindgen.toml` gives the types their names.
#![allow(clippy::missing_errors_doc)] // each function returns a code, which its text describes

pub mod atomic;
mod border;
pub mod btl;
mod buffer;
pub mod communicator;
pub mod context;
pub mod counters;
pub mod error;
pub mod exchange;
mod foreign;
pub mod handles;
mod kept;
pub mod layout;
mod levels;
pub mod place;
pub mod probe;
pub mod queue;
pub mod receive;
pub mod request;
pub mod send;
pub mod settings;
pub mod sleep;
mod slots;
mod table;
mod tally;
mod texts;
pub mod version;
pub mod window;
pub mod worker;
mod worlds;
