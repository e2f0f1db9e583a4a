//! The C interface of Towline. `include/towline.h` declares it, and its comments are the reference for C programs; it is generated
//! from the comments in this crate.
//!
//! | module | subject |
//! |---|---|
//! | [`error`] | codes, and the text of the last error |
//! | [`handles`] | what C programs have of objects |
//! | [`context`] | to begin and to end, settings, progress, reports |
//! | [`communicator`] | ranks, further communicators |
//! | [`layout`] | the places of bytes: contiguous, strided, indexed, and types that only the program knows |
//! | [`send`], [`receive`], [`probe`] | messages |
//! | [`request`] | operations in progress |
//! | [`window`], [`atomic`] | one-sided operations |
//! | [`sleep`] | a descriptor for event loops |
//! | [`counters`] | what was counted, by name |
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
mod buffer;
pub mod communicator;
pub mod context;
pub mod counters;
pub mod error;
mod foreign;
pub mod handles;
mod kept;
pub mod layout;
mod levels;
pub mod probe;
pub mod receive;
pub mod request;
pub mod send;
pub mod sleep;
mod slots;
mod table;
mod tally;
mod texts;
pub mod version;
pub mod window;
mod worlds;
