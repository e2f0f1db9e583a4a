//! Messages that were never received, at the end of a job.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use towline_net::counted;

use super::text::communicator_name;

/// Messages that a rank has not received when it finishes: how many, and the longest one.
///
/// A plain value. It is added up over the contexts of a rank, and by the launcher over all ranks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Unmatched {
    /// How many messages.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// The longest one, or the first of several such. `None` if there is no message.
    pub largest: Option<LargestMessage>,
}

/// The longest of the messages that were not received.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LargestMessage {
    /// Its bytes.
    pub bytes: u64,
    /// The rank that sent it.
    pub from: u32,
    /// The rank that has not received it.
    pub to: u32,
    /// Its tag.
    pub tag: u32,
    /// The number of its communicator.
    pub communicator: u32,
}

/// The reaction to messages that were never received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum UnmatchedPolicy {
    /// Nothing.
    Ignore,
    /// A line on standard error, once for the job.
    #[default]
    Warn,
    /// The same, and the job fails.
    Error,
}

impl fmt::Display for UnmatchedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ignore => "ignore",
            Self::Warn => "warn",
            Self::Error => "error",
        })
    }
}

impl FromStr for UnmatchedPolicy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Ignore, Self::Warn, Self::Error].into_iter().find(|it| it.to_string() == text).ok_or(())
    }
}

impl Unmatched {
    /// Adds a message.
    pub fn add(&mut self, message: LargestMessage) {
        self.merge(Self { count: 1, bytes: message.bytes, largest: Some(message) });
    }

    /// Adds the messages of another rank or context.
    pub fn merge(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        let longer = |new: &LargestMessage| self.largest.as_ref().is_none_or(|old| new.bytes > old.bytes);
        if let Some(new) = other.largest.filter(longer) {
            self.largest = Some(new);
        }
    }

    pub(crate) fn encode(&self, policy: UnmatchedPolicy) -> Vec<u8> {
        postcard::to_stdvec(&(policy, self)).unwrap_or_default()
    }

    /// The messages from the bytes that a rank has sent. `None` if they are malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(UnmatchedPolicy, Self)> {
        let (message, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(message)
    }
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(largest) = &self.largest else { return f.write_str("all messages were received") };
        let LargestMessage { bytes, from, to, tag, communicator } = largest;
        let (bytes, communicator) = (counted(*bytes, "byte"), communicator_name(*communicator));
        if self.count == 1 {
            write!(f, "1 message was never received: {bytes}")?;
        } else {
            write!(
                f,
                "{} messages were never received, {} in all; the longest: {bytes}",
                self.count,
                counted(self.bytes, "byte")
            )?;
        }
        write!(f, " from rank {from} to rank {to} with tag {tag}, in {communicator}")
    }
}
