//! `towline soak --sim`: whole jobs of the real engine and links in virtual time, chosen by seed.

use std::process::ExitCode;
use std::{panic, thread};

use indicatif::{ProgressBar, ProgressStyle};
use towline_host_tests::sim::goodput;
use towline_host_tests::sim::soak::{Family, run_seed, soak};
use towline_net::counted;

use super::arguments::Arguments;
use crate::stdout::out;

/// Runs the jobs. Returns the exit status.
pub fn run(arguments: &Arguments) -> ExitCode {
    let family = if arguments.reliable { Family::Reliable } else { Family::Faulty };
    if arguments.goodput {
        out!("{}", goodput::table());
        return ExitCode::SUCCESS;
    }
    let Some(seed) = arguments.seed else { return many(arguments, family) };
    match run_seed(family, seed) {
        Ok(report) => {
            out!("{report:#?}\n");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn many(arguments: &Arguments, family: Family) -> ExitCode {
    panic::set_hook(Box::new(|_| {})); // a panic is reported as the failure of its seed
    let bar = ProgressBar::new(arguments.seeds);
    let style = ProgressStyle::with_template("{elapsed} {wide_bar} {pos}/{len} seeds {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let from = arguments.from.unwrap_or(0);
    let threads = arguments.threads.map(|threads| threads as usize);
    let threads = threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let total = soak(family, from..from.saturating_add(arguments.seeds), threads, |total| {
        bar.set_position(total.seeds);
        if !total.failures.is_empty() {
            bar.set_message(format!("{} failed", total.failures.len()));
        }
        // If there is no terminal for the progress bar.
        if bar.is_hidden() && total.seeds.is_multiple_of(1000) {
            eprintln!("{}, {} failed", counted(total.seeds, "seed"), total.failures.len());
        }
    });
    bar.finish_and_clear();
    out!("{total}\n");
    let missing = total.missing(family);
    if total.seeds >= ENOUGH && !missing.is_empty() {
        out!("never happened: {}\n", missing.join(", "));
    }
    for (_, failure) in &total.failures {
        eprintln!("\n{failure}");
    }
    let passed = total.failures.is_empty() && (total.seeds < ENOUGH || missing.is_empty());
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Number of seeds within which every kind of event must have happened.
const ENOUGH: u64 = 2000;
