//! A fixed window in the place of `congestion`, in a build without the feature `congestion`: the path carries as many frames as the
//! configuration allows at first.

use zerocopy::FromZeros;

/// From this many time-outs in a row on, one waiting frame is sent beyond the window.
pub(super) const MAX_SILENCES: u8 = 3;

/// How many frames may be in flight to a peer.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct CongestionWindow {
    allowed: u32,
    /// Time-outs in a row.
    timeouts: u8,
    /// Losses of transmissions up to this one are of a round trip whose first loss is known.
    recovered: u64,
}

impl CongestionWindow {
    pub const fn new(initial: u32, _most: u32) -> Self {
        Self { allowed: initial, timeouts: 0, recovered: 0 }
    }

    pub const fn allowed(&self) -> u32 {
        self.allowed
    }

    pub const fn timeouts(&self) -> u8 {
        self.timeouts
    }

    pub const fn on_answer(&mut self) {
        self.timeouts = 0;
    }

    pub const fn on_acked(&mut self, _count: u32, _newest: u64, _sent: u64, _least: u64, _now: u64, _most: u32) {
        self.timeouts = 0;
    }

    /// The `lost`-th of `sent` transmissions is lost. Returns whether that is the first loss of a round trip.
    pub const fn on_loss(&mut self, lost: u64, sent: u64, _most: u32) -> bool {
        if lost <= self.recovered {
            return false;
        }
        self.recovered = sent;
        true
    }

    pub const fn on_timeout(&mut self) {
        self.timeouts = self.timeouts.saturating_add(1);
    }
}
