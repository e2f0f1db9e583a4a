//! The thread levels: how many threads may use a context.

use std::future::Future;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use crate::threads::exclusive::Exclusive;
use crate::threads::executor::{block_on_exclusive, block_on_shared};
use crate::threads::lock::EngineLock;
use crate::threads::shared::Shared;

/// How many threads may use a [`World`](crate::World): its type parameter. [`Single`] or [`Multiple`].
///
/// [`Builder::threads`](crate::Builder::threads) asks for a level, and the level that is asked for is granted. A program that
/// does not ask has a world that the compiler keeps in one thread. [`World::threads`](crate::World::threads) returns the level.
#[allow(private_bounds)] // sealed: no other type implements it
pub trait Threads: Sharing {}

impl Threads for Single {}
impl Threads for Multiple {}

/// The level of a world that one thread uses, without any lock: MPI's `MPI_THREAD_SINGLE`.
///
/// Such a world cannot leave its thread, and other threads cannot use it:
///
/// ```compile_fail,E0277
/// let world = towline::init().unwrap();
/// std::thread::spawn(move || world.barrier());
/// ```
///
/// ```compile_fail,E0277
/// let world = towline::init().unwrap();
/// std::thread::scope(|threads| {
///     threads.spawn(|| world.barrier());
/// });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Single;

/// The level of a world that any number of threads use at once: MPI's `MPI_THREAD_MULTIPLE`.
///
/// The engine is behind a lock. No thread holds the lock while it waits: one of the waiting threads makes progress for all, or
/// sleeps until something comes, and the others sleep until their own operation is complete. A world that moves from thread to
/// thread, one at a time (`MPI_THREAD_SERIALIZED`), is of this level, too.
///
/// As in MPI, only one thread at a time may call collective operations on a communicator, or make communicators from it.
///
/// ```
/// use towline::{Builder, Multiple};
///
/// let world = Builder::new().threads(Multiple).build()?;
/// std::thread::scope(|threads| {
///     for tag in 0..4u32 {
///         let world = &world;
///         threads.spawn(move || {
///             world.send(0, tag, &tag).unwrap();
///             let mut word = 0u32;
///             world.recv(0, tag, &mut word).unwrap();
///             assert_eq!(word, tag);
///         });
///     }
/// });
/// world.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Any of the threads may free the buffers that operations own, so these buffers must be `Send`:
///
/// ```compile_fail,E0277
/// use towline::{Builder, Multiple};
///
/// let world = Builder::new().threads(Multiple).build().unwrap();
/// let shared = std::rc::Rc::<[u8]>::from([1, 2, 3]);
/// let _ = world.isend(0, 1, shared);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Multiple;

/// A thread level as a value, in the order of MPI's levels.
///
/// ```
/// use towline::ThreadLevel;
///
/// assert!(ThreadLevel::Single < ThreadLevel::Multiple);
/// assert_eq!(towline::init()?.threads(), ThreadLevel::Single);
/// # Ok::<(), towline::SetupError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum ThreadLevel {
    /// [`Single`].
    Single,
    /// [`Multiple`].
    Multiple,
}

/// A thread level at which an operation may own a buffer of type `B`: any buffer for [`Single`], one that is `Send` for
/// [`Multiple`].
pub trait MayOwn<B>: Threads {}

impl<B> MayOwn<B> for Single {}
impl<B: Send> MayOwn<B> for Multiple {}

/// The types and functions in which the levels differ.
pub(crate) trait Sharing: Sized + 'static {
    /// The result of [`World::threads`](crate::World::threads).
    const LEVEL: ThreadLevel;
    /// A counted reference to the data that all objects of a context share.
    type Ref<T>: Clone + Unpin + Deref<Target = T> + From<Box<T>>;
    /// The lock around the engine.
    type Lock: EngineLock;

    /// Runs a future to completion.
    fn block_on<F: Future>(engine: &Self::Lock, future: F) -> F::Output;
}

impl Sharing for Single {
    const LEVEL: ThreadLevel = ThreadLevel::Single;
    type Ref<T> = Rc<T>;
    type Lock = Exclusive;

    fn block_on<F: Future>(engine: &Exclusive, future: F) -> F::Output {
        block_on_exclusive(engine, future)
    }
}

impl Sharing for Multiple {
    const LEVEL: ThreadLevel = ThreadLevel::Multiple;
    type Ref<T> = Arc<T>;
    type Lock = Shared;

    fn block_on<F: Future>(engine: &Shared, future: F) -> F::Output {
        block_on_shared(engine, future)
    }
}
