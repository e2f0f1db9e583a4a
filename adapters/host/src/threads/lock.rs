//! The functions of every lock around an engine, and how the thread that holds it waits.

use std::ops::DerefMut;
use std::task::Waker;

use towline_core::mtl::{Comm, Failure, Request, Source, Status, Tag};
use towline_core::time::Instant;

use crate::engine::Engine;
use crate::engine::pending::FormerEntry;
use crate::engine::waits::WaitFor;
use crate::forks::handlers::Markable;
use crate::waiting::idle::Idle;
use crate::waiting::task_waker::TaskWaker;

/// A lock around an engine. No thread has two guards of it at a time.
pub(crate) trait EngineLock: Markable + Sized {
    /// The engine, exclusively for the thread that holds the lock.
    type Guard<'a>: EngineGuard
    where
        Self: 'a;

    /// A lock around `engine`, with a progress thread if that is asked for.
    fn new(engine: Engine, progress_thread: bool) -> std::io::Result<Self>;

    /// Takes the lock. In a forked child, the guard is for an engine of the child's own.
    fn lock(&self) -> Self::Guard<'_>;

    /// Calls a function with the engine, if no step is due before or after that, and no request that is complete waits for
    /// [`run_callbacks`](Self::run_callbacks). `None` otherwise: then [`lock`](Self::lock) takes the engine.
    #[inline]
    fn look<T>(&self, _: impl FnOnce(&mut Engine) -> Option<T>) -> Option<T> {
        None
    }

    /// Wakes the tasks and frees the buffers of completed requests. Runs code of users, so the calling thread must not hold the
    /// lock.
    fn run_callbacks(&self);

    /// How often the progress thread woke; `None` where there is none.
    fn progress_thread_wakes(&self) -> Option<u64>;

    /// Ends the progress thread, if there is one.
    fn end_progress_thread(&self);
}

/// The engine while one thread holds its lock, and how that thread waits.
pub(crate) trait EngineGuard: DerefMut<Target = Engine> {
    /// Makes progress once, or waits for a while: until the awaited event may have come, or until `until`. Other threads may use
    /// the engine meanwhile.
    fn progress_or_wait(&mut self, idle: &mut Idle, awaited: &Awaited<'_>, until: Option<Instant>);

    /// The next operation follows at once, so a frame of this one may be held back to be sent together with others.
    #[inline]
    fn more_follows(&mut self) {}

    /// The thread uses the engine again soon, and hands over to the reactor then.
    fn returns_soon(&mut self) {}

    /// Whether a thread makes progress for the task of this waker: in `block_on`, or a progress thread.
    fn has_driver(&self, waker: &Waker) -> bool {
        self.tasks.is_own(waker)
    }

    /// Has the reactor wake a task of another executor that awaits a request.
    fn watch_task(&mut self, request: Request, waker: Waker) -> std::io::Result<FormerEntry> {
        Engine::watch_task(self, request, waker)
    }

    /// Takes the outcome of a request, and waits for it if the request is not complete. Runs no code of users in a world of a
    /// single thread, so it does not unwind.
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
        self.begin_wait();
        loop {
            self.progress_or_wait(&mut idle, &Awaited::Request(request), None);
            if let Some(outcome) = self.mtl.test(request) {
                self.end_wait();
                return outcome;
            }
        }
    }

    /// Waits until one of these requests is over. Its outcome is still to be taken.
    fn wait_for_any(&mut self, requests: &[Request]) {
        let mut idle = Idle::default();
        self.clock.renew_coarsely();
        while !requests.iter().any(|request| self.mtl.pml().is_over(*request)) {
            self.progress_or_wait(&mut idle, &Awaited::Requests(requests), None);
        }
    }

    /// This thread begins to wait for the outcome of a request.
    #[inline]
    fn begin_wait(&mut self) {}

    /// This thread has the outcome.
    #[inline]
    fn end_wait(&mut self) {}

    /// As [`wait`](Self::wait), but until `deadline`. `None`: the request is still in progress.
    fn wait_until(&mut self, request: Request, deadline: Instant) -> Option<Result<Status, Failure>> {
        let mut idle = Idle::default();
        let mut now = self.clock.renew();
        while now < deadline {
            if let Some(outcome) = self.mtl.test(request) {
                return Some(outcome);
            }
            self.progress_or_wait(&mut idle, &Awaited::Request(request), Some(deadline));
            self.clock.renew_coarsely();
            now = self.clock.now();
        }
        self.mtl.test(request)
    }
}

/// The event that a thread waits for.
#[derive(Debug)]
pub(crate) enum Awaited<'a> {
    /// The completion of a request.
    Request(Request),
    /// The completion of one of several requests.
    Requests(&'a [Request]),
    /// A message that a probe finds.
    Message(Pattern),
    /// The completion of a further one-sided operation, after this many.
    RmaOps(u64),
    /// That many free requests, or that no request can become free any more.
    FreeRequests(u32),
    /// Anything that comes.
    Anything,
    /// The waker of a future.
    Task(&'a TaskWaker),
}

impl Awaited<'_> {
    /// The same for a report.
    pub fn wait_for(&self) -> WaitFor {
        match self {
            Self::Request(request) | Self::Requests([request]) => WaitFor::Request(*request),
            // As a task may wait for any of the operations in progress.
            Self::Requests(_) => WaitFor::Task,
            Self::Message((comm, source, tag)) => WaitFor::Message(*comm, *source, *tag),
            Self::RmaOps(_) => WaitFor::RmaOps,
            Self::FreeRequests(_) => WaitFor::FreeRequest,
            Self::Anything => WaitFor::Anything,
            Self::Task(_) => WaitFor::Task,
        }
    }

    /// Whether the awaited event is known to have come, without a look at the engine.
    pub fn is_woken(&self) -> bool {
        matches!(self, Self::Task(waker) if waker.is_woken())
    }
}

/// Which messages a probe finds.
pub(crate) type Pattern = (Comm, Source, Tag);
