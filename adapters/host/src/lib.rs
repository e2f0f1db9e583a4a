//! Messages between processes: the safe Rust face of Towline.
//!
//! ```
//! use towline::Any;
//!
//! let world = towline::init()?; // under `towline run -n N`, or alone
//! let next = (world.rank() + 1) % world.size();
//! world.send(next, 7, b"hello")?;
//! let mut into = [0u8; 16];
//! let status = world.recv(Any, 7, &mut into)?;
//! println!("rank {}: {:?} from {}", world.rank(), &into[..status.count::<u8>()], status.source);
//! world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | to do | use |
//! |---|---|
//! | send and receive, one after the other | [`send`](Communicator::send), [`recv`](Communicator::recv), [`sendrecv`](Communicator::sendrecv) |
//! | several at once, from borrowed memory | [`scope`](Communicator::scope) |
//! | several at once, from owned memory, or `async` | [`isend`](Communicator::isend), [`irecv`](Communicator::irecv), [`block_on`](World::block_on) |
//! | look before receiving | [`probe`](Communicator::probe), [`mprobe`](Communicator::mprobe) |
//! | columns and other parts of buffers | [`View`], [`ViewMut`], [`vector`], [`Layout`] |
//! | one context for each thread | [`Builder::contexts`], [`Context`], [`all_contexts`](World::all_contexts) |
//! | several threads on one context, a progress thread | [`Builder::threads`], [`Multiple`], [`Builder::progress_thread`](Builder::progress_thread) |
//! | go on with a rank that was started again | [`returned`](Communicator::returned), [`rejoin`](World::rejoin), [`incarnation`](World::incarnation) |
//! | reach into the memory of others | [`window`](Communicator::window), [`Window`] |
//! | all together | [`barrier`](Communicator::barrier), [`broadcast`](Communicator::broadcast), [`split`](Communicator::split) |
//!
//! Memory in flight cannot be freed or changed by safe code: blocking calls borrow it, a scope waits for all that began in
//! it, and other operations own it. Blocking sends and receives, and those of a scope, allocate nothing;
//! only where more threads than ever before wait for each other's calls is the process's one table of such threads made larger.
//!
//! A [`World`] is a context: an engine and rails of its own, for one thread. A process may have
//! [several](Builder::contexts), one for each thread, which share nothing that a message passes; or its threads take part as
//! ranks of their own (see [`Builder::job`]). A world of [`Multiple`] threads is shared by all of them, behind a lock.
// Not under loom, which models modules alone: its rails are not there then.
#![cfg(all(target_os = "linux", not(loom)))]
#![deny(missing_docs)]

mod context;
mod engine;
mod errors;
mod job;
mod operations;
mod settings;
mod setup;
mod threads;
mod transports;
mod values;
mod waiting;
mod windows;

pub use towline_bootstrap as bootstrap;
pub use towline_core::convertor::{Layout, LayoutError, Misfit, Piece};
pub use towline_core::mtl::CommError;
pub use towline_core::pml::{Counters, EnableError};
pub use towline_core::rail::{
    Capabilities, DeviceMemory, Failover, FastPath, FullRail, Liveness, Lost, Rail, RequestCache, SingleCopy,
};
pub use towline_core::rma::{Access, AtomicOp, Denied};

pub use towline_tcp::Encrypt;

pub use errors::error::{Error, Failed};
pub use errors::rejoin::RejoinError;
pub use errors::setup::SetupError;
pub use operations::communicator::{Communicator, OwnedCommunicator};
pub use operations::matched_message::Message;
pub use operations::owned::{Buffer, BufferMut, RecvRequest, SendRequest};
pub use operations::scope::{Received, Scope, Sent};
pub use operations::views::{View, ViewMut, vector};
pub use settings::config::{Config, Origin, Tunable};
pub use setup::builder::{Builder, init};
pub use setup::context::Context;
pub use setup::world::{ProgressThread, World};
pub use threads::levels::{MayOwn, Multiple, Single, ThreadLevel, Threads};
pub use transports::linked::Linked;
pub use transports::rails::{AnyRail, DynRail};
pub use values::address::Address;
pub use values::message::{Any, Envelope, Source, Status, TAG_MAX, Tag};
pub use windows::window::{Window, Word};

/// The README's example is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
