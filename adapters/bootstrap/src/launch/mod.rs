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

mod agent;
mod children;
mod error;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod hosts;
mod launcher;
mod message;
mod options;
mod output;
mod reader;
mod remote;
mod setup;
mod signals;
mod standard_streams;

pub use agent::agent;
pub use error::LaunchError;
pub use hosts::{Host, HostsError};
pub use options::Launch;
