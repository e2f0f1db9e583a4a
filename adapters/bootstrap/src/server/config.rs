//! The configuration of a server, and the events that it reports.

use std::net::SocketAddr;

use crate::JobKey;
use crate::report::{Report, Unmatched, UnmatchedPolicy};

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of ranks.
    pub size: u32,
    /// The job's number.
    pub job: u64,
    /// The job's secret.
    pub key: JobKey,
    /// Name of an abstract Unix socket, at which ranks on this host connect.
    pub name: Option<String>,
    /// Address at which ranks on other hosts connect. With port 0 the system chooses the port.
    pub listen: Option<SocketAddr>,
    /// Whether a rank whose connection closes counts as ended. Set it in a job without a launcher, where no other
    /// process reports ends. The rank may still join again.
    pub disconnect_ends_rank: bool,
}

/// An event that a server reports to its launcher.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A rank has authenticated and is accepted.
    Joined {
        /// The rank.
        rank: u32,
    },
    /// A rank takes no further part in the job.
    Finished {
        /// The rank.
        rank: u32,
    },
    /// A rank's connection has closed. If the rank had not finished, it has died or breaks the protocol.
    Disconnected {
        /// The rank.
        rank: u32,
        /// The reason.
        why: String,
    },
    /// A rank has aborted the job.
    Aborted {
        /// The rank.
        rank: u32,
        /// The exit status that it asks for.
        code: i32,
        /// Its message for the user.
        message: String,
    },
    /// A rank warns of something that people should know. Only the first warning of a job is an event.
    Warned {
        /// The rank.
        rank: u32,
        /// The warning.
        text: String,
    },
    /// An operation of a rank has failed because another rank was lost or had finished. A failure of the first rank that
    /// follows is probably a consequence.
    LostPeer {
        /// The rank whose operation failed.
        rank: u32,
        /// The rank that was lost.
        peer: u32,
    },
    /// The program of a rank fails: it returned an error, or panicked. The end of its process follows.
    Failing {
        /// The rank.
        rank: u32,
        /// It panicked.
        panic: bool,
        /// The text of the error or panic.
        text: String,
    },
    /// A rank reports what it does, for a question of [`Server::ask_for_reports`](super::Server::ask_for_reports).
    Reported {
        /// The rank.
        rank: u32,
        /// The number of the question. 0: the rank was not asked, and has waited in `finish` for long.
        question: u32,
        /// The report of one of the rank's contexts.
        report: Box<Report>,
    },
    /// A rank is about to finish, and has not received all messages.
    Unmatched {
        /// The rank.
        rank: u32,
        /// These messages.
        unmatched: Unmatched,
        /// What the rank wants to happen.
        policy: UnmatchedPolicy,
    },
    /// A connection was refused because it does not belong to the job. The job goes on.
    Refused {
        /// The address of the caller.
        from: String,
        /// The reason.
        why: String,
    },
}
