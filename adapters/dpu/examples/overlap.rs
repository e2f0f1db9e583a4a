//! How much of a transfer is hidden behind a computation that makes no call: overlap WINDOW_A WINDOW_B
//!
//! Host A computes alone on core 0. Host B, a thread, runs on core 1, where the two devices should run, too. For each length and each
//! direction, the program prints medians: the time of a transfer that A waits for, the time of a computation of A, the time of both
//! together, and the hidden share 1 - (both - computation) / transfer. Messages lie in buffers of the window, or in A's ordinary
//! memory, which A copies.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use towline_core::convertor::Span;
use towline_dpu::{Buffer, Comm, Mode, Options, Request, Source, Tag, Transport};

const LENGTHS: [u64; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
const ROUNDS: usize = 21;
const TAG: u32 = 1;

/// The direction of a transfer, seen from host A.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Direction {
    Send,
    Receive,
}

/// What host B is asked for: its part of one transfer.
type Order = (Direction, u64);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [a, b] = &arguments[..] else { return Err("usage: overlap WINDOW_A WINDOW_B".into()) };
    pin(0)?;
    let (mut host, mut other) = (open(a)?, open(b)?);
    let cards = [host.card()?, other.card()?];
    host.add_peer(1, &cards[1])?;
    other.add_peer(0, &cards[0])?;
    let (comm, comm_of_b) = (host.add_comm(1, &[0, 1], 0)?, other.add_comm(1, &[0, 1], 1)?);
    let (orders, to_do) = channel();
    let (done, ended) = channel();
    thread::spawn(move || serve(other, comm_of_b, &to_do, &done));
    let mut a = HostA { host, comm, orders, ended };

    println!(
        "{:>9} {:>8} {:>9} {:>12} {:>12} {:>12} {:>7}",
        "bytes", "A", "memory", "transfer us", "compute us", "both us", "hidden"
    );
    for length in LENGTHS {
        for direction in [Direction::Send, Direction::Receive] {
            let buffer = a.host.buffer(length)?;
            a.report("window", length, direction, &Memory::Window(&buffer))?;
            a.host.free(buffer);
            let mut bytes = vec![1; length as usize];
            let span = Span::contiguous(bytes.as_mut_ptr(), bytes.len());
            a.report("ordinary", length, direction, &Memory::Ordinary(span))?;
        }
    }
    Ok(())
}

fn open(path: &str) -> Result<Transport, Box<dyn Error>> {
    Ok(Transport::open(Path::new(path), Options::default())?)
}

fn pin(core: usize) -> Result<(), Box<dyn Error>> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Host B: does its part of each transfer.
fn serve(mut host: Transport, comm: Comm, orders: &Receiver<Order>, done: &Sender<()>) {
    pin(1).expect("core 1");
    for (direction, length) in orders {
        let buffer = host.buffer(length).expect("a buffer");
        let request = match direction {
            Direction::Send => host.irecv_buffer(comm, Source::Rank(0), Tag::Is(TAG), &buffer),
            Direction::Receive => host.isend_buffer(comm, 0, TAG, Mode::Standard, &buffer, length),
        };
        host.wait(request.expect("it begins")).expect("it ends");
        host.free(buffer);
        if done.send(()).is_err() {
            return;
        }
    }
}

enum Memory<'a> {
    Window(&'a Buffer),
    Ordinary(Span),
}

struct HostA {
    host: Transport,
    comm: Comm,
    orders: Sender<Order>,
    ended: Receiver<()>,
}

impl HostA {
    fn begin(&mut self, direction: Direction, length: u64, memory: &Memory<'_>) -> Result<Request, Box<dyn Error>> {
        let (comm, from, tag) = (self.comm, Source::Rank(1), Tag::Is(TAG));
        Ok(match (direction, memory) {
            (Direction::Send, Memory::Window(buffer)) => {
                self.host.isend_buffer(comm, 1, TAG, Mode::Synchronous, buffer, length)?
            }
            (Direction::Receive, Memory::Window(buffer)) => self.host.irecv_buffer(comm, from, tag, buffer)?,
            // SAFETY: the memory outlives the operation.
            (Direction::Send, Memory::Ordinary(span)) => unsafe {
                self.host.isend(comm, 1, TAG, Mode::Synchronous, *span)?
            },
            // SAFETY: the memory outlives the operation, and nothing else uses it.
            (Direction::Receive, Memory::Ordinary(span)) => unsafe { self.host.irecv(comm, from, tag, *span)? },
        })
    }

    /// The time of a transfer, with a computation between its begin and the wait for its end.
    fn time(
        &mut self,
        direction: Direction,
        length: u64,
        memory: &Memory<'_>,
        computation: u64,
    ) -> Result<Duration, Box<dyn Error>> {
        self.orders.send((direction, length))?;
        let start = Instant::now();
        let request = self.begin(direction, length, memory)?;
        compute(computation);
        self.host.wait(request)?;
        let time = start.elapsed();
        self.ended.recv()?;
        Ok(time)
    }

    fn report(
        &mut self,
        name: &str,
        length: u64,
        direction: Direction,
        memory: &Memory<'_>,
    ) -> Result<(), Box<dyn Error>> {
        self.time(direction, length, memory, 0)?;
        let transfer = median(|| self.time(direction, length, memory, 0))?;
        // A computation that takes twice as long.
        let per_step = timed(1 << 20).as_secs_f64() / f64::from(1 << 20);
        let steps = (2.0 * transfer.as_secs_f64() / per_step) as u64;
        let computation = median(|| Ok(timed(steps)))?;
        let both = median(|| self.time(direction, length, memory, steps))?;
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let hidden = 1.0 - (micros(both) - micros(computation)) / micros(transfer);
        println!(
            "{length:>9} {:>8} {name:>9} {:>12.0} {:>12.0} {:>12.0} {hidden:>7.2}",
            if direction == Direction::Send { "sends" } else { "receives" },
            micros(transfer),
            micros(computation),
            micros(both),
        );
        Ok(())
    }
}

fn timed(steps: u64) -> Duration {
    let start = Instant::now();
    compute(steps);
    start.elapsed()
}

/// A computation in registers.
fn compute(steps: u64) {
    let mut value = black_box(1_u64);
    for step in 0..steps {
        value = value.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(step);
    }
    black_box(value);
}

fn median(mut run: impl FnMut() -> Result<Duration, Box<dyn Error>>) -> Result<Duration, Box<dyn Error>> {
    let mut times = (0..ROUNDS).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
    times.sort();
    Ok(times[ROUNDS / 2])
}
