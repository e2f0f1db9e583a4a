//! Worlds of several ranks in one process, over shared memory, TCP and UDP.

mod common;
#[path = "common/pattern.rs"]
mod pattern;
#[path = "common/selection.rs"]
mod selection;

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use common::{ranks, ranks_with};
use pattern::pattern;
use selection::transports;
use towline::{Any, Error, View, ViewMut, World, vector};

/// The transports that connect the worlds.
const TRANSPORTS: [&str; 4] = ["sm", "tcp", "sm,tcp", "udp"];

fn around(world: &World) -> (u32, u32) {
    ((world.rank() + world.size() - 1) % world.size(), (world.rank() + 1) % world.size())
}

#[test]
fn m1_m10_messages_of_all_sizes_arrive_complete_between_all_pairs() {
    for transport in transports(&TRANSPORTS) {
        ranks(3, transport, |world| {
            for len in [0, 1, 32, 33, 4096, 8192, 8193, 70_000, 1 << 20] {
                let mine = pattern(len, world.rank());
                let mut got: Vec<Vec<u8>> = (0..world.size()).map(|_| vec![0; len + 1]).collect();
                world
                    .scope(|s| {
                        for (from, into) in (0..).zip(&mut got) {
                            s.irecv(from, 5, &mut into[..])?;
                        }
                        (0..world.size()).try_for_each(|to| s.isend(to, 5, &mine[..]).map(|_| ()))
                    })
                    .unwrap();
                for (from, bytes) in (0..).zip(&got) {
                    assert_eq!(bytes[..len], pattern(len, from), "{transport}, {len} bytes from {from}");
                }
            }
        });
    }
}

#[test]
fn m7_m10_blocking_sends_in_a_ring_and_receives_from_any_source() {
    for transport in transports(&TRANSPORTS) {
        ranks(3, transport, |world| {
            let (left, right) = around(&world);
            for round in 0..200u32 {
                world.send(right, round, &[round, world.rank()]).unwrap();
                let mut into = [0u32; 2];
                let status = world.recv(Any, Any, &mut into).unwrap();
                assert_eq!((status.source, status.tag, status.count::<u32>(), into), (left, round, 2, [round, left]));
                // Messages of one source arrive in order although any tag matches. The barrier keeps a fast neighbour from
                // getting ahead.
                world.barrier().unwrap();
            }
        });
    }
}

#[test]
fn m8_synchronous_sends_complete_with_their_receive() {
    for transport in transports(&TRANSPORTS) {
        let received = AtomicBool::new(false);
        ranks(2, transport, |world| {
            if world.rank() == 0 {
                world.ssend(1, 1, b"now").unwrap();
                assert!(received.load(Ordering::SeqCst), "{transport}: over before it was received");
            } else {
                while world.iprobe(0, 1).unwrap().is_none() {}
                received.store(true, Ordering::SeqCst);
                world.recv(0, 1, &mut [0u8; 3]).unwrap();
            }
        });
    }
}

#[test]
fn p29_truncation_reports_both_lengths_and_delivers_what_fits() {
    ranks(2, "sm", |world| {
        for len in [100usize, 100_000] {
            if world.rank() == 0 {
                world.send(1, 1, &pattern(len, 0)[..]).unwrap();
            } else {
                let mut into = [0u8; 50];
                let error = world.recv(0, 1, &mut into).unwrap_err();
                assert_eq!(error, Error::Truncated { source: 0, tag: 1, sent: len as u64, delivered: 50 });
                assert_eq!(into[..], pattern(len, 0)[..50]);
            }
        }
    });
}

#[test]
fn m13_only_its_holder_receives_a_matched_message() {
    for transport in transports(&TRANSPORTS) {
        ranks(2, transport, |world| {
            if world.rank() == 0 {
                for len in [10usize, 100_000, 20, 30] {
                    world.isend(1, 9, pattern(len, 7)).map(drop).unwrap();
                }
            } else {
                let first = world.mprobe(0, 9).unwrap();
                let second = world.mprobe(Any, Any).unwrap();
                assert_eq!((first.envelope().bytes, second.envelope().bytes), (10, 100_000));
                let mut into = vec![0; 100_000];
                second.recv(&mut into[..]).unwrap();
                assert_eq!(into, pattern(100_000, 7));
                first.recv(&mut into[..10]).unwrap();
                drop(world.mprobe(0, 9).unwrap()); // 20 bytes that are discarded
                assert_eq!(world.recv_vec::<u8>(0, 9).unwrap().0, pattern(30, 7));
            }
            // A rank that leaves waits only for a moment until messages of dropped requests are received.
            world.barrier().unwrap();
        });
    }
}

/// A message may be longer than all memory: one byte, sent 2^60 times.
#[test]
fn a_message_that_is_larger_than_memory_is_an_error() {
    let world = towline::init().unwrap();
    let layout = vector::<u8>(1 << 60, 1, 0).unwrap();
    world
        .scope(|s| {
            s.isend_view(0, 3, View::new(&[7u8], 0, &layout)?)?;
            assert_eq!(world.recv_vec::<u8>(0, 3).unwrap_err(), Error::NoMemory { bytes: 1 << 60 });
            Ok::<(), Error>(())
        })
        .unwrap();
}

#[test]
fn errors_name_wrong_ranks_and_tags() {
    let world = towline::init().unwrap();
    assert_eq!(world.send(1, 0, b"x"), Err(Error::NoSuchRank { rank: 1, size: 1 }));
    assert_eq!(world.recv(7, 0, &mut [0u8]).unwrap_err(), Error::NoSuchRank { rank: 7, size: 1 });
    assert_eq!(world.probe(7, 0).unwrap_err(), Error::NoSuchRank { rank: 7, size: 1 });
    assert_eq!(world.send(0, u32::MAX, b"x"), Err(Error::NoSuchTag(u32::MAX)));
    assert_eq!(world.recv(0, 1 << 31, &mut [0u8]).unwrap_err(), Error::NoSuchTag(1 << 31));
    let failed = world.isend(3, 0, vec![1u8, 2]).unwrap_err();
    assert_eq!((failed.error, failed.buffer), (Error::NoSuchRank { rank: 3, size: 1 }, vec![1, 2]));
}

#[test]
fn exhausted_requests_are_an_error_that_returns_the_buffer() {
    let world = towline::Builder::new().configure(|config| config.requests = 4).build().unwrap();
    let held: Vec<_> = (0..4).map(|tag| world.irecv(0, tag, [0u8; 4]).unwrap()).collect();
    let failed = world.irecv(0, 9, [7u8; 4]).unwrap_err();
    assert_eq!((failed.error, failed.buffer), (Error::Busy, [7; 4]));
    drop(held);
    assert!(world.irecv(0, 9, [7u8; 4]).is_ok());
}

/// A world with four requests.
fn four_requests(builder: towline::Builder) -> towline::Builder {
    builder.configure(|config| config.requests = 4)
}

#[test]
fn a_blocking_call_without_a_free_request_is_busy_if_only_this_thread_can_free_one() {
    let world = four_requests(towline::Builder::new()).build().unwrap();
    let long = vec![1u8; 300_000];
    let is_busy = || {
        assert_eq!(world.send(0, 9, &long[..]), Err(Error::Busy));
        assert_eq!(world.ssend(0, 9, b"x"), Err(Error::Busy));
        assert_eq!(world.recv(0, 9, &mut [0u8]), Err(Error::Busy));
        assert_eq!(world.sendrecv(&long[..], 0, 9, &mut [0u8], 0, 9), Err(Error::Busy));
    };
    let held: Vec<_> = (0..4).map(|tag| world.irecv(0, tag, [0u8; 4]).unwrap()).collect();
    is_busy();
    drop(held);
    // Sends to this rank itself need a receive of this thread, although they were dropped.
    for tag in 0..3 {
        drop(world.issend(0, tag, vec![7u8]).unwrap());
    }
    let held = world.irecv(0, 8, [0u8; 4]).unwrap();
    is_busy();
    assert!(Error::Busy.to_string().contains("TOWLINE_REQUESTS"));
    drop(held);
    for tag in 0..3 {
        assert_eq!(world.recv(0, tag, &mut [0u8]).unwrap().bytes, 1);
    }
}

#[test]
fn a_blocking_call_waits_for_the_requests_of_dropped_operations() {
    for transport in transports(&TRANSPORTS) {
        for way in 0..5 {
            common::ranks_with(
                2,
                |builder| four_requests(builder.transports(transport)),
                |world| {
                    let long = vec![5u8; 300_000];
                    if world.rank() == 0 {
                        for tag in 0..4 {
                            drop(world.issend(1, tag, long.clone()).unwrap());
                        }
                        let mut into = [0u8; 4];
                        match way {
                            0 => world.send(1, 9, &long[..]).unwrap(),
                            1 => world.ssend(1, 9, &long[..]).unwrap(),
                            2 => drop(world.recv(1, 9, &mut into).unwrap()),
                            3 => drop(world.sendrecv(&long[..], 1, 9, &mut into, 1, 9).unwrap()),
                            _ => drop(world.recv_vec::<u8>(1, 9).unwrap()),
                        }
                    } else {
                        let mut into = vec![0u8; 300_000];
                        for tag in (0..4).rev() {
                            assert_eq!(world.recv(0, tag, &mut into[..]).unwrap().bytes, 300_000);
                        }
                        if way != 2 && way != 4 {
                            world.recv(0, 9, &mut into[..]).unwrap();
                        }
                        if way >= 2 {
                            world.send(0, 9, b"done").unwrap();
                        }
                        assert!(into == long);
                    }
                    world.finish().unwrap();
                },
            );
        }
    }
}

#[test]
fn forgotten_operations_do_not_let_a_scope_end_early() {
    for transport in transports(&TRANSPORTS) {
        ranks(2, transport, |world| {
            let other = 1 - world.rank();
            let mine = pattern(3 << 20, world.rank());
            let mut theirs = vec![0u8; 3 << 20];
            world
                .scope(|s| {
                    // Boxes, so that the request can be forgotten.
                    std::mem::forget(Box::new(s.irecv(other, 1, &mut theirs[..])?));
                    std::mem::forget(Box::new(s.isend(other, 1, &mine[..])?));
                    Ok::<(), Error>(())
                })
                .unwrap();
            assert!(theirs == pattern(3 << 20, other), "{transport}");
        });
    }
}

/// More messages than the receiver has room for: the last ones are held back, and can be cancelled. Those that have left arrive.
#[test]
fn m14_a_send_that_is_held_back_is_cancelled_and_one_that_has_left_arrives() {
    for transport in transports(&TRANSPORTS) {
        common::ranks_with(
            2,
            |builder| builder.transports(transport).configure(|config| (config.unexpected, config.units) = (8, 8)),
            |world| {
                const COUNT: u32 = 40;
                world.barrier().unwrap(); // before they are connected, no message leaves
                if world.rank() == 0 {
                    let mut requests: Vec<_> =
                        (0..COUNT).map(|tag| world.issend(1, 1, vec![tag; 3]).unwrap()).collect();
                    // From the end, since the first ones have left.
                    let kept = (0..COUNT).rev().find(|at| !requests[*at as usize].cancel()).unwrap();
                    assert!((1..COUNT - 20).contains(&kept), "{transport}: {kept} is the last one that has left");
                    for request in requests.split_off(kept as usize + 1) {
                        let failed = request.wait().unwrap_err();
                        assert_eq!((failed.error, failed.buffer.len()), (Error::Cancelled, 3));
                    }
                    // In a scope, the error of a cancelled send is the error of the scope.
                    let text = [0u32; 3];
                    let ended = world.scope(|s| {
                        assert!(s.issend(1, 1, &text)?.cancel());
                        Ok::<(), Error>(())
                    });
                    assert_eq!(ended, Err(Error::Cancelled));
                    world.isend(1, 2, vec![kept]).unwrap().wait().unwrap();
                    requests.into_iter().for_each(|request| drop(request.wait().unwrap()));
                } else {
                    let mut kept = [0];
                    world.recv(0, 2, &mut kept).unwrap();
                    for tag in 0..=kept[0] {
                        let mut into = [0; 3];
                        world.recv(0, 1, &mut into).unwrap();
                        assert_eq!(into, [tag; 3]);
                    }
                    assert_eq!(world.iprobe(0, towline::Any).unwrap(), None);
                }
                world.finish().unwrap();
            },
        );
    }
}

#[test]
fn m14_a_scope_that_fails_or_panics_cancels_unmatched_receives() {
    let world = towline::init().unwrap();
    let mut into = [0u8; 8];
    let failed = world.scope(|s| {
        s.irecv(0, 1, &mut into)?;
        Err::<(), Error>(Error::Overlap)
    });
    assert_eq!(failed, Err(Error::Overlap));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        world.scope(|s| {
            s.irecv(0, 1, &mut into)?;
            if world.rank() == 0 {
                panic!("in the middle");
            }
            Ok::<(), Error>(())
        })
    }));
    assert!(panicked.is_err());
    // Neither receive is left to match this message.
    world.send(0, 1, b"for you").unwrap();
    assert_eq!(into, [0; 8]);
    assert_eq!(world.recv(0, 1, &mut into).unwrap().bytes, 7);
}

#[test]
fn a_scope_returns_the_failure_of_an_operation_that_was_not_waited_for() {
    let world = towline::init().unwrap();
    let mut into = [0u8; 2];
    let failed = world.scope(|s| {
        s.irecv(0, 1, &mut into)?;
        s.isend(0, 1, b"too long")?;
        Ok::<(), Error>(())
    });
    assert_eq!(failed, Err(Error::Truncated { source: 0, tag: 1, sent: 8, delivered: 2 }));
    let caught = world.scope(|s| {
        let receive = s.irecv(0, 1, &mut into)?;
        s.isend(0, 1, b"too long")?;
        assert!(receive.wait().is_err());
        Ok::<(), Error>(())
    });
    assert_eq!(caught, Ok(()));
}

#[test]
fn scopes_nest_and_their_operations_complete_in_any_order() {
    let world = towline::init().unwrap();
    let (mut a, mut b, mut c) = ([0u8; 1], [0u8; 1], [0u8; 1]);
    world
        .scope(|outer| {
            let first = outer.irecv(0, 1, &mut a)?;
            world.scope(|inner| {
                inner.irecv(0, 2, &mut b)?;
                let third = outer.irecv(0, 3, &mut c)?;
                for tag in [3, 2, 1] {
                    inner.isend(0, tag, b"x")?;
                }
                third.wait().map(|_| ())
            })?;
            first.wait().map(|_| ())
        })
        .unwrap();
    assert_eq!((a, b, c), (*b"x", *b"x", *b"x"));
}

/// A buffer that counts how many of its kind exist.
struct Counted(Vec<u8>, Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

impl towline::Buffer for Counted {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl towline::BufferMut for Counted {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[test]
fn dropped_sends_go_on_and_their_buffers_are_freed_afterwards() {
    for transport in transports(&TRANSPORTS) {
        ranks(2, transport, |world| {
            let alive = Arc::new(AtomicU32::new(0));
            if world.rank() == 0 {
                for _ in 0..10 {
                    alive.fetch_add(1, Ordering::SeqCst);
                    drop(world.isend(1, 1, Counted(pattern(1 << 20, 3), Arc::clone(&alive))));
                }
                assert!(alive.load(Ordering::SeqCst) > 0, "nobody received yet: buffers are still needed");
                world.send(1, 2, b"go").unwrap();
                world.recv(1, 3, &mut [0u8; 4]).unwrap();
                // If a link keeps the buffers, its acknowledgements may come after the answer.
                while alive.load(Ordering::SeqCst) != 0 {
                    world.iprobe(1, 9).unwrap();
                }
            } else {
                world.recv(0, 2, &mut [0u8; 2]).unwrap();
                for _ in 0..10 {
                    assert!(world.recv_vec::<u8>(0, 1).unwrap().0 == pattern(1 << 20, 3));
                }
                world.send(0, 3, b"done").unwrap();
            }
        });
    }
}

#[test]
fn dropped_receives_of_matched_messages_keep_their_buffer_until_complete() {
    for transport in transports(&TRANSPORTS) {
        ranks(2, transport, |world| {
            if world.rank() == 0 {
                let alive = Arc::new(AtomicU32::new(1));
                let receive = world.irecv(1, 1, Counted(vec![0; 4 << 20], Arc::clone(&alive))).unwrap();
                // The message has matched once the receiver has answered; the next message shows that.
                world.send(1, 2, b"go").unwrap();
                world.probe(1, 3).unwrap();
                drop(receive);
                world.recv(1, 4, &mut [0u8; 4]).unwrap();
                // All of it was sent; the last message may arrive before the last bytes.
                while alive.load(Ordering::SeqCst) != 0 {
                    world.progress();
                }
                world.recv(1, 3, &mut [0u8; 4]).unwrap();
            } else {
                world.recv(0, 2, &mut [0u8; 2]).unwrap();
                let sending = world.isend(0, 1, pattern(4 << 20, 1)).unwrap();
                world.send(0, 3, b"sent").unwrap();
                sending.wait().unwrap();
                world.send(0, 4, b"done").unwrap();
            }
        });
    }
}

#[test]
fn a_world_that_ends_frees_its_buffers() {
    let alive = Arc::new(AtomicU32::new(1));
    let world = towline::Builder::new().configure(|config| config.finish_timeout_ms = 1).build().unwrap();
    drop(world.issend(0, 1, Counted(vec![1; 10], Arc::clone(&alive))));
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    assert!(matches!(world.finish(), Err(towline::SetupError::Unsent { .. })));
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

/// Polls two futures in turn.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (Box::pin(a), Box::pin(b));
    let (mut left, mut right) = (None, None);
    std::future::poll_fn(move |task| {
        poll_once(&mut left, a.as_mut(), task);
        poll_once(&mut right, b.as_mut(), task);
        match (left.take(), right.take()) {
            (Some(left), Some(right)) => Poll::Ready((left, right)),
            (one, other) => {
                (left, right) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

fn poll_once<F: Future>(output: &mut Option<F::Output>, future: Pin<&mut F>, task: &mut Context<'_>) {
    if output.is_none()
        && let Poll::Ready(ready) = future.poll(task)
    {
        *output = Some(ready);
    }
}

#[test]
fn futures_of_two_ranks_wait_for_each_other() {
    for transport in transports(&TRANSPORTS) {
        ranks(2, transport, |world| {
            let other = 1 - world.rank();
            world.block_on(async {
                for round in 0..20u32 {
                    let len = if round % 2 == 0 { 10 } else { 300_000 };
                    let send = async { world.isend(other, round, pattern(len, world.rank())).unwrap().await.unwrap() };
                    let recv = async { world.irecv(other, round, vec![0u8; len]).unwrap().await.unwrap() };
                    let (sent, (received, status)) = both(send, recv).await;
                    assert_eq!((sent.len(), status.source), (len, other));
                    assert!(received == pattern(len, other), "{transport}, round {round}");
                }
            });
        });
    }
}

#[test]
fn block_on_is_woken_from_another_thread() {
    let world = towline::init().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel::<Waker>();
    let rung = Arc::new(AtomicBool::new(false));
    let ring = Arc::clone(&rung);
    let thread = std::thread::spawn(move || {
        let waker = receiver.recv().unwrap();
        ring.store(true, Ordering::SeqCst);
        waker.wake();
    });
    let sent = Cell::new(false);
    world.block_on(std::future::poll_fn(|task| {
        if !sent.replace(true) {
            sender.send(task.waker().clone()).unwrap();
        }
        if rung.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }));
    thread.join().unwrap();
}

#[test]
fn columns_are_received_as_columns_and_rows() {
    for transport in transports(&TRANSPORTS) {
        ranks(2, transport, |world| {
            // 3000 rows of 70 columns: the column is longer than an eager message.
            let (rows, columns) = (3000usize, 70usize);
            let column = vector::<f64>(rows, 2, columns as isize).unwrap();
            if world.rank() == 0 {
                let matrix: Vec<f64> = (0..rows * columns).map(|at| at as f64).collect();
                world.send_view(1, 1, View::new(&matrix, 5, &column).unwrap()).unwrap();
                world.send_view(1, 2, View::new(&matrix, 7, &column).unwrap()).unwrap();
            } else {
                let mut row = vec![0f64; 2 * rows];
                world.recv(0, 1, &mut row[..]).unwrap();
                let expected = |at: usize| ((at / 2) * columns + 5 + at % 2) as f64;
                assert!((0..2 * rows).all(|at| row[at] == expected(at)), "{transport}");
                let mut matrix = vec![-1f64; rows * columns];
                world.recv_view(0, 2, ViewMut::new(&mut matrix, 0, &column).unwrap()).unwrap();
                for (at, value) in matrix.iter().enumerate() {
                    let (row, column) = (at / columns, at % columns);
                    let expected = if column < 2 { (row * columns + 7 + column) as f64 } else { -1.0 };
                    assert_eq!(*value, expected, "{transport}, row {row}, column {column}");
                }
            }
        });
    }
}

#[test]
fn m15_communicators_keep_their_messages_separate() {
    for transport in transports(&TRANSPORTS) {
        ranks(4, transport, |world| {
            let rank = world.rank();
            let twin = world.dup().unwrap();
            let half = world.split(Some(rank / 2), 10 - rank).unwrap().unwrap();
            assert_eq!((half.size(), half.rank()), (2, 1 - rank % 2)); // keys reverse the order
            let alone = world.split((rank == 3).then_some(0), 0).unwrap();
            assert_eq!(alone.is_some(), rank == 3);
            let (left, right) = around(&world);
            let mut into = [0u32; 3];
            world
                .scope(|s| {
                    let [a, b, c] = &mut into;
                    s.irecv(left, 1, a)?;
                    world.send(right, 1, &(100 + rank))?;
                    twin.send(right, 1, &(200 + rank))?;
                    half.send(1 - half.rank(), 1, &(300 + rank))?;
                    half.recv(Any, Any, c)?;
                    twin.recv(left, Any, b)?;
                    Ok::<(), Error>(())
                })
                .unwrap();
            assert_eq!(into, [100 + left, 200 + left, 300 + (rank ^ 1)]);
            let mut word = [u64::from(rank); 2];
            half.broadcast(1, &mut word).unwrap();
            assert_eq!(word[0], u64::from(rank / 2 * 2)); // rank 1 of the half is the lower rank of the world
            world.barrier().unwrap();
        });
    }
}

#[test]
fn broadcasts_reach_all_from_every_root() {
    ranks(5, "sm", |world| {
        for root in 0..5 {
            for len in [1usize, 50_000] {
                let mut data = if world.rank() == root { pattern(len, root) } else { vec![0; len] };
                world.broadcast(root, &mut data[..]).unwrap();
                assert!(data == pattern(len, root), "root {root}, {len} bytes, rank {}", world.rank());
            }
        }
    });
}

#[test]
fn a_barrier_returns_only_after_all_have_called_it() {
    let inside = AtomicU32::new(0);
    ranks(5, "sm", |world| {
        for round in 1..=20 {
            inside.fetch_add(1, Ordering::SeqCst);
            world.barrier().unwrap();
            assert!(inside.load(Ordering::SeqCst) >= 5 * round);
        }
    });
}

#[test]
fn errors_of_waiting_operations_name_the_rank_that_was_lost() {
    for transport in ["sm", "tcp"] {
        let quick = |builder: towline::Builder| {
            builder.transports(transport).configure(|config| config.finish_timeout_ms = 100)
        };
        ranks_with(3, quick, |world| {
            world.barrier().unwrap();
            if world.rank() == 2 {
                // A panic: no message to the launcher, no barrier.
                let vanished = catch_unwind(AssertUnwindSafe(move || {
                    let _world = world;
                    std::panic::resume_unwind(Box::new("gone"));
                }));
                assert!(vanished.is_err());
                return;
            }
            // All connections that matter exist: barriers use them.
            let error = world.recv(2, 1, &mut [0u8; 4]).unwrap_err();
            assert_eq!(error, Error::PeerFailed { rank: 2 }, "{transport}");
            assert!(error.to_string().starts_with("rank 2 was lost"), "{error}");
            let failed = world.isend(2, 1, vec![0u8; 100]).and_then(|sending| sending.wait()).unwrap_err();
            assert_eq!(failed.error, Error::PeerFailed { rank: 2 });
            // The others continue.
            let other = 1 - world.rank();
            let mut into = [0u32];
            world.sendrecv(&[world.rank()], other, 8, &mut into, other, 8).unwrap();
            assert_eq!(into, [other]);
        });
    }
}

#[test]
fn exposed_messages_fail_in_both_directions_if_a_rank_is_lost() {
    let quick = |builder: towline::Builder| {
        builder.transports("sm").configure(|config| {
            config.finish_timeout_ms = 100;
            config.sm.single_copy_bytes = 8192;
        })
    };
    ranks_with(2, quick, |world| {
        for _ in 0..3 {
            world.barrier().unwrap();
        }
        let other = 1 - world.rank();
        assert!(world.transport_report()[other as usize].contains("in a single copy"));
        let sending = world.isend(other, 1, pattern(300_000, world.rank())).unwrap();
        if world.rank() == 1 {
            let vanished = catch_unwind(AssertUnwindSafe(move || {
                let (world, _sending) = (world, sending);
                world.recv(0, 2, &mut [0u8; 1]).unwrap();
                std::panic::resume_unwind(Box::new("gone"));
            }));
            assert!(vanished.is_err());
            return;
        }
        // Only the address of the message's data has arrived.
        assert_eq!(world.probe(1, 1).unwrap().bytes, 300_000);
        world.send(1, 2, &[0u8]).unwrap();
        assert_eq!(world.recv(1, 9, &mut [0u8; 4]).unwrap_err(), Error::PeerFailed { rank: 1 });
        let mut into = vec![0; 300_000];
        assert_eq!(world.recv(1, 1, &mut into[..]).unwrap_err(), Error::PeerFailed { rank: 1 });
        assert_eq!(sending.wait().unwrap_err().error, Error::PeerFailed { rank: 1 });
    });
}

#[test]
fn p5_transports_are_chosen_by_rank_and_reported() {
    ranks(2, "", |world| {
        assert_eq!(world.rails(), ["sm", "loopback"]); // tcp reaches no rank better
        let other = &world.transport_report()[1 - world.rank() as usize];
        assert!(other.contains("sm taken") && other.contains("tcp spare"), "{other}");
        let own = &world.transport_report()[world.rank() as usize];
        assert!(own.contains("loopback taken"), "{own}");
    });
    for (bytes, says) in [(8192, "in a single copy"), (0, "copied through memory")] {
        ranks_with(
            2,
            move |builder| builder.configure(|config| config.sm.single_copy_bytes = bytes),
            |world| {
                let other = 1 - world.rank();
                // Long messages in each direction; the report knows about each once the other rank has answered.
                let (data, mut into) = (pattern(300_000, world.rank()), vec![0; 300_000]);
                for _ in 0..3 {
                    world.sendrecv(&data[..], other, 8, &mut into[..], other, 8).unwrap();
                    assert!(into == pattern(300_000, other));
                }
                world.barrier().unwrap();
                let line = &world.transport_report()[other as usize];
                assert!(line.contains("sm taken") && line.contains(says), "{line}");
            },
        );
    }
    ranks_with(
        2,
        |builder| builder.transports("tcp").links(3),
        |world| {
            assert_eq!(world.rails(), ["tcp", "tcp", "tcp", "loopback"]);
            let other = 1 - world.rank();
            let mut into = vec![0u8; 5 << 20];
            world.sendrecv(&pattern(5 << 20, 1)[..], other, 1, &mut into[..], other, 1).unwrap();
            assert!(into == pattern(5 << 20, 1));
        },
    );
    let unknown = towline::Builder::new().transports("pigeon").build().unwrap_err();
    assert!(unknown.to_string().contains("`pigeon`, which the program has set, is not a known transport"), "{unknown}");
}

/// A message of 64 KiB is sent in one frame over tcp, whether its receive is posted or not; a longer one waits for its receive.
#[test]
fn medium_messages_take_one_frame_over_tcp() {
    ranks(2, "tcp", |world| {
        for (len, at_once) in [(9000, true), (64 << 10, true), ((64 << 10) + 1, false)] {
            let bytes = pattern(len, 3);
            for awaited in [true, false] {
                if world.rank() == 0 {
                    if awaited {
                        world.recv(1, 2, &mut [0u8; 0]).unwrap(); // the receive is posted
                    }
                    let before = world.counters();
                    let sending = world.isend(1, 1, bytes.clone()).unwrap();
                    if !awaited {
                        world.send(1, 2, &[0u8; 0]).unwrap(); // the message is sent
                    }
                    sending.wait().unwrap();
                    assert_eq!(world.counters().rendezvous_sent == before.rendezvous_sent, at_once, "{len} bytes");
                } else {
                    let into = vec![0u8; len];
                    let got = if awaited {
                        let receiving = world.irecv(0, 1, into).unwrap();
                        world.send(0, 2, &[0u8; 0]).unwrap();
                        receiving.wait().unwrap()
                    } else {
                        world.recv(0, 2, &mut [0u8; 0]).unwrap();
                        world.irecv(0, 1, into).unwrap().wait().unwrap()
                    };
                    assert!(got.0 == bytes, "{len} bytes, awaited: {awaited}");
                }
            }
        }
    });
}

#[test]
fn a_flood_of_unexpected_messages_is_held_back() {
    for transport in transports(&TRANSPORTS) {
        let few = |builder: towline::Builder| {
            builder.transports(transport).configure(|config| {
                config.unexpected = 8;
                config.units = 4;
            })
        };
        ranks_with(2, few, |world| {
            if world.rank() == 0 {
                let held: Vec<_> = (0..500u32).map(|at| world.isend(1, 1, vec![at; 20]).unwrap()).collect();
                world.send(1, 2, b"the one that is wanted").unwrap();
                held.into_iter().for_each(|sending| drop(sending.wait().unwrap()));
            } else {
                world.recv(0, 2, &mut [0u8; 22]).unwrap();
                for at in 0..500u32 {
                    let mut into = [0u32; 20];
                    world.recv(0, 1, &mut into).unwrap();
                    assert_eq!(into, [at; 20]);
                }
            }
        });
    }
}

#[test]
fn a_receive_from_an_unconnected_rank_that_finished_fails() {
    // Of eight ranks, 0 and 3 are not connected by a barrier.
    common::jobs(8, |rank, job| {
        let limit = if rank == 0 { 60_000 } else { 1 };
        let builder = towline::Builder::new().transports("tcp").configure(|config| config.finish_timeout_ms = limit);
        let world = builder.job(job).build().unwrap();
        if rank == 0 {
            let failed = world.recv(3, 1, &mut [0u8; 4]).unwrap_err();
            assert_eq!(failed, towline::Error::PeerFinished { rank: 3, tag: Some(1), bytes: None });
        }
        // No rank waits for all others.
        let _ = world.finish();
    });
}

#[test]
fn a_world_of_several_links_finishes_whichever_link_closes_first() {
    for round in 0..10 {
        ranks_with(
            3,
            |builder| builder.transports("tcp").links(4),
            |world| {
                world.barrier().unwrap();
                world.finish().unwrap_or_else(|why| panic!("round {round}: {why}"));
            },
        );
    }
}
