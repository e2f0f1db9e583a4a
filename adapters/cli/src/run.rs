//! `towline run`: starts the ranks of a job, and supervises it to its end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as _, FromArgMatches as _};
use towline_bootstrap::RANKS_MAX;
use towline_bootstrap::launch::{Binding, Host, Input, Label, Launch, LaunchError, Mapping};

use crate::files::{check_writable, refused};
use crate::names::one_of;
use crate::numbers::number;
use crate::{transports, variables};

/// Start N ranks of a program, and end them together
///
/// Exit status: 0 if all ranks ended well, otherwise the status of the first rank that failed (128 + n if signal n
/// killed it), 124 after the time limit, 126 or 127 if the program cannot be started, 2 if the job cannot be started.
#[derive(clap::Args)]
pub struct Arguments {
    /// Number of ranks [default: one for each slot of the hosts]
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        value_parser = number(1, RANKS_MAX),
        allow_negative_numbers = true,
        required_unless_present = "hosts"
    )]
    ranks: Option<u32>,

    /// Transports to use, such as sm,tcp [default: sm and tcp, as far as they work]
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        value_parser = one_of(&transports::ALL, transport),
        hide_possible_values = true
    )]
    transport: Vec<String>,

    /// Links to each peer, for transports that support several: tcp, udp and verbs
    #[arg(long, value_name = "K", value_parser = number(1, 64), allow_negative_numbers = true)]
    links: Option<u32>,

    /// Run on the hosts in a file: one `host [slots=N]` on each line, filled in order
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,

    /// Remote shell: runs a command on a host, called as CMD HOST COMMAND...
    #[arg(long, value_name = "CMD", default_value = "ssh -o BatchMode=yes", requires = "hosts")]
    rsh: String,

    /// Path of towline on the other hosts [default: the path on this host]
    #[arg(long, value_name = "PATH", requires = "hosts")]
    remote_path: Option<OsString>,

    /// Name or address at which the other hosts can reach this host [default: all are tried]
    #[arg(long, value_name = "HOST", requires = "hosts")]
    address: Option<String>,

    /// Set an environment variable for all ranks; NAME alone takes the value from this environment
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]", value_parser = variables::named)]
    variables: Vec<String>,

    /// End the job after this time, in seconds
    #[arg(long, value_name = "SECS", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Option<Duration>,

    /// Time between SIGTERM and SIGKILL when the job is ended, in seconds
    #[arg(long, value_name = "SECS", value_parser = seconds, default_value = "5", allow_negative_numbers = true)]
    grace: Duration,

    /// Let the other ranks go on when a rank fails
    #[arg(long)]
    keep_going: bool,

    /// Restart a rank that was killed or failed, at most N times for each rank, and let the job go on
    ///
    /// The rank gets the same program, arguments and environment, and a new incarnation, which the other ranks see. A
    /// rank that has finished or that calls abort is not restarted. After N restarts, the next failure of the rank
    /// counts as without this option
    #[arg(
        long,
        visible_alias = "max-restarts",
        value_name = "N",
        default_value_t = 0,
        value_parser = number(0, u32::MAX),
        allow_negative_numbers = true
    )]
    restart: u32,

    /// How long ranks have to report what they wait for, on SIGQUIT and at the time limit, in seconds
    #[arg(long, value_name = "SECS", value_parser = seconds, default_value = "3", allow_negative_numbers = true)]
    report_wait: Duration,

    /// Append each report of what ranks wait for to this file, as a line of JSON
    #[arg(long, value_name = "FILE")]
    report_file: Option<PathBuf>,

    /// Print output unchanged, without the rank before each line
    ///
    /// With and without this option, a line is printed as a whole, so that lines of different ranks do not mix. A line
    /// above 64 MiB is split: each further piece of it begins with the rank and a plus sign, as in `[3+]`. If unfinished
    /// lines of all ranks take more than 256 MiB together, the longest is split. With this option, pieces have no mark
    #[arg(long)]
    no_prefix: bool,

    /// Begin each line of output with rank and stream, in the form of Open MPI: [1,RANK]<stdout>:TEXT
    ///
    /// The first number is always 1. It is the number of the job for Open MPI
    #[arg(long, conflicts_with = "no_prefix")]
    tag_output: bool,

    /// Write the output of each rank to files DIR/rank.N.out and DIR/rank.N.err, and print none of it
    ///
    /// The files are on this host, also for ranks on other hosts. They get every byte unchanged. The directory is made if
    /// it is missing, and files of an earlier job are overwritten
    #[arg(long, value_name = "DIR", conflicts_with_all = ["no_prefix", "tag_output"])]
    output: Option<PathBuf>,

    /// The ranks that read this command's standard input: a rank, all, or none [default: rank 0, unless the input is a
    /// terminal]
    ///
    /// With all, every rank reads the whole input, and the fastest rank gets at most 64 MiB ahead of the slowest one.
    /// Ranks that do not read it have an empty standard input. A restarted rank goes on with input that is still held
    #[arg(
        long,
        value_name = "RANK|all|none",
        value_parser = one_of(&["all", "none"], input),
        hide_possible_values = true
    )]
    stdin: Option<Input>,

    /// Order in which ranks are placed on the hosts: fill each host up to its slots; the same, but at most one rank for
    /// each core; or one rank for each host in turn [default: slot]
    #[arg(
        long,
        value_name = "slot|core|node",
        value_parser = one_of(&["slot", "core", "node"], mapping),
        hide_possible_values = true
    )]
    map_by: Option<Mapping>,

    /// Bind each rank to a core of its own, with all hardware threads of it [default: none]
    ///
    /// The first rank on a host gets its first core, and so on. Only cores that this command (or its agent on another
    /// host) may use are counted. More ranks than cores are an error
    #[arg(
        long,
        value_name = "core|none",
        value_parser = one_of(&["core", "none"], binding),
        hide_possible_values = true
    )]
    bind_to: Option<Binding>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

impl Arguments {
    /// The arguments of a command line, which begins with `run`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn of(words: Vec<OsString>) -> Result<Self, String> {
        let command = Self::augment_args(clap::Command::new("run"));
        let matches = command.try_get_matches_from(words).map_err(|why| why.to_string())?;
        Self::from_arg_matches(&matches).map_err(|why| why.to_string())
    }
}

/// Runs the job. Returns its exit status.
pub fn run(arguments: Arguments) -> ExitCode {
    let not_begun = |why: LaunchError| match why {
        LaunchError::Output { path, source } => refused("--output", &path, "write the output of ranks there", &source),
        why => why.to_string(),
    };
    let ended = prepare(arguments).and_then(|launch| launch.run().map_err(not_begun));
    match ended {
        Ok(status) => status.into(),
        Err(why) => {
            eprintln!("towline: {why}");
            2.into()
        }
    }
}

fn prepare(arguments: Arguments) -> Result<Launch, String> {
    let hosts = match &arguments.hosts {
        None => Vec::new(),
        Some(path) => hosts_of(path)?,
    };
    let slots = hosts.iter().fold(0u32, |sum, host| sum.saturating_add(host.slots));
    let reported = check(&arguments)?;
    if let Some(path) = &arguments.report_file {
        check_writable(path).map_err(|why| refused("--report-file", path, "write this file", &why))?;
    }
    let mut command = arguments.command.into_iter();
    let program = command
        .next()
        .ok_or("no program was given: write it after the options, as in `towline run -n 2 -- PROGRAM`")?;
    let mut launch = Launch::new(arguments.ranks.unwrap_or(slots), program);
    launch.args = command.collect();
    launch.hosts = hosts;
    launch.transports = arguments.transport;
    launch.links = arguments.links;
    launch.variables = arguments.variables.iter().filter_map(|variable| assignment(variable)).collect();
    launch.variables.extend(reported);
    launch.time_limit = arguments.timeout;
    launch.grace = arguments.grace;
    launch.keep_going = arguments.keep_going;
    launch.restarts = arguments.restart;
    launch.label = match (arguments.no_prefix, arguments.tag_output) {
        (true, _) => Label::None,
        (_, true) => Label::Tag,
        _ => Label::Rank,
    };
    launch.folder = arguments.output;
    launch.input = arguments.stdin.unwrap_or_default();
    launch.mapping = arguments.map_by.unwrap_or_default();
    launch.binding = arguments.bind_to.unwrap_or_default();
    launch.report_wait = arguments.report_wait;
    launch.report_file = arguments.report_file;
    launch.shell = arguments.rsh.split_whitespace().map(Into::into).collect();
    launch.address = arguments.address;
    if let (Some(path), Some(first)) = (arguments.remote_path, launch.agent.first_mut()) {
        *first = path;
    }
    Ok(launch)
}

/// The hosts in the file of `--hosts`, of which there is at least one.
pub fn hosts_of(path: &Path) -> Result<Vec<Host>, String> {
    let named = |why: &dyn std::fmt::Display| format!("--hosts {}: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|why| refused("--hosts", path, "read this file", &why))?;
    let hosts = Host::parse_list(&text).map_err(|why| named(&why))?;
    if hosts.is_empty() {
        Err(named(&"the file names no host: write `host` or `host slots=N` on each line"))
    } else {
        Ok(hosts)
    }
}

/// Checks the settings that ranks will find in their environment, and warns of variables that are probably mistakes. Returns the
/// variable that says so to the ranks.
fn check(arguments: &Arguments) -> Result<Option<(OsString, OsString)>, String> {
    let given: Vec<_> = arguments.variables.iter().rev().filter_map(|variable| assignment(variable)).collect();
    let transports = (!arguments.transport.is_empty()).then(|| arguments.transport.join(","));
    let links = arguments.links.map(|links| links.to_string());
    let options = [("--transport", "TOWLINE_TRANSPORTS", transports), ("--links", "TOWLINE_LINKS", links)];
    variables::check_given(&given, &options)?;
    // No error, since `towline perf` measures all transports with the same options.
    if let Some(ignored) = transports::ignored_links(&arguments.transport, arguments.links.unwrap_or(1)) {
        eprintln!("towline: warning: {ignored}");
    }
    let lookup = |name: &str| match name {
        "TOWLINE_TRANSPORTS" if !arguments.transport.is_empty() => Some(arguments.transport.join(",")),
        "TOWLINE_LINKS" if arguments.links.is_some() => arguments.links.map(|links| links.to_string()),
        _ => {
            let value = given.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone());
            // Other hosts do not get this environment.
            let value = value.or_else(|| arguments.hosts.is_none().then(|| std::env::var_os(name)).flatten());
            value.map(|value| value.to_string_lossy().into_owned())
        }
    };
    let settings = towline::Config::default().settings_from(lookup).map_err(|why| why.to_string())?;
    let strict = settings.iter().any(|setting| setting.name == "strict" && setting.value == "true");
    variables::warn_of_unset(&arguments.variables);
    let own = std::env::vars_os().filter(|_| arguments.hosts.is_none());
    variables::warn_of_unknown(given.into_iter().chain(own).map(|(name, _)| name), strict)
}

/// The name and value of a variable. `None` if its value is to be taken from this environment and it is not set.
fn assignment(variable: &str) -> Option<(OsString, OsString)> {
    match variable.split_once('=') {
        Some((name, value)) => Some((name.into(), value.into())),
        None => std::env::var_os(variable).map(|value| (variable.into(), value)),
    }
}

/// The longest time, in seconds: 31 years.
const LONGEST: f64 = 1e9;

pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is not a number of seconds, such as 1.5".to_string())?;
    let time = Some(seconds).filter(|seconds| (0.0..=LONGEST).contains(seconds));
    time.map(Duration::from_secs_f64).ok_or_else(|| format!("it is not a time; possible: 0 to {LONGEST} seconds"))
}

/// One of the names of `--transport`. An empty one selects as without the option.
pub fn transport(text: &str) -> Result<String, String> {
    let name = text.trim();
    if name.is_empty() || name == "loopback" || transports::ALL.contains(&name) {
        return Ok(name.into());
    }
    let unknown = towline_settings::unknown("transport", name, &transports::ALL);
    Err(format!("it {unknown}; possible: {}", transports::ALL.join(", ")))
}

fn input(text: &str) -> Result<Input, String> {
    match text {
        "all" => Ok(Input::All),
        "none" => Ok(Input::None),
        rank => rank.parse().map(Input::Rank).map_err(|_| "expected a rank, all or none".into()),
    }
}

fn mapping(text: &str) -> Result<Mapping, String> {
    match text {
        "slot" => Ok(Mapping::Slot),
        "core" => Ok(Mapping::Core),
        "node" | "host" => Ok(Mapping::Node),
        _ => Err("expected slot, core or node; Towline places ranks on no other parts of a machine".into()),
    }
}

fn binding(text: &str) -> Result<Binding, String> {
    match text {
        "none" => Ok(Binding::None),
        "core" => Ok(Binding::Core),
        _ => Err("expected core or none; Towline binds ranks to no other parts of a machine".into()),
    }
}
