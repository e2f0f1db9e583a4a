//! Loom models of threads that wait for one engine: every interleaving, and every order that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p towline --test loom --release`
//!
//! The wait coordinator and the parker are the library's own. The engine, the rail and the lock are models; `wait` and
//! `before_unlock` take the steps of `src/threads/shared_guard.rs`, and `progress_thread` those of
//! `src/threads/progress_thread.rs`.
#![cfg(loom)]

#[path = "../src/waiting/futex.rs"]
mod futex;
#[path = "../src/waiting/parker.rs"]
#[allow(dead_code)]
mod parker;
#[path = "../src/waiting/wait_coordinator.rs"]
#[allow(dead_code)]
mod wait_coordinator;

use std::sync::Arc;

use loom::sync::{Mutex, MutexGuard};
use loom::thread;
use parker::Parker;
use wait_coordinator::{Handoff, WaitCoordinator};

/// A rail whose messages name the request that they complete. `World::wakeup` is its wait handle and the shared wake-up in one.
struct Rail {
    arrived: Vec<usize>,
    armed: bool,
    /// The reactor watches the wait handle for one event.
    watched: bool,
}

struct Locked {
    coordinator: WaitCoordinator<()>,
    done: [bool; 2],
    /// The thread that is notified when a request is complete.
    waiters: [Option<Arc<Parker>>; 2],
    /// A task of another executor awaits request 0.
    task_waits: bool,
    stop: bool,
}

struct World {
    locked: Mutex<Locked>,
    rail: Mutex<Rail>,
    wakeup: Arc<Parker>,
    /// Whether the reactor wakes the task at the next event.
    reactor_is_armed: Mutex<bool>,
    /// Where the reactor sleeps, and where the executor of the task does.
    reactor: Parker,
    executor: Parker,
}

impl World {
    fn new(progress_thread: Option<&Arc<Parker>>) -> Arc<Self> {
        let mut coordinator = WaitCoordinator::new();
        coordinator.set_progress_thread(progress_thread.cloned());
        Arc::new(Self {
            locked: Mutex::new(Locked {
                coordinator,
                done: [false; 2],
                waiters: [None, None],
                task_waits: false,
                stop: false,
            }),
            rail: Mutex::new(Rail { arrived: Vec::new(), armed: false, watched: false }),
            wakeup: Arc::new(Parker::new()),
            reactor_is_armed: Mutex::new(false),
            reactor: Parker::new(),
            executor: Parker::new(),
        })
    }

    /// Another process sends a message.
    fn send(&self, request: usize) {
        let mut rail = self.rail.lock().unwrap();
        rail.arrived.push(request);
        if std::mem::take(&mut rail.armed) {
            self.wakeup.unpark();
            if std::mem::take(&mut rail.watched) {
                self.reactor.unpark();
            }
        }
    }

    /// The process sends a message to itself. The message wakes no thread, so the thread that releases the lock must do that.
    fn send_to_self(&self, request: usize) {
        let mut locked = self.locked.lock().unwrap();
        self.rail.lock().unwrap().arrived.push(request);
        self.before_unlock(&mut locked);
    }

    fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap()
    }

    fn poll(&self, locked: &mut Locked) -> bool {
        let mut rail = self.rail.lock().unwrap();
        rail.armed = false;
        let Some(request) = rail.arrived.pop() else { return false };
        locked.done[request] = true;
        true
    }

    fn arm(&self) -> bool {
        let mut rail = self.rail.lock().unwrap();
        rail.armed = rail.arrived.is_empty();
        rail.armed
    }

    fn yield_lock<'a>(&'a self, mut locked: MutexGuard<'a, Locked>) -> MutexGuard<'a, Locked> {
        locked.coordinator.begin_pause();
        drop(locked);
        let mut locked = self.lock();
        locked.coordinator.end_pause();
        locked
    }

    fn notify_waiters(&self, locked: &mut Locked) {
        for (done, waiter) in locked.done.iter().zip(&mut locked.waiters) {
            if *done && let Some(waiter) = waiter.take() {
                waiter.unpark();
            }
        }
        if locked.done[0] && std::mem::take(&mut locked.task_waits) {
            self.executor.unpark();
        }
    }

    fn before_unlock(&self, locked: &mut Locked) {
        self.notify_waiters(locked);
        let task_waits = locked.task_waits;
        match locked.coordinator.handoff(task_waits) {
            Handoff::Nothing => {}
            Handoff::Arm(()) => {
                if !self.arm() {
                    locked.coordinator.note_signal();
                    self.wakeup.unpark();
                }
            }
            Handoff::Wake(parker) => parker.unpark(),
            Handoff::Reactor => {
                let armed = self.arm();
                *self.reactor_is_armed.lock().unwrap() = true;
                let mut rail = self.rail.lock().unwrap();
                if armed && rail.armed {
                    rail.watched = true;
                } else {
                    self.reactor.unpark(); // there is work, or the handle is ready already
                }
            }
        }
    }

    /// The thread that sleeps on the wait handle for tasks.
    fn reactor(&self) {
        loop {
            self.reactor.park(None);
            if self.lock().stop {
                return;
            }
            if std::mem::take(&mut *self.reactor_is_armed.lock().unwrap()) {
                self.executor.unpark();
            }
        }
    }

    /// A thread of another executor, whose only task awaits request 0.
    fn executor(&self) {
        loop {
            let mut locked = self.lock();
            while self.poll(&mut locked) {
                self.notify_waiters(&mut locked);
            }
            locked.task_waits = !locked.done[0];
            let waits = locked.task_waits;
            self.before_unlock(&mut locked);
            drop(locked);
            if !waits {
                return;
            }
            self.executor.park(None);
        }
    }

    fn park<'a>(
        &'a self,
        mut locked: MutexGuard<'a, Locked>,
        request: usize,
        parker: &Arc<Parker>,
    ) -> MutexGuard<'a, Locked> {
        locked.waiters[request] = Some(Arc::clone(parker));
        locked.coordinator.park(parker);
        self.before_unlock(&mut locked);
        drop(locked);
        parker.park(None);
        let mut locked = self.lock();
        locked.coordinator.unpark(parker);
        locked.waiters[request] = None;
        locked
    }

    fn sleep<'a>(&'a self, mut locked: MutexGuard<'a, Locked>) -> MutexGuard<'a, Locked> {
        locked.coordinator.begin_sleep(());
        drop(locked);
        self.wakeup.park(None);
        let mut locked = self.lock();
        locked.coordinator.end_sleep();
        locked
    }

    /// Waits for a request.
    fn wait(&self, request: usize) {
        let parker = Arc::new(Parker::new());
        let mut locked = self.lock();
        while !locked.done[request] {
            if locked.coordinator.is_polling() {
                locked = self.park(locked, request, &parker);
                continue;
            }
            if locked.coordinator.note_poll() {
                *self.reactor_is_armed.lock().unwrap() = false;
            }
            if self.poll(&mut locked) {
                self.notify_waiters(&mut locked);
                locked = self.yield_lock(locked);
                continue;
            }
            locked = self.yield_lock(locked);
            if locked.coordinator.is_polling() || !locked.coordinator.may_sleep() {
                locked = self.park(locked, request, &parker);
                continue;
            }
            locked.waiters[request] = Some(Arc::clone(&self.wakeup));
            self.notify_waiters(&mut locked);
            if self.arm() {
                locked = self.sleep(locked);
            }
            locked.waiters[request] = None;
        }
        self.before_unlock(&mut locked);
    }

    /// The progress thread.
    fn progress_thread(&self, parker: &Arc<Parker>) {
        let mut locked = self.lock();
        while !locked.stop {
            self.notify_waiters(&mut locked);
            if locked.coordinator.is_left_to_callers() {
                locked.coordinator.set_progress_thread_pauses(true);
                drop(locked);
                // The library parks this thread for a while. Here it stays parked until it is woken or told to end.
                parker.park(None);
                locked = self.lock();
                locked.coordinator.set_progress_thread_pauses(false);
            } else if self.poll(&mut locked) {
                locked = self.yield_lock(locked);
            } else if self.arm() {
                locked = self.sleep(locked);
            }
        }
        locked.coordinator.set_progress_thread(None);
        self.before_unlock(&mut locked);
    }

    fn end(&self, parker: &Parker) {
        self.lock().stop = true;
        parker.unpark();
        self.wakeup.unpark();
    }
}

fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

/// Each thread is woken for its own message, in whichever order the messages come.
#[test]
fn p11_two_waiting_threads_are_both_woken() {
    model(3, || {
        let world = World::new(None);
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.wait(1))
        };
        let peer = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.send(1);
                world.send(0);
            })
        };
        world.wait(0);
        other.join().unwrap();
        peer.join().unwrap();
    });
}

#[test]
fn p11_a_sleeping_thread_learns_of_a_message_that_another_thread_sent() {
    model(3, || {
        let world = World::new(None);
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.send_to_self(0);
                world.wait(1);
            })
        };
        let peer = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.send(1))
        };
        world.wait(0);
        other.join().unwrap();
        peer.join().unwrap();
    });
}

#[test]
fn p11_a_progress_thread_beside_a_polling_thread_completes_everything_and_ends() {
    model(3, || {
        let parker = Arc::new(Parker::new());
        let world = World::new(Some(&parker));
        let thread = {
            let (world, parker) = (Arc::clone(&world), Arc::clone(&parker));
            thread::spawn(move || world.progress_thread(&parker))
        };
        let peer = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.send(0))
        };
        world.wait(0);
        peer.join().unwrap();
        // Only the progress thread can receive this message.
        world.send(1);
        world.end(&parker);
        thread.join().unwrap();
    });
}

/// A blocked thread and the reactor take turns, and neither leaves the task or the thread waiting.
fn a_task_beside_a_thread(order: [usize; 2]) {
    model(2, move || {
        let world = World::new(None);
        let executor = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.executor())
        };
        let reactor = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.reactor())
        };
        let peer = {
            let world = Arc::clone(&world);
            thread::spawn(move || order.into_iter().for_each(|request| world.send(request)))
        };
        world.wait(1);
        executor.join().unwrap();
        peer.join().unwrap();
        world.lock().stop = true;
        world.reactor.unpark();
        reactor.join().unwrap();
    });
}

#[test]
fn p11_a_task_of_another_executor_is_woken_before_a_blocked_thread() {
    a_task_beside_a_thread([0, 1]);
}

#[test]
fn p11_a_task_of_another_executor_is_woken_after_a_blocked_thread() {
    a_task_beside_a_thread([1, 0]);
}
