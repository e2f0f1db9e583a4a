//! What to launch, and how.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::hosts::Host;

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
}
