//! `towline soak`: random jobs with everything that can go wrong, until one fails. So far in the simulator alone: the real
//! engine and links in virtual time, by seed.
//!
//! The simulator is the library of `host-tests`, which depends on the core and nothing else; without the feature `sim` it
//! is left out.

use std::process::ExitCode;

/// Run random jobs in which everything goes wrong, and check what comes of them
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// In the simulator: whole jobs in one thread and in virtual time, over rails that misbehave by seed
    #[arg(long, required = true)]
    sim: bool,
    /// How many jobs
    #[arg(long, default_value_t = 2000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    from: u64,
    /// This seed alone; with TOWLINE_TRACE set, all that happens is printed
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Jobs over reliable rails, which refuse, reorder and delay, but neither lose nor break
    #[arg(long)]
    reliable: bool,
    /// Goodput of a long transfer against loss instead
    #[arg(long, conflicts_with_all = ["seeds", "from", "seed", "reliable"])]
    goodput: bool,
    /// Threads [default: one for each processor]
    #[arg(long, short = 'j')]
    threads: Option<usize>,
}

#[cfg(not(feature = "sim"))]
pub fn run(_: &Arguments) -> ExitCode {
    eprintln!("towline: this program was built without the feature `sim`");
    ExitCode::FAILURE
}

/// Runs the jobs; gives the exit status.
#[cfg(feature = "sim")]
pub fn run(arguments: &Arguments) -> ExitCode {
    use towline_host_tests::sim::goodput;
    use towline_host_tests::sim::soak::{Family, one};

    let family = if arguments.reliable { Family::Reliable } else { Family::Faulty };
    if arguments.goodput {
        print!("{}", goodput::table());
        return ExitCode::SUCCESS;
    }
    let Some(seed) = arguments.seed else { return many(arguments, family) };
    match one(family, seed) {
        Ok(report) => {
            println!("{report:#?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(feature = "sim")]
fn many(arguments: &Arguments, family: towline_host_tests::sim::soak::Family) -> ExitCode {
    use std::{panic, thread};

    use indicatif::{ProgressBar, ProgressStyle};
    use towline_host_tests::sim::soak::soak;

    panic::set_hook(Box::new(|_| {})); // told as the failure of their seed
    let bar = ProgressBar::new(arguments.seeds);
    let style = ProgressStyle::with_template("{elapsed} {wide_bar} {pos}/{len} seeds {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let threads = arguments.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let total = soak(family, arguments.from..arguments.from.saturating_add(arguments.seeds), threads, |total| {
        bar.set_position(total.seeds);
        if !total.failures.is_empty() {
            bar.set_message(format!("{} failed", total.failures.len()));
        }
        // Where there is no terminal to draw on.
        if bar.is_hidden() && total.seeds.is_multiple_of(1000) {
            eprintln!("{} seeds, {} failed", total.seeds, total.failures.len());
        }
    });
    bar.finish_and_clear();
    println!("{total}");
    let missing = total.missing(family);
    if total.seeds >= ENOUGH && !missing.is_empty() {
        println!("never happened: {}", missing.join(", "));
    }
    for (_, failure) in &total.failures {
        eprintln!("\n{failure}");
    }
    let proved = total.failures.is_empty() && (total.seeds < ENOUGH || missing.is_empty());
    if proved { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Seeds in which everything must have happened.
#[cfg(feature = "sim")]
const ENOUGH: u64 = 2000;
