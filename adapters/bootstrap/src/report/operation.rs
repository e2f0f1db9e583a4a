//! An operation in a report.

use serde::{Deserialize, Serialize};

use super::json::Value;

/// An operation in progress.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// The call.
    pub kind: OperationKind,
    /// The other side.
    pub peer: Peer,
    /// Its tag. `None` for any tag, and for operations without tags.
    pub tag: Option<u32>,
    /// The number of its communicator. `Debug` of a communicator shows the number as `context`.
    pub communicator: u32,
    /// Bytes of the message. Of a receive that has not matched: the room for it.
    pub bytes: u64,
    /// Bytes that have left or arrived.
    pub moved: u64,
    /// How far it is.
    pub stage: Stage,
}

/// The call that an operation belongs to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OperationKind {
    /// A send.
    Send,
    /// A synchronous send, which ends when a receive has matched it.
    SynchronousSend,
    /// A receive.
    Receive,
    /// A probe that waits for a message.
    Probe,
    /// A one-sided operation.
    OneSided,
    /// The end of the world, which waits for all ranks.
    Finish,
    /// A collective operation, by its name. It waits for a message of the peer, or sends one to it.
    Collective(String),
    /// An operation that cannot begin, since as many are in progress as the settings allow.
    FreeRequest,
    /// A future that is none of the library's operations.
    Future,
}

/// The other side of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Peer {
    /// A context of a rank.
    One {
        /// The rank in the world.
        rank: u32,
        /// The index of the context.
        index: u32,
    },
    /// Any rank of the communicator.
    Any,
    /// All other ranks.
    All,
    /// The operation has none.
    None,
}

/// How far an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Stage {
    /// A send of which nothing has left: the peer has no room for it, or earlier messages come first.
    Held,
    /// No matching operation of the peer is known.
    Unmatched,
    /// It has matched, or needs no match. Its bytes are on their way.
    Moving,
}

impl OperationKind {
    /// The name of the call.
    pub fn name(&self) -> &str {
        match self {
            Self::Send => "send",
            Self::SynchronousSend => "ssend",
            Self::Receive => "recv",
            Self::Probe => "probe",
            Self::OneSided => "one-sided operation",
            Self::Finish => "finish",
            Self::Collective(name) => name,
            Self::FreeRequest => "a call",
            Self::Future => "future",
        }
    }
}

impl Operation {
    pub(super) fn json(&self) -> Vec<(&'static str, Value)> {
        let (rank, index) = match self.peer {
            Peer::One { rank, index } => (Value::from(rank), Value::from(index)),
            Peer::Any => (Value::text("any"), Value::Null),
            Peer::All => (Value::text("all"), Value::Null),
            Peer::None => (Value::Null, Value::Null),
        };
        let stage = match self.stage {
            Stage::Held => "held",
            Stage::Unmatched => "unmatched",
            Stage::Moving => "moving",
        };
        vec![
            ("operation", Value::text(self.kind.name())),
            ("peer", rank),
            ("peer_index", index),
            ("tag", self.tag.into()),
            ("communicator", self.communicator.into()),
            ("bytes", self.bytes.into()),
            ("moved", self.moved.into()),
            ("stage", Value::text(stage)),
        ]
    }
}
