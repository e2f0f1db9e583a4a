//! `towline perf --mode overlap`: how much of a transfer is hidden behind a computation that makes no call of the library, as the
//! overlap tests of the OSU suite measure it.
//!
//! The first rank computes, alone on its processor. The second one has the other one, where the DPUs of both should be, too, if there are
//! any: they are processes of their own, and whoever starts them places them.
//! For each case three times are measured, as medians: a transfer that the first rank waits for, a computation of about that time,
//! and a transfer with the computation between its begin and the wait for its end. The hidden share is
//! `1 - (both - computation) / transfer`.

use std::hint::black_box;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use towline::World;

use super::affinity;
use super::plan::Size;
use crate::stdout::out;
use crate::variables::Variable;

/// Sizes that are measured by default.
const SIZES: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Sizes of a quick measurement.
const QUICK: [usize; 2] = [64 << 10, 1 << 20];
/// Repetitions, and those of a quick measurement.
const REPEAT: [u32; 2] = [15, 5];

/// Tags of messages: orders of the first rank, signs that a rank is ready, and measured messages.
const ORDERS: u32 = 1;
const READY: u32 = 2;
const DATA: u32 = 3;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What the first rank does in a transfer, and when the receive is posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Case {
    /// It sends, and the receive is posted before.
    SendsEarly,
    /// It sends, and the receive is posted after the message was announced.
    SendsLate,
    /// It receives, and posts the receive before the message is sent.
    ReceivesEarly,
    /// It receives, and posts the receive after the message was announced.
    ReceivesLate,
}

impl Case {
    const fn name(self) -> [&'static str; 2] {
        match self {
            Self::SendsEarly => ["sends", "early"],
            Self::SendsLate => ["sends", "late"],
            Self::ReceivesEarly => ["receives", "early"],
            Self::ReceivesLate => ["receives", "late"],
        }
    }
}

/// One rank of `towline perf --mode overlap`: the first one prints a row for each case
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// The name of the transport, for the table
    #[arg(long)]
    name: String,

    /// Sizes of messages
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    sizes: Vec<Size>,

    /// Number of repetitions
    #[arg(long)]
    repeat: u32,
}

/// Measures each transport, with and without a progress thread where that makes a difference.
pub fn measure(
    transports: &[String],
    sizes: &[Size],
    repeat: Option<u32>,
    quick: bool,
    reported: &Option<Variable>,
) -> std::result::Result<(), String> {
    let me = std::env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let chosen = if quick { &QUICK[..] } else { &SIZES[..] };
    let sizes: Vec<String> = match sizes {
        [] => chosen.iter().map(usize::to_string).collect(),
        these => these.iter().map(|size| size.0.to_string()).collect(),
    };
    let repeat = repeat.unwrap_or(REPEAT[usize::from(quick)]).to_string();
    out!(
        "{:10} {:8} {:>9} {:8} {:6} {:8} {:>11} {:>11} {:>11} {:>7}\n",
        "transport",
        "thread",
        "size",
        "rank 0",
        "post",
        "memory",
        "transfer us",
        "compute us",
        "both us",
        "hidden"
    );
    for transport in transports {
        // A DPU makes progress without a thread of the host.
        let threads: &[&str] = if transport == "dpu" { &["never"] } else { &["never", "always"] };
        for thread in threads {
            let mut command = Command::new(&me);
            command.args(["run", "--ranks", "2", "--no-prefix", "--transport", transport]).envs(reported.clone());
            command.args(["--env", &format!("TOWLINE_PROGRESS_THREAD={thread}"), "--"]).arg(&me);
            command.args(["overlap-rank", "--repeat", &repeat, "--sizes", &sizes.join(",")]);
            command.args(["--name", &format!("{transport:10} {:8}", if *thread == "always" { "yes" } else { "no" })]);
            let ended = command.stdin(Stdio::null()).status();
            let ended = ended.map_err(|why| format!("cannot start {}: {why}", me.display()))?;
            if !ended.success() {
                return Err(format!("{transport}: the job of the two ranks failed ({ended}); its messages are above"));
            }
        }
    }
    let place = match affinity::two_processors() {
        Some([first, second]) => format!("rank 0 has processor {first}, and rank 1 processor {second}"),
        None => String::from("both ranks have the same processor"),
    };
    out!("hidden: 1 - (both - compute) / transfer; rank 0 makes no call while it computes; {place}\n");
    Ok(())
}

/// Runs one rank.
pub fn rank(arguments: &Arguments) -> ExitCode {
    match take_part(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("towline: {why}");
            ExitCode::FAILURE
        }
    }
}

fn take_part(arguments: &Arguments) -> Result<()> {
    let processors = affinity::two_processors();
    let world = towline::init()?;
    if let Some(processors) = processors {
        affinity::pin(processors[world.rank() as usize]);
    }
    if world.rank() != 0 {
        follow(&world)?;
        return Ok(world.finish()?);
    }
    for size in &arguments.sizes {
        for case in Case::value_variants() {
            if let Some(mut memory) = world.device_buffer(size.0) {
                report(arguments, &world, *case, "window", &mut memory)?;
            }
            report(arguments, &world, *case, "ordinary", &mut vec![1; size.0])?;
        }
    }
    world.send(1, ORDERS, &[u64::MAX, 0])?;
    Ok(world.finish()?)
}

/// The second rank: does its part of each transfer.
fn follow(world: &World) -> Result<()> {
    loop {
        let mut order = [0u64; 2];
        world.recv(0, ORDERS, &mut order)?;
        let Some(case) = usize::try_from(order[0]).ok().and_then(|at| Case::value_variants().get(at)) else {
            return Ok(());
        };
        let mut memory = vec![2u8; usize::try_from(order[1])?];
        let nothing = [0u8; 0];
        match case {
            Case::SendsEarly => world.scope(|scope| {
                let receive = scope.irecv(0, DATA, &mut memory[..])?;
                world.send(0, READY, &nothing)?;
                receive.wait().map(drop)
            })?,
            Case::SendsLate => {
                world.send(0, READY, &nothing)?;
                world.probe(0, DATA)?;
                world.recv(0, DATA, &mut memory[..]).map(drop)?;
            }
            Case::ReceivesEarly => {
                world.recv(0, READY, &mut [0u8; 0])?;
                world.ssend(0, DATA, &memory[..])?;
            }
            Case::ReceivesLate => world.ssend(0, DATA, &memory[..])?,
        }
    }
}

/// Measures one case, and prints its row.
fn report(arguments: &Arguments, world: &World, case: Case, name: &str, memory: &mut [u8]) -> Result<()> {
    let mut median = |steps: u64| -> Result<Duration> {
        let mut times = Vec::new();
        for _ in 0..arguments.repeat {
            times.push(transfer(world, case, memory, steps)?);
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    };
    median(0)?;
    let transferred = median(0)?;
    let per_step = timed(1 << 20).as_secs_f64() / f64::from(1 << 20);
    // Computations shorter than a transfer could not hide it.
    let steps = (1.5 * transferred.as_secs_f64() / per_step) as u64;
    let mut computations: Vec<_> = (0..arguments.repeat).map(|_| timed(steps)).collect();
    computations.sort_unstable();
    let computed = computations[computations.len() / 2];
    let both = median(steps)?;
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let hidden = 1.0 - (micros(both) - micros(computed)) / micros(transferred);
    let ([what, post], size) = (case.name(), memory.len());
    let times = [transferred, computed, both].map(micros);
    out!(
        "{} {size:>9} {what:8} {post:6} {name:8} {:>11.0} {:>11.0} {:>11.0} {hidden:>7.2}\n",
        arguments.name,
        times[0],
        times[1],
        times[2]
    );
    Ok(())
}

/// The time of one transfer at the first rank, with a computation before the wait for its end.
fn transfer(world: &World, case: Case, memory: &mut [u8], steps: u64) -> Result<Duration> {
    let at = Case::value_variants().iter().position(|other| *other == case).unwrap_or(0);
    world.send(1, ORDERS, &[at as u64, memory.len() as u64])?;
    let nothing = [0u8; 0];
    match case {
        Case::SendsEarly | Case::SendsLate => {
            world.recv(1, READY, &mut [0u8; 0])?;
            let start = Instant::now();
            world.scope(|scope| {
                let send = scope.issend(1, DATA, &*memory)?;
                compute(steps);
                send.wait()
            })?;
            Ok(start.elapsed())
        }
        Case::ReceivesEarly => {
            let mut start = Instant::now();
            world.scope(|scope| {
                let receive = scope.irecv(1, DATA, memory)?;
                start = Instant::now();
                world.send(1, READY, &nothing)?;
                compute(steps);
                receive.wait().map(drop)
            })?;
            Ok(start.elapsed())
        }
        Case::ReceivesLate => {
            world.probe(1, DATA)?;
            let start = Instant::now();
            world.scope(|scope| {
                let receive = scope.irecv(1, DATA, memory)?;
                compute(steps);
                receive.wait().map(drop)
            })?;
            Ok(start.elapsed())
        }
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
