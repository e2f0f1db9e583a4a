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
//! | one context for each thread | [`Builder::contexts`], [`Context`], [`everyone`](World::everyone) |
//! | several threads on one context, a progress thread | [`Builder::threads`], [`Multiple`], [`Builder::progress_thread`](Builder::progress_thread) |
//! | go on with a rank that was started again | [`returned`](Communicator::returned), [`readmit`](World::readmit), [`incarnation`](World::incarnation) |
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

mod absent;
mod address;
mod alone;
mod attendance;
mod builder;
mod cards;
mod clock;
mod collective;
mod communicator;
mod context;
mod duty;
mod engine;
mod error;
mod idle;
mod launch;
mod limits;
mod linked;
pub mod manual;
mod memory;
mod message;
mod open;
mod owned;
mod parker;
mod performances;
mod probed;
mod rails;
mod readmission;
mod scope;
mod seam;
mod setup;
mod several;
mod state;
mod threads;
mod tunables;
mod views;
mod window;
mod world;

pub use towline_bootstrap as bootstrap;
pub use towline_core::convertor::{Layout, LayoutError, Misfit, Piece};
pub use towline_core::mtl::CommError;
pub use towline_core::pml::{Counters, EnableError};
pub use towline_core::rail::{
    Capabilities, DeviceMemory, Failover, FastPath, FullRail, Liveness, Lost, Rail, RequestCache, SingleCopy,
};
pub use towline_core::rma::{Access, AtomicOp, Denied};

pub use towline_tcp::Encrypt;

pub use address::Address;
pub use builder::{Builder, init};
pub use communicator::{Communicator, Owned};
pub use context::Context;
pub use error::{Error, Failed};
pub use linked::Linked;
pub use message::{Any, Envelope, Source, Status, TAG_MAX, Tag};
pub use owned::{Buffer, BufferMut, ReceivingOwned, SendingOwned};
pub use probed::Message;
pub use rails::{AnyRail, DynRail};
pub use readmission::ReadmitError;
pub use scope::{Received, Scope, Sent};
pub use setup::SetupError;
pub use threads::{Multiple, Single, Takes, ThreadLevel, Threads};
pub use tunables::{Config, Origin, Tunable};
pub use views::{View, ViewMut, vector};
pub use window::{Window, Word};
pub use world::{ProgressThread, World};

/// The README's example is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
