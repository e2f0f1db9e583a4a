//! Waiting for some of many operations, and operations that are started many times.

#[allow(dead_code)] // other tests use the rest
mod common;
#[path = "common/pattern.rs"]
mod pattern;
#[path = "common/selection.rs"]
mod selection;

use std::sync::mpsc::channel;

use common::{jobs, ranks};
use pattern::pattern;
use selection::transports;
use towline::{Builder, Communicator, Completion, Error, MayOwn, Multiple, Single};
use towline_host_tests::random::Random;

const TRANSPORTS: [&str; 3] = ["sm", "tcp", "udp"];
const MESSAGES: u32 = 24;

/// Rank 0 sends messages in a random order. Rank 1 takes each receive when it is complete.
fn in_any_order<L: MayOwn<Vec<u8>>>(world: &Communicator<L>, seed: u64, by_some: bool) {
    let mut order: Vec<u32> = (0..MESSAGES).collect();
    Random::new(seed).shuffle(&mut order);
    let len = |tag: u32| if tag.is_multiple_of(5) { 100_000 } else { tag as usize };
    if world.rank() == 0 {
        let mut sends: Vec<_> =
            order.iter().map(|tag| world.isend(1, *tag, pattern(len(*tag), *tag)).unwrap()).collect();
        world.wait_all(&mut sends);
        sends.into_iter().for_each(|send| drop(send.wait().unwrap()));
        return;
    }
    let mut receives: Vec<_> = (0..MESSAGES).map(|tag| world.irecv(0, tag, vec![0; 100_000]).unwrap()).collect();
    let mut seen = Vec::new();
    while !receives.is_empty() {
        let complete =
            if by_some { world.wait_some(&mut receives) } else { world.wait_any(&mut receives).into_iter().collect() };
        assert!(complete.is_sorted() && !complete.is_empty());
        for index in complete.into_iter().rev() {
            let (buffer, status) = receives.swap_remove(index).wait().unwrap();
            assert!(buffer[..status.bytes as usize] == pattern(len(status.tag), status.tag));
            seen.push(status.tag);
        }
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..MESSAGES));
    assert_eq!((world.wait_any(&mut receives), world.test_any(&mut receives)), (None, None));
    assert!(world.wait_some(&mut receives).is_empty());
}

/// As with `MPI_Waitany`, persistent operations stay where they are, and count only while they are started.
#[test]
fn persistent_operations_that_are_not_started_are_skipped() {
    for transport in transports(&TRANSPORTS) {
        ranks(2, transport, |world| {
            if world.rank() == 1 {
                return [2u32, 0, 3, 1].iter().for_each(|tag| world.send(0, *tag, tag).unwrap());
            }
            let mut receives: Vec<_> = (0..4).map(|tag| world.recv_init(1, tag, [9u32])).collect();
            assert_eq!((world.wait_any(&mut receives), world.test_any(&mut receives)), (None, None));
            assert!(world.wait_some(&mut receives).is_empty());
            world.wait_all(&mut receives);
            receives[1..].iter_mut().for_each(|receive| receive.start().unwrap());
            let mut seen = Vec::new();
            while let Some(index) = world.wait_any(&mut receives) {
                assert_eq!(receives[index].wait().unwrap().tag, index as u32);
                assert_eq!(receives[index].buffer(), Some(&[index as u32]));
                seen.push(index);
            }
            seen.sort_unstable();
            assert_eq!(seen, [1, 2, 3]);
            receives[0].start().unwrap();
            while world.test_any(&mut receives) != Some(0) {}
            assert_eq!(world.wait_some(&mut receives), [0]);
            receives[0].wait().unwrap();
            assert_eq!(receives.iter_mut().map(|receive| receive.wait()).filter(Result::is_err).count(), 4);
        });
    }
}

#[test]
fn whichever_operation_is_complete_is_found() {
    for transport in transports(&TRANSPORTS) {
        ranks(2, transport, |world| (0..6).for_each(|seed| in_any_order(&world, seed, seed % 2 == 0)));
        jobs(2, |_, job| {
            let builder = Builder::new().transports(transport).threads(Multiple);
            let world = builder.job(job).build().unwrap();
            (0..6).for_each(|seed| in_any_order(&world, seed, seed % 2 == 0));
        });
    }
}

/// Each of several threads waits for its own operations in one world. An operation that one thread polls for another is found.
#[test]
fn threads_of_a_world_wait_for_some_of_their_operations_at_the_same_time() {
    for transport in transports(&TRANSPORTS) {
        jobs(2, |rank, job| {
            let builder = Builder::new().transports(transport).threads(Multiple);
            let world = builder.job(job).build().unwrap();
            std::thread::scope(|threads| {
                for thread in 0..4u32 {
                    let world = &world;
                    threads.spawn(move || {
                        for round in 0..40 {
                            let tag = |index| thread * 1000 + round * 3 + index;
                            let receives = (0..3).map(|index| world.irecv(1 - rank, tag(index), [0u32]).unwrap());
                            let mut receives: Vec<_> = receives.collect();
                            // Only one of them gets a message for now.
                            world.send(1 - rank, tag(round % 3), &round).unwrap();
                            assert_eq!(world.wait_any(&mut receives), Some((round % 3) as usize));
                            assert_eq!(receives.remove((round % 3) as usize).wait().unwrap().0, [round]);
                            receives.iter_mut().for_each(|receive| assert!(receive.cancel()));
                        }
                    });
                }
            });
            // A receive from a rank that has finished ends with an error, and can no longer be cancelled.
            world.barrier().unwrap();
        });
    }
}

#[test]
fn operations_of_all_kinds_are_waited_for_together() {
    ranks(2, "sm", |world| {
        let other = 1 - world.rank();
        let (mut one, mut two) = ([0u8; 3], [0u8; 100_000]);
        let data = pattern(100_000, world.rank());
        world
            .scope(|s| {
                let mut persistent = world.recv_init(other, 3, vec![0u8; 9]);
                persistent.start()?;
                let mut owned = world.irecv(other, 4, [0u8; 2])?;
                let (mut first, mut second) = (s.irecv(other, 1, &mut one)?, s.irecv(other, 2, &mut two)?);
                let mut send = s.isend(other, 2, &data[..])?;
                world.send(other, 3, b"persisted")?;
                world.send(other, 4, b"ow")?;
                world.send(other, 1, b"one")?;
                let mut all: [&mut dyn Completion<Single>; 5] =
                    [&mut first, &mut second, &mut send, &mut persistent, &mut owned];
                world.wait_all(&mut all);
                assert_eq!(world.wait_some(&mut all), [0, 1, 2, 3, 4]);
                assert_eq!(world.test_any(&mut all[3..]), Some(0));
                assert_eq!(persistent.wait()?.bytes, 9);
                assert_eq!(owned.wait()?.0, *b"ow");
                assert_eq!(first.wait()?.1, b"one");
                Ok::<(), Error>(())
            })
            .unwrap();
        assert!(two[..] == pattern(100_000, other));
        world.barrier().unwrap();
    });
}

#[test]
fn an_operation_that_fails_is_complete() {
    ranks(3, "tcp", |world| {
        if world.rank() == 2 {
            return world.barrier().unwrap();
        }
        if world.rank() == 0 {
            let mut receives = [world.irecv(1, 1, [0u8]).unwrap(), world.irecv(1, 2, [0u8]).unwrap()];
            receives[1].cancel();
            assert_eq!(world.wait_any(&mut receives), Some(1));
            let [_waits, cancelled] = receives;
            assert_eq!(cancelled.wait().unwrap_err().error, Error::Cancelled);
        }
        world.barrier().unwrap();
    });
}

/// The operations of one call may belong to two contexts, whose progress one thread makes.
#[test]
fn operations_of_another_context_are_waited_for_too() {
    let (one, other) = (towline::init().unwrap(), Builder::new().transports("loopback").build());
    let Ok(other) = other else { return }; // some platforms allow one world at a time
    let mut receives = [one.irecv(0, 1, [0u8]).unwrap(), other.irecv(0, 1, [0u8]).unwrap()];
    other.send(0, 1, &[7u8]).unwrap();
    assert_eq!(one.wait_any(&mut receives), Some(1));
    let [_waits, complete] = receives;
    assert_eq!(complete.wait().unwrap().0, [7]);
}

#[test]
fn a_persistent_operation_is_started_many_times() {
    for transport in transports(&TRANSPORTS) {
        ranks(2, transport, |world| {
            let other = 1 - world.rank();
            for len in [0, 8, 5000, 100_000] {
                let mut send = world.send_init(other, 1, vec![0u8; len]);
                let mut synchronous = world.ssend_init(other, 2, vec![0u8; len]);
                let mut receives =
                    [world.recv_init(other, 1, vec![0u8; len]), world.recv_init(other, 2, vec![0u8; len])];
                for round in 0..30 {
                    send.buffer_mut().unwrap().copy_from_slice(&pattern(len, world.rank() + 10 * round));
                    synchronous.buffer_mut().unwrap().copy_from_slice(&pattern(len, world.rank() + 11 * round));
                    receives.iter_mut().for_each(|receive| receive.start().unwrap());
                    send.start().unwrap();
                    synchronous.start().unwrap();
                    world.wait_all(&mut receives);
                    assert_eq!(receives[0].wait().unwrap().bytes, len as u64);
                    assert_eq!(receives[1].wait().unwrap().bytes, len as u64);
                    send.wait().unwrap();
                    synchronous.wait().unwrap();
                    assert!(*receives[0].buffer().unwrap() == pattern(len, other + 10 * round));
                    assert!(*receives[1].buffer().unwrap() == pattern(len, other + 11 * round));
                }
                let [first, _] = receives;
                assert!(first.into_buffer().unwrap() == pattern(len, other + 290));
            }
        });
    }
}

#[test]
fn a_persistent_operation_is_started_once_at_a_time() {
    let world = towline::init().unwrap();
    let mut receive = world.recv_init(0, 1, vec![0u8; 4]);
    assert_eq!(receive.wait(), Err(Error::NotStarted));
    receive.start().unwrap();
    assert_eq!(receive.start(), Err(Error::InProgress));
    assert!(receive.buffer().is_none() && receive.buffer_mut().is_none() && !receive.is_done());
    world.send(0, 1, b"text").unwrap();
    while !receive.is_done() {}
    assert_eq!(receive.start(), Err(Error::InProgress), "its outcome was not taken");
    assert_eq!(receive.wait().unwrap().bytes, 4);
    assert_eq!(receive.wait(), Err(Error::NotStarted), "the outcome is taken once");
    assert_eq!(receive.buffer().unwrap(), b"text");
    receive.start().unwrap();
    assert!(receive.cancel());
    assert_eq!(receive.wait(), Err(Error::Cancelled));

    let mut send = world.send_init(9, 1, vec![0u8; 4]);
    assert_eq!(send.start(), Err(Error::NoSuchRank { rank: 9, size: 1 }));
    assert_eq!(send.start(), Err(Error::NoSuchRank { rank: 9, size: 1 }), "nothing is in progress");
    assert_eq!(send.into_buffer(), Some(vec![0; 4]));
    assert!(matches!(world.send_init(0, u32::MAX, [0u8]).start(), Err(Error::NoSuchTag(_))));
    assert!(matches!(world.recv_init(0, u32::MAX, [0u8]).start(), Err(Error::NoSuchTag(_))));
}

/// A buffer that says when it is freed.
struct Watched(Vec<u8>, std::sync::mpsc::Sender<()>);

impl towline::Buffer for Watched {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.1.send(());
    }
}

#[test]
fn a_persistent_send_that_is_dropped_is_sent_and_its_buffer_is_freed_afterwards() {
    let world = towline::init().unwrap();
    let (sender, freed) = channel();
    let mut send = world.ssend_init(0, 1, Watched(pattern(100_000, 3), sender));
    send.start().unwrap();
    drop(send);
    assert!(freed.try_recv().is_err(), "the message is not received yet");
    assert!(world.recv_vec::<u8>(0, 1).unwrap().0 == pattern(100_000, 3));
    while freed.try_recv().is_err() {
        world.progress();
    }
}
