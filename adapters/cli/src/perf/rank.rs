//! The ranks of `towline perf`: two processes. The first one decides what both measure next, and prints each
//! repetition.

use std::error::Error;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use towline::{AtomicOp, Layout, ViewMut, Window, World};

use super::baseline::{Baseline, Copies, CopyMethod};
use super::percentiles::Samples;
use super::plan::{Mode, Size, Unit, measures, window};
use super::repetition::Repetition;
use super::{affinity, between_hosts};

/// Tags of messages: orders, and measured messages.
const ORDERS: u32 = 1;
const DATA: u32 = 2;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// One rank of `towline perf`: prints a line of words for each repetition: transport, mode, bytes, value, limit, and
/// the bounce before and after in ns; with `--exchange` also the exchange of two cache lines before and after
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// Measurements to run
    #[arg(long, value_name = "MODE,...", value_delimiter = ',')]
    pub mode: Vec<Mode>,

    /// Sizes of messages, such as 8,4K,1M
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    pub sizes: Vec<Size>,

    /// Number of steady repetitions of each measurement
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,

    /// Measure exactly these, such as latency:8,rate:8
    #[arg(long, value_name = "MODE:BYTES,...", value_delimiter = ',', value_parser = measure)]
    pub measure: Vec<(Mode, Size)>,

    /// Do not measure the limits, and print them as 0
    #[arg(long)]
    pub no_limit: bool,

    /// Also time each operation by itself, and print a line with percentiles after each measurement
    #[arg(long)]
    pub percentiles: bool,

    /// Also measure the exchange of two cache lines, one for each direction, before and after
    #[arg(long)]
    pub exchange: bool,

    /// Measure few sizes, with short repetitions
    #[arg(long)]
    pub quick: bool,

    /// Round trips, or windows of messages, of a repetition [default: as many as take some milliseconds]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Time in seconds after which each remaining measurement is made only once
    #[arg(long, value_name = "SECS", default_value_t = 25)]
    pub seconds: u64,
}

fn measure(text: &str) -> std::result::Result<(Mode, Size), String> {
    let (mode, bytes) = text.split_once(':').ok_or("a measurement is written MODE:BYTES")?;
    let (mode, size) = (mode.parse()?, bytes.parse()?);
    let moves = mode == Mode::Latency || size != Size(0);
    moves.then_some((mode, size)).ok_or_else(|| "only latency can be measured with 0 bytes".into())
}

/// Runs one rank.
pub fn run(arguments: &Arguments) -> ExitCode {
    match take_part(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("towline: {why}");
            ExitCode::FAILURE
        }
    }
}

fn take_part(arguments: &Arguments) -> Result<()> {
    let world = towline::init()?;
    if world.size() != 2 {
        return Err("this needs two ranks: use `towline perf`, or `towline run -n 2`".into());
    }
    if let Some(processors) = affinity::two_processors() {
        affinity::pin(processors[world.rank() as usize]);
    }
    let measures = match &arguments.measure[..] {
        [] => measures(&arguments.mode, &arguments.sizes, arguments.quick),
        these => these.to_vec(),
    };
    let most = measures.iter().map(|(mode, size)| size.0 * window(*mode, size.0)).max().unwrap_or(0);
    let apart = !on_one_host(&world)?;
    let mut pair = Pair {
        baseline: connect(&world, apart, most)?,
        apart,
        samples: arguments.percentiles.then(Samples::default),
        window: measures.iter().any(|(mode, _)| mode.is_one_sided()).then(|| world.window(most)).transpose()?,
        limits: !arguments.no_limit,
        exchanges: arguments.exchange,
        sockets: !world.rails().contains(&"sm"),
        out: vec![1; most],
        into: vec![2; most],
        target: Duration::from_millis(if arguments.quick { 4 } else { 10 }),
        count: arguments.count,
        world,
    };
    if pair.world.rank() == 0 {
        let deadline = Instant::now() + Duration::from_secs(arguments.seconds);
        for (mode, size) in measures {
            pair.measure(mode, size, arguments.repeat, deadline)?;
        }
        pair.issue(Order::End)?;
    } else {
        pair.follow_orders()?;
    }
    pair.world.finish()?;
    Ok(())
}

/// Connects both ranks beside the transport, by shared memory and a socket.
fn connect(world: &World, apart: bool, room: usize) -> Result<Baseline> {
    if apart {
        let socket = between_hosts::connect(world, ORDERS)?;
        return Ok(Baseline::new(world.rank() == 0, &Baseline::memory(0)?, 0, socket)?);
    }
    if world.rank() == 0 {
        let memory = Baseline::memory(room)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        world.send(1, ORDERS, &[std::process::id(), memory.as_raw_fd() as u32, port.into()])?;
        let baseline = Baseline::new(true, &memory, room, listener.accept()?.0)?;
        world.recv(1, ORDERS, &mut [0u8; 0])?; // the other rank has opened the memory
        Ok(baseline)
    } else {
        let mut told = [0u32; 3];
        world.recv(0, ORDERS, &mut told)?;
        let [process, descriptor, port] = told;
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port as u16))?;
        let baseline = Baseline::new(false, Baseline::memory_of(process, descriptor as i32)?, room, socket)?;
        world.send(0, ORDERS, &[0u8; 0])?;
        Ok(baseline)
    }
}

/// Whether the launcher started both ranks on one host.
fn on_one_host(world: &World) -> Result<bool> {
    let mut mine = [0u8; 256];
    let name = std::env::var("TOWLINE_HOST").unwrap_or_default();
    let name = &name.as_bytes()[..name.len().min(mine.len())];
    mine[..name.len()].copy_from_slice(name);
    let (other, mut theirs) = (1 - world.rank(), [0u8; 256]);
    world.sendrecv(&mine, other, ORDERS, &mut theirs, other, ORDERS)?;
    Ok(mine == theirs)
}

/// An order to both ranks.
#[derive(Clone, Copy, Debug)]
enum Order {
    Bounce,
    Exchange,
    Baseline(Mode, usize, u64, CopyMethod),
    Towline(Mode, usize, u64),
    /// As `Towline`, and each operation is timed.
    Timed(Mode, usize, u64),
    End,
}

impl Order {
    fn encode(self) -> [u64; 7] {
        match self {
            Self::End => [0; 7],
            Self::Bounce => [1, 0, 0, 0, 0, 0, 0],
            Self::Baseline(mode, bytes, count, CopyMethod { copies, piece, paused }) => {
                [2, mode as u64, bytes as u64, count, piece as u64, paused.into(), copies as u64]
            }
            Self::Towline(mode, bytes, count) => [3, mode as u64, bytes as u64, count, 0, 0, 0],
            Self::Exchange => [4, 0, 0, 0, 0, 0, 0],
            Self::Timed(mode, bytes, count) => [5, mode as u64, bytes as u64, count, 0, 0, 0],
        }
    }

    fn decode([what, mode, bytes, count, piece, paused, copies]: [u64; 7]) -> Self {
        let mode = Mode::ALL.into_iter().find(|each| *each as u64 == mode);
        let (mode, bytes) = (mode.unwrap_or(Mode::Rate), bytes as usize);
        let copies = [Copies::Once, Copies::OnceByKernel].into_iter().find(|each| *each as u64 == copies);
        let copies = copies.unwrap_or(Copies::Twice);
        match what {
            1 => Self::Bounce,
            2 => Self::Baseline(mode, bytes, count, CopyMethod { copies, piece: piece as usize, paused: paused != 0 }),
            3 => Self::Towline(mode, bytes, count),
            4 => Self::Exchange,
            5 => Self::Timed(mode, bytes, count),
            _ => Self::End,
        }
    }
}

/// One of the two ranks, and everything that it measures with.
struct Pair {
    world: World,
    baseline: Baseline,
    /// The window of one-sided operations, if any are measured.
    window: Option<Window>,
    /// Whether to measure the limits.
    limits: bool,
    /// Whether the ranks are on different hosts.
    apart: bool,
    /// Whether to measure exchanges in addition to bounces.
    exchanges: bool,
    /// Whether the limit is that of sockets; otherwise it is that of memory.
    sockets: bool,
    out: Vec<u8>,
    into: Vec<u8>,
    /// The times of single operations, if they are wanted.
    samples: Option<Samples>,
    /// Time that a repetition should take.
    target: Duration,
    /// Number of rounds in a repetition, if it was given.
    count: Option<u64>,
}

impl Pair {
    /// Repeats one measurement until enough repetitions were steady, or until three times as many were made.
    fn measure(&mut self, mode: Mode, size: Size, repeat: u32, deadline: Instant) -> Result<()> {
        let bytes = size.0;
        let towline = |count| Order::Towline(mode, bytes, count);
        let towline_count = match self.count {
            Some(count) => count,
            None => self.calibrate(mode, bytes, towline)?,
        };
        let methods = if self.limits { self.best_methods(mode, bytes)? } else { Vec::new() };
        let (mut steady, mut tried) = (0, 0);
        while steady < repeat && tried < 3 * repeat && (tried == 0 || Instant::now() < deadline) {
            let before = self.issue(Order::Bounce)?;
            let exchange_before = self.exchange()?;
            // Which of the methods is faster may change with the state of the machine.
            let mut limit: Option<f64> = None;
            for (method, count) in &methods {
                let value = self.issue(Order::Baseline(mode, bytes, *count, *method))?;
                limit = Some(limit.map_or(value, |limit| better(mode, limit, value)));
            }
            let limit = limit.unwrap_or(0.0);
            let value = self.issue(towline(towline_count))?;
            if self.samples.is_some() {
                self.issue(Order::Timed(mode, bytes, towline_count))?;
            }
            let exchange_after = self.exchange()?;
            let after = self.issue(Order::Bounce)?;
            // Eight bytes need no cache line besides the one that bounces.
            let line = mode == Mode::Latency && bytes <= 8 && !self.sockets;
            let limit = if line { limit.min(f64::midpoint(before, after)) } else { limit };
            // A DPU has the messages, whatever rails there are.
            let has_dpu = !mode.is_one_sided() && self.world.device_buffer(0).is_some();
            let rail = self.world.rails().first().copied().unwrap_or_default();
            let transport = if has_dpu { "dpu" } else { rail }.into();
            let repetition = Repetition { transport, mode, size, value, limit, bounces: [before, after] };
            let exchanges = exchange_before.zip(exchange_after);
            steady += u32::from(repetition.is_steady());
            tried += 1;
            let mut out = std::io::stdout().lock();
            match exchanges {
                Some((before, after)) => writeln!(out, "{repetition} {before:.1} {after:.1}")?,
                None => writeln!(out, "{repetition}")?,
            }
            out.flush()?;
        }
        if let Some(times) = self.samples.as_mut().and_then(|samples| samples.take()) {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{times}")?;
            out.flush()?;
        }
        Ok(())
    }

    fn exchange(&mut self) -> Result<Option<f64>> {
        self.exchanges.then(|| self.issue(Order::Exchange)).transpose()
    }

    /// The fastest methods with two copies and with one for messages of this size, and how many messages to move with each.
    fn best_methods(&mut self, mode: Mode, bytes: usize) -> Result<Vec<(CopyMethod, u64)>> {
        let mut best: [Option<(f64, CopyMethod, u64)>; 2] = [None; 2];
        let memory = CopyMethod::for_memory(bytes).filter(|_| !self.sockets);
        let sockets = CopyMethod::for_sockets(bytes).filter(|_| self.sockets);
        let methods = if mode.is_one_sided() { 1 } else { usize::MAX };
        for method in memory.chain(sockets).take(methods).collect::<Vec<_>>() {
            let baseline = |count| Order::Baseline(mode, bytes, count, method);
            let count = self.calibrate(mode, bytes, baseline)?;
            let value = self.issue(baseline(count / 4 + 1))?;
            let best = &mut best[usize::from(method.copies != Copies::Twice)];
            if best.is_none_or(|(other, ..)| better(mode, other, value) == value) {
                *best = Some((value, method, count));
            }
        }
        Ok(best.into_iter().flatten().map(|(_, method, count)| (method, count)).collect())
    }

    /// How often to do something so that it takes as long as a repetition should take.
    fn calibrate(&mut self, mode: Mode, bytes: usize, order: impl Fn(u64) -> Order) -> Result<u64> {
        let mut count = 1;
        for _ in 0..3 {
            let value = self.issue(order(count))?;
            let all = (bytes * window(mode, bytes)) as f64;
            let nanos_each = match mode.unit() {
                Unit::Nanos if mode == Mode::Latency => 2.0 * value,
                Unit::Nanos => value,
                Unit::Gigabytes => all / value,
                Unit::Messages | Unit::Operations => window(mode, bytes) as f64 * 1e9 / value,
            };
            let enough = (self.target.as_nanos() as f64 / nanos_each.max(1.0)) as u64;
            // A few rounds do not predict the time of many.
            count = enough.clamp(1, count.saturating_mul(64));
        }
        Ok(count)
    }

    fn follow_orders(&mut self) -> Result<()> {
        loop {
            let mut order = [0u64; 7];
            self.world.recv(0, ORDERS, &mut order)?;
            match Order::decode(order) {
                Order::End => return Ok(()),
                order => self.perform(order)?,
            };
        }
    }

    /// Gives both ranks an order. Returns the measured value.
    fn issue(&mut self, order: Order) -> Result<f64> {
        self.world.send(1, ORDERS, &order.encode())?;
        self.perform(order)
    }

    /// Does this rank's part of an order.
    fn perform(&mut self, order: Order) -> Result<f64> {
        let value = match order {
            Order::End => 0.0,
            Order::Bounce if self.apart => self.baseline.socket_bounce()?,
            Order::Bounce => self.baseline.bounce(),
            Order::Exchange => self.baseline.exchange(),
            Order::Baseline(Mode::Latency, bytes, count, method) => {
                let (out, into) = (&self.out[..bytes], &mut self.into[..bytes]);
                if self.sockets {
                    self.baseline.socket_latency(method, count, out, into)?
                } else {
                    self.baseline.copy_latency(method, count, out, into)
                }
            }
            Order::Baseline(mode, bytes, count, _) if mode.is_one_sided() => {
                speed(mode, bytes, count, self.baseline_one_sided(mode, bytes, count)?)
            }
            Order::Baseline(mode, bytes, count, method) => {
                let all = bytes * window(mode, bytes);
                // With one buffer, sockets still deliver as many bytes as there are with each call.
                let used = if mode.has_one_buffer() { bytes } else { all };
                let (out, into) = (&self.out[..used], &mut self.into[..if self.sockets { all } else { used }]);
                let nanos = if self.sockets {
                    self.baseline.socket_stream(method, count, bytes, out, into)?
                } else {
                    self.baseline.copy_stream(method, count * window(mode, bytes) as u64, bytes, out, into)
                };
                speed(mode, bytes, count, nanos)
            }
            Order::Timed(mode, bytes, count) => {
                self.timed(mode, bytes, count)?;
                0.0
            }
            Order::Towline(Mode::Latency, bytes, count) => self.latency(bytes, count, |_| {})?,
            Order::Towline(mode, bytes, count) if mode.is_one_sided() => {
                speed(mode, bytes, count, self.one_sided(mode, bytes, count, |_| {})?)
            }
            Order::Towline(mode, bytes, count) => speed(mode, bytes, count, self.stream(mode, bytes, count, |_| {})?),
        };
        Ok(value)
    }

    /// Times each operation, or each window of a stream, by itself.
    fn timed(&mut self, mode: Mode, bytes: usize, count: u64) -> Result<()> {
        let mut samples = self.samples.take().unwrap_or_default();
        let messages = if mode == Mode::Latency { 2 } else { window(mode, bytes) as u64 };
        let mut last: Option<Instant> = None;
        let done = self.timed_with(mode, bytes, count, |begins| {
            let now = Instant::now();
            if let Some(last) = last.filter(|_| !begins) {
                samples.add((now - last).as_nanos() as u64 / messages);
            }
            last = Some(now);
        });
        self.samples = Some(samples);
        done
    }

    fn timed_with(&mut self, mode: Mode, bytes: usize, count: u64, tick: impl FnMut(bool)) -> Result<()> {
        match mode {
            Mode::Latency => self.latency(bytes, count, tick),
            _ if mode.is_one_sided() => self.one_sided(mode, bytes, count, tick),
            _ => self.stream(mode, bytes, count, tick),
        }
        .map(drop)
    }

    /// Half a round trip in nanoseconds. Calls `tick` after each round trip, and with `true` at the beginning.
    #[inline(always)]
    fn latency(&mut self, bytes: usize, count: u64, mut tick: impl FnMut(bool)) -> Result<f64> {
        let (out, into) = (&self.out[..bytes], &mut self.into[..bytes]);
        let first = self.world.rank() == 0;
        let warm_up = count / 8 + 1;
        let mut start = Instant::now();
        for round in 0..warm_up + count {
            if round == warm_up {
                start = Instant::now();
                tick(true);
            }
            if first {
                self.world.send(1, DATA, out)?;
                self.world.recv(1, DATA, into)?;
                if round >= warm_up {
                    tick(false);
                }
            } else {
                self.world.recv(0, DATA, into)?;
                self.world.send(0, DATA, out)?;
            }
        }
        Ok(start.elapsed().as_nanos() as f64 / (2 * count) as f64)
    }

    /// Nanoseconds for `count` windows of one-sided operations. The other rank waits for a message meanwhile. Calls `tick` as
    /// [`latency`](Self::latency) does.
    #[inline(always)]
    fn one_sided(&mut self, mode: Mode, bytes: usize, count: u64, mut tick: impl FnMut(bool)) -> Result<f64> {
        let Self { world, window: Some(memory), out, into, .. } = self else {
            return Err("the window is missing".into());
        };
        if world.rank() != 0 {
            world.recv(0, DATA, &mut [0u8; 0])?;
            return Ok(0.0);
        }
        let all = bytes * window(mode, bytes);
        let adds = vec![1u64; window(mode, bytes)];
        let mut start = Instant::now();
        let warm_up = count / 8 + 1;
        for round in 0..warm_up + count {
            if round == warm_up {
                start = Instant::now();
                tick(true);
            }
            match mode {
                Mode::Get | Mode::GetBandwidth => {
                    for (piece, at) in into[..all].chunks_exact_mut(bytes).zip((0..).step_by(bytes)) {
                        memory.get(1, at, piece)?;
                    }
                }
                Mode::FetchAdd => memory.fetch_and_op(1, 0, AtomicOp::Add, 1u64).map(drop)?,
                Mode::AddRate => memory.accumulate(1, 0, AtomicOp::Add, &adds)?,
                _ => {
                    for (piece, at) in out[..all].chunks_exact(bytes).zip((0..).step_by(bytes)) {
                        memory.put(1, at, piece)?;
                    }
                }
            }
            if !matches!(mode, Mode::Get | Mode::GetBandwidth | Mode::FetchAdd) {
                memory.flush(1)?;
            }
            if round >= warm_up {
                tick(false);
            }
        }
        let nanos = start.elapsed().as_nanos() as f64;
        world.send(1, DATA, &[0u8; 0])?;
        Ok(nanos)
    }

    /// The same without Towline: by one process in shared memory, or over sockets.
    fn baseline_one_sided(&mut self, mode: Mode, bytes: usize, count: u64) -> Result<f64> {
        let all = bytes * window(mode, bytes);
        let Self { baseline, sockets, out, into, .. } = self;
        let (out, into) = (&mut out[..all], &mut into[..all]);
        let method = CopyMethod::with_piece(1 << 30);
        // Over sockets, an operation whose result is awaited is a request and a reply of at least eight bytes.
        Ok(match (mode, *sockets) {
            (Mode::FetchAdd | Mode::AddRate, false) => baseline.add(count * window(mode, bytes) as u64),
            (Mode::Get | Mode::GetBandwidth, false) => baseline.copy_to_or_from(false, count, bytes, into),
            (_, false) => baseline.copy_to_or_from(true, count, bytes, out),
            (Mode::Get | Mode::GetBandwidth, true) => {
                baseline.socket_round_trips(count * window(mode, bytes) as u64, &mut [0; 8], &mut into[..bytes])?
            }
            (Mode::Put | Mode::FetchAdd, true) => baseline.socket_round_trips(count, out, &mut [0; 8])?,
            (_, true) => baseline.socket_stream(method, count, bytes, out, into)?,
        })
    }

    /// Nanoseconds for `count` windows of messages, each answered by an empty message.
    #[inline(always)]
    fn stream(&mut self, mode: Mode, bytes: usize, count: u64, mut tick: impl FnMut(bool)) -> Result<f64> {
        let messages = window(mode, bytes);
        let all = bytes * messages;
        let world = &self.world;
        let start = Instant::now();
        tick(true);
        for _ in 0..count {
            if world.rank() == 0 {
                match mode.has_one_buffer() {
                    true => send_from_one(world, &self.out[..bytes], messages)?,
                    false => send_from_each(world, &self.out[..all], bytes)?,
                }
                world.recv(1, DATA, &mut [0u8; 0])?;
                tick(false);
            } else {
                match mode.has_one_buffer() {
                    true => receive_into_one(world, &mut self.into[..bytes], messages)?,
                    false => receive_into_each(world, &mut self.into[..all], bytes)?,
                }
                world.send(0, DATA, &[0u8; 0])?;
            }
        }
        Ok(start.elapsed().as_nanos() as f64)
    }
}

// Each window is a function of its own, as a program with one kind of stream is compiled: the compiler inlines a send into one place.

#[inline(never)]
fn send_from_each(world: &World, out: &[u8], bytes: usize) -> Result<()> {
    Ok(world.scope(|scope| out.chunks_exact(bytes).try_for_each(|message| scope.isend(1, DATA, message).map(drop)))?)
}

#[inline(never)]
fn send_from_one(world: &World, out: &[u8], messages: usize) -> Result<()> {
    Ok(world.scope(|scope| (0..messages).try_for_each(|_| scope.isend(1, DATA, out).map(drop)))?)
}

#[inline(never)]
fn receive_into_each(world: &World, into: &mut [u8], bytes: usize) -> Result<()> {
    Ok(world
        .scope(|scope| into.chunks_exact_mut(bytes).try_for_each(|message| scope.irecv(0, DATA, message).map(drop)))?)
}

#[inline(never)]
fn receive_into_one(world: &World, into: &mut [u8], messages: usize) -> Result<()> {
    let layout = Layout::bytes(into.len() as u64)?;
    let into = into.as_mut_ptr();
    Ok(world.scope(|scope| {
        (0..messages).try_for_each(|_| {
            // SAFETY: the buffer lives longer than the scope, and nobody else uses it meanwhile. Several receives write plain
            // bytes to it, by pointers, in any order, and nobody reads them, as in other libraries' benchmarks.
            let view = unsafe { ViewMut::at(into, &layout) }?;
            scope.irecv_view(0, DATA, view).map(drop)
        })
    })?)
}

/// The better one of two values of a mode.
fn better(mode: Mode, one: f64, other: f64) -> f64 {
    if mode.unit() == Unit::Nanos { one.min(other) } else { one.max(other) }
}

/// Converts `count` windows in `nanos` nanoseconds to the mode's unit.
fn speed(mode: Mode, bytes: usize, count: u64, nanos: f64) -> f64 {
    let messages = (window(mode, bytes) as u64 * count) as f64;
    match mode.unit() {
        Unit::Nanos => nanos / messages,
        Unit::Gigabytes => messages * bytes as f64 / nanos,
        Unit::Messages | Unit::Operations => messages * 1e9 / nanos,
    }
}
