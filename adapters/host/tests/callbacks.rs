//! Code of users that runs inside an operation - the drop of a buffer, or a waker - and panics, or waits in the world itself.

#[allow(dead_code)] // other tests use the rest
mod common;
#[path = "common/pattern.rs"]
mod pattern;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use common::{jobs, ranks};
use pattern::pattern;
use towline::{Buffer, Builder, Communicator, MayOwn, Multiple, Threads, World};

/// A message of this length waits for its receiver.
const LONG: usize = 200_000;
const SETUPS: [(&str, bool); 6] =
    [("sm", false), ("tcp", false), ("udp", false), ("sm", true), ("tcp", true), ("udp", true)];

/// A buffer, and a function that is called when it is dropped.
struct CallsOnDrop<F: FnMut() + 'static>(Vec<u8>, F);

impl<F: FnMut() + 'static> Buffer for CallsOnDrop<F> {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<F: FnMut()> Drop for CallsOnDrop<F> {
    fn drop(&mut self) {
        (self.1)();
    }
}

struct CallsOnWake<F: Fn() + Send + Sync>(F);

impl<F: Fn() + Send + Sync> Wake for CallsOnWake<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn shared(setup: (&str, bool), body: impl Fn(World<Multiple>) + Sync) {
    let build = |job| Builder::new().transports(setup.0).threads(Multiple).progress_thread(setup.1).job(job).build();
    jobs(2, |_, job| body(build(job).unwrap()));
}

fn exchange<L: Threads>(world: &Communicator<L>, tag: u32) {
    let other = 1 - world.rank();
    for len in [8, 5000, LONG] {
        let mut into = vec![0u8; len];
        world.sendrecv(&pattern(len, world.rank())[..], other, tag, &mut into[..], other, tag).unwrap();
        assert!(into == pattern(len, other));
    }
}

fn exchange_of_two_threads(world: &Communicator<Multiple>) {
    std::thread::scope(|threads| {
        threads.spawn(|| exchange(world, 100));
        exchange(world, 101);
    });
}

/// Makes progress until a call panics.
fn until_it_panics(step: impl Fn()) {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        loop {
            step();
        }
    }));
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"on purpose"));
}

fn panics() {
    std::panic::resume_unwind(Box::new("on purpose"));
}

/// The drop of a buffer that rank 1 sends panics while rank 1 makes progress.
fn a_drop_panics<L: Threads + MayOwn<CallsOnDrop<fn()>>>(world: &World<L>) {
    if world.rank() == 1 {
        drop(world.isend(0, 1, CallsOnDrop(vec![0; LONG], panics as fn())).unwrap());
        until_it_panics(|| _ = world.progress());
    } else {
        world.recv(1, 1, &mut vec![0; LONG][..]).unwrap();
    }
}

#[test]
fn a_buffer_whose_drop_panics_leaves_no_other_thread_waiting() {
    for setup in SETUPS.into_iter().filter(|(_, thread)| !thread) {
        shared(setup, |world| {
            a_drop_panics(&world);
            exchange_of_two_threads(&world);
            world.finish().unwrap();
        });
    }
}

#[test]
fn a_waker_that_panics_leaves_no_other_thread_waiting() {
    for setup in SETUPS.into_iter().filter(|(_, thread)| !thread) {
        shared(setup, |world| {
            let mut receiving = world.irecv(1 - world.rank(), 1, vec![0u8; LONG]).unwrap();
            let waker = Waker::from(Arc::new(CallsOnWake(panics)));
            assert!(Future::poll(std::pin::pin!(&mut receiving), &mut Context::from_waker(&waker)).is_pending());
            world.barrier().unwrap();
            let sending = world.isend(1 - world.rank(), 1, vec![1u8; LONG]).unwrap();
            until_it_panics(|| _ = world.progress());
            drop(sending);
            assert_eq!(receiving.wait().unwrap().0, [1; LONG]);
            exchange_of_two_threads(&world);
            world.finish().unwrap();
        });
    }
}

/// The panic is resumed when the operation in which the code ran is complete.
#[test]
fn a_panic_of_users_code_does_not_end_operations() {
    for setup in SETUPS.into_iter().filter(|(_, thread)| !thread) {
        shared(setup, |world| {
            if world.rank() == 1 {
                drop(world.isend(0, 1, CallsOnDrop(vec![0; LONG], panics)).unwrap());
                let mut into = vec![0u8; LONG];
                let caught = catch_unwind(AssertUnwindSafe(|| world.recv(0, 2, &mut into[..])));
                assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"on purpose"));
                assert!(into == pattern(LONG, 2), "{setup:?}: the receive was not over");
            } else {
                world.recv(1, 1, &mut vec![0; LONG][..]).unwrap();
                world.send(1, 2, &pattern(LONG, 2)[..]).unwrap();
            }
            exchange_of_two_threads(&world);
            world.finish().unwrap();
        });
    }
}

#[test]
fn a_buffer_whose_drop_panics_does_not_harm_a_world_of_one_thread() {
    for transport in ["sm", "tcp", "udp"] {
        ranks(2, transport, |world| {
            a_drop_panics(&world);
            exchange(&world, 100);
            world.finish().unwrap();
        });
    }
}

/// Whichever thread drops the buffer, including the progress thread.
#[test]
fn the_drop_of_a_buffer_may_wait_in_the_world() {
    for setup in SETUPS {
        shared(setup, |world| {
            let world = Arc::new(world);
            if world.rank() == 1 {
                let (done, is_done) = channel();
                let (inner, done) = (Arc::downgrade(&world), Mutex::new(done));
                let receives = move || {
                    let world = inner.upgrade().unwrap();
                    let mut into = vec![0; LONG];
                    world.recv(0, 9, &mut into[..]).unwrap();
                    assert!(into == pattern(LONG, 9));
                    let done: &Sender<()> = &done.lock().unwrap();
                    done.send(()).unwrap();
                };
                drop(world.isend(0, 1, CallsOnDrop(vec![0; LONG], receives)).unwrap());
                if setup.1 {
                    is_done.recv().unwrap();
                }
                world.recv(0, 2, &mut [0u8; 4]).unwrap();
                if !setup.1 {
                    is_done.try_recv().unwrap();
                }
            } else {
                world.recv(1, 1, &mut vec![0; LONG][..]).unwrap();
                world.send(1, 9, &pattern(LONG, 9)[..]).unwrap();
                world.send(1, 2, b"over").unwrap();
            }
            exchange_of_two_threads(&world);
        });
    }
}

#[test]
fn a_waker_may_wait_in_the_world() {
    for setup in SETUPS {
        shared(setup, |world| {
            let world = Arc::new(world);
            if world.rank() == 1 {
                let (done, is_done) = channel();
                let (inner, done) = (Arc::downgrade(&world), Mutex::new(done));
                let called = AtomicBool::new(false);
                let waker = Waker::from(Arc::new(CallsOnWake(move || {
                    // A second call, by another thread or inside the first one, finds no second message.
                    if !called.swap(true, Ordering::SeqCst) {
                        inner.upgrade().unwrap().recv(0, 9, &mut [0u8; 4]).unwrap();
                        done.lock().unwrap().send(()).unwrap();
                    }
                })));
                let mut receiving = world.irecv(0, 1, vec![0u8; 4]).unwrap();
                assert!(Future::poll(std::pin::pin!(&mut receiving), &mut Context::from_waker(&waker)).is_pending());
                world.send(0, 3, b"now").unwrap();
                if setup.1 {
                    is_done.recv().unwrap();
                }
                world.recv(0, 2, &mut [0u8; 4]).unwrap();
                if !setup.1 {
                    is_done.recv().unwrap(); // it may have been called in the thread that wakes tasks
                }
                assert_eq!(receiving.wait().unwrap().0, b"here");
            } else {
                world.recv(1, 3, &mut [0u8; 3]).unwrap();
                world.send(1, 1, b"here").unwrap();
                world.send(1, 9, b"nine").unwrap();
                world.send(1, 2, b"over").unwrap();
            }
            exchange_of_two_threads(&world);
        });
    }
}

#[test]
fn the_drop_of_a_buffer_may_wait_in_a_world_of_one_thread() {
    for transport in ["sm", "tcp", "udp"] {
        ranks(2, transport, |world| {
            let world = Rc::new(world);
            if world.rank() == 1 {
                let ended = Rc::new(Cell::new(false));
                let (inner, end) = (Rc::downgrade(&world), Rc::clone(&ended));
                let receives = move || {
                    let world = inner.upgrade().unwrap();
                    world.send(0, 8, b"send").unwrap();
                    world.recv(0, 9, &mut [0u8; 4]).unwrap();
                    end.set(true);
                };
                drop(world.isend(0, 1, CallsOnDrop(vec![0; LONG], receives)).unwrap());
                while !ended.get() {
                    world.progress();
                }
            } else {
                world.recv(1, 1, &mut vec![0; LONG][..]).unwrap();
                world.recv(1, 8, &mut [0u8; 4]).unwrap();
                world.send(1, 9, b"nine").unwrap();
            }
            exchange(&world, 100);
        });
    }
}
