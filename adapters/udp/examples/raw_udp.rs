//! Measures a UDP rail without a link between two threads: half a round trip of 8 bytes, and the rate of a stream. The
//! receiver of the stream reports its progress, so that no datagram is lost.
//!
//! `cargo run --release -p towline-udp --example raw_udp -- [DATAGRAM_BYTES] [sign] [plain]`. It needs no launcher.

use std::time::Instant as Clock;

use towline_core::rail::{Endpoint, Event, Frame, Lane, Peer, Rail as _, Shape};
use towline_core::time::Instant;
use towline_udp::{Config, JobKey, Rail};

const ROUNDS: u32 = 40_000;
const STREAM: usize = 4 << 30;
/// Maximum number of bytes in flight.
const WINDOW: usize = 1 << 20;
/// The receiver reports its progress after this number of bytes.
const STEP: usize = WINDOW / 4;

struct End {
    rail: Rail,
    to: Endpoint,
    start: Clock,
}

impl End {
    fn poll(&mut self) -> Option<Frame> {
        match self.rail.poll(Instant::from_nanos(self.start.elapsed().as_nanos() as u64)) {
            Some(Event::Frame(frame)) => Some(frame),
            Some(event) => panic!("{event:?}"),
            None => None,
        }
    }

    fn frame(&mut self) -> Frame {
        loop {
            if let Some(frame) = self.poll() {
                return frame;
            }
        }
    }

    fn send(&mut self, lane: Lane, bytes: &[u8]) {
        let shape = Shape { tag: 0x80, lane, header: 8, len: bytes.len() as u32 };
        loop {
            match self.rail.reserve(self.to, shape) {
                Ok(mut grant) => {
                    grant.write(0, bytes);
                    let ticket = grant.finish();
                    self.rail.commit(ticket);
                    return;
                }
                Err(_) => assert!(self.poll().is_none(), "no frame may arrive while this end sends"),
            }
        }
    }

    fn stream(&mut self) {
        let body = vec![7; self.rail.attributes().max_send_size as usize];
        let (mut sent, mut acked) = (0, 0);
        while acked < STREAM {
            if sent < STREAM && sent - acked + body.len() <= WINDOW {
                self.send(Lane::Bulk, &body);
                sent += body.len();
            } else if let Some(frame) = self.poll() {
                acked = u64::from_le_bytes(frame.head()[..8].try_into().unwrap()) as usize;
            }
        }
    }

    fn take(&mut self) {
        let (mut got, mut acked) = (0, 0);
        let mut sink = vec![0; self.rail.attributes().max_send_size as usize];
        while got < STREAM {
            let frame = self.frame();
            got += frame.len as usize;
            self.rail.read(frame.id, 0, &mut sink);
            self.rail.release(frame.id);
            if got - acked >= STEP || got >= STREAM {
                acked = got;
                self.send(Lane::Control, &(got as u64).to_le_bytes());
            }
        }
        while self.poll().is_none() && !self.rail.drained(self.to) {}
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let make = |rank| {
        let mut config = Config::new(1, rank, JobKey::new([1; 32]));
        config.within_host = true;
        config.datagram_bytes = arguments.first().and_then(|first| first.parse().ok()).unwrap_or(0);
        config.sign = Some(has("sign"));
        config.segmentation = !has("plain");
        Rail::new(config).expect("this host has a loopback")
    };
    let mut rails = [make(0), make(1)];
    let cards = rails.each_ref().map(|rail| rail.card().to_vec());
    let to = [1, 0].map(|other: usize| rails[1 - other].add_peer(Peer(other as u32), &cards[other]).unwrap());
    let start = Clock::now();
    let [mut one, mut other] = {
        let mut to = to.into_iter();
        rails.map(|rail| End { rail, to: to.next().unwrap(), start })
    };
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for _ in 0..ROUNDS {
                let frame = other.frame();
                other.send(Lane::Eager, frame.head());
            }
            other.take();
        });
        let mut half = vec![];
        for round in 0..ROUNDS {
            let begin = Clock::now();
            one.send(Lane::Eager, &u64::from(round).to_le_bytes());
            one.frame();
            half.push(begin.elapsed().as_nanos() / 2);
        }
        half.sort_unstable();
        let begin = Clock::now();
        one.stream();
        let rate = STREAM as f64 / begin.elapsed().as_secs_f64() / 1e9;
        let (median, counters) = (half[half.len() / 2], one.rail.counters());
        let batch = counters.frames_sent as f64 / counters.sends as f64;
        let datagram = one.rail.datagram_bytes();
        println!("{datagram} B: half round trip {median} ns, stream {rate:.2} GB/s, {batch:.1} frames per call");
    });
    println!("lost because the receive buffer was full: {}", other.rail.buffers().overflowed);
}
