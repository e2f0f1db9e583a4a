//! The state of an engine that several threads share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use towline_core::time::Instant;

use crate::engine::Engine;
use crate::engine::pending::Completed;
use crate::threads::lock::Pattern;
use crate::waiting::notify::{Notifier, WakeupFd};
use crate::waiting::wait_coordinator::WaitCoordinator;
use crate::waiting::wait_set::WaitSet;

/// The engine, and the data that its threads need to wait for it. The progress thread uses it too.
pub(crate) struct SharedState {
    pub locked: Mutex<Locked>,
    /// The wait set of the sleeping thread.
    pub wait_set: WaitSet,
    /// Wakes the thread that sleeps on the wait set.
    pub wakeup: Arc<WakeupFd>,
    /// The progress thread must end.
    pub stop: AtomicBool,
    /// How often the progress thread woke.
    pub wakes: AtomicU64,
    /// A copy in a forked child: its lock is locked for ever.
    pub of_parent: AtomicBool,
}

/// The data that the lock protects.
pub(crate) struct Locked {
    pub engine: Engine,
    pub coordinator: WaitCoordinator<Instant>,
    pub waiters: Waiters,
    /// There is a progress thread. It completes the operations of all tasks.
    pub has_progress_thread: bool,
    /// The engine belongs to one thread of the program, beside the progress thread. The progress thread frees no buffers then,
    /// since these may not be `Send`.
    pub single_user: bool,
    /// Completed requests whose end runs code of users. Any thread that may run that code does so, after it has notified waiting
    /// threads.
    pub callbacks: VecDeque<Completed>,
}

/// Threads that wait for something other than a request.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Threads that wait for a message.
    pub probes: Vec<(Pattern, Notifier)>,
    /// How many peers were lost when those threads were last notified.
    pub lost_seen: u64,
    /// Threads that wait for this many free requests.
    pub requests: Vec<(u32, Notifier)>,
    /// Threads that wait for the completion of one-sided operations.
    pub rma: Vec<Notifier>,
    /// How many one-sided operations were complete when those threads were last notified.
    pub rma_seen: u64,
}

// SAFETY: as for a `Context` that moves to its thread: everything in an engine was made for it and is reached through it alone,
// so the thread that holds the lock is the only one that uses it. Rails of the program's own are `Send`: the builder takes no
// others at this level, and there is no progress thread where a world of one thread has other rails. Buffers of users that the
// engine may have to free are `Send`, by the bound `MayOwn` of the operations that take them, or are left to the only thread of
// the program that uses the engine.
unsafe impl Send for Locked {}
