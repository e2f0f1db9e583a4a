//! The result of a job.

use std::fmt;

use crate::sim::history::{Summary, Violation};
use crate::sim::network::faults::Counts;

/// The report of a job that passed.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Counts of checked events.
    pub summary: Summary,
    /// Counts of the network.
    pub counts: Counts,
    /// Sums of the engines' counters.
    pub transitions: Vec<(&'static str, u64)>,
    /// Number of nodes.
    pub nodes: u32,
    /// Virtual nanoseconds.
    pub took: u64,
}

/// Why a job failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobError {
    /// No progress, or progress without end. With the remaining work.
    Stuck(String),
    /// The history has a violation.
    HistoryWrong(Violation),
    /// A call was refused that must be accepted.
    Refused(u32, String),
    /// A receive did not get the message that its probe had found.
    ProbeDiffers(u32, String),
    /// An engine counted something that reliable rails and honest peers cannot cause.
    UnexpectedCount(u32, &'static str, u64),
    /// An engine gave a frame to a disabled rail.
    DisabledRailUsed(u32),
    /// A node waits for another that is stalled for longer than the stall time-out.
    NotGivenUp(u32, u32),
    /// A node waits for another that was lost with its host long ago.
    LossNotNoticed(u32, u32),
    /// A node gave up another one for a wrong reason.
    WrongReason(u32, u32, String),
    /// Memory outside an operation's buffer, or of a completed operation, was written to.
    Overrun(u32, u32),
    /// A node without a common rail could be added, or was not reported as unreachable.
    NotUnreachable(u32, u32, String),
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stuck(what) => write!(f, "the job is stuck: {what}"),
            Self::HistoryWrong(violation) => write!(f, "{violation}"),
            Self::Refused(node, why) => write!(f, "node {node}: {why}"),
            Self::ProbeDiffers(node, what) => {
                write!(f, "node {node}: the received message is not the probed one: {what}")
            }
            Self::UnexpectedCount(node, what, count) => write!(f, "node {node} counted {count} {what}"),
            Self::DisabledRailUsed(node) => write!(f, "node {node} gave a frame to a rail that is disabled"),
            Self::NotGivenUp(node, peer) => {
                write!(f, "node {node} waits for node {peer}, which is stalled for longer than the stall time-out")
            }
            Self::LossNotNoticed(node, peer) => {
                write!(f, "node {node} waits for node {peer}, which was lost with its host long ago")
            }
            Self::WrongReason(node, peer, why) => {
                write!(f, "node {node} gave up node {peer} for a wrong reason: {why}")
            }
            Self::Overrun(node, number) => {
                write!(f, "node {node}: operation {number} wrote outside its buffer, or too late")
            }
            Self::NotUnreachable(node, peer, what) => {
                write!(f, "node {node} has no rail to node {peer}, but the engine reported: {what}")
            }
        }
    }
}

impl From<Violation> for JobError {
    fn from(violation: Violation) -> Self {
        Self::HistoryWrong(violation)
    }
}
