//! The command line of `towline soak`.

/// Run random jobs in which everything goes wrong, and check what comes of them
///
/// Without --sim, jobs of real processes, one after the other: their ranks exchange a random mix of messages, each of which is
/// checked byte by byte, in order and once, and put, get and change words in each other's memory, where each result is compared
/// with what has to be there, while ranks are stopped, continued and killed, connections cut and frozen, datagrams lost, doubled
/// and late. Exit status 0 only if all was as it has to be; else the seed of the job that failed is printed, with the command
/// that runs it again.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// How long to go on; without it, one minute
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    pub minutes: Option<f64>,
    /// How many jobs, whatever the time
    #[arg(long, conflicts_with = "minutes", value_parser = clap::value_parser!(u64).range(1..))]
    pub jobs: Option<u64>,
    /// Ranks of each job
    #[arg(long, short = 'n', value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub ranks: u32,
    /// The transport between them
    #[arg(long, default_value = "sm", value_parser = ["sm", "tcp", "udp"])]
    pub transport: String,
    /// Links per peer; without it, 3 of tcp and 1 of others
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=8))]
    pub links: Option<u32>,

    /// Longest message, in bytes; without it, 1 MiB over udp and 4 MiB over others
    #[arg(long, value_name = "BYTES")]
    pub most: Option<u64>,

    /// Program that starts each rank, called as PROGRAM COMMAND..., such as an emulator of another machine for some of them
    #[arg(long, value_name = "PROGRAM")]
    pub through: Option<String>,

    /// In the simulator: whole jobs in one thread and in virtual time, over rails that misbehave by seed
    #[arg(long, conflicts_with_all = ["minutes", "jobs", "ranks", "transport", "links", "most", "through"])]
    pub sim: bool,
    /// How many simulated jobs
    #[arg(long, default_value_t = 2000, requires = "sim", value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// The first seed [default: 0 in the simulator, else any]
    #[arg(long, value_name = "SEED")]
    pub from: Option<u64>,
    /// This seed alone; in the simulator, with TOWLINE_TRACE set, all that happens is printed
    #[arg(long, conflicts_with_all = ["seeds", "from", "minutes", "jobs"])]
    pub seed: Option<u64>,
    /// Simulated jobs over reliable rails, which refuse, reorder and delay, but neither lose nor break
    #[arg(long, requires = "sim")]
    pub reliable: bool,
    /// Goodput of a long simulated transfer against loss instead
    #[arg(long, requires = "sim", conflicts_with_all = ["seeds", "from", "seed", "reliable"])]
    pub goodput: bool,
    /// Threads of the simulator [default: one for each processor]
    #[arg(long, short = 'j', requires = "sim")]
    pub threads: Option<usize>,
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| format!("`{text}` is no number of minutes"))?;
    if minutes > 0.0 && minutes <= 1e6 { Ok(minutes) } else { Err("not that long".into()) }
}
