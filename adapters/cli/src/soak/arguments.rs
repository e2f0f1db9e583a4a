//! The command line of `towline soak`.

use crate::numbers::{long_number, number};

/// The options of jobs of real processes.
const OF_PROCESSES: [&str; 7] = ["minutes", "jobs", "ranks", "transport", "links", "most", "through"];
/// The longest message, which fits into the memory of many machines. Lengths that do not fit into this one are refused later.
const MOST: u64 = 1 << 30;

/// Run random jobs with faults of every kind, and check every message
///
/// Without --sim it runs jobs of real processes, one after the other. Their ranks exchange a random mix of messages,
/// each of which is checked byte by byte, for its order, and for duplicates. They put, get and change words in each
/// other's memory, and each result is compared with the expected one. Meanwhile ranks are stopped, continued and
/// killed, connections are cut and frozen, and datagrams are lost, duplicated and delayed. The exit status is 0 only if
/// every check passed. Otherwise the seed of the failed job is printed, with the command that runs it again.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Time in minutes for which jobs are started [default: 1]
    #[arg(long, value_name = "MINUTES", value_parser = minutes, allow_negative_numbers = true)]
    pub minutes: Option<f64>,
    /// Number of jobs, whatever time they take
    #[arg(
        long,
        conflicts_with = "minutes",
        value_parser = long_number(1, u32::MAX.into()),
        allow_negative_numbers = true
    )]
    pub jobs: Option<u64>,
    /// Number of ranks of each job
    #[arg(
        long,
        short = 'n',
        value_name = "N",
        default_value_t = 3,
        value_parser = number(2, 64),
        allow_negative_numbers = true
    )]
    pub ranks: u32,
    /// Transport between the ranks
    #[arg(long, default_value = "sm", value_parser = ["sm", "tcp", "udp"])]
    pub transport: String,
    /// Links to each peer, over tcp and udp [default: 3 for tcp, 1 for other transports]
    #[arg(long, value_name = "K", value_parser = number(1, 8), allow_negative_numbers = true)]
    pub links: Option<u32>,

    /// Longest message in bytes, at most 1 GiB [default: 1 MiB over udp, 4 MiB over other transports]
    #[arg(long, value_name = "BYTES", value_parser = long_number(0, MOST), allow_negative_numbers = true)]
    pub most: Option<u64>,

    /// Program that starts each rank, called as PROGRAM COMMAND..., such as an emulator of another machine for some
    /// ranks
    #[arg(long, value_name = "PROGRAM")]
    pub through: Option<String>,

    /// Run in the simulator: whole jobs in one thread and in virtual time, over rails with faults chosen by seed
    #[arg(long, conflicts_with_all = OF_PROCESSES)]
    pub sim: bool,
    /// Number of simulated jobs
    // An option that requires `sim` also names what `sim` excludes: clap does not ask for an option that another one excludes.
    #[arg(
        long,
        default_value_t = 2000,
        requires = "sim",
        conflicts_with_all = OF_PROCESSES,
        value_parser = long_number(1, u32::MAX.into()),
        allow_negative_numbers = true
    )]
    pub seeds: u64,
    /// First seed [default: 0 in the simulator, otherwise a new one each time]
    #[arg(long, value_name = "SEED", value_parser = long_number(0, u64::MAX), allow_negative_numbers = true)]
    pub from: Option<u64>,
    /// Run only this seed; in the simulator, TOWLINE_TRACE=1 prints every event
    #[arg(
        long,
        conflicts_with_all = ["seeds", "from", "minutes", "jobs", "threads"],
        value_parser = long_number(0, u64::MAX),
        allow_negative_numbers = true
    )]
    pub seed: Option<u64>,
    /// Simulate reliable rails, which refuse, reorder and delay messages, but neither lose messages nor break
    #[arg(long, requires = "sim", conflicts_with_all = OF_PROCESSES)]
    pub reliable: bool,
    /// Print a table of the goodput of a long simulated transfer against loss, and run no jobs
    #[arg(
        long,
        requires = "sim",
        conflicts_with_all = OF_PROCESSES.into_iter().chain(["seeds", "from", "seed", "reliable", "threads"])
    )]
    pub goodput: bool,
    /// Number of threads of the simulator [default: one for each processor]
    #[arg(
        long,
        short = 'j',
        requires = "sim",
        conflicts_with_all = OF_PROCESSES,
        value_parser = number(1, 4096),
        allow_negative_numbers = true
    )]
    pub threads: Option<u32>,
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "it is not a number of minutes, such as 1.5".to_string())?;
    if minutes > 0.0 && minutes <= 1e6 {
        Ok(minutes)
    } else {
        Err("it is not a time to run jobs for; possible: above 0, and at most 1000000 minutes".into())
    }
}
