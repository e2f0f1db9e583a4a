//! The lock around an engine that several threads share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::engine::Engine;
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
        SharedGuard::new(&self.state)
    }

    /// Each guard does it when it is dropped.
    #[inline]
    fn run_callbacks(&self) {}

    fn progress_thread_wakes(&self) -> Option<u64> {
        self.progress_thread.lock().as_ref().map(|_| self.state.wakes.load(Ordering::Relaxed))
    }

    fn end_progress_thread(&self) {
        let Some(thread) = self.progress_thread.lock().take() else { return };
        progress_thread::stop(&self.state);
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

    /// The address of the engine, for the thread that holds the lock.
    pub fn engine(&self) -> *mut Engine {
        // SAFETY: no reference is made, only an address.
        unsafe { &raw mut (*self.state.locked.data_ptr()).engine }
    }

    /// Wakes the thread that sleeps on the wait set.
    pub fn wakeup(&self) -> Arc<WakeupFd> {
        Arc::clone(&self.state.wakeup)
    }

    fn make(mut engine: Engine, progress_thread: bool, single_user: bool) -> std::io::Result<Self> {
        engine.pending.entries.reserve(WAITING_THREADS);
        engine.waits.reserve(WAITING_THREADS);
        let wakeup = WakeupFd::new()?;
        let wait_set = WaitSet::for_threads(engine.mtl.pml().rails_mut().polled_mut(), &wakeup)?;
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
        });
        let started = progress_thread.then(|| progress_thread::start(&state)).transpose()?;
        Ok(Self { state, progress_thread: Mutex::new(started) })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.end_progress_thread();
    }
}
