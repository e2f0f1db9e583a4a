//! One rail to one peer.

use zerocopy::FromZeros;

/// Nothing new goes by a link: its rail has reported it down, and not up since.
pub(crate) const DOWN: u8 = 0x01;

/// Nothing new goes by a link: its rail is disabled.
pub(crate) const DISABLED: u8 = 0x02;

/// One rail to one peer.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct PeerLink {
    pub endpoint: u32,
    /// Index of the rail.
    pub rail: u8,
    /// Why the link is set suspended: [`DOWN`], [`DISABLED`] or both; 0 where it is in use.
    pub suspended: u8,
    /// The round of the active list in which the rail had no room here: later ones of that round are not tried. Rounds
    /// start anew after 2^16, and a link that was last busy so long ago misses one.
    pub busy_in: u16,
    /// Megabytes per second, at least 1; 0 says that there is no link in this place of the row.
    pub bandwidth: u32,
    pub latency: u32,
    /// Bytes scheduled on this link over its bandwidth, in 1/1024 units: the link with the least is next (P13).
    pub share: u64,
}

impl PeerLink {
    /// Whether it is a link by that rail.
    pub const fn is_of(&self, rail: usize) -> bool {
        self.bandwidth != 0 && self.rail as usize == rail
    }
}
