//! Windows of ranks that are separate processes, over every transport; with one rank killed; with several threads.

mod common;
#[path = "../../dpu/tests/common/mod.rs"]
mod devices;
#[path = "common/pattern.rs"]
mod pattern;
#[path = "common/processes.rs"]
mod processes;
#[path = "common/selection.rs"]
mod selection;

use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};

use common::jobs;
use pattern::pattern;
use processes::{Job, Rank, clock, report, resources};
use towline::{Access, Any, AtomicOp, Blame, Builder, Denied, Error, Multiple, Window, World};
use towline_core::pml::Config;
use towline_core::rail::atomics::{Atomic, AtomicFlags};

/// How ranks are connected: transport, number of links, and whether windows are mapped where that is possible. Windows that are
/// not mapped are accessed by frames.
fn transports() -> Vec<(&'static str, &'static str, &'static str)> {
    let all = selection::with_links(&[("sm", "1"), ("tcp", "1"), ("tcp", "3"), ("udp", "1"), ("udp", "2")]);
    let mapped = all.iter().map(|(transport, links)| (*transport, *links, "true"));
    mapped
        .chain(
            all.iter()
                .filter(|(transport, _)| *transport == "sm")
                .map(|(transport, links)| (*transport, *links, "false")),
        )
        .collect()
}

/// The rank that fails.
const VICTIM: u32 = 2;
/// Adds of each rank.
const ADDS: u64 = 60;
/// Bytes of a long put or get.
const LONG: usize = 150_000;
/// Bytes of a put or get that is copied in several pieces.
const PIECES: usize = (2 << 20) + 1000;

/// The program of the ranks that the tests of this file start. Without a role, as in a normal test run, it does nothing.
#[test]
#[ignore = "started by the other tests as their ranks"]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    if role == "mixed" {
        return mixed();
    }
    let rank: usize = std::env::var("TOWLINE_RANK").unwrap().parse().unwrap();
    // Each rank has the device of its number.
    let window = std::env::var("DEVICES").map(|files| files.split(',').nth(rank).unwrap().to_string());
    let world = Builder::new().configure(|config| {
        if let Ok(window) = window {
            config.dpu.windows = window;
        }
        if role == "refuses-devices" && rank == 0 {
            config.dpu.one_sided = false;
        }
    });
    let world: World = world.build().unwrap();
    match role.as_str() {
        "all" => {
            count(&world);
            vectors(&world);
            copy(&world, LONG);
            if std::env::var("TOWLINE_TRANSPORTS").unwrap() == "sm" {
                copy(&world, PIECES);
            }
            refuse(&world);
            if std::env::var("TOWLINE_TRANSPORTS").unwrap() == "dpu" {
                ways(&world);
            }
            if std::env::var("TOWLINE_VERBS_WINDOWS").is_err() {
                refuse_what_was_dropped(&world);
            }
            world.finish().unwrap();
        }
        "survive" => {
            survive(&world);
            assert!(world.finish().is_err(), "one is missing");
        }
        "still" => {
            still(&world);
            world.finish().unwrap();
        }
        "refuses-devices" => {
            // So long that the memory of a device has no room for another one beside it.
            let is_free = |bytes: &usize| world.device_buffer(*bytes).is_some();
            let power = (8..40).map(|power| 1 << power).take_while(is_free).last().expect("there are devices");
            let most: usize = (16..32).map(|part| power / 16 * part).take_while(is_free).last().unwrap();
            let bytes = most / 4 * 3;
            let window = world.window(bytes).unwrap();
            assert!((0..world.size()).all(|rank| !window.is_on_dpu(rank).unwrap()), "one rank cannot");
            assert!(world.device_buffer(bytes).is_some(), "its parts are not in the memory of devices");
            window.close().unwrap();
            count(&world);
            copy(&world, LONG);
            world.finish().unwrap();
        }
        "loses-device" => {
            lose_device(&world);
            world.finish().unwrap();
        }
        "many" => {
            many(&world);
            world.finish().unwrap();
        }
        _ => panic!("no role {role}"),
    }
    report("over");
}

fn variables<'v>(transport: &'v str, links: &'v str, mapped: &'v str) -> [(&'static str, &'v str); 3] {
    [("TOWLINE_TRANSPORTS", transport), ("TOWLINE_LINKS", links), ("TOWLINE_SM_WINDOWS", mapped)]
}

/// All ranks add to one word, and write their rank to the place that the old value of the word names.
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
    // The compare-and-swap of exactly one rank succeeds.
    let won = window.compare_and_swap(1, 0, 0u64, u64::from(world.rank()) + 1).unwrap() == 0;
    world.barrier().unwrap();
    let mut winner = 0u64;
    window.get(1, 0, &mut winner).unwrap();
    assert_eq!(won, winner == u64::from(world.rank()) + 1);
    window.close().unwrap();
}

/// Pseudo-random numbers that are the same in all runs.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

/// Bytes of the part that `vectors` uses.
const SMALL: usize = 48;

/// All operations on words and bytes, compared with a model: the results are the same over every transport, mapped or not.
fn vectors(world: &World) {
    let window = world.window(SMALL).unwrap();
    let to = (world.rank() + 1) % world.size();
    let (mut dice, mut model) = (Dice(u64::from(world.rank())), [0u8; SMALL]);
    macro_rules! word {
        ($word:ty, $bits:ty, $flags:expr, $operands:expr) => {{
            let operand: $word = $operands[dice.roll($operands.len())];
            let at = dice.roll(SMALL / size_of::<$word>()) * size_of::<$word>();
            let op = AtomicOp::ALL[dice.roll(AtomicOp::ALL.len())];
            let place = &mut model[at..at + size_of::<$word>()];
            let old = <$bits>::from_ne_bytes((&*place).try_into().unwrap());
            match window.fetch_and_op(to, at as u64, op, operand) {
                Err(error) => {
                    let (operation, word) = (format!("{op:?}"), stringify!($word));
                    assert!(error.to_string().contains(&format!("{operation} on words of type {word}")), "{error}");
                }
                Ok(was) => {
                    assert_eq!(<$bits>::from_ne_bytes(was.to_ne_bytes()), old, "{op:?} of {operand}");
                    let bits = <$bits>::from_ne_bytes(operand.to_ne_bytes());
                    let new = Atomic::Op(op, bits.into()).of_word(old.into(), $flags) as $bits;
                    place.copy_from_slice(&new.to_ne_bytes());
                }
            }
        }};
    }
    let floats = [0.0, -0.0, 1.5, -2.0, f64::INFINITY, 1e-300];
    let short_floats = [0.0f32, -0.0, 1.5, -2.0, f32::INFINITY, 1e-30];
    for _ in 0..60 {
        match dice.roll(8) {
            0 => word!(u64, u64, AtomicFlags::empty(), [0u64, 1, u64::MAX, 1 << 63, 0xff00]),
            1 => word!(i64, u64, AtomicFlags::empty(), [0i64, 1, -1, i64::MIN, i64::MAX]),
            2 => word!(u32, u32, AtomicFlags::BITS_32, [0u32, 1, u32::MAX, 1 << 31]),
            3 => word!(i32, u32, AtomicFlags::BITS_32, [0i32, 1, -1, i32::MIN, i32::MAX]),
            4 => word!(f64, u64, AtomicFlags::FLOAT, floats),
            5 => word!(f32, u32, AtomicFlags::BITS_32 | AtomicFlags::FLOAT, short_floats),
            6 => {
                let at = dice.roll(SMALL / 4) * 4;
                let old = u32::from_ne_bytes(model[at..at + 4].try_into().unwrap());
                let is = if dice.roll(2) == 0 { old } else { 7 };
                assert_eq!(window.compare_and_swap(to, at as u64, is, 9u32), Ok(old));
                if is == old {
                    model[at..at + 4].copy_from_slice(&9u32.to_ne_bytes());
                }
            }
            _ => {
                let from = dice.roll(SMALL);
                let len = dice.roll(SMALL - from + 1);
                let data = &pattern(SMALL, dice.roll(100) as u32)[..len];
                window.put(to, from as u64, data).unwrap();
                window.flush(to).unwrap();
                model[from..from + len].copy_from_slice(data);
            }
        }
        let mut now = [0; SMALL];
        window.get(to, 0, &mut now).unwrap();
        assert_eq!(now, model);
    }
    window.close().unwrap();
}

/// All ranks add to a word of rank 0's part: rank 0 itself, one that maps it, one that sends frames over sm, and two over tcp.
/// The result of each call, and its begin and end, agree with some sequential order of the calls.
fn mixed() {
    let rank: u32 = std::env::var("TOWLINE_RANK").unwrap().parse().unwrap();
    let world = Builder::new().configure(|config| {
        config.transports = if rank >= 3 { "tcp" } else { "sm,tcp" }.into();
        config.sm.windows = rank != 2;
    });
    let world = world.build().unwrap();
    let window = world.window(8).unwrap();
    world.barrier().unwrap();
    let call = |_| {
        let begin = clock();
        let old = window.fetch_and_op(0, 0, AtomicOp::Add, 1u64).unwrap();
        [begin, clock(), old]
    };
    let calls: Vec<[u64; 3]> = (0..300).map(call).collect();
    world.barrier().unwrap();
    if rank != 0 {
        world.send(0, 1, &calls[..]).unwrap();
    } else {
        let mut all = calls;
        for other in 1..world.size() {
            let mut calls = [[0u64; 3]; 300];
            world.recv(other, 1, &mut calls).unwrap();
            all.extend(calls);
        }
        all.sort_unstable_by_key(|[.., old]| *old);
        let mut latest_begin = 0;
        for (place, [begin, end, old]) in (0..).zip(all) {
            assert_eq!(old, place, "each number was given once");
            assert!(end >= latest_begin, "{old} was over before one began that got less");
            latest_begin = latest_begin.max(begin);
        }
    }
    window.close().unwrap();
    world.finish().unwrap();
    report("over");
}

/// Windows are made and closed, and leave no resources behind.
fn many(world: &World) {
    let other = 1 - world.rank();
    let one = || {
        let window: Window = world.window(5000).unwrap();
        window.put(other, 0, &[1u8; 5000]).unwrap();
        window.close().unwrap();
    };
    world.barrier().unwrap();
    let without = resources();
    one();
    let settle = |until: &dyn Fn((usize, usize)) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(300);
        while !until(resources()) && Instant::now() < deadline {
            world.progress();
        }
        resources()
    };
    let before = settle(&|now| now.1 <= without.1);
    for _ in 0..1000 {
        one();
    }
    let after = settle(&|now| now <= before);
    assert_eq!(after, before, "descriptors and maps");
    world.barrier().unwrap();
}

/// Long and short puts and gets among all ranks, at unaligned offsets.
fn copy(world: &World, long: usize) {
    let size = world.size() as usize;
    let window = world.window(size * long + 100 * world.rank() as usize).unwrap();
    for to in 0..world.size() {
        assert_eq!(window.len(to).unwrap(), (size * long + 100 * to as usize) as u64);
        let place = (world.rank() as usize * long) as u64;
        for (from, len) in [(0, 1), (1, 63), (64, 1000), (1064, long - 1064)] {
            let data = &pattern(long, world.rank())[from..from + len];
            window.put(to, place + from as u64, data).unwrap();
        }
    }
    window.flush_all().unwrap();
    let mut back = vec![0u8; long];
    for to in 0..world.size() {
        window.get(to, (world.rank() as usize * long) as u64, &mut back[..]).unwrap();
        assert!(back == pattern(long, world.rank()), "{to}");
    }
    world.barrier().unwrap();
    for from in 0..world.size() {
        window.read(from as usize * long, &mut back[..]).unwrap();
        assert!(back == pattern(long, from), "{from}");
    }
    window.close().unwrap();
}

/// Forbidden and impossible operations are errors that change nothing.
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
    let out = |rank, offset, bytes| Err(Error::OutOfWindow { rank, offset, bytes, len: 64 });
    assert_eq!(window.put(next, 60, &[1u8; 5]), out(next, 60, 5));
    assert_eq!(window.put(next, 1, &[1u8; LONG]), out(next, 1, LONG as u64));
    assert_eq!(window.get(next, u64::MAX, &mut [0u8; 5]), out(next, u64::MAX, 5));
    assert_eq!(window.write(60, &[1u8; 5]), out(rank, 60, 5));
    assert_eq!(window.read(65, &mut [0u8; 0]), out(rank, 65, 0));
    assert_eq!(window.fetch_and_op(next, 64, AtomicOp::Add, 1u64).map(|_| ()), out(next, 64, 8));
    let unaligned = |offset, word| Err(Error::Unaligned { rank: next, offset, word, len: 64 });
    assert_eq!(window.accumulate(next, 2, AtomicOp::Add, &[1u32]), unaligned(2, 4));
    assert_eq!(window.compare_and_swap(next, 4, 0u64, 1).map(|_| ()), unaligned(4, 8));
    let none = |operation, word| Err(Error::NoSuchOperation { operation, word });
    assert_eq!(window.accumulate(next, 0, AtomicOp::Min, &[1u32]), none("Min", "u32"));
    assert_eq!(window.compare_and_swap(next, 0, 0f32, 1.0).map(|_| ()), none("CompareAndSwap", "f32"));
    // The caller chose the arguments, and knows the rights.
    for error in [out(next, 60, 5), unaligned(2, 4), none("Min", "u32"), Err(no_right(next))] {
        assert_eq!(error.unwrap_err().blame(), Blame::Caller);
    }
    let none = Error::NoSuchRank { rank: world.size(), size: world.size() };
    assert_eq!(window.flush(world.size()), Err(none));
    world.barrier().unwrap();
}

/// Which parts the devices serve: those that the library allocates, if they fit. The others work as well, in the same window.
fn ways(world: &World) {
    let me = world.rank();
    for (bytes, on_dpu) in [(64, true), (HUGE, false)] {
        let window = world.window(if me == 1 { bytes } else { 64 }).unwrap();
        for rank in 0..world.size() {
            assert_eq!(window.is_on_dpu(rank), Ok(rank != 1 || on_dpu), "{bytes} bytes");
            assert_eq!(window.fetch_and_op(rank, 8 * u64::from(me), AtomicOp::Add, 3u64), Ok(0));
            window.accumulate(rank, 56, AtomicOp::Add, &[1u64]).unwrap();
        }
        window.put(1, u64::from(me) * 8, &[me + 1]).unwrap();
        window.flush_all().unwrap();
        world.barrier().unwrap();
        let (mut sum, mut mine) = (0u64, 0u32);
        window.read(56, &mut sum).unwrap();
        window.get(1, u64::from(me) * 8, &mut mine).unwrap();
        assert_eq!((sum, mine), (u64::from(world.size()), me + 1), "{bytes} bytes");
        window.close().unwrap();
    }
    let mut memory = [0u64; 8];
    world
        .window_scope(&mut memory, Access::ANY, |window| {
            assert!((0..world.size()).all(|rank| !window.is_on_dpu(rank).unwrap()), "the program has allocated it");
            window.accumulate(0, 0, AtomicOp::Add, &[1u64])
        })
        .unwrap();
    assert!(me != 0 || memory[0] == u64::from(world.size()));
    // Windows that are dropped give their memory back, and those that are open have some at the same time.
    for _ in 0..20 {
        let windows = [(); 2].map(|()| world.window(LONG).unwrap());
        assert!(windows.iter().all(|window| window.is_on_dpu(me).unwrap()));
        windows[1].put((me + 1) % world.size(), 0, &pattern(LONG, me)[..]).unwrap();
        windows[1].flush_all().unwrap();
        world.barrier().unwrap();
    }
}

/// More than the share of windows of a device's memory.
const HUGE: usize = 3 << 20;

/// The device of rank 1 fails. Operations on its part, and of it, end with an error, and the ranks go on.
fn lose_device(world: &World) {
    let (me, size) = (world.rank(), world.size());
    let window = world.window(LONG).unwrap();
    assert!((0..size).all(|rank| window.is_on_dpu(rank).unwrap()));
    window.put((me + 1) % size, 0, &pattern(LONG, me)[..]).unwrap();
    window.flush_all().unwrap();
    world.barrier().unwrap();
    report("ready");
    let failed = Err(Error::DeviceFailed);
    let began = Instant::now();
    let (data, mut into) = (pattern(LONG, 5), vec![0u8; LONG]);
    let ended = loop {
        assert!(began.elapsed() < Duration::from_secs(300), "nothing fails");
        window.put(1, 0, &data[..]).unwrap_or(());
        window.accumulate(1, 0, AtomicOp::Add, &[1u64]).unwrap_or(());
        let flushed = window.flush(1);
        if flushed.is_err() {
            break flushed;
        }
    };
    assert_eq!(ended, failed);
    assert_eq!(window.get(1, 0, &mut into[..]), failed);
    assert_eq!(window.fetch_and_op(1, 0, AtomicOp::Add, 1u64).map(drop), failed);
    assert_eq!(window.flush(1), Ok(()), "told once");
    if me == 1 {
        assert_eq!(window.read(0, &mut into[..]), failed);
        assert_eq!(window.get(0, 0, &mut into[..]), failed);
    } else {
        window.read(0, &mut into[..]).unwrap();
    }
    // Messages, and new windows, use the other transports.
    world.barrier().unwrap();
    drop(window);
    let window = world.window(64).unwrap();
    assert!((0..size).all(|rank| !window.is_on_dpu(rank).unwrap()));
    window.accumulate(1, 0, AtomicOp::Add, &[1u64]).unwrap();
    window.close().unwrap();
    count(world);
}

/// Operations on a window that its owner has dropped are refused.
fn refuse_what_was_dropped(world: &World) {
    let window = world.window(64).unwrap();
    if world.rank() == 0 {
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

/// A device puts and gets although the target makes no progress.
fn still(world: &World) {
    let window = world.window(LONG).unwrap();
    world.barrier().unwrap();
    if world.rank() == 0 {
        window.put(1, 8, &pattern(LONG - 8, 3)[..]).unwrap();
        window.flush(1).unwrap();
        window.put(1, 0, &1u64).unwrap();
        let mut back = vec![0u8; LONG - 8];
        window.get(1, 8, &mut back[..]).unwrap();
        assert!(back == pattern(LONG - 8, 3));
        window.flush(1).unwrap();
    } else {
        let began = Instant::now();
        let mut came = 0u64;
        while came == 0 {
            assert!(began.elapsed() < Duration::from_secs(300), "nobody puts");
            window.read(0, &mut came).unwrap(); // makes no progress
            std::thread::yield_now();
        }
        let mut bytes = vec![0u8; LONG - 8];
        window.read(8, &mut bytes[..]).unwrap();
        assert!(bytes == pattern(LONG - 8, 3));
    }
    // A rank that drops its part refuses what the other one still gets.
    world.barrier().unwrap();
}

fn no_right(rank: u32) -> Error {
    Error::Refused { rank, why: Denied::NoRight }
}

/// The victim is killed while the others put to it, get from it and add in it. The others then go on with each other.
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
        report("ready");
        let _ = world.recv(Any, 0x7777, &mut [0u8; 1]);
        panic!("nobody killed this rank");
    }
    both(3);
    let before = resources();
    world.barrier().unwrap();
    let (mut into, data) = (vec![0u8; LONG], pattern(LONG, 5));
    let failed = Error::PeerFailed { rank: VICTIM };
    for turn in 0.. {
        if turn == 3 {
            report("ready");
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
    let after = resources();
    assert!(after.0 <= before.0 && after.1 <= before.1, "descriptors and maps: {before:?}, now {after:?}");
    assert_eq!(window.close(), Err(failed));
}

/// Waits until all these ranks are over, and requires that each has succeeded.
fn end_well(ranks: impl IntoIterator<Item = Rank>) {
    for mut rank in ranks {
        rank.wait_for("over");
        rank.assert_success();
    }
}

#[test]
fn b18_b21_b28_b40_b43_windows_of_processes_over_every_transport() {
    for (transport, links, mapped) in transports() {
        let job = Job::start(3, "all", &variables(transport, links, mapped));
        end_well(job.ranks);
    }
}

/// Devices for that many ranks, and the list of their windows.
fn devices(count: u32) -> (devices::Devices, String) {
    let rma = towline_core::rma::Config { regions: 8, operations: 64, window: 8 };
    let engine =
        Config { peers: count, requests: 272, unexpected: 64, units: 64, unit_bytes: 512, rma, ..Config::SMALLEST };
    let devices = devices::start_with(count, offload::Limits { engine, communicators: 16, messages: 16 }, 8 << 20);
    let files: Vec<_> = devices.files.iter().map(|file| file.to_str().unwrap()).collect();
    let files = files.join(",");
    (devices, files)
}

/// Windows in the memory of DPUs. A rank that is stopped, or in no call, is served all the same.
#[test]
fn windows_of_processes_over_devices() {
    for (ranks, role) in [(3, "all"), (2, "still")] {
        let (_devices, files) = devices(ranks);
        let with = [("TOWLINE_TRANSPORTS", "dpu"), ("DEVICES", &files)];
        end_well(Job::start(ranks, role, &with).ranks);
    }
}

#[test]
fn a_rank_that_uses_no_device_for_windows_keeps_all_from_it() {
    let (_devices, files) = devices(3);
    let with = [("TOWLINE_TRANSPORTS", "dpu"), ("DEVICES", &files)];
    end_well(Job::start(3, "refuses-devices", &with).ranks);
}

#[test]
fn a_killed_target_over_devices_fails_the_operations_in_progress_and_no_others() {
    let (_devices, files) = devices(3);
    let with = [("TOWLINE_TRANSPORTS", "dpu"), ("DEVICES", &files)];
    let mut job = Job::start(3, "survive", &with);
    job.ranks.iter_mut().for_each(|rank| drop(rank.wait_for("ready")));
    job.ranks[VICTIM as usize].kill();
    end_well(job.ranks.into_iter().take(VICTIM as usize));
}

#[test]
fn operations_end_with_an_error_if_the_device_of_a_part_fails() {
    let (devices, files) = devices(3);
    let with = [("TOWLINE_TRANSPORTS", "dpu"), ("DEVICES", &files), ("TOWLINE_DPU_SILENCE_MS", "2000")];
    let mut job = Job::start(3, "loses-device", &with);
    job.ranks.iter_mut().for_each(|rank| drop(rank.wait_for("ready")));
    devices.stop_one(1);
    end_well(job.ranks);
}

/// As the first test, with puts and gets by the devices, where there are devices.
#[test]
#[ignore = "for machines with devices of verbs"]
fn b18_b44_devices_access_windows_of_ranks_that_make_no_progress() {
    for links in ["1", "2"] {
        let with = [("TOWLINE_TRANSPORTS", "verbs"), ("TOWLINE_LINKS", links), ("TOWLINE_VERBS_WINDOWS", "true")];
        for (ranks, role) in [(3, "all"), (2, "still")] {
            end_well(Job::start(ranks, role, &with).ranks);
        }
    }
}

#[test]
fn b18_a_killed_target_fails_the_operations_in_progress_and_no_others() {
    for (transport, links, mapped) in transports() {
        let mut job = Job::start(3, "survive", &variables(transport, links, mapped));
        job.ranks.iter_mut().for_each(|rank| drop(rank.wait_for("ready")));
        job.ranks[VICTIM as usize].kill();
        end_well(job.ranks.into_iter().take(VICTIM as usize));
    }
}

#[test]
fn b20_ranks_that_map_a_window_and_ranks_that_send_frames_add_to_the_same_word() {
    end_well(Job::start(5, "mixed", &[]).ranks);
}

#[test]
fn b25_a_thousand_windows_leave_no_descriptor_and_no_mapping() {
    end_well(Job::start(2, "many", &variables("sm", "1", "true")).ranks);
}

/// Over sm the target need not be in a call.
#[test]
fn b20_a_target_outside_of_any_call_is_accessed_all_the_same() {
    let (done, is_done) = mpsc::channel();
    let is_done = std::sync::Mutex::new(Some(is_done));
    let done = std::sync::Mutex::new(Some(done));
    jobs(2, |rank, job| {
        let world = Builder::new().job(job).transports("sm").build().unwrap();
        let window = world.window(64).unwrap();
        world.barrier().unwrap();
        if rank == 0 {
            let is_done = is_done.lock().unwrap().take().unwrap();
            is_done.recv_timeout(Duration::from_secs(300)).expect("it waits for nobody");
            let mut words = [0u64; 3];
            window.read(0, &mut words).unwrap();
            assert_eq!(words, [5, 6, 7]);
        } else {
            window.put(0, 0, &[5u64, 6]).unwrap();
            window.accumulate(0, 16, AtomicOp::Add, &[7u64]).unwrap();
            let mut words = [0u64; 3];
            window.get(0, 0, &mut words).unwrap();
            assert_eq!((words, window.compare_and_swap(0, 24, 0u64, 0)), ([5, 6, 7], Ok(0)));
            window.flush(0).unwrap();
            done.lock().unwrap().take().unwrap().send(()).unwrap();
        }
        window.close().unwrap();
        world.finish().unwrap();
    });
}

/// The progress thread, or the device, serves a target that is in no call. Threads of one rank wait for their own operations.
#[test]
fn b42_a_progress_thread_serves_and_threads_share_a_window() {
    let (_devices, files) = devices(2);
    for transport in ["sm", "tcp", "udp", "dpu"] {
        let computes = Barrier::new(2);
        let turns = if transport == "udp" { 20 } else { 100 };
        jobs(2, |rank, job| {
            let builder = Builder::new().job(job).transports(transport).threads(Multiple);
            let window = files.split(',').nth(rank as usize).unwrap();
            let builder = builder.configure(|config| config.dpu.windows = window.into());
            let builder = builder.progress_thread(transport != "dpu");
            let world = builder.build().unwrap();
            let window = world.window(64).unwrap();
            if rank == 1 {
                computes.wait(); // in no call until the other rank is done
                let mut counts = [0u64; 4];
                window.read(0, &mut counts).unwrap();
                assert_eq!(counts, [turns; 4], "{transport}");
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
