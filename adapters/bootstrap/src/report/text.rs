//! Reports as texts for people.

use std::fmt;

use towline_net::counted;

use super::{ALL_CONTEXTS, Activity, Operation, OperationKind, Peer, Report, Stage, Unreceived, WORLD, Wait};

/// A communicator's name in a sentence.
pub(super) fn communicator_name(number: u32) -> String {
    match number {
        WORLD => "the world".into(),
        ALL_CONTEXTS => "the communicator of all contexts".into(),
        other => format!("communicator {other}"),
    }
}

/// A duration in seconds with one digit after the point.
pub(super) fn seconds(millis: u64) -> String {
    format!("{}.{} s", millis / 1000, millis % 1000 / 100)
}

pub(super) fn context_name(rank: u32, index: u32) -> String {
    if index == 0 { format!("rank {rank}") } else { format!("context {index} of rank {rank}") }
}

impl Operation {
    /// What the operation is and waits for, for example `a message from rank 1 with tag 7 in the world, room for 8 bytes`.
    pub(super) fn describe(&self) -> String {
        let peer = match self.peer {
            Peer::One { rank, index } => context_name(rank, index),
            Peer::Any => "any rank".into(),
            Peer::All => "all other ranks".into(),
            Peer::None => String::new(),
        };
        let tag = self.tag.map_or_else(|| "any tag".into(), |tag| format!("tag {tag}"));
        let (communicator, bytes) = (communicator_name(self.communicator), counted(self.bytes, "byte"));
        let sends = matches!(self.kind, OperationKind::Send | OperationKind::SynchronousSend);
        let mut text = match &self.kind {
            OperationKind::Future => return "not an operation of Towline".into(),
            OperationKind::FreeRequest => {
                return "as many operations are in progress as TOWLINE_REQUESTS allows".into();
            }
            OperationKind::Finish if self.peer == Peer::None => {
                return "sends of dropped requests are not complete".into();
            }
            OperationKind::Finish => return "not all other ranks have finished".into(),
            OperationKind::OneSided if self.peer == Peer::None => return "it is not complete".into(),
            OperationKind::OneSided => return format!("it uses memory of {peer}"),
            OperationKind::Collective(_) => format!("{peer} has not come to the same step, in {communicator}"),
            OperationKind::Probe => format!("a message from {peer} with {tag} in {communicator}"),
            OperationKind::Receive if self.stage == Stage::Unmatched => {
                format!("a message from {peer} with {tag} in {communicator}, room for {bytes}")
            }
            OperationKind::Receive => format!("{bytes} from {peer} with {tag} in {communicator}"),
            OperationKind::Send | OperationKind::SynchronousSend => {
                format!("{bytes} to {peer} with {tag} in {communicator}")
            }
        };
        text += &match self.stage {
            Stage::Moving => format!(", {} moved", counted(self.moved, "byte")),
            Stage::Held if sends => ", held back: the peer has no room for it, or earlier messages come first".into(),
            Stage::Unmatched if sends => ", which no receive has matched".into(),
            Stage::Held | Stage::Unmatched => String::new(),
        };
        text
    }
}

impl Report {
    /// The lines of the report, without the name of the rank. `times`: with the times for which threads have waited.
    pub(crate) fn lines(&self, times: bool) -> Vec<String> {
        let mut lines = match &self.activity {
            Activity::Waiting => Vec::new(),
            Activity::Polling => vec!["calls Towline again and again without waiting (test, probe or progress)".into()],
            Activity::Outside => vec!["is in no call of Towline: it computes, or waits for something else".into()],
            Activity::Starting(step) => vec![format!("starts: {step}")],
        };
        for Wait { operation, future, waited_ms } in &self.waits {
            let time = if times { format!(" for {}", seconds(*waited_ms)) } else { String::new() };
            let (how, name) = (if *future { "awaits" } else { "waits in" }, operation.kind.name());
            lines.push(format!("{how} {name}{time}: {}", operation.describe()));
        }
        let in_progress = |it: &Operation| format!("in progress: {}: {}", it.kind.name(), it.describe());
        lines.extend(self.operations.iter().map(in_progress));
        if self.more_operations != 0 {
            lines.push(format!("in progress: {} more", counted(self.more_operations, "operation")));
        }
        lines.extend(self.unreceived.iter().map(Unreceived::to_string));
        if self.more_unreceived != 0 {
            lines.push(format!("not received: {} more", counted(self.more_unreceived, "message")));
        }
        if lines.is_empty() {
            lines.push("waits, and no operation is in progress".into());
        }
        lines
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = context_name(self.rank, self.index);
        for (index, line) in self.lines(true).iter().enumerate() {
            write!(f, "{}{name} {line}", if index == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Unreceived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, index, tag, communicator, count, bytes, largest, taken } = self;
        let (from, communicator) = (context_name(*rank, *index), communicator_name(*communicator));
        let longest = if *count == 1 { String::new() } else { format!(", the longest {largest}") };
        let (messages, bytes) = (counted(*count, "message"), counted(*bytes, "byte"));
        let taken = if *taken { ", taken by a matched probe" } else { "" };
        write!(f, "not received: {messages} from {from} with tag {tag} in {communicator}, {bytes}{longest}{taken}")
    }
}
