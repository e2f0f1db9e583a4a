//! Runs jobs of real processes, one after the other.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use towline_net::counted;

use super::arguments::Arguments;
use super::faults::KINDS;
use super::job::{self, Report, Setting};
use super::limits;
use crate::stdout::out;

/// Number of planned faults of which at least one must have taken effect. It is not by chance if all of them come after
/// the end of their job.
const TOO_MANY: u64 = 10;

/// Number of jobs of which at least one must have killed and restarted a rank. The chance that none does is one in ten
/// thousand.
const MANY_JOBS: u64 = 50;

/// Runs the jobs. Returns the exit status.
pub fn run(arguments: &Arguments) -> ExitCode {
    let links = arguments.links.unwrap_or(if arguments.transport == "tcp" { 3 } else { 1 });
    let most = arguments.most.unwrap_or(if arguments.transport == "udp" { 1 << 20 } else { 4 << 20 });
    let Arguments { transport, ranks, through, .. } = arguments;
    let setting = Setting { transport: transport.clone(), ranks: *ranks, links, most, through: through.clone() };
    if let Err(why) = limits::check(&setting) {
        eprintln!("towline: {why}");
        return 2.into();
    }
    let any = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let first = arguments.seed.or(arguments.from).unwrap_or_else(any);
    let jobs = if arguments.seed.is_some() { Some(1) } else { arguments.jobs };
    let time = Duration::from_secs_f64(60.0 * arguments.minutes.unwrap_or(1.0));
    let bar = ProgressBar::new(jobs.unwrap_or(time.as_secs()));
    let template = "{elapsed} {wide_bar} {msg}";
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    let (started, mut report) = (Instant::now(), Report::default());
    let goes_on = |report: &Report| jobs.map_or_else(|| started.elapsed() < time, |jobs| report.jobs < jobs);
    let mut failure = None;
    loop {
        let seed = first.wrapping_add(report.jobs);
        match job::run(seed, &setting) {
            Ok(one) => report.add(&one),
            Err(why) => failure = Some((seed, why)),
        }
        bar.set_position(if jobs.is_some() { report.jobs } else { started.elapsed().as_secs() });
        bar.set_message(format!("{}, {}", counted(report.jobs, "job"), counted(report.messages, "message")));
        if failure.is_some() || !goes_on(&report) {
            break;
        }
    }
    bar.finish_and_clear();
    out!("{}", summary(&report, &setting, first, started.elapsed()));
    let Some((seed, why)) = failure else {
        if report.planned >= TOO_MANY && report.faults.iter().all(|count| *count == 0) {
            eprintln!("\nnone of {} took effect, so the jobs tested no fault", counted(report.planned, "fault"));
            return ExitCode::FAILURE;
        }
        if report.jobs >= MANY_JOBS && (report.faults[1] == 0 || report.after_rejoin == 0) {
            eprintln!("\nin {} jobs no rank was killed and restarted, so restarts were not tested", report.jobs);
            return ExitCode::FAILURE;
        }
        return ExitCode::SUCCESS;
    };
    let Setting { transport, ranks, links, most, through } = setting;
    let through = through.map(|program| format!(" --through {program}")).unwrap_or_default();
    eprintln!("\nseed {seed} failed: {why}");
    eprintln!(
        "run it again with: towline soak --transport {transport} --links {links} --ranks {ranks} --most {most}{through} --seed {seed}"
    );
    ExitCode::FAILURE
}

fn summary(report: &Report, setting: &Setting, first: u64, took: Duration) -> String {
    let Setting { transport, ranks, links, .. } = setting;
    let mut lines = vec![
        format!(
            "{transport}, {}, {}: {} from seed {first} passed, in {:.0} s",
            counted(*ranks, "rank"),
            counted(*links, "link"),
            counted(report.jobs, "job"),
            took.as_secs_f64()
        ),
        format!(
            "messages {}, {:.1} MB, each compared byte by byte; lost 0, duplicated 0, out of order 0",
            report.messages,
            report.bytes as f64 / 1e6
        ),
        format!("one-sided operations {}, each done once", report.operations),
    ];
    let [little, big] = report.orders;
    if big != 0 {
        lines.push(format!("ranks with big byte order {big}, with little byte order {little}"));
    }
    let faults = report.faults.iter().zip(KINDS).filter(|(count, _)| **count != 0);
    let faults: Vec<_> = faults.map(|(count, kind)| format!("{kind} {count}")).collect();
    lines.push(format!(
        "faults that took effect: {}",
        if faults.is_empty() { "none".into() } else { faults.join(", ") }
    ));
    let without_effect = report.planned.saturating_sub(report.faults.iter().sum());
    if without_effect != 0 {
        lines.push(format!(
            "of {} {without_effect} had no effect: there was no traffic, or the rank had finished",
            counted(report.planned, "fault")
        ));
    }
    if report.faults[1] != 0 {
        lines.push(format!("a death was noticed within {:.2} s", report.noticed.as_secs_f64()));
    }
    if report.rejoined != 0 {
        lines.push(format!(
            "ranks restarted {}; messages from and to them {}, compared in the same way",
            report.rejoined, report.after_rejoin
        ));
    }
    if transport == "tcp" {
        let [down, up, moved, duplicates] = report.links;
        lines.push(format!(
            "connections through the relay {}, connections cut {}; links lost {down}, up again {up}; frames migrated {moved}, of which {duplicates} had already arrived",
            report.stream_counts.connections, report.stream_counts.cut
        ));
    }
    if transport == "udp" {
        let seen = report.datagram_counts;
        lines.push(format!(
            "datagrams {}: lost {}, duplicated {}, late {}, cut off {}",
            seen.seen, seen.lost, seen.duplicated, seen.delayed, seen.cut_off
        ));
    }
    lines.join("\n") + "\n"
}
