//! The window: memory of a DPU or SmartNIC that its host maps, as it maps the memory of a PCI device.
//!
//! The host writes commands to one ring and reads completions from another. Message bodies lie in the buffers of the window. The
//! device owns all memory of the window and says in the header where what
//! is. `core/WINDOW.md` specifies the bytes, who writes which word, and the memory orderings.
//!
//! | module | subject |
//! |---|---|
//! | [`device`], [`host`] | the two ends: sessions, commands out of the ring, completions into it, and the reverse |
//! | [`command`], [`completion`] | what the slots of the rings carry |
//! | [`ring`] | a ring of slots with one writer and one reader |
//! | [`layout`] | where rings and buffers are |
//! | [`header`] | the words of the header |
//! | [`placed_ring`] | a ring in the memory of a window |
//! | [`memory`] | bounded access to the window's memory |
//! | [`atomics`] | the atomics, which are loom's while a model is checked |
//!
//! Neither side trusts what the other wrote. Each keeps its positions in private memory, copies what it reads once, and checks it.
//! A violation is an error and never an access out of bounds.
#![no_std]
#![deny(missing_docs)]

pub mod atomics;
pub mod command;
pub mod completion;
#[cfg(not(loom))]
pub mod device;
pub mod header;
#[cfg(not(loom))]
pub mod host;
pub mod layout;
pub mod memory;
#[cfg(not(loom))]
pub mod placed_ring;
pub mod ring;
