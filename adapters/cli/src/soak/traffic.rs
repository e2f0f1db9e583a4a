//! The messages of a job: their sender, receiver, round, length and mode. Both ends compute them from the seed alone.

use towline_host_tests::random::Random;

/// How the messages of a stream are received. Each rank sends one stream of each kind to each other rank. The messages
/// of a stream are received in the order in which they were sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// By receives that are posted before anything is sent.
    Posted,
    /// By blocking receives.
    Blocking,
    /// By probes of all kinds, and then a receive.
    Probed,
    /// By receives from any source.
    AnySource,
    /// In a separate communicator, by receives from any source with any tag.
    Anything,
}

/// All kinds. The index of each is its tag.
pub const STREAMS: [Stream; 5] =
    [Stream::Posted, Stream::Blocking, Stream::Probed, Stream::AnySource, Stream::Anything];
/// A tag with which nothing is ever sent.
pub const NEVER: u32 = 99;
/// Longest message of a stream whose receiver cannot know which message comes next.
pub const WILDCARD_MOST: u64 = 100_000;

/// The identity of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageId {
    pub from: u32,
    pub to: u32,
    pub stream: Stream,
    /// Its number within its stream, from 0.
    pub index: u64,
}

/// How a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    Owned,
    OwnedSynchronous,
    Scoped,
    Blocking,
    BlockingSynchronous,
}

/// The traffic of a job.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    pub seed: u64,
    pub ranks: u32,
    pub rounds: u32,
    /// Longest message, in bytes.
    pub most: u64,
}

impl Traffic {
    /// The traffic of a seed.
    pub fn new(seed: u64, ranks: u32, rounds: u32, most: u64) -> Self {
        Self { seed, ranks, rounds, most }
    }

    /// The traffic after a killed rank has rejoined.
    pub fn restarted(seed: u64, ranks: u32, rounds: u32, most: u64) -> Self {
        Self::new(seed ^ 0xa9a1_0000_0000_0000, ranks, rounds, most)
    }

    /// How many messages of a stream go from one rank to another in a round.
    pub fn count(&self, from: u32, to: u32, stream: Stream, round: u32) -> u64 {
        let mut random = self.random([1, from, to, stream as u32, round]);
        match stream {
            _ if random.chance(400) => 0,
            Stream::Posted => random.between(1, 8),
            _ => random.between(1, 3),
        }
    }

    pub fn len(&self, of: MessageId) -> usize {
        let most = if matches!(of.stream, Stream::AnySource | Stream::Anything) { WILDCARD_MOST } else { self.most };
        self.of(2, of).length(most.min(self.most)) as usize
    }

    pub fn way(&self, of: MessageId) -> SendMode {
        let ways = match of.stream {
            // The receive is already posted, or does not depend on this send, so any mode may wait for it.
            Stream::Posted => &[
                SendMode::Owned,
                SendMode::OwnedSynchronous,
                SendMode::Scoped,
                SendMode::Blocking,
                SendMode::BlockingSynchronous,
            ][..],
            _ => &[SendMode::Owned, SendMode::OwnedSynchronous],
        };
        self.of(3, of).pick(ways)
    }

    /// The tag of a message of [`Stream::Anything`].
    pub fn tag(&self, of: MessageId) -> u32 {
        if of.stream == Stream::Anything { self.of(4, of).below(90) as u32 } else { of.stream as u32 }
    }

    /// The name from which its bytes are generated.
    pub fn name(&self, of: MessageId) -> u64 {
        self.of(5, of).word()
    }

    /// How a message is received, if its stream allows several ways.
    pub fn choice(&self, of: MessageId, among: u64) -> u64 {
        self.of(6, of).below(among)
    }

    fn of(&self, what: u32, of: MessageId) -> Random {
        self.random([what, of.from, of.to, of.stream as u32 | (of.index >> 32 << 8) as u32, of.index as u32])
    }

    /// The random numbers that belong to `what`.
    pub fn random(&self, what: [u32; 5]) -> Random {
        let mixed = what.into_iter().fold(self.seed, |state, word| {
            let state = (state ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            state ^ (state >> 29)
        });
        Random::new(mixed)
    }
}
