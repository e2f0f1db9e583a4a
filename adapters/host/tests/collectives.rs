//! Collective operations: results, errors at some ranks, and lost ranks.

#[path = "common/collective_model.rs"]
mod collective_model;
mod common;
#[path = "common/processes.rs"]
#[allow(dead_code)]
mod processes;
#[path = "common/selection.rs"]
mod selection;

use std::time::Duration;

use collective_model::check;
use common::{ranks, ranks_with};
use processes::{Job, report};
use selection::transports;
use towline::{Communicator, Error, Sum, World, blocks_mut};
use towline_host_tests::random::Random;

const TRANSPORTS: [&str; 3] = ["sm", "tcp", "udp"];
/// The rank that is killed.
const KILLED: u32 = 2;

/// Ranks that the tests of this file start. Without a role, as in a normal test run, this does nothing.
#[test]
#[ignore = "started by the other tests as their ranks"]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let world = towline::init().unwrap();
    match role.as_str() {
        "model" => {
            random_checks(&world, 3, 8);
            world.finish().unwrap();
        }
        "killed" => killed(&world),
        _ => panic!("no role {role}"),
    }
}

/// Checks random lengths and roots, and lengths on both sides of each change of the algorithm.
fn random_checks(comm: &Communicator, seed: u64, rounds: u64) {
    let mut random = Random::new(seed); // the same at all ranks
    for round in 0..rounds {
        let most = random.pick(&[1, 10, 100, 1000, 20_000 / u64::from(comm.size())]);
        let (len, root) = (random.below(most + 1) as usize, random.below(comm.size().into()) as u32);
        check(comm, root, len, round);
    }
}

#[test]
fn collective_operations_agree_with_a_sequential_model_at_any_number_of_ranks() {
    for size in [1, 2, 3, 4, 5, 7, 8, 9, 16] {
        ranks(size, "sm", |world| {
            for root in 0..world.size() {
                check(&world, root, 1 + root as usize % 3, root.into());
            }
            check(&world, 0, 0, 1);
            check(&world, world.size() - 1, 33, 2); // 264 bytes: longer than the short blocks of alltoall
            check(&world, world.size() / 2, 9000, 3); // longer than all other short lengths
            check(&world, 0, world.size() as usize * 1200 + 1, 4); // does not divide evenly
            random_checks(&world, 100 + u64::from(size), 6);
        });
    }
}

#[test]
fn collective_operations_agree_with_the_model_over_every_transport_and_in_parts_of_the_world() {
    for transport in transports(&TRANSPORTS) {
        ranks(5, transport, |world| {
            random_checks(&world, 5, 6);
            let part = world.split(Some(world.rank() / 3), 9 - world.rank()).unwrap().unwrap();
            random_checks(&part, 6, 6);
        });
    }
}

#[test]
fn collective_operations_of_processes_agree_with_the_model() {
    for transport in transports(&TRANSPORTS) {
        let job = Job::start(3, "model", &[("TOWLINE_TRANSPORTS", transport)]);
        job.ranks.into_iter().for_each(processes::Rank::assert_success);
    }
}

/// A collective operation with these lengths, in the way that ranks differ in the tests below.
type Operation = fn(&World, usize) -> Result<(), Error>;

const OPERATIONS: [(&str, Operation); 8] = [
    ("broadcast", |world, len| world.broadcast(0, &mut vec![1u8; len][..])),
    ("allreduce", |world, len| world.allreduce(&mut vec![1u8; len], Sum)),
    ("allgather", |world, len| world.allgather(&vec![1u8; len], &mut vec![0; len * world.size() as usize])),
    ("alltoall", |world, len| {
        let data = vec![1u8; len * world.size() as usize];
        world.alltoall(&data, &mut data.clone())
    }),
    ("reduce", |world, len| world.reduce(0, &mut vec![1u8; len], Sum)),
    ("gather", |world, len| world.gather(0, &vec![1u8; len], &mut vec![0; len * world.size() as usize])),
    ("scatter", |world, len| world.scatter(0, &vec![1u8; len * world.size() as usize], &mut vec![0; len])),
    ("allgatherv", |world, len| {
        let mut all = vec![0u8; len * world.size() as usize];
        world.allgatherv(&vec![1; len], &mut blocks_mut(&mut all, &vec![len; world.size() as usize])?)
    }),
];

/// If one rank passes another length than the others, some rank sees that, for each pair of algorithms that they may choose. No
/// rank waits, and the next operation works.
#[test]
fn a_different_length_at_one_rank_is_an_error_and_no_rank_waits() {
    let lengths =
        [(1, 2), (24, 32), (32, 100), (200, 300), (100, 100_000), (70_000, 60_000), (300_000, 400_000), (0, 1)];
    for size in [2, 3, 4, 5] {
        let odd = size - 1;
        for (name, operation) in OPERATIONS {
            let errors = ranks(size, "sm", |world| {
                let mut errors = Vec::new();
                for (one, other) in lengths {
                    errors.push(operation(&world, if world.rank() == odd { other } else { one }).err());
                    world.barrier().unwrap();
                    operation(&world, one).unwrap();
                }
                errors
            });
            for (case, lengths) in lengths.iter().enumerate() {
                let found: Vec<_> = errors.iter().map(|rank| rank[case].clone()).collect();
                // An empty message looks like that of a rank that cannot take part.
                let named = |error: &Option<Error>| match error {
                    Some(Error::NoPart { .. }) => lengths.0 == 0,
                    error => matches!(error, Some(Error::UnequalLengths { .. })),
                };
                assert!(found.iter().any(named), "{name}, {size} ranks, {lengths:?}: {found:?}");
                if lengths.0 != 0 && ["allreduce", "allgather", "alltoall"].contains(&name) {
                    assert!(found.iter().all(Option::is_some), "{name}, {size} ranks, {lengths:?}: {found:?}");
                }
            }
        }
    }
}

/// A rank whose arguments are wrong gets the error that says so. The others do not wait for it, and the next operation works.
#[test]
fn wrong_arguments_at_one_rank_end_the_operation_for_all_that_need_it() {
    let wrong: [(&str, Operation); 6] = [
        ("allreduce", |world, len| world.allreduce_into(&vec![1u8; len], &mut vec![0; len + 1], Sum)),
        ("allgather", |world, len| world.allgather(&vec![1u8; len], &mut [0])),
        ("alltoall", |world, len| world.alltoall(&vec![1u8; len * world.size() as usize], &mut [])),
        ("allgatherv", |world, len| world.allgatherv(&vec![1u8; len], &mut [])),
        ("gather", |world, len| world.gather(0, &vec![1u8; len], &mut [])),
        ("scatter", |world, len| world.scatter(0, &[1u8], &mut vec![0; len])),
    ];
    for (name, wrong) in wrong {
        let right = OPERATIONS.iter().find(|(right, _)| *right == name).unwrap().1;
        for len in [8, 5000, 200_000] {
            ranks(3, "sm", |world| {
                let done = if world.rank() == 0 { wrong(&world, len) } else { right(&world, len) };
                if world.rank() == 0 {
                    assert!(matches!(done, Err(Error::WrongLength { .. })), "{name}, {len}: {done:?}");
                } else if name != "gather" {
                    assert!(
                        matches!(done, Err(Error::NoPart { .. } | Error::UnequalLengths { .. })),
                        "{name}, {len}: {done:?}"
                    );
                }
                world.barrier().unwrap();
                right(&world, len).unwrap();
            });
        }
    }
}

#[test]
fn a_root_that_does_not_exist_is_an_error() {
    ranks(2, "sm", |world| {
        let expected = Err(Error::NoSuchRank { rank: 2, size: 2 });
        assert_eq!(world.reduce(2, &mut [1u8], Sum), expected);
        assert_eq!(world.gather(2, &[1u8], &mut []), expected);
        assert_eq!(world.scatter(2, &[1u8], &mut []), expected);
        assert_eq!(world.broadcast(2, &mut [1u8]), expected);
    });
}

#[test]
fn counts_that_do_not_fit_their_items_are_refused() {
    let mut items = [1u8, 2, 3];
    let refused = Err(Error::WrongCounts { sum: 4, items: 3 });
    assert_eq!(towline::blocks(&items, &[2, 2]).map(|blocks| blocks.len()), refused);
    assert_eq!(blocks_mut(&mut items, &[1, 3]).map(|blocks| blocks.len()), refused);
    assert!(towline::blocks(&items, &[usize::MAX, 4]).is_err());
}

/// One rank is killed while all do collective operations. The survivors do the same number of operations: each of them ends. The
/// rank that is killed does fewer, so that it is killed before the end even if the test is slow.
fn killed(world: &World) {
    world.barrier().unwrap();
    report("ready");
    let all = vec![1u64; 30_000];
    let mut failures = 0;
    for round in 0..if world.rank() == KILLED { 380 } else { 400 } {
        let mut into = vec![0u64; all.len() * world.size() as usize];
        let done = match round % 4 {
            0 => world.allreduce(&mut all.clone(), Sum),
            1 => world.allgather(&all, &mut into),
            2 => world.alltoall(&into.clone(), &mut into),
            _ => world.reduce(round / 4 % world.size(), &mut all.clone(), Sum),
        };
        if let Err(error) = done {
            // A survivor that is done with all of them leaves.
            let expected =
                matches!(error, Error::PeerFailed { .. } | Error::PeerFinished { .. } | Error::NoPart { .. });
            assert!(expected, "{error:?}");
            failures += 1;
        }
    }
    if world.rank() == KILLED {
        loop {
            std::thread::park();
        }
    }
    assert!(failures > 0, "the rank was killed before the end");
    report("over");
}

#[test]
fn p7_a_killed_rank_ends_collective_operations_at_all_ranks() {
    for transport in transports(&TRANSPORTS) {
        let mut job = Job::start(4, "killed", &[("TOWLINE_TRANSPORTS", transport)]);
        job.ranks.iter_mut().for_each(|rank| drop(rank.wait_for("ready")));
        std::thread::sleep(Duration::from_millis(20)); // the ranks are in the middle of some operation
        job.ranks[KILLED as usize].kill();
        for survivor in [0, 1, 3] {
            job.ranks[survivor].wait_for("over");
        }
    }
}

/// The other ranks wait for this one in a collective operation, so it must not lack a request for its part.
#[test]
fn collective_operations_work_although_the_program_holds_all_requests() {
    const HELD: u32 = 8;
    for transport in transports(&["sm", "tcp", "udp"]) {
        for full in [&[1][..], &[0, 1, 2]] {
            let few =
                |builder: towline::Builder| builder.transports(transport).configure(|config| config.requests = HELD);
            ranks_with(3, few, |world| {
                let (next, before) = ((world.rank() + 1) % 3, (world.rank() + 2) % 3);
                let is_full = full.contains(&world.rank());
                let held: Vec<_> = (0..if is_full { HELD } else { 0 })
                    .map(|tag| world.irecv(before, tag, vec![0u32; 1]).unwrap())
                    .collect();
                let check_held = || {
                    let more = world.irecv(before, HELD, vec![0u32; 1]).map(drop).map_err(|failed| failed.error);
                    assert_eq!(more, if is_full { Err(towline::Error::Busy) } else { Ok(()) }, "{transport}");
                };
                check_held();
                for items in [1, 3, 100_000] {
                    let mut data = vec![world.rank(); items];
                    world.barrier().unwrap();
                    world.broadcast(1, &mut data[..]).unwrap();
                    assert!(data.iter().all(|item| *item == 1));
                    world.allreduce(&mut data, Sum).unwrap();
                    assert!(data.iter().all(|item| *item == 3));
                    let mut all = vec![9; 3 * items];
                    world.allgather(&vec![world.rank(); items], &mut all).unwrap();
                    let mut gathered = vec![9; if world.rank() == 0 { 3 * items } else { 0 }];
                    world.gather(0, &vec![world.rank(); items], &mut gathered).unwrap();
                    let mut mine = vec![9; items];
                    world.scatter(0, &gathered, &mut mine).unwrap();
                    assert!(mine.iter().all(|item| *item == world.rank()));
                    let mut exchanged = vec![9; 3 * items];
                    world.alltoall(&all, &mut exchanged).unwrap();
                    assert!(exchanged.iter().all(|item| *item == world.rank()));
                    check_held();
                }
                let other = world.dup().unwrap();
                let window = other.window(64).unwrap();
                window.put(next, 0, &[world.rank()]).unwrap();
                window.flush_all().unwrap();
                other.barrier().unwrap();
                let mut word = [9u32];
                window.read(0, &mut word).unwrap();
                assert_eq!(word, [before]);
                drop(window);
                drop(other);
                check_held();
                if full.contains(&next) {
                    (0..HELD).for_each(|tag| world.send(next, tag, &tag).unwrap());
                }
                for (tag, receive) in (0..).zip(held) {
                    assert_eq!(receive.wait().unwrap().0, [tag]);
                }
                world.finish().unwrap();
            });
        }
    }
}
