//! Making communicators and windows: all ranks get them, or all get an error. Nothing is lost at the ranks that had room.

mod common;
#[path = "common/processes.rs"]
#[allow(dead_code)]
mod processes;
#[path = "common/selection.rs"]
mod selection;

use std::time::Duration;

use common::{jobs, ranks};
use processes::{Job, report};
use selection::transports;
use towline::{Access, Builder, CommError, Error, Multiple, Shortage, Window, World};

const TRANSPORTS: [&str; 3] = ["sm", "tcp", "udp"];

/// Ranks that the tests of this file start. Without a role, as in a normal test run, this does nothing.
#[test]
#[ignore = "started by the other tests as their ranks"]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let room = if role == "full" && std::env::var("TOWLINE_RANK").is_ok_and(|rank| rank == "1") { 3 } else { 64 };
    let world = Builder::new().configure(|config| config.communicators = room).build().unwrap();
    match role.as_str() {
        "full" => {
            one_rank_is_full(&world, 1);
            world.finish().unwrap();
        }
        "killed" => killed(&world),
        _ => panic!("no role {role}"),
    }
}

/// Runs ranks of which one has room for `room` communicators beside its world.
fn with_a_full_rank<T: Send>(
    size: u32,
    full: u32,
    room: u32,
    transport: &str,
    body: impl Fn(World) -> T + Sync,
) -> Vec<T> {
    jobs(size, |rank, job| {
        let room = if rank == full { room + 1 } else { 64 };
        let builder = Builder::new().transports(transport).configure(|config| config.communicators = room);
        body(builder.job(job).build().unwrap())
    })
}

/// What each rank gets where rank `full` has no room.
fn assert_refused<T>(world: &World, full: u32, made: Result<T, Error>) {
    let expected = match world.rank() == full {
        true => Error::Communicator(CommError::Full),
        false => Error::NoRoom { rank: full, why: Shortage::Communicators },
    };
    match made {
        Ok(_) => panic!("rank {} got a communicator", world.rank()),
        Err(error) => assert_eq!(error, expected, "at rank {}", world.rank()),
    }
}

/// All ranks make two communicators. Then rank `full` has no room for a third one.
fn one_rank_is_full(world: &World, full: u32) {
    for _ in 0..3 {
        let first = world.dup().unwrap();
        let second = world.split(Some(0), world.size() - world.rank()).unwrap().unwrap();
        assert_refused(world, full, world.dup());
        assert_refused(world, full, world.split(Some(world.rank()), 0));
        assert_refused(world, full, world.window(8));
        assert_refused(world, full, first.dup());
        // Whoever needs no room has none to lack.
        let rest = world.split((world.rank() != full).then_some(3), 0).unwrap();
        assert_eq!(rest.is_some(), world.rank() != full);
        first.barrier().unwrap();
        second.barrier().unwrap();
        drop(first);
        let again = world.dup().unwrap();
        again.barrier().unwrap();
        assert_refused(world, full, world.dup());
    }
}

#[test]
fn m15_a_communicator_is_made_at_all_ranks_or_at_none() {
    for transport in transports(&TRANSPORTS) {
        for size in [2, 3, 5] {
            for full in 0..size {
                with_a_full_rank(size, full, 2, transport, |world| one_rank_is_full(&world, full));
            }
        }
    }
}

#[test]
fn m15_processes_make_a_communicator_at_all_ranks_or_at_none() {
    for transport in transports(&TRANSPORTS) {
        let job = Job::start(3, "full", &[("TOWLINE_TRANSPORTS", transport)]);
        job.ranks.into_iter().for_each(processes::Rank::assert_success);
    }
}

#[test]
fn the_rank_without_room_learns_the_setting_and_the_others_learn_the_rank() {
    let texts = with_a_full_rank(2, 1, 0, "sm", |world| world.dup().unwrap_err().to_string());
    assert!(texts[0].contains("rank 1") && texts[0].contains("TOWLINE_COMMUNICATORS"), "{texts:?}");
    assert!(texts[1].contains("TOWLINE_COMMUNICATORS"), "{texts:?}");
}

/// Attempts that fail use up nothing: neither room nor numbers that other communicators need.
#[test]
fn twenty_thousand_communicators_come_and_go_and_as_many_attempts_fail() {
    with_a_full_rank(2, 1, 1, "sm", |world| {
        for round in 0..20_000 {
            let made = world.dup().unwrap();
            assert_refused(&world, 1, world.dup());
            if round % 1000 == 0 {
                made.barrier().unwrap();
            }
        }
    });
}

/// Makes windows at this rank alone until there is room for no more.
fn all_windows(world: &World) -> Vec<Window> {
    let alone = world.split(Some(world.rank()), 0).unwrap().unwrap();
    std::iter::from_fn(|| alone.window(8).ok()).collect()
}

#[test]
fn a_window_is_made_at_all_ranks_or_at_none() {
    for transport in transports(&TRANSPORTS) {
        for full in 0..3 {
            ranks(3, transport, |world| {
                // Far more memory than there is.
                let bytes = if world.rank() == full { usize::MAX / 4 } else { 64 };
                let refused = |why| Some(Error::NoWindow { rank: full, why });
                assert_eq!(world.window(bytes).err(), refused(Shortage::Memory));
                let windows = all_windows(&world); // at all ranks, since it makes a communicator
                assert!(windows.len() > 8, "{}", windows.len());
                if world.rank() != full {
                    windows.into_iter().for_each(drop);
                } else {
                    assert_eq!(world.window_with(64, Access::REMOTE_READ).err(), refused(Shortage::Windows));
                    drop(windows);
                    return world.window(8).unwrap().close().unwrap();
                }
                assert_eq!(world.window_with(64, Access::REMOTE_READ).err(), refused(Shortage::Windows));
                world.window(8).unwrap().close().unwrap();
            });
        }
    }
}

#[test]
fn operations_on_any_communicator_are_refused_after_the_end_of_the_world() {
    for transport in transports(&TRANSPORTS) {
        ranks(2, transport, |world| {
            let (twin, window) = (world.dup().unwrap(), world.window(8).unwrap());
            let next = 1 - world.rank();
            world.finish().unwrap();
            let mut into = [0u8; 1];
            assert_eq!(twin.send(next, 1, &[1u8]), Err(Error::Finished));
            assert_eq!(twin.ssend(next, 1, &[1u8]), Err(Error::Finished));
            assert_eq!(twin.recv(next, 1, &mut into), Err(Error::Finished));
            assert_eq!(twin.sendrecv(&[1u8], next, 1, &mut into, next, 1), Err(Error::Finished));
            assert_eq!(twin.isend(next, 1, vec![1u8]).err().map(Error::from), Some(Error::Finished));
            assert_eq!(twin.irecv(next, 1, vec![1u8]).err().map(Error::from), Some(Error::Finished));
            assert_eq!(twin.scope(|s| s.isend(next, 1, &[1u8]).map(drop)), Err(Error::Finished));
            assert_eq!(twin.probe(next, 1).err(), Some(Error::Finished));
            assert_eq!(twin.iprobe(next, 1).err(), Some(Error::Finished));
            assert_eq!(twin.barrier(), Err(Error::Finished));
            assert_eq!(twin.broadcast(0, &mut into), Err(Error::Finished));
            assert_eq!(twin.dup().err(), Some(Error::Finished));
            assert_eq!(twin.window(8).err(), Some(Error::Finished));
            assert_eq!(window.put(next, 0, &[1u8]), Err(Error::Finished));
        });
    }
}

/// Threads of a rank make communicators at the same time, from communicators that have some ranks in common.
#[test]
fn threads_make_communicators_of_overlapping_groups_at_the_same_time() {
    jobs(4, |rank, job| {
        let world = Builder::new().transports("sm").threads(Multiple).job(job).build().unwrap();
        // Three groups that overlap: the ranks but one of 0, 1 and 2.
        let split = |without| (without, world.split((rank != without).then_some(0), 0).unwrap());
        let groups: Vec<_> = (0..3).map(split).collect();
        std::thread::scope(|threads| {
            for (without, group) in &groups {
                let (without, Some(group)) = (*without, group) else { continue };
                threads.spawn(move || {
                    for round in 0..60u32 {
                        let made = group.dup().unwrap();
                        let (next, previous) = ((made.rank() + 1) % 3, (made.rank() + 2) % 3);
                        let mut got = [0u32; 2];
                        made.sendrecv(&[without, round], next, 1, &mut got, previous, 1).unwrap();
                        assert_eq!(got, [without, round], "a message of another communicator");
                    }
                });
            }
        });
    });
}

/// One rank is killed while all make communicators. The survivors make the same number of attempts: each of them ends. The rank
/// that is killed makes fewer, so that it is killed before the last attempt even if the test is slow.
fn killed(world: &World) {
    let victim = std::env::var("VICTIM").is_ok_and(|victim| victim.parse() == Ok(world.rank()));
    world.barrier().unwrap();
    report("ready");
    let mut failures = 0;
    for round in 0..if victim { 1490 } else { 1500 } {
        let made = match round % 3 {
            0 => world.dup().map(drop),
            1 => world.split((world.rank() != 0).then_some(1), 0).map(drop),
            _ => world.window(64).map(drop),
        };
        if let Err(error) = made {
            // A survivor that is done with all of them leaves.
            let expected =
                matches!(error, Error::PeerFailed { .. } | Error::PeerFinished { .. } | Error::NoPart { .. });
            assert!(expected, "{error:?}");
            failures += 1;
        }
    }
    if victim {
        loop {
            std::thread::park();
        }
    }
    report(format!("failures {failures}"));
}

#[test]
fn p7_a_rank_that_is_killed_in_the_middle_leaves_nobody_waiting() {
    for transport in transports(&TRANSPORTS) {
        for victim in [0, 2] {
            let variables = [("TOWLINE_TRANSPORTS", transport), ("VICTIM", &victim.to_string())];
            let mut job = Job::start(4, "killed", &variables);
            job.ranks.iter_mut().for_each(|rank| drop(rank.wait_for("ready")));
            std::thread::sleep(Duration::from_millis(10)); // the ranks are in the middle of some attempt
            job.ranks[victim].kill();
            for (_, rank) in job.ranks.iter_mut().enumerate().filter(|(rank, _)| *rank != victim) {
                assert_ne!(rank.wait_for("failures"), "0", "{transport}: the rank was killed before the last attempt");
            }
        }
    }
}

/// As a binding does that has no handle left: it takes part, so no rank waits for it, and no rank makes anything.
#[test]
fn a_rank_whose_caller_has_no_room_refuses_for_all() {
    for transport in transports(&TRANSPORTS) {
        jobs(3, |rank, job| {
            let world = Builder::new().transports(transport).job(job).build().unwrap();
            for _ in 0..3 {
                let refusal = Error::Communicator(CommError::Full);
                let made = if rank == 1 { world.refuse_comm_raw() } else { world.dup().unwrap_err() };
                let lacks = Error::NoRoom { rank: 1, why: Shortage::Communicators };
                assert_eq!(made, if rank == 1 { refusal } else { lacks });
                let made = if rank == 1 { world.refuse_window_raw() } else { world.window(8).unwrap_err() };
                assert_eq!(made, Error::NoWindow { rank: 1, why: Shortage::Windows });
                world.dup().unwrap().barrier().unwrap();
                world.window(8).unwrap().close().unwrap();
            }
            world.finish().unwrap();
        });
    }
}
