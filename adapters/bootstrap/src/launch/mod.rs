//! Starting a job's ranks, on this host and on others, and seeing it through to its end.
//!
//! # What a job's end means
//!
//! | a rank | is |
//! |---|---|
//! | exits with status 0 after [`finish`](crate::Job::finish), or without ever having joined | well |
//! | exits with status 0 after it has joined, without `finish` | failed: others may wait for it; status 1 |
//! | exits with another status | failed, with that status |
//! | is killed by signal n | failed, with status 128 + n |
//! | calls [`abort`](crate::Job::abort) | failed, with the code that it gave, or 1 for 0 |
//! | closes its connection without `finish` and goes on running for 2 seconds | failed, with status 1 |
//!
//! The first rank that fails ends the job: it is reported with rank, process, host and reason, all others get SIGTERM,
//! and SIGKILL after a grace time. Its status is the launcher's; the launcher's is 0 only where all ranks ended well.
//! Ranks that wait for one that has ended without taking part hear of it at once. With
//! [`keep_going`](Launch::keep_going), a rank that fails other than by `abort` is reported, and the rest go on to their own
//! end; the launcher's status is still that of the first that failed.
//!
//! With [`restarts`](Launch::restarts), a rank that fails before it finished is reported and started again, the same program
//! with the same arguments and environment, so often and no more; the job goes on, and a rank that comes to its end well after
//! all counts as well. One that calls `abort` ends the job all the same, one that cannot be started too, and so does one that
//! closes its connection and goes on running. A rank sees that it was started again by its [incarnation](crate::Job::incarnation).
//!
//! Ranks are started one after another, and all that happens meanwhile is heard: a signal, the time limit or a rank that
//! fails ends the job before the rest are started. The launcher has up to three files open for each rank, for which it
//! raises its own limit (not that of the ranks) as far as it may; where that is not far enough it starts none.
//!
//! Whoever reads the output is waited for. Once a signal or the time limit ends the job, a reader that takes nothing for a
//! second gets no more.
//!
//! Each rank runs in a process group of its own. SIGINT, SIGTERM, SIGHUP and SIGQUIT to the launcher are passed on, and
//! start the grace time; a second one kills. SIGUSR1 and SIGUSR2 are passed on only. A shell starts what it runs in the
//! background with SIGINT and SIGQUIT ignored, and runners of all kinds ignore or block more: the launcher hears these
//! signals all the same, and its ranks begin with nothing blocked and nothing ignored. SIGHUP is the exception: ignored
//! for the launcher, as under `nohup`, it stays ignored for launcher and ranks. If the launcher dies, the kernel kills
//! the ranks. Rank 0 on this host reads the launcher's standard input unless that is a terminal, all others
//! read nothing.
//!
//! # Several hosts
//!
//! For each host but this one the launcher runs `REMOTE-SHELL HOST AGENT`, by default `ssh -o BatchMode=yes HOST
//! /path/of/towline run --agent` with the path that the launcher itself has. For `ssh` and `rsh`, which hand a line to a
//! shell over there, the words are quoted; any other command gets them as they are. The agent gets its orders, and the
//! job's key, over its standard input, and reports over its standard output. It starts its ranks in the directory of the
//! same path as the launcher's, with the environment that the remote shell gives and what
//! [`variables`](Launch::variables) adds. Ranks connect to the launcher by TCP; the agent chooses the first of the
//! launcher's addresses at which a server answers that holds the key.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

mod agent;
mod children;
mod conductor;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod hosts;
mod message;
mod output;
mod remote;
mod signals;

pub use agent::agent;
pub use hosts::{Host, HostsError};

/// What to launch, and how.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Number of ranks.
    pub size: u32,
    /// The program that each rank runs.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Hosts to fill one after another; empty for this host alone.
    pub hosts: Vec<Host>,
    /// Transports that ranks use; empty for all.
    pub transports: Vec<String>,
    /// Links per peer.
    pub links: Option<u32>,
    /// Variables for the environment of every rank.
    pub variables: Vec<(OsString, OsString)>,
    /// How long the job may run.
    pub time_limit: Option<Duration>,
    /// How long ranks may take to end after SIGTERM.
    pub grace: Duration,
    /// Whether the others go on when a rank fails, except by [`abort`](crate::Job::abort).
    pub keep_going: bool,
    /// How often each rank that fails is started again, except by [`abort`](crate::Job::abort).
    pub restarts: u32,
    /// Whether each line of output starts with its rank, as in `[3] line`.
    pub prefix: bool,
    /// The remote shell and its arguments before the host's name.
    pub shell: Vec<String>,
    /// The command that starts an agent on another host.
    pub agent: Vec<OsString>,
    /// Name or address of this host that ranks on others can reach; otherwise all of its addresses are tried.
    pub address: Option<String>,
}

impl Launch {
    /// Launches `size` ranks of `program` on this host, with everything else at its default.
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
            restarts: 0,
            prefix: true,
            shell: ["ssh", "-o", "BatchMode=yes"].map(Into::into).into(),
            agent: vec![me.into(), "run".into(), "--agent".into()],
            address: None,
        }
    }

    /// Runs the job to its end; gives the exit status for the launcher. Reports what went wrong in the job on standard
    /// error. Watches this process's signals; to be called once, from the main thread.
    ///
    /// # Errors
    /// [`LaunchError`] where the job could not even begin.
    pub fn run(self) -> Result<u8, LaunchError> {
        conductor::run(self)
    }
}

/// Why a job did not begin.
#[derive(Debug)]
#[non_exhaustive]
pub enum LaunchError {
    /// A job needs a rank.
    NoRanks,
    /// A job can have [`RANKS_MAX`](crate::RANKS_MAX) ranks at most.
    TooManyRanks {
        /// Ranks that were asked for.
        ranks: u32,
    },
    /// There are fewer slots than ranks.
    TooFewSlots {
        /// Ranks that were asked for.
        ranks: u32,
        /// Slots that the hosts have together.
        slots: u32,
    },
    /// The limit of open files is too low for what the launcher needs for its ranks: it starts none then.
    TooFewFiles {
        /// Ranks that this launcher, or its agent on a host, has to look after.
        ranks: usize,
        /// Files that would be open.
        needed: u64,
        /// Files that may be open at most.
        limit: u64,
    },
    /// The system refused something.
    System {
        /// What was to be done.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRanks => f.write_str("a job of 0 ranks: ask for at least 1"),
            Self::TooManyRanks { ranks } => {
                write!(f, "a job of {ranks} ranks: ask for at most {}", crate::RANKS_MAX)
            }
            Self::TooFewSlots { ranks, slots } => {
                write!(f, "the hosts have {slots} slots for {ranks} ranks: add hosts or slots=N to the hosts file")
            }
            Self::TooFewFiles { ranks, needed, limit } => write!(
                f,
                "{ranks} ranks need {needed} open files here, and the limit is {limit}: raise it (`ulimit -Hn`), or take \
                 fewer ranks, or more hosts"
            ),
            Self::System { what, source } => write!(f, "cannot {what}: {source}"),
        }
    }
}

impl std::error::Error for LaunchError {}
