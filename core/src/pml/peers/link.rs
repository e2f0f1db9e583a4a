//! One rail to one peer.

use zerocopy::FromZeros;

use crate::rail::MULTIRAIL;

/// Words with a bit for each rail that can be disabled. The only rail cannot.
pub(in crate::pml) const DISABLED_WORDS: usize = if MULTIRAIL { 8 } else { 0 };

/// The link gets no new frames: its rail has reported it down, and not up since.
pub(crate) const DOWN: u8 = 0x01;
/// The link gets no new frames: its rail is disabled.
pub(crate) const DISABLED: u8 = 0x02;
/// The link gets no frames so far: it is a spare, for the time when no other link to the peer takes frames.
pub(crate) const SPARE: u8 = 0x04;

/// A link: one rail to one peer.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct PeerLink {
    pub endpoint: u32,
    /// Index of the rail.
    pub rail: u8,
    /// Why the link is suspended: [`DOWN`], [`DISABLED`], [`SPARE`] or several of them. 0 while it is in use.
    pub suspended: u8,
    /// The round of the active list in which the rail had no room for this peer: the link is not tried again in this round.
    /// Round numbers repeat after 2^16 - 1 rounds; a link that was busy exactly so long ago is left out of one round.
    pub busy_in: u16,
    /// Bandwidth in megabytes per second, at least 1. 0 means that this place of the peer's row has no link.
    pub bandwidth: u32,
    /// Latency as the rail's attributes state it.
    pub latency: u32,
    /// Bytes scheduled on this link divided by its bandwidth, in units of 1/1024: the link with the least is next (P13).
    pub share: u64,
}

impl PeerLink {
    /// Whether it is the link by that rail.
    pub const fn is_of(&self, rail: usize) -> bool {
        self.bandwidth != 0 && self.rail as usize == rail
    }
}
