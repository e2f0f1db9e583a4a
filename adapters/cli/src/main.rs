//! The `towline` command. Each subcommand has a file or folder of its own.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};

mod doctor;
mod dpu;
mod files;
mod generate;
mod info;
mod mpirun;
mod names;
mod numbers;
mod perf;
mod run;
mod soak;
mod stdout;
mod transports;
mod variables;
mod version;

/// Runs the ranks of a job, measures transports, shows transports and settings, checks hosts, and tests under faults
#[derive(Parser)]
#[command(name = "towline", version = version::NUMBER, long_version = version::text(), propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Arguments),
    Perf(perf::Arguments),
    Info(info::Arguments),
    Doctor(doctor::Arguments),
    Soak(soak::Arguments),
    Dpu(dpu::Arguments),
    Completions(generate::Completions),
    Man(generate::Man),
    #[command(hide = true)]
    PerfRank(perf::rank::Arguments),
    #[command(hide = true)]
    OverlapRank(perf::overlap::Arguments),
    #[command(hide = true)]
    InfoRank,
    #[command(hide = true)]
    DoctorRank,
    #[cfg(feature = "sim")]
    #[command(hide = true)]
    SoakRank(soak::rank::Arguments),
}

fn main() -> ExitCode {
    // Launchers start their agents on other hosts like this. It is not for users, so no help and no completion has it.
    if std::env::args_os().skip(1).eq(["run", "--agent"]) {
        return towline_bootstrap::launch::agent().into();
    }
    let mut all = Arguments::command();
    all.build();
    let arguments = match mpirun::translate(std::env::args_os().collect(), &all) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("towline: {why}");
            return 2.into();
        }
    };
    let arguments = Arguments::try_parse_from(arguments).unwrap_or_else(|why| without_hidden(why, &all).exit());
    match arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Perf(arguments) => perf::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::DoctorRank => doctor::rank(),
        Command::Completions(arguments) => generate::completions(&arguments, &Arguments::command()),
        Command::Man(arguments) => generate::man(&arguments, &Arguments::command()),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Dpu(arguments) => dpu::run(arguments),
        Command::PerfRank(arguments) => perf::rank::run(&arguments),
        Command::OverlapRank(arguments) => perf::overlap::rank(&arguments),
        Command::InfoRank => info::rank(),
        #[cfg(feature = "sim")]
        Command::SoakRank(arguments) => soak::rank::run(&arguments),
    }
}

/// The error without suggestions of hidden commands, which Towline starts itself.
fn without_hidden(mut why: clap::Error, all: &clap::Command) -> clap::Error {
    if let Some(ContextValue::Strings(mut names)) = why.remove(ContextKind::SuggestedSubcommand) {
        names.retain(|name| all.find_subcommand(name).is_some_and(|command| !command.is_hide_set()));
        if !names.is_empty() {
            why.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
        }
    }
    why
}
