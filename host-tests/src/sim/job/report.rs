//! What came of a job.

use std::fmt;

use crate::sim::history::{Summary, Violation};
use crate::sim::network::faults::Counts;

/// What came of a job that went well.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What was checked.
    pub summary: Summary,
    /// What happened on the network.
    pub counts: Counts,
    /// What the engines did, summed up.
    pub transitions: Vec<(&'static str, u64)>,
    /// Nodes of the job.
    pub nodes: u32,
    /// Virtual nanoseconds.
    pub took: u64,
}

/// Why a job did not go well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobError {
    /// Nothing moves any more, or all runs in circles; with what is left to do.
    Stuck(String),
    /// The history is wrong.
    HistoryWrong(Violation),
    /// A call was refused that must not be.
    Refused(u32, String),
    /// A receive did not get what its probe had found.
    ProbeDiffers(u32, String),
    /// An engine counted what reliable rails and honest peers cannot have caused.
    UnexpectedCount(u32, &'static str, u64),
    /// An engine gave a frame to a rail that is disabled.
    DisabledRailUsed(u32),
    /// A node waits for another that stands still for longer than the stall time-out.
    NotGivenUp(u32, u32),
    /// A node waits for another whose host was lost long ago.
    LossNotNoticed(u32, u32),
    /// A node gives another one up for a reason that is not true.
    WrongReason(u32, u32, String),
    /// Memory around that of an operation, or of one that was over, was written to.
    Overrun(u32, u32),
    /// A node could be added although no rail leads to it, or is not named as unknown.
    NotUnreachable(u32, u32, String),
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stuck(what) => write!(f, "the job is stuck: {what}"),
            Self::HistoryWrong(violation) => write!(f, "{violation}"),
            Self::Refused(node, why) => write!(f, "node {node}: {why}"),
            Self::ProbeDiffers(node, what) => {
                write!(f, "node {node}: the probed message is not the received one: {what}")
            }
            Self::UnexpectedCount(node, what, count) => write!(f, "node {node} counted {count} {what}"),
            Self::DisabledRailUsed(node) => write!(f, "node {node} gave a frame to a rail that is disabled"),
            Self::NotGivenUp(node, peer) => {
                write!(f, "node {node} waits for node {peer}, which stands still for longer than the stall time-out")
            }
            Self::LossNotNoticed(node, peer) => {
                write!(f, "node {node} waits for node {peer}, which was lost with its host long ago")
            }
            Self::WrongReason(node, peer, why) => write!(f, "node {node} lost node {peer} as {why}, which is not true"),
            Self::Overrun(node, number) => {
                write!(f, "node {node}: operation {number} wrote where it must not, or too late")
            }
            Self::NotUnreachable(node, peer, what) => {
                write!(f, "node {node} has no rail to node {peer}, and was told: {what}")
            }
        }
    }
}

impl From<Violation> for JobError {
    fn from(violation: Violation) -> Self {
        Self::HistoryWrong(violation)
    }
}
