//! Tasks of executors of other libraries that are dropped, moved, woken in vain or left waiting, and wakers that misbehave.

#[allow(dead_code)] // other tests use the rest
mod common;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use common::{jobs, ranks_with};
use futures_util::future::{Either, join, select};
use towline::{Any, Builder, Communicator, Error, MayOwn, Multiple, RecvRequest, Threads, World};

const TRANSPORTS: [&str; 3] = ["sm", "tcp", "udp"];

/// Two ranks, each with a world of one thread and without a progress thread.
fn pairs(body: impl Fn(World) + Sync) {
    for transport in TRANSPORTS {
        ranks_with(2, |builder| builder.transports(transport).progress_thread(false), &body);
    }
}

/// Two ranks, each with a world of many threads, with and without a progress thread.
fn shared_pairs(body: impl Fn(World<Multiple>) + Sync) {
    for (transport, thread) in TRANSPORTS.into_iter().flat_map(|name| [(name, false), (name, true)]) {
        jobs(2, |_, job| {
            let builder = Builder::new().transports(transport).threads(Multiple).progress_thread(thread);
            body(builder.job(job).build().unwrap());
        });
    }
}

/// A waker that counts.
#[derive(Default)]
struct Counter(AtomicU32);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A waker that calls a function in a thread of the library.
struct Calls<F: Fn() + Send + Sync>(F);

impl<F: Fn() + Send + Sync> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// The peer sends a message when it is told to.
fn ask_for<L: Threads>(world: &Communicator<L>, tag: u32) {
    world.send(1 - world.rank(), 1000, &tag).unwrap();
}

fn answer<L: Threads>(world: &Communicator<L>) {
    let mut tag = 0u32;
    world.recv(1 - world.rank(), 1000, &mut tag).unwrap();
    world.send(1 - world.rank(), tag, &tag).unwrap();
}

fn receive<L: Threads + MayOwn<Vec<u8>>>(world: &Communicator<L>, tag: u32) -> RecvRequest<Vec<u8>, L> {
    world.irecv(1 - world.rank(), tag, vec![0u8; 4]).unwrap()
}

/// Only the waker of the last poll counts.
#[test]
fn a_future_that_moves_to_another_task_wakes_that_task() {
    pairs(|world| {
        if world.rank() == 1 {
            return answer(&world);
        }
        let (first, second) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
        let mut receiving = receive(&world, 1);
        assert!(poll_with(&mut receiving, &Waker::from(Arc::clone(&first))).is_pending());
        assert!(poll_with(&mut receiving, &Waker::from(Arc::clone(&second))).is_pending());
        // The thread that wakes tasks may be about to call the first waker, because a timer was due.
        let until = Instant::now() + Duration::from_secs(300);
        while Arc::strong_count(&first) != 1 {
            assert!(Instant::now() < until, "the library keeps the waker of an earlier poll");
            std::thread::yield_now();
        }
        let before = first.0.load(Ordering::SeqCst);
        ask_for(&world, 1);
        while second.0.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(first.0.load(Ordering::SeqCst), before);
        pollster::block_on(receiving).unwrap();
    });
}

/// The task that polled last is woken first. Here it never ran in an executor, does not poll again, or drops or forgets its future.
#[test]
fn p11_a_task_that_ignores_its_wake_up_keeps_no_other_task_waiting() {
    for how in ["no waker", "ignores", "drops", "forgets"] {
        pairs(|world| {
            if world.rank() == 1 {
                return answer(&world);
            }
            let counter = Arc::new(Counter::default());
            let waker = if how == "no waker" { Waker::noop().clone() } else { Waker::from(Arc::clone(&counter)) };
            let (mut ignores, mut awaited) = (Some(receive(&world, 9)), receive(&world, 1));
            let mut polled = false;
            pollster::block_on(std::future::poll_fn(|task| {
                let poll = Pin::new(&mut awaited).poll(task);
                if poll.is_ready() || std::mem::replace(&mut polled, true) {
                    return poll;
                }
                assert!(poll_with(ignores.as_mut().unwrap(), &waker).is_pending());
                if how == "forgets" {
                    std::mem::forget(ignores.take());
                }
                ask_for(&world, 1);
                if how == "drops" {
                    while counter.0.load(Ordering::SeqCst) == 0 {
                        std::thread::yield_now();
                    }
                    drop(ignores.take());
                }
                poll
            }))
            .unwrap();
        });
    }
}

/// A use of a world beside a task that waits. The argument says which rank is the peer.
type Use = (&'static str, fn(&World));

const USES: [Use; 10] = [
    ("progress", |world| _ = world.progress()),
    ("iprobe", |world| _ = world.iprobe(1 - world.rank(), 7).unwrap()),
    ("counters", |world| _ = world.counters()),
    ("short messages", |world| exchange(world, 8)),
    ("long messages", |world| exchange(world, 300_000)),
    ("barrier", |world| world.barrier().unwrap()),
    ("scope", |world| {
        let (data, mut into) = ([1u8; 3000], [0u8; 3000]);
        world
            .scope(|s| {
                s.irecv(1 - world.rank(), 7, &mut into)?;
                s.isend(1 - world.rank(), 7, &data)?;
                Ok::<(), Error>(())
            })
            .unwrap();
    }),
    ("window", |world| {
        let window = world.window(64).unwrap();
        window.put(1 - world.rank(), 0, &[7u64; 8]).unwrap();
        window.flush_all().unwrap();
        window.close().unwrap();
    }),
    ("block_on", |world| {
        let receiving = world.irecv(1 - world.rank(), 7, [0u8; 4]).unwrap();
        let sending = world.isend(1 - world.rank(), 7, [1u8; 4]).unwrap();
        world.block_on(join(receiving, sending)).0.unwrap();
    }),
    ("an operation that is dropped", |world| drop(world.irecv(1 - world.rank(), 8, [0u8; 4]).unwrap())),
];

fn exchange(world: &World, len: usize) {
    let other = 1 - world.rank();
    world.sendrecv(&vec![1u8; len][..], other, 7, &mut vec![0u8; len][..], other, 7).unwrap();
}

/// Nothing polls the waiting operation after that use, until its message wakes it.
#[test]
fn p11_a_task_is_woken_after_any_other_use_of_its_world() {
    for (name, uses) in USES {
        let used = Barrier::new(2);
        pairs(|world| {
            if world.rank() == 1 {
                uses(&world);
                used.wait();
                world.send(0, 1, b"over").unwrap();
                return;
            }
            let mut receiving = receive(&world, 1);
            let mut polled = false;
            let (buffer, _) = pollster::block_on(std::future::poll_fn(|task| {
                let poll = Pin::new(&mut receiving).poll(task);
                if !std::mem::replace(&mut polled, true) {
                    uses(&world);
                    used.wait();
                }
                poll
            }))
            .unwrap();
            assert_eq!(buffer, b"over", "{name}");
        });
    }
}

/// A receive that loses against another one is cancelled, and leaves its message to a later receive.
#[test]
fn a_receive_that_is_dropped_in_a_select_loses_no_message() {
    pairs(|world| {
        let other = 1 - world.rank();
        if world.rank() == 1 {
            for round in 0..50 {
                ask_and_send(&world, round);
            }
            return;
        }
        pollster::block_on(async {
            for round in 0..50u32 {
                let (this, that) = (receive(&world, 2 * round), receive(&world, 2 * round + 1));
                world.isend(other, 1000, vec![0u8; 4]).unwrap().await.unwrap();
                let first = match select(this, that).await {
                    Either::Left((received, _)) => received.unwrap().1.tag,
                    Either::Right((received, _)) => received.unwrap().1.tag,
                };
                // The other message may have matched the dropped receive. Then it was received, and is gone.
                let rest = world.irecv(other, Any, vec![0u8; 4]).unwrap().await.unwrap().1.tag;
                assert!(rest == 5000 || rest == (2 * round) + (1 - first % 2), "{rest} after {first}");
                if rest != 5000 {
                    world.irecv(other, 5000, vec![0u8; 4]).unwrap().await.unwrap();
                }
            }
        });
    });
}

fn ask_and_send(world: &World, round: u32) {
    world.recv(0, 1000, &mut [0u8; 4]).unwrap();
    for tag in [2 * round + round % 2, 2 * round + 1 - round % 2, 5000] {
        world.send(0, tag, &tag).unwrap();
    }
}

/// Operations that are in progress when their world ends.
#[test]
fn futures_that_outlive_their_world_end_with_an_error() {
    futures_outlive(drop, drop);
}

#[test]
fn futures_that_outlive_a_finished_world_end_with_an_error() {
    futures_outlive(|world| world.finish().unwrap(), |world| world.finish().unwrap());
}

fn futures_outlive(end: impl Fn(World) + Sync, end_shared: impl Fn(World<Multiple>) + Sync) {
    pairs(|world| {
        let mut receiving = receive(&world, 1);
        pollster::block_on(std::future::poll_fn(|task| {
            assert!(Pin::new(&mut receiving).poll(task).is_pending());
            Poll::Ready(())
        }));
        let mut own = world.irecv(world.rank(), 1, [0u8; 4]).unwrap();
        world.barrier().unwrap(); // the other rank has polled its receive, too
        end(world);
        pollster::block_on(receiving).unwrap_err();
        while !own.is_done() {
            std::thread::yield_now();
        }
        own.wait().unwrap_err();
    });
    shared_pairs(|world| {
        let receiving = receive(&world, 1);
        std::thread::scope(|threads| {
            let (polled, is_polled) = channel();
            threads.spawn(move || waits(receiving, polled).unwrap_err());
            is_polled.recv().unwrap();
            world.barrier().unwrap();
            end_shared(world);
        });
    });
}

/// Awaits an operation in another executor, and says when it was polled.
fn waits<L>(mut receiving: RecvRequest<Vec<u8>, L>, polled: Sender<()>) -> Result<Vec<u8>, Error>
where
    L: Threads,
{
    let received = pollster::block_on(std::future::poll_fn(|task| {
        let poll = Pin::new(&mut receiving).poll(task);
        let _ = polled.send(());
        poll
    }));
    received.map(|(buffer, _)| buffer).map_err(|failed| failed.error)
}

#[test]
fn a_waker_that_panics_keeps_no_task_waiting() {
    pairs(|world| {
        if world.rank() == 1 {
            return answer(&world);
        }
        let panics = Waker::from(Arc::new(Calls(|| resume_unwind(Box::new("on purpose")))));
        let (mut other, mut awaited) = (receive(&world, 9), receive(&world, 1));
        let mut polled = false;
        pollster::block_on(std::future::poll_fn(|task| {
            let poll = Pin::new(&mut awaited).poll(task);
            if !std::mem::replace(&mut polled, true) {
                assert!(poll_with(&mut other, &panics).is_pending());
                ask_for(&world, 1);
            }
            poll
        }))
        .unwrap();
    });
}

/// The library calls wakers without a lock.
#[test]
fn a_waker_may_wait_in_its_world() {
    shared_pairs(|world| {
        let world = Arc::new(world);
        if world.rank() == 1 {
            answer(&world);
            world.send(0, 2, b"more").unwrap();
            world.recv(0, 3, &mut [0u8; 4]).unwrap();
            return;
        }
        let (inner, done) = (Arc::downgrade(&world), AtomicBool::new(false));
        let (over, is_over) = channel();
        let over = Mutex::new(over);
        let waker = Waker::from(Arc::new(Calls(move || {
            if !done.swap(true, Ordering::SeqCst) {
                let world = inner.upgrade().unwrap();
                world.recv(1, 2, &mut [0u8; 4]).unwrap();
                world.send(1, 3, b"done").unwrap();
                drop(world);
                over.lock().unwrap().send(()).unwrap();
            }
        })));
        let mut receiving = receive(&world, 1);
        assert!(poll_with(&mut receiving, &waker).is_pending());
        ask_for(&world, 1);
        is_over.recv().unwrap();
        receiving.wait().unwrap();
    });
}

/// A task that waits for a message and owns its world.
type Task = (RecvRequest<Vec<u8>, Multiple>, World<Multiple>);

/// A waker that owns a task. When the message has come, the task ends, and so does its world.
struct Owner {
    task: Mutex<Option<Task>>,
    over: Mutex<Sender<ThreadId>>,
}

impl Wake for Owner {
    fn wake(self: Arc<Self>) {
        // Polls without the lock, since a poll may call the waker.
        let Some((mut receiving, world)) = self.task.lock().unwrap().take() else { return };
        match poll_with(&mut receiving, &Waker::from(Arc::clone(&self))) {
            // The wake-up was for something else.
            Poll::Pending => *self.task.lock().unwrap() = Some((receiving, world)),
            Poll::Ready(received) => {
                received.unwrap();
                drop(world);
                self.over.lock().unwrap().send(std::thread::current().id()).unwrap();
            }
        }
    }
}

/// A waker may own the task, and the task the world. Then the world ends in the thread that wakes tasks.
#[test]
fn a_world_may_end_in_the_thread_that_wakes_tasks() {
    for transport in TRANSPORTS {
        let handed_over = Barrier::new(2);
        jobs(2, |_, job| {
            let builder = Builder::new().transports(transport).threads(Multiple).progress_thread(false);
            let world = builder.job(job).build().unwrap();
            if world.rank() == 1 {
                handed_over.wait();
                world.send(0, 1, b"over").unwrap();
                return;
            }
            let (over, is_over) = channel();
            let owner = Arc::new(Owner { task: Mutex::new(None), over: Mutex::new(over) });
            let mut receiving = receive(&world, 1);
            let mut task = owner.task.lock().unwrap();
            assert!(poll_with(&mut receiving, &Waker::from(Arc::clone(&owner))).is_pending());
            // From here on, only the thread that wakes tasks has the world.
            *task = Some((receiving, world));
            drop(task);
            handed_over.wait();
            assert_ne!(is_over.recv().unwrap(), std::thread::current().id());
        });
    }
}

/// A thread has two contexts, and the executor of one polls an operation of the other.
#[test]
fn the_executor_of_another_context_is_one_of_another_library() {
    let mut contexts = Builder::new().transports("tcp").contexts(3).unwrap();
    let (sender, other, own) = (contexts.pop().unwrap(), contexts.pop().unwrap(), contexts.pop().unwrap());
    let (polled, is_polled) = channel();
    std::thread::scope(|threads| {
        threads.spawn(move || {
            let world = sender.enter();
            is_polled.recv().unwrap();
            world.all_contexts().send(1, 1, b"over").unwrap();
        });
        let (own, other) = (own.enter(), other.enter());
        let mut receiving = other.all_contexts().irecv(2, 1, [0u8; 4]).unwrap();
        let (buffer, _) = own
            .block_on(std::future::poll_fn(|task| {
                let poll = Pin::new(&mut receiving).poll(task);
                let _ = polled.send(());
                poll
            }))
            .unwrap();
        assert_eq!(&buffer, b"over");
    });
}

#[test]
fn a_task_learns_that_its_peer_is_lost() {
    pairs(|world| {
        world.barrier().unwrap();
        if world.rank() == 1 {
            let lost = catch_unwind(AssertUnwindSafe(move || {
                let _world = world;
                resume_unwind(Box::new("on purpose"));
            }));
            drop(lost.unwrap_err());
            return;
        }
        let failed = pollster::block_on(receive(&world, 1)).unwrap_err();
        assert_eq!(failed.error, Error::PeerFailed { rank: 1 });
    });
}
