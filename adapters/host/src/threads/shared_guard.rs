//! A shared engine while one of its threads holds the lock: how the thread makes progress, waits and notifies others.
//! [`WaitCoordinator`](crate::waiting::wait_coordinator::WaitCoordinator) decides which thread polls, sleeps or is woken.

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::MutexGuard;
use towline_core::mtl::Request;
use towline_core::time::{Duration as EngineDuration, Instant};

use crate::engine::Engine;
use crate::engine::pending::{Completed, Pending};
use crate::engine::reporter::Reporting;
use crate::engine::waits::Wait;
use crate::threads::lock::{Awaited, EngineGuard};
use crate::threads::shared_state::{Locked, SharedState};
use crate::waiting::idle::{Idle, MAX_BLOCKED_SLEEP, Step};
use crate::waiting::no_unwind::no_unwind;
use crate::waiting::notify::Notifier;
use crate::waiting::parker::{self, Parker};
use crate::waiting::task_waker::is_task_waker;
use crate::waiting::wait_coordinator::Handoff;

/// The engine while one of its threads holds the lock. When the guard is dropped, it notifies threads whose requests are
/// complete, and ensures that some thread makes progress if any thread waits.
pub(crate) struct SharedGuard<'a> {
    shared: &'a SharedState,
    locked: MutexGuard<'a, Locked>,
    /// The next operation follows at once, so frames need not be flushed when this guard is dropped.
    more_follows: bool,
    /// This thread waits for the outcome of a request.
    waits: bool,
    /// The thread takes the lock again soon, so it hands over to the reactor then.
    returns_soon: bool,
    /// The progress thread holds the lock.
    is_progress_thread: bool,
    /// A panic of users' code. It is resumed when the lock is free, and so after the operation of this thread is complete.
    panic: Option<Box<dyn Any + Send>>,
}

impl Deref for SharedGuard<'_> {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        &self.locked.engine
    }
}

impl DerefMut for SharedGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.locked.engine
    }
}

impl Drop for SharedGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.notify_waiters();
        self.before_unlock();
        if let Some(panic) = self.panic.take() {
            resume(panic);
        }
    }
}

/// The wait of the calling thread.
fn own_wait(idle: &mut Idle, awaited: &Awaited<'_>, now: Instant) -> Wait {
    Wait { what: awaited.wait_for(), since: idle.began(now) }
}

#[cold]
fn resume(panic: Box<dyn Any + Send>) {
    // A second panic would abort the process. The panic hook has reported this one already.
    if !std::thread::panicking() {
        resume_unwind(panic);
    }
}

impl EngineGuard for SharedGuard<'_> {
    fn progress_or_wait(&mut self, idle: &mut Idle, awaited: &Awaited<'_>, until: Option<Instant>) {
        // Other threads wait for operations that this thread has begun. A rail or logger that panics here would leave them
        // waiting.
        no_unwind(|| {
            if self.locked.coordinator.is_polling() {
                return self.park(idle, awaited, until);
            }
            if self.locked.coordinator.note_poll() {
                self.tasks.disarm();
            }
            let now = self.clock.now();
            if self.mtl.progress(now) != 0 {
                idle.reset();
                self.note_busy(|now| Reporting::Waits(own_wait(idle, awaited, now)));
                self.notify_waiters();
                self.yield_lock();
            } else if idle.count(&self.idle_policy) {
                self.idle_or_sleep(idle, awaited, until);
            } else {
                self.yield_lock();
            }
        });
    }

    #[inline]
    fn more_follows(&mut self) {
        self.more_follows = true;
    }

    fn begin_wait(&mut self) {
        self.waits = true;
        self.awaited_requests += 1;
    }

    fn end_wait(&mut self) {
        self.waits = false;
        self.awaited_requests -= 1;
    }

    fn returns_soon(&mut self) {
        self.returns_soon = true;
    }

    fn has_driver(&self, waker: &Waker) -> bool {
        self.locked.has_progress_thread || self.tasks.is_own(waker)
    }
}

/// Taking the lock, and releasing it for a while.
impl<'a> SharedGuard<'a> {
    #[inline]
    pub fn new(shared: &'a SharedState, locked: MutexGuard<'a, Locked>) -> Self {
        Self {
            shared,
            locked,
            more_follows: false,
            waits: false,
            returns_soon: false,
            is_progress_thread: false,
            panic: None,
        }
    }

    /// As `new`, for the progress thread.
    pub fn for_progress_thread(shared: &'a SharedState) -> Self {
        let mut guard = Self::new(shared, shared.locked.lock());
        guard.is_progress_thread = true;
        guard
    }

    /// The address of the engine.
    pub fn engine(&self) -> *mut Engine {
        // SAFETY: no reference is made, only an address.
        unsafe { &raw mut (*self.shared.locked.data_ptr()).engine }
    }

    /// Releases the lock for a moment. This thread makes progress afterwards, regardless of other threads' use of the engine.
    pub fn pause<T>(&mut self, f: impl FnOnce() -> T) -> T {
        self.locked.coordinator.begin_pause();
        let value = MutexGuard::unlocked(&mut self.locked, f);
        self.locked.coordinator.end_pause();
        value
    }

    /// Lets threads that wait for the lock have it.
    #[inline]
    pub fn yield_lock(&mut self) {
        self.locked.coordinator.begin_pause();
        MutexGuard::bump(&mut self.locked);
        self.locked.coordinator.end_pause();
    }

    /// Runs code of users without the lock. The code may use the context, wait in it or for other threads, and panic. Other
    /// threads make progress meanwhile, as if this thread had left. So conditions that the caller has checked before may not hold
    /// afterwards.
    #[cold]
    fn run_users_code(&mut self, f: impl FnOnce()) {
        let progress_thread =
            if self.is_progress_thread { self.locked.coordinator.progress_thread().cloned() } else { None };
        if self.is_progress_thread {
            self.locked.coordinator.set_progress_thread(None);
        }
        // The code may wait for a free request. The request of this thread does not become free before the code returns.
        let waits = u32::from(self.waits);
        self.awaited_requests -= waits;
        self.before_unlock();
        let result = MutexGuard::unlocked(&mut self.locked, || catch_unwind(AssertUnwindSafe(f)));
        self.awaited_requests += waits;
        if self.is_progress_thread {
            self.locked.coordinator.set_progress_thread(progress_thread);
        }
        match result {
            Ok(()) => {}
            // No caller would learn of a panic of the progress thread, so it aborts the process.
            Err(panic) if self.is_progress_thread => resume_unwind(panic),
            Err(panic) => drop(self.panic.get_or_insert(panic)),
        }
    }

    /// The actions before the lock is released.
    #[inline]
    fn before_unlock(&mut self) {
        if self.needs_flush && !self.more_follows {
            self.mtl.pml().flush();
        }
        let tasks_wait = !self.returns_soon && self.tasks.are_waiting();
        match self.locked.coordinator.handoff(tasks_wait) {
            Handoff::Nothing => {}
            Handoff::Arm(until) => {
                self.watch_spares();
                // Such a short sleep waits for room on a rail. Then it is enough to arm the rails, although frames wait to be
                // sent.
                let short = until.since(self.clock.now()) <= MAX_BLOCKED_SLEEP;
                let armed = self.mtl.pml().arm() || (short && self.mtl.pml().arm_rails());
                if !armed || self.poll_at().is_some_and(|due| due < until) {
                    self.locked.coordinator.note_signal();
                    self.shared.wakeup.signal();
                }
            }
            Handoff::Wake(parker) => parker.unpark(),
            Handoff::Reactor => self.hand_over(),
        }
        if self.caller_wait.is_armed() {
            self.hand_over_to_caller();
        }
    }
}

/// Waiting.
impl SharedGuard<'_> {
    /// Lets others run, or sleeps. Nothing has come for a while.
    #[cold]
    fn idle_or_sleep(&mut self, idle: &mut Idle, awaited: &Awaited<'_>, until: Option<Instant>) {
        self.release_retired_windows();
        let now = self.clock.renew();
        if idle.restart_if_sent(self.frames_sent()) {
            return self.yield_lock();
        }
        match idle.step(&self.idle_policy, now) {
            Step::Poll => return self.yield_lock(),
            Step::Yield => {
                self.pause(rustix::thread::sched_yield);
                let after = self.clock.renew();
                let came = self.mtl.progress(after) != 0;
                self.idle_policy.note_yield(now, after, came);
                if came {
                    idle.reset();
                    self.note_busy(|now| Reporting::Waits(own_wait(idle, awaited, now)));
                    self.notify_waiters();
                }
                return;
            }
            Step::Sleep => {}
        }
        if self.locked.coordinator.is_polling() || !self.locked.coordinator.may_sleep() {
            return self.park(idle, awaited, until);
        }
        let elapsed = idle.elapsed(now);
        if self.lose_ended_peer(now, elapsed) {
            self.notify_waiters();
        } else {
            self.report_if_asked(now, Reporting::Waits(own_wait(idle, awaited, now)));
            self.sleep((awaited, own_wait(idle, awaited, now)), now, elapsed, until);
        }
    }

    /// Sleeps on the wait set for all threads, unless something has come.
    fn sleep(
        &mut self,
        (awaited, wait): (&Awaited<'_>, Wait),
        now: Instant,
        idle: EngineDuration,
        until: Option<Instant>,
    ) {
        if !self.register(awaited, Notifier::WaitSet(Arc::clone(&self.shared.wakeup))) {
            return;
        }
        if !awaited.is_woken()
            && let Some(most) = self.arm(idle)
        {
            let number = self.locked.engine.waits.begin(wait);
            self.sleep_on_wait_set(now, self.sleep_until(now, most, until));
            self.locked.engine.waits.end(number);
        }
        self.unregister(awaited, None);
        self.clock.renew();
    }

    /// Sleeps on the wait set without the lock, until a moment or a wake-up. The rails are armed.
    pub fn sleep_on_wait_set(&mut self, now: Instant, until: Instant) {
        self.watch_spares();
        let shared = self.shared;
        self.locked.coordinator.begin_sleep(until);
        MutexGuard::unlocked(&mut self.locked, || shared.wait_set.sleep_for(until.since(now).as_nanos()));
        self.locked.coordinator.end_sleep();
        shared.wakeup.clear();
    }

    /// Has the wait set wait for spare rails, too, once some peer uses one.
    fn watch_spares(&mut self) {
        let rails = self.mtl.rails();
        if rails.uses_spares() {
            self.shared.wait_set.watch_spares(&rails.0);
        }
    }

    /// The end of a sleep of at most `most` nanoseconds: earlier where a timer of a rail is due or `until` comes.
    pub fn sleep_until(&self, now: Instant, most: u64, until: Option<Instant>) -> Instant {
        let longest = now + EngineDuration::from_nanos(most);
        [self.poll_at(), until].into_iter().flatten().fold(longest, Instant::min)
    }

    /// Parks the thread until the awaited event has come, or until this thread has to make progress.
    fn park(&mut self, idle: &mut Idle, awaited: &Awaited<'_>, until: Option<Instant>) {
        let until = match awaited {
            Awaited::Anything => Some(self.sleep_until(self.clock.now(), self.idle_policy.max_sleep(), until)),
            _ => until,
        };
        let timeout = until.map(|until| Duration::from_nanos(until.since(self.clock.renew()).as_nanos()));
        let parker = parker::own();
        if !self.register(awaited, Notifier::Parker(Arc::clone(&parker))) {
            return;
        }
        let now = self.clock.now();
        let number = self.locked.engine.waits.begin(own_wait(idle, awaited, now));
        self.locked.coordinator.park(&parker);
        self.before_unlock();
        if !awaited.is_woken() {
            MutexGuard::unlocked(&mut self.locked, || parker.park(timeout));
        }
        self.locked.coordinator.unpark(&parker);
        self.locked.engine.waits.end(number);
        self.unregister(awaited, Some(&parker));
        self.clock.renew_coarsely();
    }

    /// Registers this thread to be notified when the awaited event has come. Returns false where code of users had to run first:
    /// that code may have waited as this thread, or have let other threads complete the awaited operations, so everything must be
    /// checked again. From a true result on, the lock is not released.
    #[must_use]
    fn register(&mut self, awaited: &Awaited<'_>, notifier: Notifier) -> bool {
        if self.notify_waiters() {
            return false;
        }
        match awaited {
            Awaited::Request(request) => return self.register_requests(&[*request], notifier),
            Awaited::Requests(requests) => return self.register_requests(requests, notifier),
            Awaited::Message(pattern) => self.locked.waiters.probes.push((*pattern, notifier)),
            Awaited::RmaOps(completed) => {
                if self.rma_ops.completed != *completed {
                    return false;
                }
                self.locked.waiters.rma_seen = *completed;
                self.locked.waiters.rma.push(notifier);
            }
            Awaited::FreeRequests(count) => self.locked.waiters.requests.push((*count, notifier)),
            Awaited::Anything => {}
            Awaited::Task(waker) => waker.begin_sleep(),
        }
        // The awaited event may have come since this thread last looked: then this notifies the thread immediately.
        self.notify_waiters();
        true
    }

    /// As [`register`](Self::register), for the completion of some request.
    fn register_requests(&mut self, requests: &[Request], notifier: Notifier) -> bool {
        for request in requests {
            if let Some(former) = self.pending.entries.remove(&request.to_bits()) {
                self.run_users_code(|| drop(former));
                return false;
            }
        }
        for request in requests {
            self.pending.entries.insert(request.to_bits(), Pending::Thread(notifier.clone()));
            self.mtl.pml().notify(*request);
        }
        self.notify_waiters();
        true
    }

    fn unregister(&mut self, awaited: &Awaited<'_>, parker: Option<&Arc<Parker>>) {
        match awaited {
            Awaited::Request(request) => drop(self.pending.entries.remove(&request.to_bits())),
            Awaited::Requests(requests) => {
                requests.iter().for_each(|request| drop(self.pending.entries.remove(&request.to_bits())));
            }
            Awaited::Message(_) => self.locked.waiters.probes.retain(|(_, notifier)| !notifier.is_for(parker)),
            Awaited::RmaOps(_) => self.locked.waiters.rma.retain(|notifier| !notifier.is_for(parker)),
            Awaited::FreeRequests(_) => self.locked.waiters.requests.retain(|(_, notifier)| !notifier.is_for(parker)),
            Awaited::Anything => {}
            Awaited::Task(waker) => waker.end_sleep(),
        }
    }
}

/// Notifying.
impl SharedGuard<'_> {
    /// Notifies threads whose requests are complete or whose message came. Returns whether code of users ran, so that other
    /// threads may have used the engine meanwhile.
    #[inline]
    pub fn notify_waiters(&mut self) -> bool {
        let ran = (!self.pending.entries.is_empty() || !self.locked.callbacks.is_empty()) && self.notify_completed();
        if self.caller_wait.is_armed() {
            self.notify_caller();
        }
        if !self.locked.waiters.probes.is_empty() {
            self.notify_probes();
        }
        if !self.locked.waiters.rma.is_empty() {
            self.notify_rma_waiters();
        }
        if !self.locked.waiters.requests.is_empty() {
            self.notify_request_waiters();
        }
        ran
    }

    #[cold]
    fn notify_completed(&mut self) -> bool {
        let mut ran = false;
        loop {
            // First all threads: the code of users may wait for them.
            while let Some(completed) = self.next_completed() {
                match completed {
                    Completed::Notify(notifier) => notifier.notify(),
                    Completed::Wake(waker) if is_task_waker(&waker) => waker.wake(),
                    other => self.locked.callbacks.push_back(other),
                }
            }
            let frees_none = self.is_progress_thread && self.locked.single_user;
            let mine = self.locked.callbacks.iter().position(|it| !frees_none || !matches!(it, Completed::Free(_)));
            let Some(completed) = mine.and_then(|at| self.locked.callbacks.remove(at)) else { return ran };
            self.run_users_code(|| completed.run());
            ran = true;
        }
    }

    #[cold]
    fn notify_probes(&mut self) {
        let Locked { engine, waiters, .. } = &mut *self.locked;
        // A notified thread checks by itself whether the peer that it waits for was lost.
        let lost = engine.mtl.counters().lost;
        let all = std::mem::replace(&mut waiters.lost_seen, lost) != lost;
        for ((comm, source, tag), notifier) in &waiters.probes {
            if all || engine.mtl.iprobe(*comm, *source, *tag).is_some() {
                notifier.notify();
            }
        }
    }

    /// A thread that looks for its own operation also records all other complete ones. So this compares the number of complete
    /// operations with the number at the last notification.
    #[cold]
    fn notify_rma_waiters(&mut self) {
        self.note_completed_rma_ops();
        let completed = self.rma_ops.completed;
        let waiters = &mut self.locked.waiters;
        if std::mem::replace(&mut waiters.rma_seen, completed) != completed {
            waiters.rma.iter().for_each(Notifier::notify);
        }
    }
}

/// Notifying threads that wait for a free request.
impl SharedGuard<'_> {
    #[cold]
    fn notify_request_waiters(&mut self) {
        let Locked { engine, waiters, .. } = &mut *self.locked;
        let (free, none_ends) = (engine.mtl.pml().free_requests(), !engine.may_free_requests());
        for (count, notifier) in &waiters.requests {
            if free >= *count || none_ends {
                notifier.notify();
            }
        }
    }
}

/// For the progress thread.
impl SharedGuard<'_> {
    /// Whether the progress thread leaves the engine to callers for now.
    pub fn is_left_to_callers(&mut self) -> bool {
        self.locked.coordinator.is_left_to_callers()
    }

    /// Parks the progress thread for at most `timeout`, without the lock.
    pub fn pause_progress_thread(&mut self, parker: &Parker, timeout: Duration) {
        self.locked.coordinator.set_progress_thread_pauses(true);
        MutexGuard::unlocked(&mut self.locked, || parker.park(Some(timeout)));
        self.locked.coordinator.set_progress_thread_pauses(false);
    }

    /// There is no progress thread any more.
    pub fn leave_progress_thread(&mut self) {
        self.locked.coordinator.set_progress_thread(None);
    }

    /// The progress thread has ended: wakes the tasks that rely on it.
    pub fn has_no_progress_thread(&mut self) {
        self.locked.has_progress_thread = false;
        let Locked { engine, callbacks, .. } = &mut *self.locked;
        let wakers = engine.pending.entries.values().filter_map(|entry| match entry {
            Pending::Waker(waker) => Some(Completed::Wake(waker.clone())),
            _ => None,
        });
        callbacks.extend(wakers);
    }
}
