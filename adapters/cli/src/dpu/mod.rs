//! `towline dpu`: whole systems of hosts and DPUs on this machine, and the logs of firmware.
//!
//! | module | subject |
//! |---|---|
//! | [`arguments`] | the command line |
//! | [`boards`] | the boards that a DPU may be, and their programs |
//! | [`console`] | the console of a board: its lines, and its bells |
//! | [`devices`] | the processes that are the DPUs |
//! | [`relay`] | the network between the DPUs, with faults |
//! | [`watch`] | ends the sessions of ranks that have died, and reports DPUs that have ended |
//! | [`signals`] | signals that arrive before the job begins |
//! | [`log`] | `towline dpu log`: prints the log of a firmware |
//! | [`up`] | `towline dpu up`: starts all of it, and then the job |

use std::process::ExitCode;

pub mod arguments;
mod boards;
mod console;
mod devices;
mod log;
mod relay;
mod signals;
mod up;
mod watch;

/// Run jobs whose ranks use DPUs, and print logs of DPUs
#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Up(arguments::Up),
    Log(log::Arguments),
}

/// Runs the command. Returns the exit status.
pub fn run(arguments: Arguments) -> ExitCode {
    let status = match arguments.command {
        Command::Up(arguments) => up::run(arguments),
        Command::Log(arguments) => log::run(&arguments),
    };
    status.unwrap_or_else(|why| {
        eprintln!("towline: {why}");
        2.into()
    })
}
