//! Measures the rail alone between two pinned processes: half a round trip of 8 bytes, and the bandwidth of 4 MiB messages
//! with copy-in and copy-out. For comparison, the same run measures half a round trip without a rail, with one cache line
//! that both processes write, and with two cache lines, one for each direction. Every ring needs two cache lines, so the
//! second figure is its limit: the writer must fetch its line before the reader can.
//!
//! `cargo run --release -p towline-sm --example pingpong_raw [tight|pause]`. Start it once, without a launcher: it starts the
//! second process itself.

use std::hint::{black_box, spin_loop};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant as Clock;

use towline_core::convertor::Span;
use towline_core::rail::{Cookie, Delivery, Endpoint, Event, Frame, Lane, Peer, Rail as _, SendError, Shape};
use towline_core::time::Instant;
use towline_sm::{Config, Rail};

const ROUNDS: u32 = 5_000;
const WINDOWS: usize = 100;
const BULK: usize = 4 << 20;
const BULK_ROUNDS: usize = 10;
const HEADER: [u8; 20] = [0x55; 20];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let tight = arguments.first().is_some_and(|how| how == "tight");
    let how = if tight { "tight" } else { "pause" };
    let (me, job, path) = match arguments.get(1) {
        Some(job) => (1, job.parse().expect("a job number"), arguments[2].clone()),
        None => (0, u64::from(std::process::id()), format!("/dev/shm/bounce.{}", std::process::id())),
    };
    pin(me);
    let bounce = Bounce::map(&path);
    let mut rail = Rail::open(Config::new(job, me as u32, 2)).expect("a rail");
    let card = format!("{path}.card{me}");
    std::fs::write(format!("{card}.new"), rail.card()).expect("a card");
    std::fs::rename(format!("{card}.new"), &card).expect("a card");
    let mut child = (me == 0).then(|| {
        let myself = std::env::current_exe().expect("a path");
        Command::new(myself).args([how, &job.to_string(), &path]).spawn().expect("a second process")
    });
    let peer = rail_peer(&mut rail, &format!("{path}.card{}", 1 - me));
    let mut node = Node { rail, peer, tight };

    // Many short measurements, each between two measurements of the cache line. Other tasks of the machine disturb some of
    // them; the best ones were not disturbed.
    let (mut latencies, mut aparts) = (Vec::new(), Vec::new());
    for _ in 0..WINDOWS {
        let before = bounce.measure(me, tight, 0);
        let latency = node.latency(me);
        let after = bounce.measure(me, tight, 0);
        latencies.push((latency, before.min(after)));
        aparts.push(bounce.measure(me, tight, 128));
    }
    let mut streams: Vec<f64> = (0..WINDOWS / 10).map(|_| node.stream(me)).collect();
    if me == 0 {
        latencies.sort_by(|left, right| left.0.total_cmp(&right.0));
        streams.sort_by(f64::total_cmp);
        let mut bares: Vec<f64> = latencies.iter().map(|window| window.1).collect();
        bares.sort_by(f64::total_cmp);
        aparts.sort_by(f64::total_cmp);
        let at = |part: usize| WINDOWS * part / 100;
        for (name, part) in [("best", 0), ("10 %", 10), ("median", 50)] {
            let (latency, bare, apart) = (latencies[at(part)].0, bares[at(part)], aparts[at(part)]);
            let stream = streams[streams.len() - 1 - streams.len() * part / 100];
            println!(
                "{how} {name:>6}: one line {bare:5.1} ns, two lines {apart:5.1} ns, 8 B half round trip {latency:5.1} ns, 4 MiB {stream:4.1} GB/s"
            );
        }
    }
    if let Some(child) = &mut child {
        child.wait().expect("the second process ends");
        for name in ["", ".card0", ".card1"] {
            let _ = std::fs::remove_file(format!("{path}{name}"));
        }
    }
}

fn rail_peer(rail: &mut Rail, path: &str) -> Endpoint {
    loop {
        if let Ok(card) = std::fs::read(path) {
            return rail.add_peer(Peer(9), &card).expect("a peer on this host");
        }
        std::thread::yield_now();
    }
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

struct Node {
    rail: Rail,
    peer: Endpoint,
    tight: bool,
}

impl Node {
    #[inline]
    fn send(&mut self, lane: Lane, body: &[u8]) {
        let shape = Shape { tag: 0x80, lane, header: 20, len: 20 + body.len() as u32 };
        loop {
            match self.rail.reserve(self.peer, shape) {
                Ok(mut grant) => {
                    grant.write(0, &HEADER);
                    grant.write(20, body);
                    let ticket = grant.finish();
                    self.rail.commit(ticket);
                    return;
                }
                Err(SendError::Busy) => self.pause(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[inline]
    fn receive(&mut self) -> Frame {
        loop {
            match self.rail.poll(Instant::ZERO) {
                Some(Event::Frame(frame)) => return frame,
                Some(event) => panic!("{event:?}"),
                None => self.pause(),
            }
        }
    }

    #[inline]
    fn pause(&self) {
        if !self.tight {
            spin_loop();
        }
    }

    fn latency(&mut self, me: usize) -> f64 {
        let start = Clock::now();
        for round in 0..ROUNDS {
            if me == 0 {
                self.send(Lane::Eager, &u64::from(round).to_le_bytes());
            }
            black_box(self.receive());
            if me == 1 {
                self.send(Lane::Eager, &u64::from(round).to_le_bytes());
            }
        }
        start.elapsed().as_nanos() as f64 / f64::from(ROUNDS) / 2.0
    }

    fn stream(&mut self, me: usize) -> f64 {
        let mut memory = vec![1u8; BULK];
        let chunk = self.rail.attributes().max_send_size as usize - 20;
        let start = Clock::now();
        for _ in 0..BULK_ROUNDS {
            if me == 0 {
                for part in memory.chunks(chunk) {
                    self.send(Lane::Bulk, part);
                }
            } else {
                let mut got = 0;
                while got < BULK {
                    let frame = self.receive();
                    let len = frame.len as usize - 20;
                    let sink = Span::contiguous(memory[got..got + len].as_mut_ptr(), len);
                    // SAFETY: the sink is memory of this vector, which nothing else uses during the call.
                    let delivery = unsafe { self.rail.deliver(frame.id, 20, sink, Cookie(0)) };
                    assert_eq!(delivery, Delivery::Done);
                    got += len;
                }
            }
        }
        if me == 0 {
            self.receive();
        } else {
            self.send(Lane::Eager, &[0; 8]);
        }
        (BULK * BULK_ROUNDS) as f64 / start.elapsed().as_nanos() as f64
    }
}

/// A cache line that two processes write in turn, with no other work.
struct Bounce(*mut u32);

impl Bounce {
    fn map(path: &str) -> Self {
        let file = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
        file.set_len(4096).expect("a page");
        let access = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let page = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), 4096, access, rustix::mm::MapFlags::SHARED, file, 0).unwrap()
        };
        Self(page.cast())
    }

    /// Nanoseconds of one direction. The words of the two directions are `apart` words apart; 0 means that they are one word.
    fn measure(&self, me: usize, tight: bool, apart: usize) -> f64 {
        // SAFETY: all words lie within the page, which stays mapped until the process ends.
        let word = |at: usize| unsafe { AtomicU32::from_ptr(self.0.add(at)) };
        let (barrier, mine, theirs) = (word(64), word(256 + apart * (1 + me)), word(256 + apart * (2 - me)));
        let first = theirs.load(Ordering::SeqCst);
        barrier.fetch_add(1, Ordering::SeqCst);
        while !barrier.load(Ordering::SeqCst).is_multiple_of(2) {
            spin_loop();
        }
        let start = Clock::now();
        for round in 1..=ROUNDS {
            let (ask, answer) = (first + 2 * round - 1, first + 2 * round);
            let (write, wait) = if me == 0 { (ask, answer) } else { (answer, ask) };
            if me == 0 {
                mine.store(write, Ordering::Release);
            }
            // With one line, both processes write the same word: it keeps this process's value until the other one has written.
            while theirs.load(Ordering::Acquire) != wait {
                if !tight {
                    spin_loop();
                }
            }
            if me == 1 {
                mine.store(write, Ordering::Release);
            }
        }
        if apart == 0 {
            return start.elapsed().as_nanos() as f64 / f64::from(ROUNDS) / 2.0;
        }
        // Both words must end with the same value, since the next call starts from it.
        let nanos = start.elapsed().as_nanos() as f64 / f64::from(ROUNDS) / 2.0;
        mine.store(first + 2 * ROUNDS, Ordering::Release);
        while theirs.load(Ordering::Acquire) != first + 2 * ROUNDS {
            spin_loop();
        }
        nanos
    }
}
