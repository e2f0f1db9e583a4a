//! `towline perf`: measures latency, bandwidth and message rate, and compares them with the limits of the machine.
//!
//! For each transport, `towline run` launches a job of two ranks ([`rank`]). The first rank prints every repetition.
//! The process of `towline perf` reads these lines, shows the results and writes the files.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use indicatif::{ProgressBar, ProgressStyle};

mod affinity;
mod baseline;
mod between_hosts;
mod chart;
mod figures;
mod files;
pub mod overlap;
mod percentiles;
mod plan;
pub mod rank;
mod repetition;
mod table;

use crate::numbers::number;
use crate::run::hosts_of;
use crate::stdout::out;
use crate::transports::{ALL, STANDARD, ignored_links, why_unavailable};
use crate::variables::{Variable, warn_of_unknown_here};
use files::Files;
use percentiles::Percentiles;
use plan::{Mode, Size, measures};
use repetition::{Repetition, Row};

/// Measure latency, bandwidth and message rate between two processes, next to the limits of the machine
///
/// Without arguments the command measures sm and tcp, if they work here, in less than a minute. Each value stands next
/// to its limit: what two processes reach without Towline in the same run. For sm, they bounce a cache line, and copy
/// bytes, twice through a ring or once, whichever is faster. For tcp and udp, they use plain tcp sockets.
///
/// In a stream, each message has a buffer of its own, as in programs. The modes bandwidth-one-buffer and rate-one-buffer use
/// one buffer for all messages, which stays in the cache, as osu_bw and ucx_perftest do.
///
/// The columns p50 to max are percentiles of single operations (half a round trip, a put with its flush, and so on). They
/// are timed one by one, beside the repetitions, so each one contains a reading of the clock. For a stream, --json and --csv
/// have the time of a message on average over each window of messages.
///
/// With --hosts, the two processes are on the first two hosts of the file. All limits are then those of plain tcp sockets.
///
/// One-sided operations (put, get, fetch-add and others) are measured if --mode names them. Their limit for sm is one
/// process that copies to and from shared memory, or changes a word of it. Their limit for tcp and udp is request and
/// reply over plain sockets.
///
/// The mode overlap measures how much of a transfer is hidden behind a computation of the first process that makes no call
/// meanwhile, with and without a progress thread, and with a DPU. It has a table of its own.
///
/// The round trip of a cache line (the bounce) is measured before and after each repetition. If the two differ by more
/// than 10 %, the machine has changed its state, and the repetition does not count. If none counts, the values are those of
/// all repetitions, and the row is marked as unsteady.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Transports to measure, one after the other [default: sm and tcp, if they work here; tcp between hosts]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    transport: Vec<String>,

    /// Kinds of measurement: latency, bandwidth and rate if none is named
    #[arg(long, value_name = "MODE,...", value_delimiter = ',')]
    mode: Vec<Mode>,

    /// Sizes of messages, such as 8,4K,4M [default: several for each mode]. A rate uses 8 bytes unless it is the only
    /// mode; an atomic operation always does
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    sizes: Vec<Size>,

    /// Links between the two ranks, for transports that support several
    #[arg(long, value_name = "K", value_parser = number(1, 64))]
    links: Option<u32>,

    /// Number of steady repetitions of each measurement [default: 7, or 3 with --quick]
    #[arg(long, value_name = "N", value_parser = number(1, 10_000))]
    repeat: Option<u32>,

    /// Write all values to a file, one JSON object on each line
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write all values to a file of comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Draw a chart of times, bandwidths and rates. The end of the file name selects SVG or PNG
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    plot: Option<PathBuf>,

    /// Measure few sizes and repetitions, in a few seconds
    #[arg(long)]
    quick: bool,

    /// Measure between the first two hosts in a file: one `host [slots=N]` on each line
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,

    /// Remote shell: runs a command on a host, called as CMD HOST COMMAND...
    #[arg(long, value_name = "CMD", requires = "hosts")]
    rsh: Option<String>,

    /// Path of towline on both hosts [default: the path on this host]
    #[arg(long, value_name = "PATH", requires = "hosts")]
    remote_path: Option<OsString>,

    /// Name or address at which the other hosts can reach this host [default: all are tried]
    #[arg(long, value_name = "HOST", requires = "hosts")]
    address: Option<String>,
}

/// Runs the measurements. Returns the exit status.
pub fn run(arguments: &Arguments) -> ExitCode {
    match measure(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("towline: {why}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<(), String> {
    let reported = warn_of_unknown_here();
    if arguments.mode.contains(&Mode::Overlap) {
        return measure_overlap(arguments, &reported);
    }
    let transports = transports(arguments)?;
    let steps = measures(&arguments.mode, &arguments.sizes, arguments.quick).len() * transports.len();
    if steps == 0 {
        return Err("nothing to measure: give a size above 0".into());
    }
    let mut files = Files::open(arguments.json.as_deref(), arguments.csv.as_deref(), arguments.plot.as_deref())?;
    let bar = ProgressBar::new(steps as u64);
    bar.set_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}").unwrap_or(ProgressStyle::default_bar()),
    );
    let mut rows = Vec::new();
    bar.suspend(|| out!("{}", table::header(arguments.hosts.is_some())));
    let seconds = 50 / transports.len() as u64;
    for transport in &transports {
        one_transport(arguments, transport, seconds, (&bar, &reported), |row| {
            files.add(&row)?;
            bar.suspend(|| out!("{}", table::row(&row)));
            rows.push(row);
            Ok(())
        })?;
    }
    bar.finish_and_clear();
    out!("{}", table::footer(&rows));
    files.draw(&rows)
}

/// Measures how much of transfers is hidden behind computation.
fn measure_overlap(arguments: &Arguments, reported: &Option<Variable>) -> Result<(), String> {
    let Arguments { mode, links, json, csv, plot, hosts, .. } = arguments;
    if mode.len() > 1 || links.is_some() || json.is_some() || csv.is_some() || plot.is_some() || hosts.is_some() {
        return Err("the mode overlap has a table of its own: give it no other mode, and only --transport, --sizes, \
                    --repeat and --quick"
            .into());
    }
    let mut transports = transports(arguments)?;
    if arguments.transport.is_empty() {
        // udp, which is not among the standard ones, and the DPU of this host, if it has one.
        transports.extend(
            ["udp", "dpu", "dpu-frames"]
                .iter()
                .filter(|name| why_unavailable(name).is_none())
                .map(|name| (*name).into()),
        );
    }
    overlap::measure(&transports, &arguments.sizes, arguments.repeat, arguments.quick, reported)
}

/// The transports to measure: those that were asked for, or the standard ones that work.
fn transports(arguments: &Arguments) -> Result<Vec<String>, String> {
    let asked = &arguments.transport;
    if let Some(name) = asked.iter().find(|name| !ALL.contains(&name.as_str())) {
        let unknown = towline_settings::unknown("transport", name, &ALL);
        return Err(format!("`{name}` {unknown}; possible: {}", ALL.join(", ")));
    }
    if arguments.hosts.is_some() && asked.iter().any(|name| name == "sm") {
        return Err("sm does not work between hosts: name tcp, udp or verbs".into());
    }
    if !asked.is_empty() {
        return Ok(asked.to_vec());
    }
    if arguments.hosts.is_some() {
        return Ok(vec!["tcp".into()]);
    }
    let works = |name: &&str| {
        let why = why_unavailable(name);
        why.iter().for_each(|why| eprintln!("towline: a transport is left out: {why}"));
        why.is_none()
    };
    let working: Vec<String> = STANDARD.iter().filter(|name| works(name)).map(|name| (*name).to_string()).collect();
    if working.is_empty() {
        Err("no transport works here, for the reasons above; `towline info` says more".into())
    } else {
        Ok(working)
    }
}

/// Launches two ranks for one transport, and passes each row to `take` as soon as it is complete.
fn one_transport(
    arguments: &Arguments,
    transport: &str,
    seconds: u64,
    (bar, reported): (&ProgressBar, &Option<Variable>),
    mut take: impl FnMut(Row) -> Result<(), String>,
) -> Result<(), String> {
    let me = std::env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let repeat = arguments.repeat.unwrap_or(if arguments.quick { 3 } else { 7 });
    let mut command = Command::new(&me);
    command.args(["run", "--ranks", "2", "--no-prefix", "--transport", transport]);
    command.envs(reported.clone());
    if let Some(links) = arguments.links.filter(|links| ignored_links(&[transport], *links).is_none()) {
        command.args(["--links", &links.to_string()]);
    }
    let mut program = me.clone().into_os_string();
    if let Some(path) = &arguments.hosts {
        let hosts = hosts_of(path)?;
        if hosts.iter().filter(|host| host.slots != 0).count() < 2 {
            return Err(format!("{}: a measurement between hosts needs two hosts", path.display()));
        }
        command.args(["--map-by", "node", "--hosts"]).arg(path);
        if let Some(shell) = &arguments.rsh {
            command.args(["--rsh", shell]);
        }
        if let Some(address) = &arguments.address {
            command.args(["--address", address]);
        }
        if let Some(path) = &arguments.remote_path {
            command.arg("--remote-path").arg(path);
            program.clone_from(path);
        }
    }
    command.arg("--").arg(&program).args(["perf-rank", "--percentiles", "--repeat", &repeat.to_string()]);
    command.args(["--seconds", &seconds.to_string()]);
    for mode in &arguments.mode {
        command.args(["--mode", mode.name()]);
    }
    for size in &arguments.sizes {
        command.args(["--sizes", &size.0.to_string()]);
    }
    if arguments.quick {
        command.arg("--quick");
    }
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut job = started.map_err(|why| format!("cannot start {}: {why}", me.display()))?;
    let lines = job.stdout.take().map(|out| BufReader::new(out).lines()).into_iter().flatten();
    let mut repetitions: Vec<Repetition> = Vec::new();
    let mut complete = |repetitions: &mut Vec<Repetition>, percentiles: Option<Percentiles>| {
        let row = Row::of(repetitions).map(|row| Row { percentiles, ..row });
        repetitions.clear();
        bar.inc(row.is_some().into());
        row.map_or(Ok(()), &mut take)
    };
    let mut seen = Ok(());
    for line in lines {
        seen = line.map_err(|why| why.to_string()).and_then(|line| {
            // They follow the last repetition of each measurement.
            if Percentiles::are_in(&line) {
                return complete(&mut repetitions, Some(line.parse()?));
            }
            let one: Repetition = line.parse()?;
            let [before, after] = one.bounces;
            bar.set_message(format!("{transport} {} {}, bare bounce {before:.0}/{after:.0} ns", one.mode, one.size));
            repetitions.push(one);
            Ok(())
        });
        if seen.is_err() {
            break;
        }
    }
    if seen.is_err() {
        let _ = job.kill();
    }
    let ended = job.wait().map_err(|why| format!("cannot wait for the ranks: {why}"))?;
    seen?;
    if !ended.success() {
        return Err(format!("{transport}: the job of the two ranks failed ({ended}); its messages are above"));
    }
    complete(&mut repetitions, None)
}
