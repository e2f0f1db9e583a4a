//! The limits of an engine.

use crate::pml::limits::params::{PARAMS, Params};
use crate::pml::rdma;
use crate::rma;

/// Limits of an engine, chosen at set-up. [`Config::bytes`] says how much memory they take.
///
/// Memory for unexpected messages is bounded: `unexpected` envelopes, and `units` payload units of `unit_bytes` bytes. Each of
/// `peers` peers has an equal share of both as credit. A message takes an envelope of its receiver from when it is sent until it
/// is matched; a message with payload also takes a unit. A peer without credit holds its messages back, and is asked for the one
/// that a receive needs. [`Config::check`] says whether the limits are large enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Config {
    /// Most peers, this process included if it sends to itself.
    pub peers: u32,
    /// Most sends and receives in progress. Each counts until its outcome is taken. A held-back message that a matched probe took
    /// also counts.
    pub requests: u32,
    /// Envelopes for messages that arrive before their receive.
    pub unexpected: u32,
    /// Payload units for eager messages that arrive before their receive.
    pub units: u32,
    /// Bytes of a payload unit. Peers send no longer message eagerly to this engine.
    pub unit_bytes: u32,
    /// Envelopes beyond all credit, at least 1. Each keeps a message that its sender held back and that a probe asked for, until
    /// it is received. With few of them, probes for several messages wait for each other; none waits forever. A message that
    /// [`improbe`](crate::pml::Pml::improbe) takes moves to a request and frees its envelope. So `requests` bounds the messages
    /// that are taken and not received.
    pub probes: u32,
    /// Key of the matcher's hash, to be chosen at random. Peers must not know it: then they cannot choose tags that collide.
    pub seed: u64,
    /// Number of the first message to each peer. Peers learn it from [`Pml::params`](crate::pml::Pml::params). 0 will do; tests
    /// start shortly before the number wraps.
    pub first_sequence: u64,
    /// Limits of one-sided operations. There are none without the feature `one-sided`.
    pub rma: rma::Config,
    /// Limits of messages that devices move. There are none without the feature `devices`.
    pub rdma: rdma::Config,
}

impl Config {
    /// The smallest useful engine: 4 peers, 16 requests, 32 unexpected messages of 64 bytes.
    pub const SMALLEST: Self = Self {
        peers: 4,
        requests: 16,
        unexpected: 32,
        units: 32,
        unit_bytes: 64,
        probes: 1,
        seed: 0,
        first_sequence: 0,
        rma: rma::Config::OFF,
        rdma: rdma::Config::OFF,
    };

    /// The limits, with none for parts of the engine that are not compiled: nothing of them can begin.
    pub(in crate::pml) const fn compiled(self) -> Self {
        Self {
            rma: if rma::ENABLED { self.rma } else { rma::Config::OFF },
            rdma: if rdma::ENABLED { self.rdma } else { rdma::Config::OFF },
            ..self
        }
    }

    /// All envelopes: those of the credit, and those beyond all credit.
    pub(in crate::pml) const fn envelopes(&self) -> u32 {
        self.unexpected.saturating_add(self.probes)
    }

    /// The parameters of an engine with these limits, for its peers: see [`Pml::params`](crate::pml::Pml::params). They can be
    /// published before the engine exists. So the caller can find out first which rails reach a peer, and give only these to the
    /// engine.
    pub fn params(&self) -> [u8; PARAMS] {
        let (envelopes, units) = self.quota();
        Params { envelopes, units, unit_bytes: self.unit_bytes, first_sequence: self.first_sequence }.encode()
    }

    /// The share of one peer: envelopes and units.
    pub(in crate::pml) const fn quota(&self) -> (u16, u16) {
        if self.peers == 0 {
            return (0, 0);
        }
        let (envelopes, units) = (self.unexpected / self.peers, self.units / self.peers);
        (
            if envelopes > u16::MAX as u32 { u16::MAX } else { envelopes as u16 },
            if units > u16::MAX as u32 { u16::MAX } else { units as u16 },
        )
    }
}
