//! Message passing between the processes of a parallel job: the safe Rust interface of Towline.
//!
//! The [`manual`] explains it chapter by chapter, from the first program to every setting.
//!
//! ```
//! use towline::Any;
//!
//! fn main() -> std::process::ExitCode {
//!     towline::run(|world| { // under `towline run -n N`, or as a job of one rank
//!         let next = (world.rank() + 1) % world.size();
//!         world.send(next, 7, b"hello")?;
//!         let mut into = [0u8; 16];
//!         let status = world.recv(Any, 7, &mut into)?;
//!         println!("rank {}: {:?} from {}", world.rank(), &into[..status.count::<u8>()], status.source);
//!         Ok(()) // an error would be printed at once, and end the job
//!     })
//! }
//! ```
//!
//! | to do | use |
//! |---|---|
//! | begin and end a program | [`run`], [`Builder::run`]; or [`init`] and [`finish`](World::finish), see [the end](World#the-end) |
//! | send and receive, one operation after the other | [`send`](Communicator::send), [`recv`](Communicator::recv), [`sendrecv`](Communicator::sendrecv) |
//! | several operations at the same time, from borrowed memory | [`scope`](Communicator::scope) |
//! | several operations at the same time from owned memory, or `async` in any executor | [`isend`](Communicator::isend), [`irecv`](Communicator::irecv), [`block_on`](World::block_on) |
//! | wait for one of several operations | [`wait_any`](Communicator::wait_any), [`wait_some`](Communicator::wait_some), [`wait_all`](Communicator::wait_all), [`test_any`](Communicator::test_any) |
//! | start the same operation many times | [`send_init`](Communicator::send_init), [`recv_init`](Communicator::recv_init) |
//! | look at a message before it is received | [`probe`](Communicator::probe), [`mprobe`](Communicator::mprobe) |
//! | send columns and other parts of buffers | [`View`], [`ViewMut`], [`vector`], [`Layout`] |
//! | one context for each thread | [`Builder::contexts`], [`Context`], [`all_contexts`](World::all_contexts) |
//! | several threads in one context, a progress thread | [`Builder::threads`], [`Multiple`], [`Builder::progress_thread`](Builder::progress_thread) |
//! | go on with a rank that was restarted | [`restarted`](Communicator::restarted), [`rejoin`](World::rejoin), [`incarnation`](World::incarnation) |
//! | access the memory of other ranks (one-sided) | [`window`](Communicator::window), [`window_scope`](Communicator::window_scope), [`Window`] |
//! | collective operations | [`barrier`](Communicator::barrier), [`broadcast`](Communicator::broadcast), [`allreduce`](Communicator::allreduce), [`gather`](Communicator::gather) and others: see [`manual::collectives`] |
//! | operations on memory of the caller, for bindings of other languages | [`raw`] |
//! | only the transports, for a runtime that does its own matching | [`btl`] |
//! | further communicators | [`dup`](Communicator::dup), [`split`](Communicator::split) |
//!
//! **Memory.** Safe code cannot free or change memory that an operation uses: blocking calls borrow it, a scope waits for all
//! operations that began in it, and other operations own it. Blocking sends and receives, and those of a scope, allocate nothing,
//! with one exception: the table of waiting threads grows when more threads wait at the same time than ever before.
//!
//! **Threads.** A [`World`] is a context: it has an engine and rails of its own, for one thread. There are three ways to use
//! several threads. A process may have [several contexts](Builder::contexts), one for each thread; they share nothing on the path
//! of a message. The threads of a process may be ranks of their own: see [`Builder::job`]. Or several threads use one world of
//! [`Multiple`] threads, whose engine is behind a lock.
// Not under loom, which models single modules: the rails do not exist then.
#![cfg(all(target_os = "linux", not(loom)))]
#![deny(missing_docs)]

pub mod btl;
mod collectives;
mod context;
mod engine;
mod errors;
mod forks;
mod job;
pub mod manual;
mod operations;
pub mod raw;
mod settings;
mod setup;
mod threads;
mod transports;
mod values;
mod waiting;
mod windows;

pub use towline_bootstrap as bootstrap;
pub use towline_bootstrap::report;
pub use towline_core::convertor::{BoundsError, Layout, LayoutError, Overlap, Piece};
pub use towline_core::error::Blame;
pub use towline_core::mtl::CommError;
pub use towline_core::pml::{Counters, EnableError};
pub use towline_core::rail::{
    Capabilities, DeviceMemory, Failover, FastPath, FullRail, Liveness, Lost, Rail, RequestCache, SingleCopy,
};
pub use towline_core::rma::{Access, AtomicOp, Denied};
/// The crate by whose traits this crate knows plain data. A program that sends its own structures needs no dependency on it, and
/// so no guess of its version: derive the traits with the attribute `crate`.
///
/// ```
/// use towline::zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable)]
/// #[zerocopy(crate = "towline::zerocopy")]
/// #[repr(C)]
/// struct Particle {
///     position: [f64; 3],
///     mass: f64,
/// }
///
/// let world = towline::init()?;
/// let sent = [Particle { position: [1.0, 2.0, 3.0], mass: 0.5 }; 10];
/// world.send(world.rank(), 0, &sent)?;
/// let (received, _) = world.recv_vec::<Particle>(world.rank(), 0)?;
/// assert_eq!(received, sent);
/// # world.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use zerocopy;

pub use towline_net::{Encrypt, JobKey};
/// Why a job of a PMIx launcher cannot be joined: [`SetupError::Pmix`].
pub use towline_pmix::Error as PmixError;

pub use collectives::blocks::{blocks, blocks_mut};
pub use collectives::reduce_op::{Commutative, Max, Min, Plain, Product, ReduceOp, Sum};
pub use errors::error::{Error, Failed};
pub use errors::rejoin::RejoinError;
pub use errors::setup::SetupError;
pub use errors::worker::WorkerError;
pub use job::bootstrap::{Bootstrap, ChosenBootstrap};
pub use operations::buffer::{Buffer, BufferMut};
pub use operations::communicator::{Communicator, OwnedCommunicator};
pub use operations::completion::Completion;
pub use operations::device_buffer::DeviceBuffer;
pub use operations::matched_message::Message;
pub use operations::persistent::{PersistentRecv, PersistentSend};
pub use operations::requests::{RecvRequest, SendRequest};
pub use operations::scope::{Scope, ScopedRecv, ScopedSend};
pub use operations::views::{View, ViewMut, vector};
pub use report::{Report, UnmatchedPolicy};
pub use settings::config::Config;
pub use settings::variables::UnknownVariable;
pub use setup::builder::{Builder, init};
pub use setup::context::Context;
pub use setup::place::Place;
pub use setup::run::run;
pub use setup::worker::Worker;
pub use setup::world::{ProgressThread, World};
pub use threads::levels::{MayOwn, Multiple, Single, ThreadLevel, Threads};
pub use towline_settings::{InvalidSetting, Origin, Setting};
pub use towline_sm::CleanUp;
pub use transports::linked::Linked;
pub use transports::rails::{AnyRail, DynRail};
pub use values::address::Address;
pub use values::message::{Any, Envelope, Source, Status, TAG_MAX, Tag};
pub use values::shortage::Shortage;
pub use windows::caller_memory::OwnedWindow;
pub use windows::raw_window::RawWindow;
pub use windows::window::Window;
pub use windows::word::Word;

/// The example of the README is compiled with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
