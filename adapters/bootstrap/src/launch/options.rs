//! Options of a launch.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::cores::{Binding, Mapping};
use super::hosts::Host;
use super::lines::Label;

/// Which ranks read the launcher's standard input. All others have an empty one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Input {
    /// Rank 0, unless the input is a terminal.
    #[default]
    Standard,
    /// No rank.
    None,
    /// One rank.
    Rank(u32),
    /// Every rank reads all of it. The fastest rank gets at most 64 MiB ahead of the slowest one.
    All,
}

/// A job to launch, and its options. A plain value, which [`run`](Self::run) consumes.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Number of ranks.
    pub size: u32,
    /// The program that each rank runs.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Hosts to fill with ranks, one after another. Empty means this host alone.
    pub hosts: Vec<Host>,
    /// Names of the transports that ranks use. Empty means all.
    pub transports: Vec<String>,
    /// Number of links to each peer, for transports that support several. `None` lets the transport decide.
    pub links: Option<u32>,
    /// Additional environment variables for every rank.
    pub variables: Vec<(OsString, OsString)>,
    /// Time after which the job is ended with status 124.
    pub time_limit: Option<Duration>,
    /// Time that ranks have to end after SIGTERM, before SIGKILL.
    pub grace: Duration,
    /// Whether the other ranks go on when one fails. An [`abort`](crate::Job::abort) ends the job in any case.
    pub keep_going: bool,
    /// How long ranks have to report what they wait for, on SIGQUIT and when the time limit has passed. A rank that does
    /// not answer in this time is not inside the library.
    pub report_wait: Duration,
    /// A file to which each report of all ranks is appended, as one line of JSON.
    pub report_file: Option<PathBuf>,
    /// How often each rank that fails is restarted. A rank that calls [`abort`](crate::Job::abort) is not restarted.
    pub restarts: u32,
    /// What stands before each line of output.
    pub label: Label,
    /// A directory for the output. Each rank gets the files `rank.N.out` and `rank.N.err` there, without labels.
    pub folder: Option<PathBuf>,
    /// Which ranks read the launcher's standard input.
    pub input: Input,
    /// In which order ranks are placed on the hosts.
    pub mapping: Mapping,
    /// What ranks are bound to.
    pub binding: Binding,
    /// The remote shell command, with the arguments that go before the host name.
    pub shell: Vec<String>,
    /// The command that starts an agent on another host.
    pub agent: Vec<OsString>,
    /// Name or address of this host at which ranks on other hosts can reach it. `None` tries all of its addresses.
    pub address: Option<String>,
}

impl Launch {
    /// A launch of `size` ranks of `program` on this host, with defaults for everything else.
    pub fn new(size: u32, program: impl Into<OsString>) -> Self {
        let me = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("towline"));
        Self {
            size,
            program: program.into(),
            args: Vec::new(),
            hosts: Vec::new(),
            transports: Vec::new(),
            links: None,
            variables: Vec::new(),
            time_limit: None,
            grace: Duration::from_secs(5),
            keep_going: false,
            report_wait: Duration::from_secs(3),
            report_file: None,
            restarts: 0,
            label: Label::Rank,
            folder: None,
            input: Input::default(),
            mapping: Mapping::default(),
            binding: Binding::default(),
            shell: ["ssh", "-o", "BatchMode=yes"].map(Into::into).into(),
            agent: vec![me.into(), "run".into(), "--agent".into()],
            address: None,
        }
    }
}
