//! The `towline` command. Each subcommand has a file of its own.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod run;

/// Moves messages between processes: starts them, measures them, tells what is there.
#[derive(Parser)]
#[command(name = "towline", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Arguments),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Run(arguments) => run::run(arguments),
    }
}
