//! The interleavings, and every order that the memory model allows, of threads that wait for one engine:
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p towline --test loom --release`
//!
//! Who does what, and the place where a thread sleeps, are the library's own; engine, rail and lock are models, and `wait` and
//! `leave` take the steps of `src/threads/shared.rs`.
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
use wait_coordinator::{Charge, Duty};

/// A rail whose messages name the request that they end, and its wait handle, which is the bell's, too.
struct Rail {
    arrived: Vec<usize>,
    armed: bool,
}

struct Room {
    duty: Duty<()>,
    done: [bool; 2],
    /// Who is told when a request is over.
    calls: [Option<Arc<Parker>>; 2],
    over: bool,
}

struct World {
    room: Mutex<Room>,
    rail: Mutex<Rail>,
    bed: Arc<Parker>,
}

impl World {
    fn new(thread: Option<&Arc<Parker>>) -> Arc<Self> {
        let mut duty = Duty::new();
        duty.set_thread(thread.cloned());
        Arc::new(Self {
            room: Mutex::new(Room { duty, done: [false; 2], calls: [None, None], over: false }),
            rail: Mutex::new(Rail { arrived: Vec::new(), armed: false }),
            bed: Arc::new(Parker::new()),
        })
    }

    /// A message comes, from another process.
    fn send(&self, request: usize) {
        let mut rail = self.rail.lock().unwrap();
        rail.arrived.push(request);
        if std::mem::take(&mut rail.armed) {
            self.bed.unpark();
        }
    }

    /// A message to oneself: nobody is woken by it, so who lets the lock go must see to that.
    fn send_to_self(&self, request: usize) {
        let mut room = self.room.lock().unwrap();
        self.rail.lock().unwrap().arrived.push(request);
        self.leave(&mut room);
    }

    fn hold(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap()
    }

    fn poll(&self, room: &mut Room) -> bool {
        let mut rail = self.rail.lock().unwrap();
        rail.armed = false;
        let Some(request) = rail.arrived.pop() else { return false };
        room.done[request] = true;
        true
    }

    fn arm(&self) -> bool {
        let mut rail = self.rail.lock().unwrap();
        rail.armed = rail.arrived.is_empty();
        rail.armed
    }

    fn aside<'a>(&'a self, mut room: MutexGuard<'a, Room>) -> MutexGuard<'a, Room> {
        room.duty.step_aside();
        drop(room);
        let mut room = self.hold();
        room.duty.step_back();
        room
    }

    fn tell(&self, room: &mut Room) {
        for (done, call) in room.done.iter().zip(&mut room.calls) {
            if *done && let Some(call) = call.take() {
                call.unpark();
            }
        }
    }

    fn leave(&self, room: &mut Room) {
        self.tell(room);
        match room.duty.charge() {
            Charge::Nothing => {}
            Charge::Arm(()) => {
                if !self.arm() {
                    room.duty.ring();
                    self.bed.unpark();
                }
            }
            Charge::Wake(parker) => parker.unpark(),
        }
    }

    fn park<'a>(
        &'a self,
        mut room: MutexGuard<'a, Room>,
        request: usize,
        parker: &Arc<Parker>,
    ) -> MutexGuard<'a, Room> {
        room.calls[request] = Some(Arc::clone(parker));
        room.duty.park(parker);
        self.leave(&mut room);
        drop(room);
        parker.park(None);
        let mut room = self.hold();
        room.duty.unpark(parker);
        room.calls[request] = None;
        room
    }

    fn sleep<'a>(&'a self, mut room: MutexGuard<'a, Room>) -> MutexGuard<'a, Room> {
        room.duty.lie_down(());
        drop(room);
        self.bed.park(None);
        let mut room = self.hold();
        room.duty.get_up();
        room
    }

    /// Waits for a request.
    fn wait(&self, request: usize) {
        let parker = Arc::new(Parker::new());
        let mut room = self.hold();
        while !room.done[request] {
            if room.duty.is_polled() {
                room = self.park(room, request, &parker);
                continue;
            }
            room.duty.note_poll();
            if self.poll(&mut room) {
                self.tell(&mut room);
                room = self.aside(room);
                continue;
            }
            room = self.aside(room);
            if room.duty.is_polled() || !room.duty.bed_is_free() {
                room = self.park(room, request, &parker);
                continue;
            }
            room.calls[request] = Some(Arc::clone(&self.bed));
            self.tell(&mut room);
            if self.arm() {
                room = self.sleep(room);
            }
            room.calls[request] = None;
        }
        self.leave(&mut room);
    }

    /// The progress thread.
    fn look_after(&self, parker: &Arc<Parker>) {
        let mut room = self.hold();
        while !room.over {
            self.tell(&mut room);
            if room.duty.is_left_to_callers() {
                room.duty.set_thread_waits(true);
                drop(room);
                // For a while; here until someone wants it, or there is nobody any more who does.
                parker.park(None);
                room = self.hold();
                room.duty.set_thread_waits(false);
            } else if self.poll(&mut room) {
                room = self.aside(room);
            } else if self.arm() {
                room = self.sleep(room);
            }
        }
        room.duty.set_thread(None);
        self.leave(&mut room);
    }

    fn end(&self, parker: &Parker) {
        self.hold().over = true;
        parker.unpark();
        self.bed.unpark();
    }
}

fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

/// In any order that messages come, each thread hears of its own.
#[test]
fn p11_of_two_threads_that_wait_none_is_left_behind() {
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
fn p11_a_thread_that_sleeps_hears_of_what_another_began() {
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
fn p11_a_progress_thread_beside_one_that_polls_leaves_nothing_and_ends() {
    model(3, || {
        let parker = Arc::new(Parker::new());
        let world = World::new(Some(&parker));
        let thread = {
            let (world, parker) = (Arc::clone(&world), Arc::clone(&parker));
            thread::spawn(move || world.look_after(&parker))
        };
        let peer = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.send(0))
        };
        world.wait(0);
        peer.join().unwrap();
        // The thread alone sees to this one.
        world.send(1);
        world.end(&parker);
        thread.join().unwrap();
    });
}
