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
//! | [`log`] | a ring of bytes, for the log of the firmware |
//! | [`doorbell`] | how a side that sleeps is woken by the other one |
//! | [`fault`] | how firmware reports that it has failed |
//! | [`layout`] | where rings, log and buffers are |
//! | [`header`] | the words of the header |
//! | [`placed_ring`], [`placed_log`] | both in the memory of a window |
//! | [`host_log`] | the host's end of the log |
//! | [`memory`] | bounded access to the window's memory |
//! | [`atomics`] | the atomics, which are loom's while a model is checked |
//!
//! ```
//! use std::ptr::NonNull;
//! use towline_window::command::Command;
//! use towline_window::completion::{Completion, Done};
//! use towline_window::device::{About, Device};
//! use towline_window::doorbell::Doorbell;
//! use towline_window::host::Attaching;
//! use towline_window::layout::Layout;
//! use towline_window::memory::Memory;
//!
//! #[repr(align(64))]
//! struct Shared([u8; 4096]);
//!
//! let mut shared = Shared([0; 4096]);
//! // SAFETY: the memory is used by its address only while the window exists.
//! let memory = unsafe { Memory::new(NonNull::from(&mut shared.0).cast(), 4096) }.unwrap();
//! let about = About { boot: 1, operations: 8, one_sided: 8, description: "example", doorbell: Doorbell::None };
//! let mut device = Device::start(memory, Layout::plan(4096, 8, 8)?, &about)?;
//! let mut attaching = Attaching::new(memory, 1234)?;
//! if let Some(session) = device.wanted()? {
//!     device.serve(session)?;
//! }
//! let mut host = attaching.poll().unwrap();
//!
//! host.command(7, &Command::DeletePeer { peer: 1 })?;
//! let (cookie, command) = device.take().unwrap();
//! assert_eq!(command, Ok(Command::DeletePeer { peer: 1 }));
//! device.complete(&Completion::new(cookie, Ok(Done::default())))?;
//! assert_eq!(host.take()?.map(|completion| completion.cookie), Some(7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Neither side trusts what the other wrote. Each keeps its positions in private memory, copies what it reads once, and checks it.
//! A violation is an error and never an access out of bounds.
#![no_std]
#![deny(missing_docs)]

pub mod atomics;
pub mod command;
pub mod completion;
#[cfg(not(window_model))]
pub mod device;
pub mod doorbell;
#[cfg(not(window_model))]
pub mod fault;
pub mod header;
#[cfg(not(window_model))]
pub mod host;
#[cfg(not(window_model))]
pub mod host_log;
pub mod layout;
pub mod log;
pub mod memory;
#[cfg(not(window_model))]
pub mod placed_log;
#[cfg(not(window_model))]
pub mod placed_ring;
pub mod ring;
