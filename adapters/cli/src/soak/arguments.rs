//! The command line of `towline soak`.

use crate::numbers::number;

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
    #[arg(long, conflicts_with = "minutes", value_parser = clap::value_parser!(u64).range(1..))]
    pub jobs: Option<u64>,
    /// Number of ranks of each job
    #[arg(long, short = 'n', value_name = "N", default_value_t = 3, value_parser = number(2, 64))]
    pub ranks: u32,
    /// Transport between the ranks
    #[arg(long, default_value = "sm", value_parser = ["sm", "tcp", "udp"])]
    pub transport: String,
    /// Links to each peer [default: 3 for tcp, 1 for other transports]
    #[arg(long, value_name = "K", value_parser = number(1, 8))]
    pub links: Option<u32>,

    /// Longest message in bytes [default: 1 MiB over udp, 4 MiB over other transports]
    #[arg(long, value_name = "BYTES")]
    pub most: Option<u64>,

    /// Program that starts each rank, called as PROGRAM COMMAND..., such as an emulator of another machine for some
    /// ranks
    #[arg(long, value_name = "PROGRAM")]
    pub through: Option<String>,

    /// Run in the simulator: whole jobs in one thread and in virtual time, over rails with faults chosen by seed
    #[arg(long, conflicts_with_all = ["minutes", "jobs", "ranks", "transport", "links", "most", "through"])]
    pub sim: bool,
    /// Number of simulated jobs
    #[arg(long, default_value_t = 2000, requires = "sim", value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// First seed [default: 0 in the simulator, otherwise a new one each time]
    #[arg(long, value_name = "SEED")]
    pub from: Option<u64>,
    /// Run only this seed; in the simulator, TOWLINE_TRACE=1 prints every event
    #[arg(long, conflicts_with_all = ["seeds", "from", "minutes", "jobs"])]
    pub seed: Option<u64>,
    /// Simulate reliable rails, which refuse, reorder and delay messages, but neither lose messages nor break
    #[arg(long, requires = "sim")]
    pub reliable: bool,
    /// Print a table of the goodput of a long simulated transfer against loss, and run no jobs
    #[arg(long, requires = "sim", conflicts_with_all = ["seeds", "from", "seed", "reliable"])]
    pub goodput: bool,
    /// Number of threads of the simulator [default: one for each processor]
    #[arg(long, short = 'j', requires = "sim", value_parser = number(1, 4096))]
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
