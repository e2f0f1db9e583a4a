//! The limits of an engine.

use crate::pml::limits::params::{PARAMS, Params};
use crate::pml::rdma;
use crate::rma;

/// Limits of an engine, chosen at set-up; what they cost in memory is [`Config::bytes`].
///
/// Unexpected memory is bounded by `unexpected` envelopes and `units` payload units of `unit_bytes` bytes. Each of
/// `peers` peers has an equal share of both as credit: a message takes an envelope of its receiver from when it is
/// sent until it is matched, an eager one with a payload also a unit. A peer without credit holds its messages back,
/// and is asked for the one that a receive needs. How few of each are enough is told by [`Config::check`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Config {
    /// Peers at most, this process included where it sends to itself.
    pub peers: u32,
    /// Sends and receives under way at most; completed ones count until their outcome is taken, and so do messages held
    /// back that a matched probe took.
    pub requests: u32,
    /// Envelopes for messages that arrive before their receive.
    pub unexpected: u32,
    /// Payload units for eager messages that arrive before their receive.
    pub units: u32,
    /// Bytes of a payload unit: no longer message goes eagerly to this engine.
    pub unit_bytes: u32,
    /// Envelopes beyond all credit, at least 1: for messages that are held back at their sender, asked for by a probe, and
    /// not yet received. With few of them probes for several things in turn wait for each other; none waits for ever.
    /// What [`improbe`](crate::pml::Pml::improbe) takes goes on to a request and leaves its envelope to others, so `requests` is the
    /// bound of messages that are taken and not received.
    pub probes: u32,
    /// Key of the matcher's hash: unknown to peers, so that they cannot choose tags that collide.
    pub seed: u64,
    /// Number of the first message to each peer. Peers learn it from [`Pml::params`](crate::pml::Pml::params); tests start near the wrap.
    pub first_sequence: u64,
    /// One-sided operations.
    pub rma: rma::Config,
    /// Messages that devices move.
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

    pub(in crate::pml) const fn envelopes(&self) -> u32 {
        self.unexpected.saturating_add(self.probes)
    }

    /// What peers of an engine with these limits need to know of it: see [`Pml::params`](crate::pml::Pml::params). So it can be published before the
    /// engine is there, and rails that no peer is reached by need never be given to it.
    pub fn params(&self) -> [u8; PARAMS] {
        let (envelopes, units) = self.quota();
        Params { envelopes, units, unit_bytes: self.unit_bytes, first_sequence: self.first_sequence }.encode()
    }

    /// One peer's share: envelopes and units.
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
