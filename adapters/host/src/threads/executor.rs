//! Runs futures to completion, with progress for all operations of their context.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use crate::engine::waits::WaitFor;
use crate::threads::exclusive::Exclusive;
use crate::threads::lock::{Awaited, EngineGuard, EngineLock};
use crate::threads::shared::Shared;
use crate::transports::rails::AnyRail;
use crate::waiting::idle::Idle;
use crate::waiting::notify::WakeupFd;
use crate::waiting::parker;
use crate::waiting::task_waker::TaskWaker;
use crate::waiting::wait_set::WaitSet;

/// Runs a future in a thread of a world that several threads share.
pub(crate) fn block_on_shared<F: Future>(shared: &Shared, future: F) -> F::Output {
    let (task_waker, waker) = TaskWaker::new(Some(parker::own()), shared.wakeup());
    let _entered = Entered::new(shared, &waker);
    let mut task = TaskContext::from_waker(&waker);
    let mut future = pin!(future);
    let mut idle = Idle::default();
    let mut is_woken = task_waker.take();
    loop {
        if is_woken {
            if let Poll::Ready(output) = future.as_mut().poll(&mut task) {
                return output;
            }
            idle.reset();
        }
        let mut engine = shared.lock();
        engine.clock.renew_coarsely();
        engine.progress_or_wait(&mut idle, &Awaited::Task(&task_waker), None);
        is_woken = task_waker.take();
        // A poll of the future may take any time, so tasks of other executors get another driver before it.
        if !is_woken {
            engine.returns_soon();
        }
    }
}

/// Runs a future in the only thread of a world.
pub(crate) fn block_on_exclusive<F: Future>(exclusive: &Exclusive, future: F) -> F::Output {
    let cell = match exclusive {
        Exclusive::Locked(shared) => return block_on_shared(shared, future),
        Exclusive::Cell(_) => exclusive,
    };
    let wakeup = Arc::new(WakeupFd::new().expect("the system refuses an eventfd: raise the limit of open files"));
    let former =
        add_wakeup(cell, &wakeup).expect("the system refuses an epoll descriptor: raise the limit of open files");
    let _former = FormerWaitSet { cell, wait_set: Some(former) };
    let (task_waker, waker) = TaskWaker::new(None, Arc::clone(&wakeup));
    let _entered = Entered::new(cell, &waker);
    let mut task = TaskContext::from_waker(&waker);
    let mut future = pin!(future);
    let mut idle = Idle::default();
    loop {
        if task_waker.take() {
            if let Poll::Ready(output) = future.as_mut().poll(&mut task) {
                return output;
            }
            idle.reset();
        }
        let mut engine = cell.lock();
        engine.returns_soon();
        if engine.poll() != 0 {
            idle.reset();
        } else if idle.count(&engine.idle_policy) {
            engine.idle(&mut idle, WaitFor::Task, || {
                task_waker.begin_sleep();
                !task_waker.is_woken()
            });
            task_waker.end_sleep();
            // Only for a thread that sleeps, and the next sleep looks at the waker first.
            wakeup.clear();
        }
        drop(engine);
        cell.run_callbacks();
    }
}

/// A thread is in `block_on`, also while the future panics.
struct Entered<'a, T: EngineLock> {
    engine: &'a T,
    waker: &'a Waker,
}

impl<'a, T: EngineLock> Entered<'a, T> {
    fn new(engine: &'a T, waker: &'a Waker) -> Self {
        engine.lock().tasks.enter(waker);
        Self { engine, waker }
    }
}

impl<T: EngineLock> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        // The guard hands over to the reactor, if tasks of other executors wait.
        self.engine.lock().tasks.leave(self.waker);
    }
}

/// The wait set that an engine gets back at the end of `block_on`, also where the future panics.
struct FormerWaitSet<'a> {
    cell: &'a Exclusive,
    wait_set: Option<WaitSet>,
}

impl Drop for FormerWaitSet<'_> {
    fn drop(&mut self) {
        if let Some(former) = self.wait_set.take() {
            self.cell.lock().wait_set = former;
        }
    }
}

/// Lets `wakeup` wake the engine from its sleep, too. Returns the former wait set.
fn add_wakeup(cell: &Exclusive, wakeup: &WakeupFd) -> std::io::Result<WaitSet> {
    let mut engine = cell.lock();
    let timer = matches!(engine.wait_set, WaitSet::Timer);
    let (rails, bell) = engine.mtl.pml().rails_mut().watched_mut();
    let wait_set = if timer && rails.iter().any(|rail| matches!(rail, AnyRail::Dyn(_))) {
        WaitSet::Timer
    } else {
        WaitSet::epoll(rails, bell, Some(wakeup))?
    };
    Ok(std::mem::replace(&mut engine.wait_set, wait_set))
}
