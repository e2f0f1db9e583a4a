//! How many threads may use a context: what differs between one and several.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::Arc;

use towline_core::mtl::{Comm, Failure, Request, Source, Status, Tag};
use towline_core::time::Instant;

use crate::context::state::State;
use crate::engine::Engine;
use crate::setup::world::block_on_alone;
use crate::threads::exclusive::Alone;
use crate::threads::shared::{Several, block_on};
use crate::waiting::wait_set::Idle;

/// How many threads may use a [`World`](crate::World): its type parameter. [`Single`] or [`Multiple`].
///
/// It is asked for with [`Builder::threads`](crate::Builder::threads), and who has not asked has a world that the
/// compiler keeps in one thread. What is granted is what was asked for; [`World::threads`](crate::World::threads) tells it.
#[allow(private_bounds)] // nobody else implements it
pub trait Threads: Sharing {}

impl Threads for Single {}
impl Threads for Multiple {}

/// The level of a world that one thread uses, without any lock: MPI's `MPI_THREAD_SINGLE`.
///
/// Such a world cannot leave its thread, nor be used from another:
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
/// A lock is around the engine. It is not held while anybody waits: of threads that wait, one makes progress for all, or sleeps
/// until something comes, and the others sleep until their own operation is over. A world that moves from thread to thread, one
/// at a time (`MPI_THREAD_SERIALIZED`), is of this level, too.
///
/// Collective operations on one communicator, and making communicators, are for one thread at a time, as in MPI.
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
/// Buffers that operations own may be freed by any of the threads, so they must be able to go there:
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

/// A level of threads as a value, in the order of MPI's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum ThreadLevel {
    /// [`Single`].
    Single,
    /// [`Multiple`].
    Multiple,
}

/// Buffers that an operation may own in a world of this level: any in one of a [`Single`] thread, those that may go to another
/// thread in one of [`Multiple`].
pub trait Takes<B>: Threads {}

impl<B> Takes<B> for Single {}
impl<B: Send> Takes<B> for Multiple {}

/// What differs between the levels.
pub(crate) trait Sharing: Sized + 'static {
    /// What [`World::threads`](crate::World::threads) tells.
    const LEVEL: ThreadLevel;
    /// Shared by everything that belongs to a context.
    type Ref: Clone + Unpin + Deref<Target = State<Self>> + From<Box<State<Self>>>;
    /// What the engine is in.
    type Cell: Lock;

    /// Runs a future to its end.
    fn block_on<F: Future>(state: &State<Self>, future: F) -> F::Output;
}

impl Sharing for Single {
    const LEVEL: ThreadLevel = ThreadLevel::Single;
    type Ref = Rc<State<Self>>;
    type Cell = Alone;

    fn block_on<F: Future>(state: &State<Self>, future: F) -> F::Output {
        match &state.engine {
            Alone::Bare(_) => block_on_alone(state, future),
            Alone::Attended(several) => block_on(several, future),
        }
    }
}

impl Sharing for Multiple {
    const LEVEL: ThreadLevel = ThreadLevel::Multiple;
    type Ref = Arc<State<Self>>;
    type Cell = Several;

    fn block_on<F: Future>(state: &State<Self>, future: F) -> F::Output {
        block_on(&state.engine, future)
    }
}

/// What an engine is in. Nobody has two guards at a time.
pub(crate) trait Lock: Sized {
    /// The engine, for its holder alone.
    type Guard<'a>: Held
    where
        Self: 'a;

    /// Puts an engine in, with a progress thread if that is asked for.
    fn new(engine: Engine, thread: bool) -> std::io::Result<Self>;

    /// The engine.
    fn hold(&self) -> Self::Guard<'_>;

    /// Runs what users have to do with requests that are over: wakers, and the end of buffers.
    fn settle(&self);

    /// How often the progress thread woke; `None` where there is none.
    fn thread_wakes(&self) -> Option<u64>;

    /// Ends the progress thread, if there is one.
    fn end_thread(&self);
}

/// The engine in the hands of one thread, and how that waits.
pub(crate) trait Held: DerefMut<Target = Engine> {
    /// Sees to it that progress is made once, or waits for a while: until what is awaited may be there, or until
    /// `until`. Others may have had the engine in between.
    fn turn(&mut self, idle: &mut Idle, awaited: &Awaited<'_>, until: Option<Instant>);

    /// The next operation follows at once: what this one sent may wait for company.
    #[inline]
    fn more_follows(&mut self) {}

    /// Takes the outcome of a request, and waits for it where it must. Runs no code of users in this thread alone, so it does
    /// not unwind.
    #[inline]
    fn wait(&mut self, request: Request) -> Result<Status, Failure> {
        match self.mtl.test(request) {
            Some(outcome) => outcome,
            None => self.wait_longer(request),
        }
    }

    /// The rest of [`wait`](Self::wait).
    fn wait_longer(&mut self, request: Request) -> Result<Status, Failure> {
        let mut idle = Idle::default();
        self.clock.renew_coarsely();
        loop {
            self.turn(&mut idle, &Awaited::Request(request), None);
            if let Some(outcome) = self.mtl.test(request) {
                return outcome;
            }
        }
    }

    /// As [`wait`](Self::wait), for so long; `None`: the request goes on.
    fn wait_until(&mut self, request: Request, deadline: Instant) -> Option<Result<Status, Failure>> {
        let mut idle = Idle::default();
        let mut now = self.clock.renew();
        while now < deadline {
            if let Some(outcome) = self.mtl.test(request) {
                return Some(outcome);
            }
            self.turn(&mut idle, &Awaited::Request(request), Some(deadline));
            self.clock.renew_coarsely();
            now = self.clock.now();
        }
        self.mtl.test(request)
    }
}

/// What a thread waits for.
#[derive(Debug)]
pub(crate) enum Awaited<'a> {
    /// The end of a request.
    Request(Request),
    /// A message.
    Message(Pattern),
    /// The end of a one-sided operation beyond so many.
    Performances(u64),
    /// Whatever comes.
    Anything,
    /// A future's waker.
    Alarm(&'a crate::threads::shared::Alarm),
}

/// Which messages a probe is for.
pub(crate) type Pattern = (Comm, Source, Tag);
