//! Starts a job's ranks on this host and on others, and supervises them until the job ends.
//!
//! # How a job ends
//!
//! | a rank that | has |
//! |---|---|
//! | exits with status 0 after [`finish`](crate::Job::finish) or [`leave`](crate::Job::leave), or without ever having joined | ended well |
//! | exits with status 0 after it has joined, without either | failed with status 1, since messages of it may be lost |
//! | exits with another status | failed, with that status |
//! | is killed by signal n | failed, with status 128 + n |
//! | calls [`abort`](crate::Job::abort) | failed, with the code that it gave, or 1 for 0 |
//! | closes its connection without `finish` and goes on running for 2 seconds | failed, with status 1 |
//! | reports that it [fails](crate::Job::failing) and goes on running for a second | failed, with status 1 |
//!
//! A rank that fails ends the job. The launcher reports it with rank, process, host and reason, sends SIGTERM to all
//! other ranks, and SIGKILL after a grace time. The launcher exits with the status of that rank; it exits with 0 only if
//! all ranks ended well. If a rank ends without taking part in an exchange or a fence, the ranks that wait for it there
//! get an error at once. With [`keep_going`](Launch::keep_going), a failed rank is reported and the other ranks go on to
//! their own end, unless the rank called `abort`. The launcher's status is still that of the first rank that was
//! reported.
//!
//! # The cause of a failure
//!
//! When a rank fails, others soon fail because they lost it, and their ends may be seen first. A rank therefore tells
//! the launcher when an operation of it [has failed](crate::Job::lost_peer) because another rank was lost or had
//! finished. The launcher holds a failure until it has read all messages of the rank, and then reports as the cause, in
//! this order:
//!
//! 1. a rank that was killed by a signal,
//! 2. the first rank that fails although it has lost no other failed rank,
//! 3. the first rank that fails.
//!
//! A failure that seems to be its own cause is held for 50 ms, since other news may be on their way. One of a rank that
//! has lost a rank of whose end nothing is known yet is held for up to 2 s. The report includes the text of the error or
//! panic, if the rank has told it. The other ranks that failed by themselves are in one line at the end.
//!
//! # Restarts, starts, output and signals
//!
//! With [`restarts`](Launch::restarts), a rank that fails before it has finished is reported and restarted, with the
//! same program, arguments and environment, up to that many times. The job goes on, and a restarted rank that ends well
//! has not failed. The job still ends if a rank calls `abort`, cannot be started, or closes its connection and goes on
//! running. A rank recognises a restart by its [incarnation](crate::Job::incarnation).
//!
//! Ranks are started one after another, and the launcher handles events between two starts: a signal, the time limit or
//! a failed rank ends the job before the rest are started. If signal n does, the status is 128 + n. The launcher has up
//! to three files open for each rank. It raises its own limit of open files for this, not that of the ranks, as far as
//! the system allows. If the limit is still too low, it starts no rank.
//!
//! The launcher waits for the reader of its output. Once a signal or the time limit ends the job, a reader that takes
//! nothing for one second gets no more output.
//!
//! Each rank runs in a process group of its own. The launcher forwards SIGINT, SIGTERM and SIGHUP to the
//! ranks, and they start the grace time; a second one kills the ranks. SIGUSR1 and SIGUSR2 are only forwarded. A shell
//! starts background processes with SIGINT and SIGQUIT ignored, and other programs that start processes ignore or block
//! further signals. The launcher handles these signals nevertheless, and its ranks start with no signal blocked or
//! ignored. SIGHUP is the exception: if it is ignored for the launcher, as under `nohup`, it stays ignored for launcher
//! and ranks. If the launcher dies, the kernel kills the ranks.
//!
//! # Output and input
//!
//! The launcher prints whole lines, so lines of different ranks do not mix. A line is held until its end, up to
//! [`LINE_MAX`] bytes, and unfinished lines of all ranks together up to [`UNFINISHED_MAX`] bytes. A longer line is split,
//! and each later piece has a mark in its [label](Label). If standard output and error are the same file, lines on them do
//! not mix either. With a [`folder`](Launch::folder), each rank's output goes unchanged to files of its own.
//!
//! [`Input`] selects the ranks that read the launcher's standard input. A single rank on this host inherits it. In all
//! other cases the launcher reads it and passes it on, through pipes and agents. At most 64 MiB are held for ranks that
//! have not read them yet, and then the input waits for the slowest one. All other ranks have an empty standard input.
//!
//! # Reports
//!
//! On SIGQUIT the launcher asks all ranks what they wait for, and prints their answers; the job goes on. It does the same
//! before it ends a job at the time limit, and once if a rank waits in `finish` for more than a second. It names ranks that
//! wait for each other, and ranks that wait for one that has finished. Ranks answer from inside of the library: at the
//! latest when a waiting rank next wakes, which `TOWLINE_IDLE_SLEEP_MS` bounds. A rank that does not answer within
//! [`report_wait`](Launch::report_wait) is not inside the library. Each report is also appended to
//! [`report_file`](Launch::report_file) as JSON.
//!
//! At the end the launcher prints once how many messages no rank has received, and the longest of them.
//!
//! # Several hosts
//!
//! For each host except this one the launcher runs `REMOTE-SHELL HOST AGENT`, by default `ssh -o BatchMode=yes HOST
//! /path/of/towline run --agent` with the path of the launcher itself. If the remote shell cannot be run, the job
//! ends with status 2. `ssh` and `rsh` pass a single line to a shell on the other host, so the words are quoted for
//! them. Any other command gets the words unchanged. The agent gets its orders and the job key over its standard
//! input, and reports over its standard output. It starts its ranks in the directory with the same path as the
//! launcher's, with the environment that the remote shell gives and the additional [`variables`](Launch::variables).
//! Ranks connect to the launcher by TCP. The agent chooses the first of the launcher's addresses at which a server
//! answers that holds the key. The [mapping](Mapping) decides which host gets which ranks. Launcher and agents bind
//! the ranks of their own host ([`Binding`]).

mod agent;
mod children;
pub(crate) mod cores;
mod error;
mod failures;
mod files;
pub(crate) mod hosts;
mod input;
mod launcher;
mod lines;
pub(crate) mod message;
mod options;
mod output;
mod output_files;
mod reader;
mod remote;
mod reports;
mod setup;
mod signals;
mod standard_streams;

pub use agent::agent;
pub use children::prepare_child;
pub use cores::{Binding, Mapping};
pub use error::LaunchError;
pub use hosts::{Host, HostsError, is_this_host};
pub use lines::{LINE_MAX, Label, UNFINISHED_MAX};
pub use options::{Input, Launch};
pub use remote::remote_command;
pub use standard_streams::Log;
