//! Wakes tasks that await operations in executors of other libraries. Nobody makes progress while such a task waits, since its
//! executor knows nothing of the engine. So a thread, or a task of tokio, sleeps on the wait handle of the rails meanwhile. It
//! never uses the engine: it wakes a task, which polls its operation, and that poll makes progress for all.
//!
//! A thread that leaves the engine while tasks wait *hands over* to the reactor: it arms the rails, and calls
//! [`arm`](Reactor::arm). From then on the next event of a rail, or the next timer that is due, wakes one task: the one that polled
//! last. That task hands over again. A woken task need not poll its operation soon: its executor may be busy, or the task may wait
//! for something else first. So if nobody has used the engine for a while after the wake-up, all tasks are woken.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use parking_lot::Mutex;
use towline_core::time::{Duration, Instant};

use super::clock::Clock;
use super::wait_handle::{Ready, WaitHandle};
use crate::transports::rails::AnyRail;

/// How long a woken task may take until it polls its operation, before all other tasks are woken, too.
const GRACE: Duration = Duration::from_millis(5);

/// How often a task polls while some rail cannot be watched.
const POLL_INTERVAL: Duration = Duration::from_nanos(200_000);

/// The tasks that await operations of an engine, and their wait handle.
#[derive(Debug)]
pub(crate) struct Reactor {
    handle: WaitHandle,
    state: Mutex<State>,
    /// How many tasks wait.
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct State {
    /// The waker of each operation that a task awaits, by the bits of its request.
    wakers: BTreeMap<u64, Waker>,
    /// The operation that was polled last.
    latest: u64,
    phase: Phase,
    /// The time to which the timer is set.
    timer: Option<Instant>,
    /// The number of the runner, which sleeps on the wait handle. `None`: there is no runner.
    runner: Option<u32>,
    /// How many runners there were so far; wraps.
    runners: u32,
    /// The runtime of tokio without threads of its own in which the runner is. It runs only while a thread drives that runtime.
    #[cfg(feature = "tokio")]
    runtime: Option<tokio::runtime::Id>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// A thread uses the engine, or no task waits.
    Idle,
    /// The rails are armed. A task must be woken at this time, if no event comes earlier.
    Armed(Instant),
    /// A task was woken at this time, and nobody has used the engine since.
    Woken(Instant),
}

impl Reactor {
    pub fn new() -> std::io::Result<Arc<Self>> {
        let state = State {
            wakers: BTreeMap::new(),
            latest: 0,
            phase: Phase::Idle,
            timer: None,
            runner: None,
            runners: 0,
            #[cfg(feature = "tokio")]
            runtime: None,
        };
        let (handle, state) = (WaitHandle::new()?, Mutex::new(state));
        Ok(Arc::new(Self { handle, state, waiting: AtomicUsize::new(0) }))
    }

    /// Whether any task waits.
    pub fn has_tasks(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// A task awaits an operation. Returns the waker of an earlier poll, which the caller drops without a lock.
    #[must_use]
    pub fn add(&self, operation: u64, waker: Waker) -> Option<Waker> {
        let mut state = self.state.lock();
        state.latest = operation;
        let former = state.wakers.insert(operation, waker);
        self.waiting.store(state.wakers.len(), Ordering::Relaxed);
        former
    }

    /// No task awaits the operation any more. Returns its waker, which the caller wakes or drops without a lock.
    #[must_use]
    pub fn remove(&self, operation: u64) -> Option<Waker> {
        let mut state = self.state.lock();
        let waker = state.wakers.remove(&operation);
        self.waiting.store(state.wakers.len(), Ordering::Relaxed);
        waker
    }

    /// Hands over: a thread leaves the engine while tasks wait. A task is woken by the next event of the rails, which are armed, by the
    /// bell of the DPU, or at `due`.
    pub fn arm(&self, (rails, bell): (&mut [AnyRail], Option<BorrowedFd<'_>>), due: Instant) {
        let mut state = self.state.lock();
        if state.wakers.is_empty() {
            return;
        }
        // The phase is set first: an event that comes in between must not be taken for one of the time before.
        state.phase = Phase::Armed(due);
        self.set_timer(&mut state);
        drop(state);
        if self.handle.arm(rails, bell) {
            return;
        }
        let mut state = self.state.lock();
        if let Phase::Armed(due) = &mut state.phase {
            *due = (*due).min(Clock::new().now() + POLL_INTERVAL);
            self.set_timer(&mut state);
        }
    }

    /// A thread uses the engine, so no task has to be woken until it hands over.
    pub fn disarm(&self) {
        self.state.lock().phase = Phase::Idle;
    }

    /// Starts the thread that wakes tasks, if there is no runner yet, or if that one does not run while the calling task waits.
    pub fn ensure_runner(self: &Arc<Self>) -> std::io::Result<()> {
        let mut state = self.state.lock();
        if !state.has_runner() {
            self.start_thread(&mut state)?;
            drop(state);
            self.handle.signal(); // a former runner ends
        }
        Ok(())
    }

    fn start_thread(self: &Arc<Self>, state: &mut State) -> std::io::Result<()> {
        let number = state.next_runner();
        let reactor = Arc::clone(self);
        let thread = std::thread::Builder::new().name("towline-reactor".into());
        thread.spawn(move || while reactor.turn(reactor.handle.wait(None), number) {})?;
        state.runner = Some(number);
        #[cfg(feature = "tokio")]
        {
            state.runtime = None;
        }
        Ok(())
    }

    /// The wait handle, for a runner.
    #[cfg(feature = "tokio")]
    pub const fn handle(&self) -> &WaitHandle {
        &self.handle
    }

    /// Ends the runner, if there is one. Returns the number of another one, a task of `runtime`, which the caller starts.
    #[cfg(feature = "tokio")]
    pub fn replace_runner(&self, runtime: &tokio::runtime::Handle) -> u32 {
        let mut state = self.state.lock();
        let number = state.next_runner();
        state.runner = Some(number);
        let is_driven = runtime.runtime_flavor() != tokio::runtime::RuntimeFlavor::CurrentThread;
        state.runtime = (!is_driven).then(|| runtime.id());
        drop(state);
        self.handle.signal();
        number
    }

    /// A runner has ended by itself. A thread takes its place if tasks wait.
    #[cfg(feature = "tokio")]
    pub fn runner_ended(self: &Arc<Self>, runner: u32) {
        let mut state = self.state.lock();
        if state.runner != Some(runner) {
            return;
        }
        state.runner = None;
        if !state.wakers.is_empty()
            && let Err(why) = self.start_thread(&mut state)
        {
            log::warn!("no thread can be started to wake tasks, which may wait for ever: {why}");
        }
    }

    /// Ends the runner. It may end a little later, so that a waker that it is just calling may wait for the calling thread.
    fn stop(&self) {
        self.state.lock().runner = None;
        self.handle.signal();
    }

    /// One turn of a runner, after these events. Returns whether the runner goes on. One that does not has still taken the events.
    pub fn turn(&self, ready: Ready, runner: u32) -> bool {
        let mut state = self.state.lock();
        let goes_on = state.runner == Some(runner);
        let wakers = state.next_to_wake(ready, Clock::new().now());
        self.set_timer(&mut state);
        drop(state);
        for waker in wakers {
            // The panic hook has reported a panic. Other tasks must still be woken.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        goes_on
    }

    /// Sets the timer, unless it is set to the right time or an earlier one. After an early one it is set again.
    fn set_timer(&self, state: &mut State) {
        let at = match state.phase {
            Phase::Idle => return,
            Phase::Armed(due) => due,
            Phase::Woken(since) => since + GRACE,
        };
        if state.timer.is_none_or(|timer| at < timer) {
            state.timer = Some(at);
            self.handle.set_timer(at);
        }
    }
}

impl State {
    /// Whether there is a runner that runs while the calling task waits.
    fn has_runner(&self) -> bool {
        #[cfg(feature = "tokio")]
        if let Some(runtime) = self.runtime
            && !tokio::runtime::Handle::try_current().is_ok_and(|current| current.id() == runtime)
        {
            return false;
        }
        self.runner.is_some()
    }

    fn next_runner(&mut self) -> u32 {
        self.runners = self.runners.wrapping_add(1);
        self.runners
    }

    /// The wakers of the tasks that must be woken now.
    fn next_to_wake(&mut self, ready: Ready, now: Instant) -> Vec<Waker> {
        if ready.timer {
            self.timer = None;
        }
        match self.phase {
            Phase::Armed(due) if ready.rails || now >= due => {
                self.phase = Phase::Woken(now);
                let latest = self.wakers.get(&self.latest).or_else(|| self.wakers.values().next());
                latest.cloned().into_iter().collect()
            }
            Phase::Woken(since) if now >= since + GRACE => {
                self.phase = Phase::Idle;
                self.wakers.values().cloned().collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The reactor of an engine. Its runner ends with the engine.
#[derive(Debug)]
pub(crate) struct OwnReactor(pub Arc<Reactor>);

impl Drop for OwnReactor {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// An operation that a task awaits, as long as it is in the table of the reactor.
#[derive(Debug)]
pub(crate) struct AwaitedByTask {
    reactor: Arc<Reactor>,
    operation: u64,
}

impl AwaitedByTask {
    /// For an operation that was added.
    pub fn new(reactor: &Arc<Reactor>, operation: u64) -> Self {
        Self { reactor: Arc::clone(reactor), operation }
    }

    /// The waker of the task.
    pub fn take(&self) -> Option<Waker> {
        self.reactor.remove(self.operation)
    }
}

impl Drop for AwaitedByTask {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicU32);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The system tells of an event once, and another runner may have come meanwhile.
    #[test]
    fn a_former_runner_wakes_a_task_for_the_events_that_it_took() {
        let (reactor, counter) = (Reactor::new().unwrap(), Arc::new(Counter::default()));
        assert!(reactor.add(1, Waker::from(Arc::clone(&counter))).is_none());
        reactor.arm((&mut [], None), Instant::from_nanos(u64::MAX));
        reactor.state.lock().runner = Some(2);
        assert!(!reactor.turn(Ready { rails: true, ..Ready::default() }, 1), "it was replaced");
        assert_eq!(counter.0.load(Ordering::SeqCst), 1);
        assert!(reactor.turn(Ready { rails: true, ..Ready::default() }, 2));
        assert_eq!(counter.0.load(Ordering::SeqCst), 1, "nobody has handed over since");
        drop(reactor.remove(1));
    }
}
