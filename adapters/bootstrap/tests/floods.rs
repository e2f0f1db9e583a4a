//! Thousands of callers that do not authenticate, while the ranks of a job join, exchange and finish.

use std::collections::VecDeque;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use towline_bootstrap::server::{Config, Event, Server};
use towline_bootstrap::{Address, Environment, Job};
use towline_core::modex::{Component, Version};

const CALLERS: u32 = 10_000;
const V: Version = Version::new(1, 0, 0);
const TCP: Component = Component { mca: V, kind: "btl", kind_version: V, name: "tcp", version: V };

/// Bytes of memory that this process occupies.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Calls that close, send random bytes, or stay and send a byte of something like an opening now and then.
fn flood(at: &str) {
    let mut drips: VecDeque<(TcpStream, usize)> = VecDeque::new();
    for caller in 0..CALLERS {
        let mut stream = TcpStream::connect(at).expect("the listener is there");
        match caller % 4 {
            0 => drop(stream),
            1 => drop(stream.write_all(b"GET / HTTP/1.1\r\n\r\n")),
            _ => drips.push_back((stream, 0)),
        }
        if let Some((mut stream, sent)) = drips.pop_front() {
            let opening = b"TOWLBOOT\x02\0\0\0";
            if stream.write_all(&opening[sent % 12..=sent % 12]).is_ok() && sent < 60 {
                drips.push_back((stream, sent + 1));
            }
        }
        drips.truncate(400);
    }
}

#[test]
fn ten_thousand_callers_are_refused_and_the_job_goes_on() {
    let mut base = Environment::singleton();
    base.size = 2;
    let refused = std::sync::Arc::new(AtomicU32::new(0));
    let count = std::sync::Arc::clone(&refused);
    let config = Config {
        size: 2,
        job: base.job,
        key: base.key.clone(),
        name: None,
        listen: Some("127.0.0.1:0".parse().unwrap()),
        disconnect_ends_rank: false,
    };
    let tell = move |event| {
        if matches!(event, Event::Refused { .. }) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    let server = Server::start(config, tell).unwrap();
    base.root = server.addresses().to_vec();
    let Address::Tcp(address) = &server.addresses()[0] else { panic!("no TCP") };
    let (before, over, start) = (memory(), AtomicBool::new(false), Instant::now());
    let soon = || Instant::now() + Duration::from_secs(300);
    std::thread::scope(|threads| {
        let callers = threads.spawn(|| {
            flood(address);
            over.store(true, Ordering::Relaxed);
        });
        for rank in 0..2 {
            let (base, over) = (&base, &over);
            threads.spawn(move || {
                // After the flood has begun.
                std::thread::sleep(Duration::from_millis(50));
                let mut environment = base.clone();
                environment.rank = rank;
                let mut job = Job::join(environment, soon()).unwrap();
                job.publish(&TCP, &rank.to_le_bytes()).unwrap();
                job.exchange(soon()).unwrap();
                assert_eq!(job.card(&TCP, 1 - rank).unwrap(), (1 - rank).to_le_bytes());
                let mut fences = 0u32;
                // As many calls as the other thread.
                while fences < 200 {
                    job.fence(soon()).unwrap();
                    fences += 1;
                }
                job.finish().unwrap();
                println!("rank {rank} came to its end; the flood was over: {}", over.load(Ordering::Relaxed));
            });
        }
        callers.join().unwrap();
    });
    let grown = memory().saturating_sub(before);
    println!("{CALLERS} calls in {:?}, {} refused, {grown} B more", start.elapsed(), refused.load(Ordering::Relaxed));
    // Each was refused, except for the last ones, which may stay for a while.
    let enough = CALLERS - 1000;
    let until = soon();
    while refused.load(Ordering::Relaxed) < enough {
        assert!(Instant::now() < until, "{} refused", refused.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(grown < 32 << 20, "{grown} B more");
}
