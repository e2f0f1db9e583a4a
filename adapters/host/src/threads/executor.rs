//! Runs futures to completion, with progress for all operations of their context.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

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
        let mut engine = shared.lock();
        engine.clock.renew_coarsely();
        engine.progress_or_wait(&mut idle, &Awaited::Task(&task_waker), None);
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
    let (task_waker, waker) = TaskWaker::new(None, wakeup);
    let mut task = TaskContext::from_waker(&waker);
    let mut future = pin!(future);
    let mut idle = Idle::default();
    let output = loop {
        if task_waker.take() {
            if let Poll::Ready(output) = future.as_mut().poll(&mut task) {
                break output;
            }
            idle.reset();
        }
        let mut engine = cell.lock();
        if engine.poll() != 0 {
            idle.reset();
        } else if idle.count(&engine.idle_policy) {
            engine.idle(&mut idle, WaitFor::Task, || {
                task_waker.begin_sleep();
                !task_waker.is_woken()
            });
            task_waker.end_sleep();
        }
        drop(engine);
        cell.run_callbacks();
    };
    cell.lock().wait_set = former;
    output
}

/// Lets `wakeup` wake the engine from its sleep, too. Returns the former wait set.
fn add_wakeup(cell: &Exclusive, wakeup: &WakeupFd) -> std::io::Result<WaitSet> {
    let mut engine = cell.lock();
    let timer = matches!(engine.wait_set, WaitSet::Timer);
    let rails = engine.mtl.pml().rails_mut().polled_mut();
    let wait_set = if timer && rails.iter().any(|rail| matches!(rail, AnyRail::Dyn(_))) {
        WaitSet::Timer
    } else {
        WaitSet::epoll(rails, Some(wakeup))?
    };
    Ok(std::mem::replace(&mut engine.wait_set, wait_set))
}
