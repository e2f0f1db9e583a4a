//! Measures latency and bandwidth of the rail alone between two pinned processes over loopback. The same run measures
//! polled sockets without a rail, in turns with the rail.
//!
//! `cargo run --release -p towline-tcp --example pingpong_tcp`. Start it once, without a launcher: it starts the second
//! process itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Instant as Clock;

use towline_core::convertor::Span;
use towline_core::rail::{Cookie, Delivery, Endpoint, Event, Frame, Lane, Peer, Rail as _, SendError, Sent, Shape};
use towline_core::time::Instant;
use towline_tcp::{Config, JobKey, Rail};

/// There are many short turns. Other tasks on the machine disturb some of them, so the best one counts.
const TURNS: usize = 40;
const ROUND_TRIPS: u32 = 2_000;
const MESSAGE: usize = 4 << 20;
const MESSAGES: usize = 12;
const TAG: u8 = 0x80;

fn main() {
    let port: Option<u16> = std::env::args().nth(1).and_then(|port| port.parse().ok());
    match port {
        None => first(),
        Some(port) => second(port),
    }
}

/// The process that measures.
fn first() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let mut child = Command::new(std::env::current_exe().expect("a program"))
        .arg(port.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a second process");
    pin(0);
    let mut rail = rail(0);
    writeln!(child.stdin.as_mut().expect("piped"), "{}", hex(rail.card())).expect("the second process reads the card");
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a card");
    let (socket, _) = listener.accept().expect("the second process");
    let mut end = End::new(&mut rail, &unhex(line.trim()));
    let mut bare = Bare::new(socket);
    end.ping(1000);
    bare.ping(1000);
    let (mut bares, mut rails) = (Best::new(), Best::new());
    for _ in 0..TURNS {
        bares.take(bare.ping(ROUND_TRIPS), bare.push(MESSAGES, 1), bare.push(1, MESSAGES));
        rails.take(end.ping(ROUND_TRIPS), end.push(MESSAGES, 1), end.push(1, MESSAGES));
    }
    println!("best of {TURNS} turns   8 B, us   4 MiB in a row, GB/s   4 MiB one by one, GB/s");
    println!("{:>18} {:9.3} {:22.2} {:24.2}", "sockets", bares.latency, bares.stream, bares.single);
    println!("{:>18} {:9.3} {:22.2} {:24.2}", "rail", rails.latency, rails.stream, rails.single);
    drop(rail);
    child.wait().expect("the second process ends");
}

/// The best figures of all turns.
struct Best {
    latency: f64,
    stream: f64,
    single: f64,
}

impl Best {
    const fn new() -> Self {
        Self { latency: f64::INFINITY, stream: 0.0, single: 0.0 }
    }

    fn take(&mut self, latency: f64, stream: f64, single: f64) {
        self.latency = self.latency.min(latency);
        self.stream = self.stream.max(stream);
        self.single = self.single.max(single);
    }
}

/// The process that answers.
fn second(port: u16) {
    pin(1);
    let mut rail = rail(1);
    println!("{}", hex(rail.card()));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a card");
    let mut bare = Bare::new(TcpStream::connect(("127.0.0.1", port)).expect("the first process"));
    let mut end = End::new(&mut rail, &unhex(line.trim()));
    end.pong(1000);
    bare.pong(1000);
    for _ in 0..TURNS {
        bare.pong(ROUND_TRIPS);
        bare.pull(MESSAGES, 1);
        bare.pull(1, MESSAGES);
        end.pong(ROUND_TRIPS);
        end.pull(MESSAGES, 1);
        end.pull(1, MESSAGES);
    }
}

fn rail(rank: u32) -> Rail {
    Rail::new(Config::new(1, rank, JobKey::new([3; 32]))).expect("loopback")
}

/// A rail and its one peer.
struct End<'r> {
    rail: &'r mut Rail,
    peer: Endpoint,
    start: Clock,
    memory: Vec<u8>,
}

impl<'r> End<'r> {
    fn new(rail: &'r mut Rail, card: &[u8]) -> Self {
        let peer = rail.add_peer(Peer(0), card).expect("reachable");
        Self { rail, peer, start: Clock::now(), memory: vec![1; MESSAGE] }
    }

    fn poll(&mut self) -> Option<Event> {
        self.rail.poll(Instant::from_nanos(self.start.elapsed().as_nanos() as u64))
    }

    fn small(&mut self) {
        let shape = Shape { tag: TAG, lane: Lane::Eager, header: 8, len: 8 };
        loop {
            // SAFETY: the frame has no body.
            match unsafe { self.rail.send(self.peer, shape, &[7; 8], Span::EMPTY, Cookie(0)) } {
                Ok(_) => return,
                Err(SendError::Busy) => drop(self.poll()),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn frame(&mut self) -> Frame {
        loop {
            match self.poll() {
                Some(Event::Frame(frame)) => return frame,
                Some(Event::Lost(_, why)) => panic!("{why}"),
                _ => {}
            }
        }
    }

    /// Half round trip in microseconds.
    fn ping(&mut self, count: u32) -> f64 {
        let start = Clock::now();
        for _ in 0..count {
            self.small();
            self.frame();
        }
        start.elapsed().as_secs_f64() * 1e6 / f64::from(2 * count)
    }

    fn pong(&mut self, count: u32) {
        for _ in 0..count {
            self.frame();
            self.small();
        }
    }

    /// Sends `count` messages and waits for a short answer, `times` times. Returns gigabytes per second.
    fn push(&mut self, count: usize, times: usize) -> f64 {
        let start = Clock::now();
        let fragment = self.rail.attributes().max_send_size as usize - 24;
        for _ in 0..times {
            for _ in 0..count {
                let mut waiting = 0;
                for at in (0..MESSAGE).step_by(fragment) {
                    waiting += usize::from(self.fragment(at, fragment.min(MESSAGE - at), &mut waiting));
                }
                while waiting > 0 {
                    waiting -= usize::from(matches!(self.poll(), Some(Event::Sent(_))));
                }
            }
            self.frame();
        }
        (MESSAGE * count * times) as f64 / start.elapsed().as_secs_f64() / 1e9
    }

    fn fragment(&mut self, at: usize, len: usize, waiting: &mut usize) -> bool {
        let shape = Shape { tag: TAG, lane: Lane::Bulk, header: 24, len: len as u32 + 24 };
        let mut header = [0; 24];
        header[..8].copy_from_slice(&(at as u64).to_le_bytes());
        loop {
            let body = Span::of(&self.memory[at..at + len]);
            // SAFETY: the memory is kept and not written until all fragments are reported as sent.
            match unsafe { self.rail.send(self.peer, shape, &header, body, Cookie(1)) } {
                Ok(sent) => return sent == Sent::InPlace,
                Err(SendError::Busy) => *waiting -= usize::from(matches!(self.poll(), Some(Event::Sent(_)))),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn pull(&mut self, count: usize, times: usize) {
        for _ in 0..times {
            let mut left = MESSAGE * count;
            while left > 0 {
                let frame = self.frame();
                let at = u64::from_le_bytes(frame.head()[..8].try_into().expect("eight")) as usize;
                let len = frame.len as usize - 24;
                let sink = Span::contiguous(self.memory[at..at + len].as_mut_ptr(), len);
                // SAFETY: the memory is kept and not used until the frame is delivered, which is awaited below.
                if unsafe { self.rail.deliver(frame.id, 24, sink, Cookie(2)) } == Delivery::Pending {
                    while !matches!(self.poll(), Some(Event::Delivered(_))) {}
                }
                left -= len;
            }
            self.small();
        }
    }
}

/// A non-blocking socket that is polled.
struct Bare {
    socket: TcpStream,
    memory: Vec<u8>,
}

impl Bare {
    fn new(socket: TcpStream) -> Self {
        socket.set_nodelay(true).expect("a socket option");
        socket.set_nonblocking(true).expect("a socket option");
        Self { socket, memory: vec![1; MESSAGE] }
    }

    fn take(&mut self, len: usize) {
        let mut at = 0;
        while at < len {
            at += self.socket.read(&mut self.memory[at..len]).unwrap_or(0);
        }
    }

    fn give(&mut self, len: usize) {
        let mut at = 0;
        while at < len {
            at += self.socket.write(&self.memory[at..len]).unwrap_or(0);
        }
    }

    fn ping(&mut self, count: u32) -> f64 {
        let start = Clock::now();
        for _ in 0..count {
            self.give(8);
            self.take(8);
        }
        start.elapsed().as_secs_f64() * 1e6 / f64::from(2 * count)
    }

    fn pong(&mut self, count: u32) {
        for _ in 0..count {
            self.take(8);
            self.give(8);
        }
    }

    fn push(&mut self, count: usize, times: usize) -> f64 {
        let start = Clock::now();
        for _ in 0..times {
            (0..count).for_each(|_| self.give(MESSAGE));
            self.take(8);
        }
        (MESSAGE * count * times) as f64 / start.elapsed().as_secs_f64() / 1e9
    }

    fn pull(&mut self, count: usize, times: usize) {
        for _ in 0..times {
            (0..count).for_each(|_| self.take(MESSAGE));
            self.give(8);
        }
    }
}

fn pin(core: usize) {
    // SAFETY: a set of zeros is an empty set, and the call only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(digit).collect()
}
