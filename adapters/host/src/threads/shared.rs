//! The lock around an engine that several threads share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::engine::Engine;
use crate::forks::handlers::Markable;
use crate::threads::lock::EngineLock;
use crate::threads::progress_thread;
use crate::threads::shared_guard::SharedGuard;
use crate::threads::shared_state::{Locked, SharedState, Waiters};
use crate::waiting::notify::WakeupFd;
use crate::waiting::wait_coordinator::WaitCoordinator;
use crate::waiting::wait_set::WaitSet;

/// An engine for several threads, and perhaps a progress thread.
pub(crate) struct Shared {
    state: Arc<SharedState>,
    progress_thread: Mutex<Option<JoinHandle<()>>>,
    /// In a forked child, the engine that it uses instead.
    of_child: OnceLock<Box<Shared>>,
}

/// Entries that the tables of waiting threads have room for at first, so that waiting does not allocate.
const WAITING_THREADS: usize = 64;

impl EngineLock for Shared {
    type Guard<'a> = SharedGuard<'a>;

    fn new(engine: Engine, progress_thread: bool) -> std::io::Result<Self> {
        Self::make(engine, progress_thread, false)
    }

    #[inline]
    fn lock(&self) -> SharedGuard<'_> {
        match self.state.locked.try_lock() {
            Some(locked) => SharedGuard::new(&self.state, locked),
            None => self.lock_when_free(),
        }
    }

    /// Each guard does it when it is dropped.
    #[inline]
    fn run_callbacks(&self) {}

    fn progress_thread_wakes(&self) -> Option<u64> {
        let this = self.current();
        this.progress_thread.lock().as_ref().map(|_| this.state.wakes.load(Ordering::Relaxed))
    }

    fn end_progress_thread(&self) {
        let this = self.current();
        let Some(thread) = this.progress_thread.lock().take() else { return };
        progress_thread::stop(&this.state);
        // A progress thread that panicked has aborted the process.
        let _ = thread.join();
        // The tasks that it would have woken poll again, and have the reactor wake them from then on.
        let mut engine = self.lock();
        engine.has_no_progress_thread();
    }
}

impl Shared {
    /// For the only thread of the program that uses the engine, beside the progress thread.
    pub fn for_single_user(engine: Engine, progress_thread: bool) -> std::io::Result<Self> {
        Self::make(engine, progress_thread, true)
    }

    /// Wakes the thread that sleeps on the wait set.
    pub fn wakeup(&self) -> Arc<WakeupFd> {
        Arc::clone(&self.current().state.wakeup)
    }

    /// Takes the lock, which another thread may hold.
    #[cold]
    #[inline(never)]
    fn lock_when_free(&self) -> SharedGuard<'_> {
        let state = &self.current().state;
        SharedGuard::new(state, state.locked.lock())
    }

    /// This, or in a forked child what it uses instead.
    fn current(&self) -> &Self {
        let mut this = self;
        while this.state.of_parent.load(Ordering::Relaxed) {
            this = this.of_child.get_or_init(|| {
                let made = Self::make(Engine::of_child(), false, false);
                Box::new(made.expect("a forked child lacks descriptors: raise the limit of open files"))
            });
        }
        this
    }

    fn make(mut engine: Engine, progress_thread: bool, single_user: bool) -> std::io::Result<Self> {
        engine.pending.entries.reserve(WAITING_THREADS);
        engine.waits.reserve(WAITING_THREADS);
        let wakeup = WakeupFd::new()?;
        let (rails, bell) = engine.mtl.pml().rails_mut().watched_mut();
        let wait_set = WaitSet::for_threads(rails, bell, &wakeup)?;
        let state = Arc::new(SharedState {
            locked: Mutex::new(Locked {
                engine,
                coordinator: WaitCoordinator::new(),
                waiters: Waiters::default(),
                has_progress_thread: progress_thread,
                single_user,
                callbacks: VecDeque::with_capacity(WAITING_THREADS),
            }),
            wait_set,
            wakeup: Arc::new(wakeup),
            stop: AtomicBool::new(false),
            wakes: AtomicU64::new(0),
            of_parent: AtomicBool::new(false),
        });
        let started = progress_thread.then(|| progress_thread::start(&state)).transpose()?;
        Ok(Self { state, progress_thread: Mutex::new(started), of_child: OnceLock::new() })
    }
}

impl Markable for Shared {
    fn mark_as_copy(&self) {
        let mut this = self;
        while let Some(child) = this.of_child.get() {
            this = child;
        }
        // Whoever takes the lock finds it locked, and then sees the mark. So the usual way need not look for it.
        let free = this.state.locked.try_lock();
        std::mem::forget(free);
        this.state.of_parent.store(true, Ordering::Relaxed);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.end_progress_thread();
    }
}
