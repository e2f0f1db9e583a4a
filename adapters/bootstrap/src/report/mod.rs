//! Reports of what ranks wait for, and of what they have not received.
//!
//! A rank makes a [`Report`] of each of its contexts. A launcher asks all ranks for theirs, and puts them together: it names
//! ranks that wait for each other, and ranks that wait for one that has finished. All reports are texts for people
//! (`Display`) and JSON (`to_json`).

mod deadlock;
mod job;
mod json;
mod operation;
#[cfg(test)]
mod tests;
mod text;
mod unmatched;

use serde::{Deserialize, Serialize};

pub(crate) use job::{JobReport, RankReport, RankState, Reason};
use json::Value;
pub use operation::{Operation, OperationKind, Peer, Stage};
pub use unmatched::{LargestMessage, Unmatched, UnmatchedPolicy};

/// The number of the communicator of all ranks, in [`Operation::communicator`].
pub const WORLD: u32 = 1;
/// The number of the communicator of all contexts of all ranks.
pub const ALL_CONTEXTS: u32 = 2;

/// Most entries of each list in a report. Further ones are counted.
pub const LISTED_MAX: usize = 64;

/// What a context of a rank is doing: the operations for which it waits, the others in progress, and the messages that have
/// arrived and that no receive has taken. A rank has one context, unless it was built with more.
///
/// A plain value. Its `Display` has one line for each entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// The rank in the world.
    pub rank: u32,
    /// The index of the context among those of the rank.
    pub index: u32,
    /// How many contexts the rank has.
    pub contexts: u32,
    /// Several threads of the program may use the context. Those that do not wait in it are not in the report.
    pub several_threads: bool,
    /// What the program does.
    pub activity: Activity,
    /// The operations for which threads and tasks of the program wait.
    pub waits: Vec<Wait>,
    /// The other operations in progress.
    pub operations: Vec<Operation>,
    /// Further operations that are not listed.
    pub more_operations: u64,
    /// Messages that have arrived, and that no receive has taken. One entry for each peer, tag and communicator.
    pub unreceived: Vec<Unreceived>,
    /// Further messages of this kind that are not listed.
    pub more_unreceived: u64,
}

/// What a program does while a report is made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Activity {
    /// It waits in a call of the library.
    Waiting,
    /// It calls the library again and again without waiting: it tests, probes or makes progress.
    Polling,
    /// No thread of the program is in a call of the library.
    Outside,
    /// It starts: it waits for other ranks to start. The text says in which step.
    Starting(String),
}

/// An operation for which a thread or task waits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wait {
    /// The operation.
    pub operation: Operation,
    /// Whether a future is awaited, and not a blocking call.
    pub future: bool,
    /// For how long the thread has waited so far, in milliseconds.
    pub waited_ms: u64,
}

/// Messages from one peer with one tag that have arrived, and that no receive has taken.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unreceived {
    /// The rank of the sender in the world.
    pub rank: u32,
    /// The index of the sender's context.
    pub index: u32,
    /// The tag.
    pub tag: u32,
    /// The number of the communicator.
    pub communicator: u32,
    /// How many messages.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Bytes of the longest one.
    pub largest: u64,
    /// A matched probe has taken them, and they were not received since.
    pub taken: bool,
}

impl Report {
    /// A report without entries.
    pub const fn new(rank: u32, index: u32, contexts: u32, activity: Activity) -> Self {
        Self {
            rank,
            index,
            contexts,
            several_threads: false,
            activity,
            waits: Vec::new(),
            operations: Vec::new(),
            more_operations: 0,
            unreceived: Vec::new(),
            more_unreceived: 0,
        }
    }

    /// Adds a wait, if there is room for it. Otherwise it is counted as an operation.
    pub fn add_wait(&mut self, wait: Wait) {
        if self.waits.len() < LISTED_MAX { self.waits.push(wait) } else { self.more_operations += 1 }
    }

    /// Adds an operation in progress for which no thread waits.
    pub fn add_operation(&mut self, operation: Operation) {
        if self.operations.len() < LISTED_MAX { self.operations.push(operation) } else { self.more_operations += 1 }
    }

    /// Adds a message that no receive has taken. `message` is the entry of one message.
    pub fn add_unreceived(&mut self, message: &Unreceived) {
        let same = |other: &&mut Unreceived| {
            let key = |it: &Unreceived| (it.rank, it.index, it.tag, it.communicator, it.taken);
            key(other) == key(message)
        };
        if let Some(entry) = self.unreceived.iter_mut().find(same) {
            entry.count += message.count;
            entry.bytes = entry.bytes.saturating_add(message.bytes);
            entry.largest = entry.largest.max(message.largest);
        } else if self.unreceived.len() < LISTED_MAX {
            self.unreceived.push(message.clone());
        } else {
            self.more_unreceived += message.count;
        }
    }

    /// The report as JSON: one object, whose keys are the names of the fields.
    pub fn to_json(&self) -> String {
        self.json().to_string()
    }

    fn json(&self) -> Value {
        let (activity, step) = match &self.activity {
            Activity::Waiting => ("waiting", Value::Null),
            Activity::Polling => ("polling", Value::Null),
            Activity::Outside => ("outside", Value::Null),
            Activity::Starting(step) => ("starting", Value::text(step)),
        };
        Value::Object(vec![
            ("rank", self.rank.into()),
            ("index", self.index.into()),
            ("contexts", self.contexts.into()),
            ("several_threads", self.several_threads.into()),
            ("activity", Value::text(activity)),
            ("step", step),
            ("waits", Value::list(self.waits.iter().map(Wait::json))),
            ("operations", Value::list(self.operations.iter().map(|it| Value::Object(it.json())))),
            ("more_operations", self.more_operations.into()),
            ("unreceived", Value::list(self.unreceived.iter().map(Unreceived::json))),
            ("more_unreceived", self.more_unreceived.into()),
        ])
    }

    /// The report as bytes for a launcher.
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// The report from the bytes that a rank has sent. `None` if they are malformed or longer than a report is.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (report, rest) = postcard::take_from_bytes::<Self>(bytes).ok()?;
        let bounded = [report.waits.len(), report.operations.len(), report.unreceived.len()];
        let known = report.index < report.contexts;
        (rest.is_empty() && known && bounded.iter().all(|length| *length <= LISTED_MAX)).then_some(report)
    }
}

impl Wait {
    fn json(&self) -> Value {
        let mut fields = self.operation.json();
        fields.push(("future", self.future.into()));
        fields.push(("waited_ms", self.waited_ms.into()));
        Value::Object(fields)
    }
}

impl Unreceived {
    fn json(&self) -> Value {
        Value::Object(vec![
            ("rank", self.rank.into()),
            ("index", self.index.into()),
            ("tag", self.tag.into()),
            ("communicator", self.communicator.into()),
            ("count", self.count.into()),
            ("bytes", self.bytes.into()),
            ("largest", self.largest.into()),
            ("taken", self.taken.into()),
        ])
    }
}
