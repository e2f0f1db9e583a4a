//! Processes with several contexts, one for each thread. The processes are threads, too, each with its own membership in the job.

#[allow(dead_code)] // other tests use the rest
mod common;
#[path = "common/pattern.rs"]
mod pattern;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use common::jobs;
use pattern::pattern;
use towline::{Address, Any, Builder, Context, Error, SetupError, World};

const TRANSPORTS: [&str; 3] = ["sm", "tcp", "udp"];

/// Runs `body` in each of `contexts` threads of each of `ranks` processes. Returns the results by address.
fn contexts<T: Send>(ranks: u32, contexts: u32, transport: &str, body: impl Fn(World) -> T + Sync) -> Vec<T> {
    let given = jobs(ranks, |_, job| {
        let contexts = Builder::new().transports(transport).job(job).contexts(contexts).unwrap();
        each(contexts, |context| body(context.enter()))
    });
    given.into_iter().flatten().collect()
}

/// Runs `body` in a thread for each context.
fn each<T: Send>(contexts: Vec<Context>, body: impl Fn(Context) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = contexts.into_iter().map(|context| scope.spawn(move || body(context))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the context ends well")).collect()
    })
}

#[test]
fn each_address_sends_to_each_address() {
    for transport in TRANSPORTS {
        let owns = contexts(2, 3, transport, |world| {
            let all_contexts = world.all_contexts();
            assert_eq!((world.size(), world.contexts(), all_contexts.size()), (2, 3, 6));
            assert_eq!(world.rank(), world.address().rank);
            for len in [0, 4, 5000, 300_000] {
                let mine = pattern(len, all_contexts.rank());
                let mut got: Vec<Vec<u8>> = (0..all_contexts.size()).map(|_| vec![0; len + 1]).collect();
                all_contexts
                    .scope(|s| {
                        for (from, into) in (0..).zip(&mut got) {
                            s.irecv(from, 5, &mut into[..])?;
                        }
                        for rank in 0..2 {
                            for index in 0..3 {
                                s.isend(all_contexts.rank_of((rank, index))?, 5, &mine[..])?;
                            }
                        }
                        Ok::<(), Error>(())
                    })
                    .unwrap();
                for (from, bytes) in (0..).zip(&got) {
                    assert_eq!(bytes[..len], pattern(len, from), "{transport}, {len} bytes from {from}");
                }
            }
            all_contexts.address_of(all_contexts.rank()).unwrap()
        });
        let expected: Vec<_> = (0..6).map(|number| Address { rank: number / 3, index: number % 3 }).collect();
        assert_eq!(owns, expected);
    }
}

#[test]
fn receives_from_any_source_name_the_address() {
    for transport in TRANSPORTS {
        contexts(2, 2, transport, |world| {
            let (all_contexts, own) = (world.all_contexts(), world.address());
            for number in 0..all_contexts.size() {
                all_contexts.send(number, 1, &[own.rank, own.index]).unwrap();
            }
            let mut seen = Vec::new();
            for _ in 0..all_contexts.size() {
                let envelope = all_contexts.probe(Any, 1).unwrap();
                let mut word = [0u32; 2];
                let status = all_contexts.recv(envelope.source, 1, &mut word).unwrap();
                assert_eq!(all_contexts.address_of(status.source).unwrap(), Address::from((word[0], word[1])));
                seen.push(status.source);
            }
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3]);
            world.all_contexts().barrier().unwrap();
        });
    }
}

#[test]
fn contexts_of_each_index_have_a_world_of_their_own() {
    for transport in TRANSPORTS {
        contexts(3, 2, transport, |world| {
            let (rank, index) = (world.rank(), world.address().index);
            let next = (rank + 1) % 3;
            // The same ranks and tags in both worlds: no message crosses.
            for round in 0..50u32 {
                let mut into = [0u32; 3];
                let status = world.sendrecv(&[rank, index, round], next, 9, &mut into, Any, Any).unwrap();
                assert_eq!((status.source, into), ((rank + 2) % 3, [(rank + 2) % 3, index, round]), "{transport}");
                world.barrier().unwrap();
            }
            let mut word = [if rank == 1 { 100 + index } else { 0 }];
            world.broadcast(1, &mut word).unwrap();
            assert_eq!(word, [100 + index]);
            for rank in 0..3 {
                assert_eq!(world.address_of(rank).unwrap(), Address { rank, index });
                assert_eq!(world.rank_of((rank, index)).unwrap(), rank);
            }
            let other = Address { rank, index: 1 - index };
            assert_eq!(world.rank_of(other).unwrap_err(), Error::NoSuchAddress(other));
            assert_eq!(
                world.rank_of((3, index)).unwrap_err().to_string(),
                format!(
                    "the communicator does not include rank 3, context {index}: use a communicator that does, such as `World::all_contexts`"
                )
            );
        });
    }
}

#[test]
fn m15_any_contexts_can_make_a_communicator() {
    for transport in TRANSPORTS {
        contexts(2, 3, transport, |world| {
            let (all_contexts, own) = (world.all_contexts(), world.address());
            // The contexts on the diagonal, and the others, in reverse order.
            let color = u32::from(own.rank == own.index);
            let group = all_contexts.split(Some(color), 100 - all_contexts.rank()).unwrap().unwrap();
            let mut members: Vec<_> = (0..6).map(|number| all_contexts.address_of(number).unwrap()).collect();
            members.retain(|member| u32::from(member.rank == member.index) == color);
            members.reverse();
            assert_eq!(group.size() as usize, members.len());
            for (rank, member) in (0..).zip(&members) {
                assert_eq!(group.address_of(rank).unwrap(), *member);
                assert_eq!(group.rank_of(*member).unwrap(), rank);
            }
            let next = (group.rank() + 1) % group.size();
            let mut from = [0u32; 2];
            let status = group.sendrecv(&[own.rank, own.index], next, 1, &mut from, Any, 1).unwrap();
            assert_eq!(group.address_of(status.source).unwrap(), Address::from((from[0], from[1])));
            group.barrier().unwrap();
            // The world of an index can be split, too, at the same time as others.
            let twin = world.dup().unwrap();
            twin.barrier().unwrap();
            assert_eq!(twin.address_of(1).unwrap(), Address { rank: 1, index: own.index });
        });
    }
}

#[test]
fn a_barrier_of_all_contexts_returns_only_after_all_have_called_it() {
    let inside = AtomicU32::new(0);
    contexts(2, 3, "sm", |world| {
        for round in 1..=20 {
            inside.fetch_add(1, Ordering::SeqCst);
            world.all_contexts().barrier().unwrap();
            assert!(inside.load(Ordering::SeqCst) >= 6 * round);
        }
    });
}

#[test]
fn a_context_that_finishes_first_does_not_disturb_the_others() {
    for transport in TRANSPORTS {
        let ended = AtomicU32::new(0);
        contexts(2, 3, transport, |world| {
            let (all_contexts, own) = (world.all_contexts(), world.address());
            if own.index == 1 {
                for index in [0, 2] {
                    let to = all_contexts.rank_of((1 - own.rank, index)).unwrap();
                    for part in 0..40u32 {
                        all_contexts.send(to, part, &pattern(8000, part)[..]).unwrap();
                    }
                }
                world.finish().unwrap();
                ended.fetch_add(1, Ordering::SeqCst);
                return;
            }
            // The others exchange messages until both have finished, and for some time after that.
            let mut rounds = 0;
            let mut more = [1u32];
            while more[0] != 0 {
                let partner = all_contexts.rank_of((1 - own.rank, 2 - own.index)).unwrap();
                let mut into = vec![0; 20_000];
                all_contexts.sendrecv(&pattern(20_000, 3)[..], partner, 100, &mut into[..], partner, 100).unwrap();
                assert!(into == pattern(20_000, 3));
                rounds += u32::from(ended.load(Ordering::SeqCst) == 2);
                // One context decides for all when to stop.
                more = [u32::from(rounds < 20)];
                let talkers = [(0, 0), (0, 2), (1, 0), (1, 2)].map(|at| all_contexts.rank_of(at).unwrap());
                if all_contexts.rank() == talkers[0] {
                    talkers[1..].iter().for_each(|to| all_contexts.send(*to, 101, &more).unwrap());
                } else {
                    all_contexts.recv(talkers[0], 101, &mut more).unwrap();
                }
            }
            // The messages that were sent before the end have arrived.
            let gone = all_contexts.rank_of((1 - own.rank, 1)).unwrap();
            for part in 0..40 {
                let mut into = vec![0; 8000];
                all_contexts.recv(gone, part, &mut into[..]).unwrap();
                assert!(into == pattern(8000, part), "{transport}: part {part}");
            }
            // A message that was never sent will not come.
            assert_eq!(
                all_contexts.recv(gone, 99, &mut [0u8; 4]).unwrap_err(),
                Error::PeerFinished { rank: gone, tag: Some(99), bytes: None },
                "{transport}"
            );
        });
    }
}

#[test]
fn the_last_messages_of_a_context_arrive_at_a_busy_receiver() {
    for transport in TRANSPORTS {
        let over = AtomicU32::new(0);
        // Sockets with tiny buffers: messages wait in the rail.
        let set = |config: &mut towline::Config| config.tcp.socket_bytes = 4096;
        jobs(2, |_, job| {
            let builder = Builder::new().transports(transport).configure(set).job(job);
            each(builder.contexts(2).unwrap(), |context| {
                let world = context.enter();
                let (all_contexts, own) = (world.all_contexts(), world.address());
                let [speaker, hearer] = [(0, 1), (1, 0)].map(|at| all_contexts.rank_of(at).unwrap());
                if all_contexts.rank() == speaker {
                    all_contexts.send(hearer, 1, b"hello").unwrap(); // connects
                    all_contexts.recv(hearer, 2, &mut [0u8; 5]).unwrap();
                    (10..20u32).for_each(|tag| all_contexts.send(hearer, tag, &pattern(4000, tag)[..]).unwrap());
                    world.finish().unwrap();
                } else if all_contexts.rank() == hearer {
                    all_contexts.recv(speaker, 1, &mut [0u8; 5]).unwrap();
                    all_contexts.send(speaker, 2, b"hello").unwrap();
                    // The other context of the sender's index has finished, so the sender has, too.
                    while over.load(Ordering::SeqCst) == 0 {
                        std::thread::yield_now();
                    }
                    for tag in 10..20 {
                        let mut into = [0; 4000];
                        all_contexts.recv(speaker, tag, &mut into).unwrap();
                        assert!(into[..] == pattern(4000, tag), "{transport}, tag {tag}");
                    }
                } else if own.index == 1 {
                    world.finish().unwrap();
                    over.store(1, Ordering::SeqCst);
                }
            });
        });
    }
}

#[test]
fn a_context_whose_thread_panics_is_lost_to_the_others() {
    for transport in TRANSPORTS {
        let quick = |builder: Builder| builder.transports(transport).configure(|config| config.finish_timeout_ms = 100);
        jobs(2, |_, job| {
            each(quick(Builder::new().job(job)).contexts(2).unwrap(), |context| {
                let world = context.enter();
                world.all_contexts().barrier().unwrap();
                if world.address() == (Address { rank: 1, index: 1 }) {
                    let vanished = catch_unwind(AssertUnwindSafe(move || {
                        let _world = world;
                        std::panic::resume_unwind(Box::new("gone"));
                    }));
                    assert!(vanished.is_err());
                    return;
                }
                let all_contexts = world.all_contexts();
                let lost = all_contexts.rank_of((1, 1)).unwrap();
                assert_eq!(
                    all_contexts.recv(lost, 1, &mut [0u8; 4]).unwrap_err(),
                    Error::PeerFailed { rank: lost },
                    "{transport}"
                );
                // The others continue.
                all_contexts.acknowledge_failures();
                for index in [0, 1] {
                    let other = all_contexts.rank_of((0, index)).unwrap();
                    all_contexts.send(other, 2, &all_contexts.rank()).unwrap();
                }
                if world.rank() == 0 {
                    let mut from = [0u32; 3];
                    from.iter_mut().for_each(|from| assert_eq!(all_contexts.recv(Any, 2, from).unwrap().source, *from));
                }
            });
        });
    }
}

#[test]
fn a_context_whose_thread_panics_is_lost_to_unconnected_contexts_too() {
    for transport in TRANSPORTS {
        let quick = |builder: Builder| builder.transports(transport).configure(|config| config.finish_timeout_ms = 100);
        jobs(2, |_, job| {
            each(quick(Builder::new().job(job)).contexts(2).unwrap(), |context| {
                // No connection was ever made: over tcp no rail can notice the failure.
                let world = context.enter();
                if world.address() == (Address { rank: 1, index: 1 }) {
                    let vanished = catch_unwind(AssertUnwindSafe(move || {
                        let _world = world;
                        std::panic::resume_unwind(Box::new("gone"));
                    }));
                    assert!(vanished.is_err());
                    return;
                }
                let all_contexts = world.all_contexts();
                let lost = all_contexts.rank_of((1, 1)).unwrap();
                let failed = all_contexts.recv(lost, 1, &mut [0u8; 4]).unwrap_err();
                assert_eq!(failed, Error::PeerFailed { rank: lost }, "{transport}");
                // Other ways of waiting end, too, and immediately.
                let failed = world.block_on(async { all_contexts.irecv(lost, 1, vec![0u8; 4])?.await });
                assert_eq!(failed.unwrap_err().error, Error::PeerFailed { rank: lost });
                assert_eq!(all_contexts.send(lost, 1, b"hello?").unwrap_err(), Error::PeerFailed { rank: lost });
            });
        });
    }
}

#[test]
fn a_receive_from_an_unconnected_context_that_finished_fails() {
    for transport in TRANSPORTS {
        contexts(2, 3, transport, |world| {
            let (all_contexts, own) = (world.all_contexts(), world.address());
            if own.index == 1 {
                return world.finish().unwrap();
            }
            // The same for a context of this process, with receives that were posted before and after its end.
            for rank in [own.rank, 1 - own.rank] {
                let ended = all_contexts.rank_of((rank, 1)).unwrap();
                for tag in [1, 2] {
                    let failed = all_contexts.recv(ended, tag, &mut [0u8; 4]).unwrap_err();
                    let finished = Error::PeerFinished { rank: ended, tag: Some(tag), bytes: None };
                    assert_eq!(failed, finished, "{transport}");
                }
            }
            // The others are still running.
            let other = all_contexts.rank_of((1 - own.rank, 2 - own.index)).unwrap();
            let mut into = [0u32];
            all_contexts.sendrecv(&[own.rank], other, 3, &mut into, other, 3).unwrap();
            assert_eq!(into, [1 - own.rank]);
            world.finish().unwrap();
        });
    }
}

#[test]
fn a_receive_from_an_unconnected_process_that_finished_fails() {
    for transport in TRANSPORTS {
        jobs(2, |rank, job| {
            // Rank 1 hardly waits for the other, which may finish in that time.
            let limit = if rank == 1 { 1 } else { 60_000 };
            let builder =
                Builder::new().transports(transport).configure(|config| config.finish_timeout_ms = limit).job(job);
            each(builder.contexts(2).unwrap(), |context| {
                let world = context.enter();
                if rank == 1 {
                    let ended = world.finish();
                    assert!(matches!(ended, Ok(_) | Err(SetupError::Finish { .. })), "{transport}: {ended:?}");
                    return;
                }
                let all_contexts = world.all_contexts();
                let left = all_contexts.rank_of((1, 1 - world.address().index)).unwrap();
                let failed = all_contexts.recv(left, 1, &mut [0u8; 4]).unwrap_err();
                assert_eq!(failed, Error::PeerFinished { rank: left, tag: Some(1), bytes: None }, "{transport}");
                let _ = world.finish();
            });
        });
    }
}

#[test]
fn all_ranks_name_the_rank_with_another_number_of_contexts() {
    for (counts, fault) in [(&[2, 3][..], "rank 1 has 3 contexts, but rank 0 has 2"), (&[1, 2, 2], "rank 0 has 1")] {
        let errors = jobs(counts.len() as u32, |rank, job| {
            let builder = Builder::new().transports("sm").job(job);
            let refused = builder.contexts(counts[rank as usize]).map(drop).unwrap_err();
            assert!(matches!(refused, SetupError::Contexts { .. }), "{refused}");
            refused.to_string()
        });
        assert!(errors.iter().all(|error| error.contains(fault)), "{errors:?}");
    }
}

#[test]
fn contexts_that_are_never_entered_do_not_delay_the_job() {
    jobs(2, |_, job| {
        let mut contexts = Builder::new().job(job).contexts(2).unwrap();
        assert_eq!(contexts.iter().map(|context| context.address().index).collect::<Vec<_>>(), [0, 1]);
        drop(contexts.pop());
        let world = contexts.pop().unwrap().enter();
        world.barrier().unwrap();
        world.finish().unwrap();
    });
}

#[test]
fn each_context_uses_its_rail_of_the_programs_own() {
    jobs(2, |rank, job| {
        let (number, key) = (job.job_id(), *job.key().bytes());
        let made = Arc::new(Mutex::new(Vec::new()));
        let addresses = Arc::clone(&made);
        let rail = move |address: Address| {
            addresses.lock().unwrap().push(address);
            let key = towline_tcp::JobKey::new(key);
            towline_tcp::Rail::new(towline_tcp::Config::new(number, address.rank * 3 + address.index, key)).unwrap()
        };
        // No other rail reaches the others.
        let builder = Builder::new().transports("loopback").job(job);
        // SAFETY: the rail of tcp keeps the contract.
        let builder = unsafe { builder.rail_per_context(rail) };
        each(builder.contexts(3).unwrap(), |context| {
            let world = context.enter();
            let all_contexts = world.all_contexts();
            assert_eq!(world.rails(), ["tcp", "loopback"]);
            let mut sum = [0u32];
            for to in 0..6 {
                all_contexts.send(to, 1, &[all_contexts.rank()]).unwrap();
            }
            for _ in 0..6 {
                let mut from = [0u32];
                all_contexts.recv(Any, 1, &mut from).unwrap();
                sum[0] += from[0];
            }
            assert_eq!(sum, [15]);
            world.barrier().unwrap();
        });
        assert_eq!(*made.lock().unwrap(), [0, 1, 2].map(|index| Address { rank, index }));
    });
}

#[test]
fn a_rail_for_one_context_is_refused_with_several() {
    let mut arena = towline_core::arena::Arena::new(Box::leak(Box::new([0u8; 4096])));
    let hub = Box::leak(Box::new(towline_core::rail::loopback::Hub::new(&mut arena, 1, 4, 128).unwrap()));
    // SAFETY: the loopback rail keeps the contract of rails.
    let builder = unsafe { Builder::new().rail(hub.rail(0).unwrap()) };
    let refused = builder.contexts(1).unwrap_err();
    assert!(matches!(refused, SetupError::CustomRail) && refused.to_string().contains("rail_per_context"), "{refused}");
    let many = Builder::new().contexts(u32::MAX).unwrap_err();
    assert!(matches!(many, SetupError::TooManyContexts { ranks: 1, contexts: u32::MAX }));
}
