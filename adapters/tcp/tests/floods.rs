//! Thousands of callers that do not belong to the job, while two ranks exchange frames and a third one connects: the callers are
//! refused and counted, in bounded memory.

mod common;

use std::collections::VecDeque;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant as Clock;

use common::*;
use towline_core::rail::Peer;
use towline_core::time::Instant;
use towline_tcp::Rail;
use towline_tcp::hello::{HELLO, Hello};

const CALLERS: u32 = 10_000;
/// Callers that stay, and each of which sends single bytes of a hello but never all of it.
const SLOW: usize = 300;

/// Resident memory of this process, in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Connects as all kinds of foreign callers do, and returns how often.
fn flood(at: std::net::SocketAddr, hello: [u8; HELLO], enough: &AtomicBool) -> u32 {
    let mut slow: VecDeque<(TcpStream, usize)> = VecDeque::new();
    for caller in 0..CALLERS {
        // The kernel's queue is full at times: this call waits like every other.
        let mut stream = TcpStream::connect(at).expect("the listener is there");
        match caller % 5 {
            0 => drop(stream),
            1 => drop(stream.write_all(b"GET / HTTP/1.1\r\n\r\n")),
            // A recorded hello without a proof.
            2 => drop(stream.write_all(&hello)),
            _ => slow.push_back((stream, 0)),
        }
        if let Some((mut stream, at)) = slow.pop_front() {
            // They are refused in the end.
            if stream.write_all(&hello[at..=at]).is_ok() && at + 2 < HELLO {
                slow.push_back((stream, at + 1));
            }
        }
        slow.truncate(SLOW);
        if enough.load(Ordering::Relaxed) {
            return caller + 1;
        }
    }
    CALLERS
}

#[test]
fn ten_thousand_callers_are_refused_and_counted_and_the_job_goes_on() {
    let start = Clock::now();
    let stricter = |rank| {
        let mut config = config(rank);
        config.hello_timeout = std::time::Duration::from_millis(500);
        Rail::new(config).unwrap()
    };
    let (mut world, endpoints) = World::with_peers((0..3).map(stricter).collect());
    let now = |world: &mut World| world.now = Instant::from_nanos(1 + start.elapsed().as_nanos() as u64);
    world.send(0, endpoints[0][1], b"hello");
    world.until("they are connected", |world| !world.observed[1].is_empty());
    let before = memory();
    let hello: Hello = ManualPeer::new(1).hello(&world.rails[0]);
    let (at, enough) = (address(&world.rails[0]), AtomicBool::new(false));
    let (mut rounds, mut joined) = (0u64, false);
    let calls = std::thread::scope(|threads| {
        let callers = threads.spawn(|| flood(at, hello.encode(), &enough));
        while !callers.is_finished() {
            now(&mut world);
            // Two ranks exchange frames all the time; the third one connects meanwhile.
            let number = rounds.to_le_bytes();
            world.send(0, endpoints[0][1], &number);
            world.send(1, endpoints[1][0], &number);
            if rounds > 200 && !joined {
                joined = try_send(&mut world.rails[2], endpoints[2][0], b"third").expect("not lost");
            }
            world.round();
            rounds += 1;
            let lost = world.observed.iter().flatten().find(|seen| matches!(seen, Observed::Lost(..)));
            if lost.is_some() {
                enough.store(true, Ordering::Relaxed);
                panic!("{lost:?}");
            }
        }
        callers.join().unwrap()
    });
    let grown = memory().saturating_sub(before);
    let counters = world.rails[0].counters();
    println!(
        "{calls} calls in {:?}, {rounds} messages each way meanwhile; {counters:?}; {grown} B more",
        start.elapsed()
    );
    // Each accepted connection is refused or belongs to the job.
    world.until("all are refused", |world| {
        now(world);
        let counters = world.rails[0].counters();
        counters.accepted >= u64::from(calls) && counters.refused() + 3 >= counters.accepted
    });
    while !joined {
        now(&mut world);
        world.round();
        joined = try_send(&mut world.rails[2], endpoints[2][0], b"third").expect("not lost");
    }
    world.until("the frame of the third", |world| {
        world.observed[0].contains(&Observed::Frame(Peer(2), b"third".to_vec()))
    });
    // All frames arrived in order.
    world.until("all frames", |world| world.observed[1].len() as u64 > rounds);
    let numbers = world.observed[1].iter().skip(1).map(|seen| match seen {
        Observed::Frame(Peer(0), bytes) => u64::from_le_bytes(bytes[..].try_into().unwrap()),
        other => panic!("{other:?}"),
    });
    assert!(numbers.eq(0..rounds));
    world.assert_no_peer_lost();
    let kept = rounds * 2 * 64; // the frames that this test keeps
    assert!(grown < (32 << 20) + kept, "{grown} B more");
    assert_eq!(calls, CALLERS);
}
