//! Thousands of callers that do not belong to the job, while ranks of it talk and one more joins: refused and counted, in
//! bounded memory.

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
/// Callers that stay, each of which sends a byte now and then and never all of a hello.
const DRIPS: usize = 300;

/// Bytes of memory that this process has taken.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Calls as all kinds of strangers do; how many it were.
fn flood(at: std::net::SocketAddr, hello: [u8; HELLO], enough: &AtomicBool) -> u32 {
    let mut drips: VecDeque<(TcpStream, usize)> = VecDeque::new();
    for caller in 0..CALLERS {
        // The kernel's queue is full now and then: this one waits like everybody.
        let mut stream = TcpStream::connect(at).expect("the listener is there");
        match caller % 5 {
            0 => drop(stream),
            1 => drop(stream.write_all(b"GET / HTTP/1.1\r\n\r\n")),
            // A hello that was heard on the wire, and no proof.
            2 => drop(stream.write_all(&hello)),
            _ => drips.push_back((stream, 0)),
        }
        if let Some((mut stream, at)) = drips.pop_front() {
            // In the end they are cut off.
            if stream.write_all(&hello[at..=at]).is_ok() && at + 2 < HELLO {
                drips.push_back((stream, at + 1));
            }
        }
        drips.truncate(DRIPS);
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
    let (mut world, endpoints) = World::acquainted((0..3).map(stricter).collect());
    let now = |world: &mut World| world.now = Instant::from_nanos(1 + start.elapsed().as_nanos() as u64);
    world.send(0, endpoints[0][1], b"hello");
    world.until("they are connected", |world| !world.seen[1].is_empty());
    let before = memory();
    let hello: Hello = Hand::new(1).hello(&world.rails[0]);
    let (at, enough) = (address(&world.rails[0]), AtomicBool::new(false));
    let (mut rounds, mut joined) = (0u64, false);
    let calls = std::thread::scope(|threads| {
        let callers = threads.spawn(|| flood(at, hello.encode(), &enough));
        while !callers.is_finished() {
            now(&mut world);
            // Two talk all the while; the third joins in the middle of it.
            let number = rounds.to_le_bytes();
            world.send(0, endpoints[0][1], &number);
            world.send(1, endpoints[1][0], &number);
            if rounds > 200 && !joined {
                joined = try_send(&mut world.rails[2], endpoints[2][0], b"third").expect("not given up");
            }
            world.round();
            rounds += 1;
            let lost = world.seen.iter().flatten().find(|seen| matches!(seen, Seen::Lost(..)));
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
    // Each call that was taken is refused, or belongs to the job.
    world.until("all are refused", |world| {
        now(world);
        let counters = world.rails[0].counters();
        counters.accepted >= u64::from(calls) && counters.refused() + 3 >= counters.accepted
    });
    while !joined {
        now(&mut world);
        world.round();
        joined = try_send(&mut world.rails[2], endpoints[2][0], b"third").expect("not given up");
    }
    world.until("the third is heard", |world| world.seen[0].contains(&Seen::Frame(Peer(2), b"third".to_vec())));
    // All that the two said came, in its order.
    world.until("all is here", |world| world.seen[1].len() as u64 > rounds);
    let numbers = world.seen[1].iter().skip(1).map(|seen| match seen {
        Seen::Frame(Peer(0), bytes) => u64::from_le_bytes(bytes[..].try_into().unwrap()),
        other => panic!("{other:?}"),
    });
    assert!(numbers.eq(0..rounds));
    world.assert_nobody_lost();
    let kept = rounds * 2 * 64; // what this test itself remembers of the messages
    assert!(grown < (32 << 20) + kept, "{grown} B more");
    assert_eq!(calls, CALLERS);
}
