//! Windows of ranks that are processes of their own, over every transport; one of them killed half-way; several threads.

mod common;
#[path = "common/pattern.rs"]
mod pattern;
#[path = "common/processes.rs"]
mod processes;

use std::sync::Barrier;

use common::jobs;
use pattern::pattern;
use processes::{Job, held, say};
use towline::{Access, Any, AtomicOp, Builder, Denied, Error, Multiple, World};

/// Each way that ranks are connected, as a transport and its links.
const WAYS: [(&str, &str); 5] = [("sm", "1"), ("tcp", "1"), ("tcp", "3"), ("udp", "1"), ("udp", "2")];
/// Who dies.
const VICTIM: u32 = 2;
/// Adds of each rank.
const ADDS: u64 = 60;
/// Bytes of a long put or get.
const LONG: usize = 150_000;

/// What ranks do that this file starts. Without a role, as in a normal test run, nothing.
#[test]
#[ignore = "started by the other tests as their ranks"]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let world = towline::init().unwrap();
    match role.as_str() {
        "all" => {
            count(&world);
            copy(&world);
            refuse(&world);
            world.finish().unwrap();
        }
        "survive" => {
            survive(&world);
            assert!(world.finish().is_err(), "one is missing");
        }
        _ => panic!("no role {role}"),
    }
    say("over");
}

/// All count in one word, and write who they are to the place that they got.
fn count(world: &World) {
    let places = u64::from(world.size()) * ADDS;
    let window = world.window(16 + places as usize).unwrap();
    for _ in 0..ADDS {
        let place = window.fetch_and_op(0, 0, AtomicOp::Add, 1u64).unwrap();
        window.put(0, 16 + place, &[world.rank() as u8 + 1]).unwrap();
        window.accumulate(0, 8, AtomicOp::Add, &[0.5f32]).unwrap();
        window.accumulate(0, 12, AtomicOp::Max, &[place as i32]).unwrap();
    }
    window.flush_all().unwrap();
    world.barrier().unwrap();
    if world.rank() == 0 {
        let (mut count, mut sum, mut most, mut who) = (0u64, 0f32, 0i32, vec![0u8; places as usize]);
        window.read(0, &mut count).unwrap();
        window.read(8, &mut sum).unwrap();
        window.read(12, &mut most).unwrap();
        window.read(16, &mut who[..]).unwrap();
        assert_eq!((count, sum, most), (places, places as f32 / 2.0, places as i32 - 1));
        for rank in 0..world.size() {
            assert_eq!(who.iter().filter(|who| **who == rank as u8 + 1).count() as u64, ADDS, "rank {rank}");
        }
    }
    // One of all gets it.
    let won = window.compare_and_swap(1, 0, 0u64, u64::from(world.rank()) + 1).unwrap() == 0;
    world.barrier().unwrap();
    let mut winner = 0u64;
    window.get(1, 0, &mut winner).unwrap();
    assert_eq!(won, winner == u64::from(world.rank()) + 1);
    window.close().unwrap();
}

/// Long and short ones among all, from places that fit nothing.
fn copy(world: &World) {
    let size = world.size() as usize;
    let window = world.window(size * LONG + 100 * world.rank() as usize).unwrap();
    for to in 0..world.size() {
        assert_eq!(window.len(to).unwrap(), (size * LONG + 100 * to as usize) as u64);
        let place = (world.rank() as usize * LONG) as u64;
        for (from, len) in [(0, 1), (1, 63), (64, 1000), (1064, LONG - 1064)] {
            let data = &pattern(LONG, world.rank())[from..from + len];
            window.put(to, place + from as u64, data).unwrap();
        }
    }
    window.flush_all().unwrap();
    let mut back = vec![0u8; LONG];
    for to in 0..world.size() {
        window.get(to, (world.rank() as usize * LONG) as u64, &mut back[..]).unwrap();
        assert!(back == pattern(LONG, world.rank()), "{to}");
    }
    world.barrier().unwrap();
    for from in 0..world.size() {
        window.read(from as usize * LONG, &mut back[..]).unwrap();
        assert!(back == pattern(LONG, from), "{from}");
    }
    window.close().unwrap();
}

/// What may not be, or cannot, is an error that says so, and changes nothing.
fn refuse(world: &World) {
    let (rank, next) = (world.rank(), (world.rank() + 1) % world.size());
    let rights = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
    let window = world.window_with(64, rights[rank as usize]).unwrap();
    let may = |right| if rights[next as usize] == right { Ok(()) } else { Err(no_right(next)) };
    assert_eq!(window.get(next, 0, &mut [0u8; 8]), may(Access::REMOTE_READ));
    window.put(next, 0, &[0u8; 8]).unwrap();
    assert_eq!(window.flush(next), may(Access::REMOTE_WRITE));
    assert_eq!(window.flush(next), Ok(()), "told once");
    assert_eq!(window.fetch_and_op(next, 8, AtomicOp::Swap, 9u32).map(|_| ()), may(Access::REMOTE_ATOMIC));
    let out = Err(Error::OutOfWindow { rank: next });
    assert_eq!(window.put(next, 60, &[1u8; 5]), out);
    assert_eq!(window.get(next, u64::MAX, &mut [0u8; 5]), out);
    assert_eq!(window.write(60, &[1u8; 5]), Err(Error::OutOfWindow { rank }));
    assert_eq!(window.accumulate(next, 2, AtomicOp::Add, &[1u32]), Err(Error::NoSuchOperation));
    assert_eq!(window.accumulate(next, 0, AtomicOp::Min, &[1u32]), Err(Error::NoSuchOperation));
    let none = Error::NoSuchRank { rank: world.size(), size: world.size() };
    assert_eq!(window.flush(world.size()), Err(none));
    world.barrier().unwrap();
    // Dropped by its owner: refused from then on.
    if rank == 0 {
        drop(window);
        world.barrier().unwrap();
        world.barrier().unwrap();
    } else {
        world.barrier().unwrap();
        let refused = Err(Error::Refused { rank: 0, why: Denied::NoMemory });
        assert_eq!(window.get(0, 0, &mut [0u8; 8]), refused);
        world.barrier().unwrap();
    }
}

fn no_right(rank: u32) -> Error {
    Error::Refused { rank, why: Denied::NoRight }
}

/// One is killed while the others put to it, get from it and count in it; these go on with each other.
fn survive(world: &World) {
    let window = world.window(LONG).unwrap();
    let other = 1 - world.rank().min(1);
    let both = |turns: u64| {
        for turn in 0..turns {
            let old = window.fetch_and_op(other, 0, AtomicOp::Add, 1u64).unwrap();
            assert!(old >= turn);
            window.put(other, 8, &pattern(LONG - 8, 3)[..]).unwrap();
            window.flush(other).unwrap();
        }
    };
    if world.rank() == VICTIM {
        world.barrier().unwrap();
        say("ready");
        let _ = world.recv(Any, 0x7777, &mut [0u8; 1]);
        panic!("nobody killed this rank");
    }
    both(3);
    let before = held();
    world.barrier().unwrap();
    let (mut into, data) = (vec![0u8; LONG], pattern(LONG, 5));
    let failed = Error::PeerFailed { rank: VICTIM };
    for turn in 0.. {
        if turn == 3 {
            say("ready");
        }
        let put = window.put(VICTIM, 0, &data[..]);
        let counted = window.accumulate(VICTIM, 0, AtomicOp::Add, &[1u64; 20]);
        let got = window.get(VICTIM, 0, &mut into[..]);
        let flushed = window.flush(VICTIM);
        let all = [put, counted, got, flushed];
        if all.iter().any(Result::is_err) {
            assert!(all.iter().flat_map(|result| result.as_ref().err()).all(|error| *error == failed), "{all:?}");
            break;
        }
    }
    assert_eq!(window.put(VICTIM, 0, &data[..]), Err(failed.clone()));
    assert_eq!(window.fetch_and_op(VICTIM, 0, AtomicOp::Add, 1u64), Err(failed.clone()));
    assert_eq!(window.flush(VICTIM), Ok(()));
    both(3);
    let after = held();
    assert!(after.0 <= before.0 && after.1 <= before.1, "descriptors and maps: {before:?}, now {after:?}");
    assert_eq!(window.close(), Err(failed));
}

#[test]
fn b18_b28_b40_windows_of_processes_over_every_transport() {
    for (way, links) in WAYS {
        let job = Job::start(3, "all", &[("TOWLINE_TRANSPORTS", way), ("TOWLINE_LINKS", links)]);
        for mut rank in job.ranks {
            rank.hear("over");
            rank.ends_well();
        }
    }
}

#[test]
fn b18_a_target_that_is_killed_half_way_fails_what_is_under_way_and_no_more() {
    for (way, links) in WAYS {
        let mut job = Job::start(3, "survive", &[("TOWLINE_TRANSPORTS", way), ("TOWLINE_LINKS", links)]);
        job.ranks.iter_mut().for_each(|rank| drop(rank.hear("ready")));
        job.ranks[VICTIM as usize].kill();
        for mut rank in job.ranks.into_iter().take(VICTIM as usize) {
            rank.hear("over");
            rank.ends_well();
        }
    }
}

/// A target that is in no call is served by its progress thread; threads of one rank wait for their own operations.
#[test]
fn b42_a_progress_thread_serves_and_threads_share_a_window() {
    for way in ["sm", "tcp", "udp"] {
        let computes = Barrier::new(2);
        let turns = if way == "udp" { 20 } else { 100 };
        jobs(2, |rank, job| {
            let builder = Builder::new().job(job).transports(way).threads(Multiple).progress_thread(true);
            let world = builder.build().unwrap();
            let window = world.window(64).unwrap();
            if rank == 1 {
                computes.wait(); // in no call until the other has done
                let mut counts = [0u64; 4];
                window.read(0, &mut counts).unwrap();
                assert_eq!(counts, [turns; 4], "{way}");
            } else {
                std::thread::scope(|threads| {
                    for thread in 0..4 {
                        let window = &window;
                        threads.spawn(move || {
                            for turn in 0..turns {
                                let old = window.fetch_and_op(1, 8 * thread, AtomicOp::Add, 1u64).unwrap();
                                assert_eq!(old, turn);
                            }
                        });
                    }
                });
                computes.wait();
            }
            window.close().unwrap();
            world.finish().unwrap();
        });
    }
}
