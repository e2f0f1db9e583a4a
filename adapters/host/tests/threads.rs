//! Several threads in one context, with and without a progress thread. The ranks are threads, too, each with its own membership
//! in the job.

#[allow(dead_code)] // other tests use the rest
mod common;
#[path = "common/pattern.rs"]
mod pattern;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use common::jobs;
use pattern::pattern;
use towline::{Any, Builder, Capabilities, Communicator, Error, Multiple, ThreadLevel, World};

/// Transport, and whether there is a progress thread.
const SETUPS: [(&str, bool); 5] = [("sm", false), ("tcp", false), ("sm", true), ("tcp", true), ("udp", true)];
const THREADS: u32 = 8;

type Shared = World<Multiple>;

fn builder((transport, thread): (&str, bool)) -> Builder<Multiple> {
    Builder::new().transports(transport).threads(Multiple).progress_thread(thread)
}

/// Runs `body` in each of two ranks, whose worlds are for several threads.
fn ranks<T: Send>(setup: (&str, bool), body: impl Fn(Shared) -> T + Sync) -> Vec<T> {
    jobs(2, |_, job| body(builder(setup).job(job).build().unwrap()))
}

/// Runs `body` in each of `count` threads.
fn threads<T: Send>(count: u32, body: impl Fn(u32) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = (0..count).map(|thread| scope.spawn(move || body(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the thread ends well")).collect()
    })
}

#[test]
fn m3_the_thread_level_that_is_asked_for_is_granted_and_reported() {
    fn is_for_all<T: Send + Sync>(_: &T) {}
    let alone = Builder::new().build().unwrap();
    assert_eq!((alone.threads(), alone.progress_thread()), (ThreadLevel::Single, None));
    let world = Builder::new().threads(Multiple).build().unwrap();
    assert_eq!((world.threads(), world.progress_thread()), (ThreadLevel::Multiple, None));
    assert!(ThreadLevel::Single < ThreadLevel::Multiple);
    is_for_all(&world);
    is_for_all(world.all_contexts());
    is_for_all(&world.dup().unwrap());
    is_for_all(&std::sync::Arc::new(world));
}

/// Each of eight threads receives messages, while there are requests for three. A receive waits for a request as long as other
/// threads wait with one, and is not refused.
#[test]
fn m3_a_thread_waits_for_a_request_that_another_thread_will_free() {
    const ROUNDS: u32 = 20;
    for setup in SETUPS {
        jobs(2, |rank, job| {
            let requests = if rank == 0 { 3 } else { 1000 };
            let world = builder(setup).configure(|config| config.requests = requests).job(job).build().unwrap();
            if rank == 0 {
                let received = threads(THREADS, |thread| {
                    for _ in 0..ROUNDS {
                        assert_eq!(world.recv(1, thread, &mut [0u8; 4]).unwrap().bytes, 4);
                    }
                    ROUNDS
                });
                assert_eq!(received, [ROUNDS; THREADS as usize]);
            } else {
                for _ in 0..ROUNDS {
                    (0..THREADS).for_each(|thread| world.send(0, thread, &[1u8; 4]).unwrap());
                }
            }
            world.finish().unwrap();
        });
    }
}

/// All kinds of operations, with the same thread of the other rank.
fn converse(world: &Communicator<Multiple>, thread: u32) -> Result<(), Error> {
    let (other, seed) = (1 - world.rank(), |rank: u32| rank * 100 + thread);
    for (round, len) in (0..).zip([0, 8, 300, 5000, 20_000, 300_000, 64, 9]) {
        let tag = thread * 1000 + round;
        let (mine, theirs) = (pattern(len, seed(world.rank())), pattern(len, seed(other)));
        let mut into = vec![0u8; len];
        world.sendrecv(&mine[..], other, tag, &mut into[..], other, tag)?;
        assert!(into == theirs);
        // In turns.
        into.fill(0);
        if world.rank() == 0 {
            world.send(other, tag, &mine[..])?;
            world.recv(other, tag, &mut into[..])?;
        } else {
            world.recv(Any, tag, &mut into[..])?;
            world.ssend(other, tag, &mine[..])?;
        }
        assert!(into == theirs);
        into.fill(0);
        world.scope(|s| {
            s.irecv(other, tag, &mut into[..])?;
            s.isend(other, tag, &mine[..])?;
            Ok::<(), Error>(())
        })?;
        assert!(into == theirs);
        let sending = world.isend(other, tag, mine.clone())?;
        assert_eq!(world.probe(other, tag)?.bytes, len as u64);
        let message = world.mprobe(Any, tag)?;
        into.fill(0);
        message.recv(&mut into[..])?;
        assert!(into == theirs);
        assert!(sending.wait()? == mine);
        let (received, _) = world.block_on_for_test(other, tag, mine)?;
        assert!(received == theirs);
    }
    Ok(())
}

/// Polls a receive from a communicator.
trait BlockOn {
    fn block_on_for_test(&self, other: u32, tag: u32, mine: Vec<u8>) -> Result<(Vec<u8>, u64), Error>;
}

impl BlockOn for Communicator<Multiple> {
    fn block_on_for_test(&self, other: u32, tag: u32, mine: Vec<u8>) -> Result<(Vec<u8>, u64), Error> {
        let len = mine.len();
        let sending = self.isend(other, tag, mine)?;
        let mut receiving = self.irecv(other, tag, vec![0u8; len])?;
        while !receiving.is_done() {
            std::thread::yield_now();
        }
        let (buffer, status) = receiving.wait()?;
        sending.wait()?;
        Ok((buffer, status.bytes))
    }
}

#[test]
fn p3_eight_threads_on_one_context() {
    for setup in SETUPS {
        ranks(setup, |world| {
            threads(THREADS, |thread| converse(&world, thread).unwrap());
            world.finish().unwrap();
        });
    }
}

#[test]
fn p3_several_contexts_of_several_threads_each() {
    for setup in SETUPS {
        jobs(2, |_, job| {
            let contexts = builder(setup).job(job).contexts(2).unwrap();
            let contexts: Vec<_> = contexts.into_iter().map(std::sync::Mutex::new).map(Some).collect();
            let contexts = std::sync::Mutex::new(contexts);
            threads(2, |index| {
                let context = contexts.lock().unwrap()[index as usize].take().unwrap().into_inner().unwrap();
                let world = context.enter();
                threads(3, |thread| converse(&world, thread).unwrap());
            });
        });
    }
}

#[test]
fn p3_eight_contexts_with_a_thread_each() {
    for transport in ["sm", "tcp"] {
        jobs(2, |_, job| {
            let contexts = Builder::new().transports(transport).job(job).contexts(THREADS).unwrap();
            let running: Vec<_> = contexts
                .into_iter()
                .map(|context| {
                    std::thread::spawn(move || {
                        let world = context.enter();
                        let (all_contexts, other) = (world.all_contexts(), 1 - world.rank());
                        for (round, len) in (0..).zip([0, 8, 5000, 100_000]) {
                            let mine = pattern(len, all_contexts.rank());
                            for index in 0..THREADS {
                                let partner = (world.address().index + index) % THREADS;
                                let from = (world.address().index + THREADS - index) % THREADS;
                                let [to, from] =
                                    [partner, from].map(|index| all_contexts.rank_of((other, index)).unwrap());
                                let mut into = vec![0u8; len];
                                all_contexts.sendrecv(&mine[..], to, round, &mut into[..], from, round).unwrap();
                                assert!(into == pattern(len, from));
                            }
                        }
                    })
                })
                .collect();
            running.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

#[test]
fn b42_a_progress_thread_shows_in_the_capabilities_of_rails() {
    for (transport, thread) in SETUPS {
        ranks((transport, thread), |world| {
            for (name, promised) in world.rails().iter().zip(world.capabilities()) {
                // Messages to the process itself need no progress thread.
                let expected = thread && *name != "loopback";
                assert_eq!(promised.contains(Capabilities::PROGRESS_THREAD), expected, "{name}");
            }
            world.finish().unwrap();
        });
    }
}

#[test]
fn b42_receives_from_any_source_take_each_message_once() {
    const MESSAGES: u32 = 50;
    for setup in SETUPS {
        ranks(setup, |world| {
            let (other, seen) = (1 - world.rank(), AtomicU32::new(0));
            threads(THREADS, |thread| {
                if thread % 2 == 0 {
                    for message in 0..MESSAGES {
                        world.send(other, thread, &[thread, message]).unwrap();
                    }
                    return;
                }
                for _ in 0..MESSAGES {
                    let mut into = [u32::MAX; 2];
                    let status = world.recv(Any, Any, &mut into).unwrap();
                    assert_eq!((status.tag, status.count::<u32>()), (into[0], 2));
                    seen.fetch_add(into[0] * 1000 + into[1], Ordering::Relaxed);
                }
            });
            let sum: u32 = (0..THREADS).step_by(2).flat_map(|t| (0..MESSAGES).map(move |m| t * 1000 + m)).sum();
            assert_eq!(seen.into_inner(), sum, "{setup:?}");
            world.finish().unwrap();
        });
    }
}

#[test]
fn m13_only_one_of_two_threads_takes_a_message() {
    const MESSAGES: u32 = 60;
    for setup in SETUPS {
        ranks(setup, |world| {
            if world.rank() == 0 {
                for message in 0..MESSAGES {
                    // Short messages, and long ones of which the probe finds only the rendezvous header.
                    let len = if message % 3 == 0 { 100_000 } else { 2 };
                    let mut words = vec![0; len];
                    words[0] = message;
                    world.send(1, 7, &words[..]).unwrap();
                }
                return;
            }
            let left = AtomicU32::new(MESSAGES);
            let claim = || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
            let taken = threads(3, |thread| {
                let mut taken = Vec::new();
                while claim() {
                    if thread == 2 {
                        // One thread receives beside those that probe.
                        let (words, _) = world.recv_vec::<u32>(0, 7).unwrap();
                        taken.push(words[0]);
                        continue;
                    }
                    let message = world.mprobe(Any, 7).unwrap();
                    let mut words = vec![u32::MAX; message.envelope().bytes as usize / 4];
                    message.recv(&mut words[..]).unwrap();
                    taken.push(words[0]);
                }
                taken
            });
            // Each thread took its messages in the order in which they were sent.
            assert!(taken.iter().all(|taken| taken.is_sorted()), "{setup:?}");
            let mut all = taken.concat();
            all.sort_unstable();
            assert_eq!(all, (0..MESSAGES).collect::<Vec<_>>(), "{setup:?}");
        });
    }
}

#[test]
fn m13_a_waiting_probe_sees_a_message_that_another_thread_received() {
    for setup in SETUPS {
        ranks(setup, |world| {
            let other = 1 - world.rank();
            threads(4, |thread| match thread {
                0 => (0..20).for_each(|_| {
                    assert_eq!(world.probe(other, 5).unwrap().bytes, 8);
                    world.recv(other, 5, &mut [0u8; 8]).unwrap();
                    world.send(other, 6, b"seen").unwrap();
                }),
                1 => (0..20).for_each(|_| {
                    world.send(other, 5, b"look out").unwrap();
                    world.recv(other, 6, &mut [0u8; 4]).unwrap();
                }),
                _ => (0..100).for_each(|_| {
                    world.sendrecv(&[thread], other, 10 + thread, &mut [0u32], other, 10 + thread).unwrap();
                }),
            });
        });
    }
}

#[test]
fn p11_messages_progress_while_the_program_computes() {
    for transport in ["sm", "tcp"] {
        let (posted, arrived) = (AtomicBool::new(false), AtomicBool::new(false));
        ranks((transport, true), |world| {
            let long = pattern(1 << 20, 1);
            if world.rank() == 0 {
                while !posted.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                // This needs an answer of the other rank.
                world.ssend(1, 1, &long[..]).unwrap();
                arrived.store(true, Ordering::SeqCst);
                return;
            }
            let receiving = world.irecv(0, 1, vec![0u8; 1 << 20]).unwrap();
            posted.store(true, Ordering::SeqCst);
            // No call of the library from here on.
            while !arrived.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            assert!(receiving.wait().unwrap().0 == long, "{transport}");
        });
    }
}

#[test]
fn p11_an_idle_progress_thread_sleeps() {
    for transport in ["sm", "tcp"] {
        ranks((transport, true), |world| {
            world.sendrecv(&[1u8; 100], 1 - world.rank(), 1, &mut [0u8; 100], 1 - world.rank(), 1).unwrap();
            let begin = std::time::Instant::now();
            let before = world.progress_thread().unwrap().wakes;
            // Computes, and makes no call.
            let digest = (0..300).fold(0u32, |sum, seed| sum ^ u32::from(pattern(10_000, seed)[9999]));
            std::hint::black_box(digest);
            let wakes = world.progress_thread().unwrap().wakes - before;
            // Messages of the set-up may still be in transit. After that, only a timer wakes the thread, a few times a second.
            let most = 50 + begin.elapsed().as_millis() as u64 / 50;
            assert!(wakes <= most, "{transport}: woke {wakes} times, {most} were enough");
            world.finish().unwrap();
        });
    }
}

#[test]
fn p11_polling_callers_and_the_progress_thread_complete_each_request_once() {
    const ROUNDS: u32 = 200;
    for transport in ["sm", "tcp"] {
        ranks((transport, true), |world| {
            let (other, ended) = (1 - world.rank(), AtomicU32::new(0));
            threads(4, |thread| {
                for round in 0..ROUNDS {
                    let (len, tag) = (if round % 10 == 0 { 50_000 } else { 40 }, thread);
                    let mut sending = world.isend(other, tag, pattern(len, round)).unwrap();
                    let mut receiving = world.irecv(other, tag, vec![0u8; len]).unwrap();
                    if thread % 2 == 0 {
                        while !receiving.is_done() | !sending.is_done() {
                            world.progress();
                        }
                    }
                    assert!(receiving.wait().unwrap().0 == pattern(len, round));
                    sending.wait().unwrap();
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert_eq!(ended.into_inner(), 4 * ROUNDS);
            world.finish().unwrap();
        });
    }
}

#[test]
fn waiting_threads_run_futures_and_wake_each_other() {
    for setup in SETUPS {
        ranks(setup, |world| {
            let other = 1 - world.rank();
            threads(4, |thread| {
                for round in 0..20u32 {
                    let echo = world.block_on(async {
                        let sending = world.isend(other, thread, vec![round; 10 + 100 * thread as usize])?;
                        let (buffer, _) = world.irecv(other, thread, vec![0u32; 1000])?.await?;
                        sending.await?;
                        Ok::<_, Error>(buffer[0])
                    });
                    assert_eq!(echo, Ok(round));
                }
            });
        });
    }
}

#[test]
fn another_thread_wakes_a_future_while_nothing_comes() {
    for setup in [("sm", false), ("sm", true)] {
        ranks(setup, |world| {
            let slot = std::sync::Mutex::new((false, None::<std::task::Waker>));
            threads(2, |thread| {
                if thread == 0 {
                    world.block_on(std::future::poll_fn(|task| {
                        let mut slot = slot.lock().unwrap();
                        slot.1 = Some(task.waker().clone());
                        if slot.0 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
                    }));
                    return;
                }
                loop {
                    let mut slot = slot.lock().unwrap();
                    if let Some(waker) = slot.1.take() {
                        slot.0 = true;
                        drop(slot);
                        return waker.wake();
                    }
                    drop(slot);
                    std::thread::yield_now();
                }
            });
        });
    }
}

#[test]
fn an_operation_may_complete_in_another_thread() {
    ranks(("sm", false), |world| {
        let other = 1 - world.rank();
        let receiving = world.irecv(other, 1, vec![0u8; 100_000]).unwrap();
        let sending = world.isend(other, 1, pattern(100_000, other)).unwrap();
        threads_pair(
            || assert!(receiving.wait().unwrap().0 == pattern(100_000, world.rank())),
            || assert_eq!(sending.wait().unwrap().len(), 100_000),
        );
    });
}

fn threads_pair(first: impl FnOnce() + Send, second: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let running = scope.spawn(first);
        second();
        running.join().unwrap();
    });
}

#[test]
fn the_loss_of_a_peer_ends_the_operations_of_all_threads() {
    for setup in SETUPS {
        let quick = |config: &mut towline::Config| config.finish_timeout_ms = 100;
        jobs(2, |rank, job| {
            let world = builder(setup).configure(quick).job(job).build().unwrap();
            world.barrier().unwrap();
            if rank == 1 {
                let vanished = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                    let _world = world;
                    std::panic::resume_unwind(Box::new("gone"));
                }));
                assert!(vanished.is_err());
                return;
            }
            let ends = threads(4, |thread| world.recv(1, thread, &mut [0u8; 4]).unwrap_err());
            assert!(ends.iter().all(|end| *end == Error::PeerFailed { rank: 1 }), "{setup:?}: {ends:?}");
        });
    }
}

#[test]
fn threads_send_to_their_own_rank() {
    for thread in [false, true] {
        let world = builder(("sm", thread)).build().unwrap();
        threads(THREADS, |thread| {
            for round in 0..50u32 {
                world.send(0, thread + 100, &round).unwrap();
                let mut into = u32::MAX;
                // The message comes from the neighbour thread, which may sleep.
                let from = (thread + 1) % THREADS + 100;
                assert_eq!(world.recv(0, from, &mut into).unwrap().tag, from);
                assert_eq!(into, round);
            }
        });
        world.finish().unwrap();
    }
}

#[test]
fn a_report_shows_what_other_threads_wait_for() {
    use towline::report::{OperationKind, Peer};

    for setup in SETUPS {
        ranks(setup, |world| {
            let other = 1 - world.rank();
            std::thread::scope(|threads| {
                for tag in [1, 2] {
                    let world = &world;
                    threads.spawn(move || world.recv(other, tag, &mut [0u8; 4]).unwrap());
                }
                let waits = loop {
                    let waits = world.report().waits;
                    if waits.len() == 2 {
                        break waits;
                    }
                    std::thread::yield_now(); // a wait is reported once its thread sleeps
                };
                for tag in [1, 2] {
                    let wait = waits.iter().find(|wait| wait.operation.tag == Some(tag)).expect("both wait");
                    assert_eq!(wait.operation.kind, OperationKind::Receive);
                    assert_eq!(wait.operation.peer, Peer::One { rank: other, index: 0 });
                    assert_eq!((wait.operation.bytes, wait.future), (4, false));
                }
                world.barrier().unwrap();
                for tag in [1, 2] {
                    world.send(other, tag, &[0u8; 4]).unwrap();
                }
            });
            assert!(world.report().waits.is_empty());
            world.finish().unwrap();
        });
    }
}
