//! The matching transport on a DPU. The host posts commands, and the DPU matches, sends and receives. So messages make progress while
//! the host computes and makes no call.
//!
//! [`Transport`] has the calls of the core's transport (`towline_core::mtl::Mtl`). Its messages lie in the buffers of the DPU's
//! window, or in any memory of the host. That is copied to and from these buffers, unless the message is long and the device reaches the
//! memory itself.
//!
//! ```no_run
//! use std::path::Path;
//! use towline_core::convertor::Span;
//! use towline_dpu::{Mode, Options, Source, Tag, Transport};
//!
//! let mut transport = Transport::open(Path::new("/sys/bus/pci/devices/0000:03:00.0/resource2"), Options::default())?;
//! // Two processes exchange their cards by means of their own. Peer 0 is this one, and peer 1 the other.
//! let card = transport.card()?;
//! # let exchange = |card: &[u8]| card.to_vec();
//! let other = exchange(&card);
//! transport.add_peer(1, &other)?;
//! let comm = transport.add_comm(1, &[0, 1], 0)?;
//!
//! let mut answer = [0; 100];
//! // SAFETY: the arrays outlive the operations.
//! let (sent, received) = unsafe {
//!     let into = Span::contiguous(answer.as_mut_ptr(), answer.len());
//!     let received = transport.irecv(comm, Source::Rank(1), Tag::Is(5), into)?;
//!     (transport.isend(comm, 1, 5, Mode::Standard, Span::of(b"question"))?, received)
//! };
//! // The device moves the messages while this process computes.
//! let status = transport.wait(received)?;
//! transport.wait(sent)?;
//! println!("{} bytes", status.received);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`transport`] | the transport |
//! | [`one_sided`] | memory that peers access by puts, gets and atomics, while its host makes no call |
//! | `host_memory` | the memory of this process, which some devices read and write themselves |
//! | [`frames`] | the device as a rail, which carries the frames of the host's engine |
//! | [`matching`] | the device as the matcher of an engine's communicators |
//! | [`settings`] | the settings, and how a process finds its device |
//! | [`mapping`] | the window's file |
//! | [`doorbell`] | the pipes beside the window, by which host and device wake each other |
//! | [`log`] | the log of the firmware |
//! | [`supervisor`] | ends the session of a process that has died |
//! | `fallback` | what a matcher does when the engine falls back to its rails |
//! | `peers` | the peers, and what is known of the messages between their devices and this one |
//! | [`windows`] | memory of an engine's processes for puts, gets and atomics of their windows |
//! | `window_operations` | the operations of windows in progress |
//! | `refused` | messages that no receive takes any more, at the end of a process |
//! | `unreceived` | what was taken out of a device since no receive takes it |
//! | `takeover` | posted receives that the host has taken over from a full device |
//! | [`heap`] | which parts of the buffers are in use |
//! | [`pages`] | memory of this process for copies of long messages |
//! | `patience` | how long this process has waited for its device |
//! | `pieces` | moves messages that are longer than a device has room for, in pieces |
//! | `pipeline` | what is kept of such messages |
//! | [`operations`] | the commands in progress |
//! | `members` | the members of a communicator |
//! | `owners` | what commands in progress are for |
//! | [`remotes`] | the keys of memory of peers |
//! | [`errors`] | why a device cannot be opened, and why operations are refused or fail |
//!
//! A device whose firmware has failed, was reset, or is silent for too long has failed: all operations in progress end with
//! [`Failure::Device`].

pub mod doorbell;
pub mod errors;
mod fallback;
pub mod frames;
pub mod heap;
mod host_memory;
pub mod log;
pub mod mapping;
pub mod matching;
mod members;
pub mod one_sided;
pub mod operations;
mod owners;
pub mod pages;
mod patience;
mod peers;
mod pieces;
mod pipeline;
mod refused;
pub mod remotes;
pub mod settings;
pub mod supervisor;
mod takeover;
pub mod transport;
mod unreceived;
mod window_operations;
pub mod windows;

pub use errors::{Failure, Lost, OpenError, Refusal};
pub use matching::Matching;
pub use settings::Settings;
pub use supervisor::Supervisor;
pub use transport::{Buffer, Comm, Message, Mode, Options, Request, Source, Status, Tag, Transport};
