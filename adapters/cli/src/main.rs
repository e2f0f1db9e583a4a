//! The `towline` command. Each subcommand has a file or folder of its own.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

mod info;
mod mpirun;
mod numbers;
mod perf;
mod run;
mod soak;
mod stdout;
mod transports;
mod variables;

/// Runs the ranks of a job, measures transports, shows transports and settings, and tests under faults
#[derive(Parser)]
#[command(name = "towline", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Arguments),
    Perf(perf::Arguments),
    Info(info::Arguments),
    Soak(soak::Arguments),
    #[command(hide = true)]
    PerfRank(perf::rank::Arguments),
    #[command(hide = true)]
    InfoRank,
    #[cfg(feature = "sim")]
    #[command(hide = true)]
    SoakRank(soak::rank::Arguments),
}

fn main() -> ExitCode {
    let mut all = Arguments::command();
    all.build();
    let arguments = match mpirun::translate(std::env::args_os().collect(), &all) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("towline: {why}");
            return 2.into();
        }
    };
    match Arguments::parse_from(arguments).command {
        Command::Run(arguments) => run::run(arguments),
        Command::Perf(arguments) => perf::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::PerfRank(arguments) => perf::rank::run(&arguments),
        Command::InfoRank => info::rank(),
        #[cfg(feature = "sim")]
        Command::SoakRank(arguments) => soak::rank::run(&arguments),
    }
}
