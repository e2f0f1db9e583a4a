//! What a server is told, and what it tells.

use std::net::SocketAddr;

use crate::Key;

/// What a server serves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of ranks.
    pub size: u32,
    /// The job's number.
    pub job: u64,
    /// The job's secret.
    pub key: Key,
    /// Name of an abstract Unix socket for ranks on this host.
    pub name: Option<String>,
    /// Address for ranks on other hosts; port 0 lets the system choose.
    pub listen: Option<SocketAddr>,
    /// Whether a rank whose connection closes counts as gone: for a job that has no launcher to tell of its end. It
    /// may still come back.
    pub left_is_gone: bool,
}

/// What a server has to tell its launcher.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A rank proved itself and is in.
    Joined {
        /// Which.
        rank: u32,
    },
    /// A rank will take part in nothing further.
    Finished {
        /// Which.
        rank: u32,
    },
    /// A rank's connection closed. If it had not finished, it is dead or breaks the protocol.
    Left {
        /// Which.
        rank: u32,
        /// Why.
        why: String,
    },
    /// A rank asks for the end of the job.
    Aborted {
        /// Which.
        rank: u32,
        /// The exit status that it wants.
        code: i32,
        /// What it has to say.
        message: String,
    },
    /// Somebody connected who does not belong to the job; the job goes on.
    Refused {
        /// From where.
        from: String,
        /// Why.
        why: String,
    },
}
