//! A path that keeps the order of frames, in the place of `reordering`: a frame is lost as soon as a later one is acknowledged.

use zerocopy::FromZeros;

/// Whether frames may overtake others.
pub(super) const REORDERS: bool = false;

/// What is known of early time-outs. Nothing is late.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Reordering {
    /// How many frames the peer got twice, as it last reported.
    duplicates: u16,
    /// Time-outs that were too early, since a round trip was last measured.
    early_timeouts: u8,
}

impl Reordering {
    pub const fn is_seen(&self) -> bool {
        false
    }

    pub const fn window(&self, _least: u64) -> u64 {
        0
    }

    pub const fn early_timeouts(&self) -> u8 {
        self.early_timeouts
    }

    /// A round trip was measured, so time-outs are right again.
    pub const fn on_measured(&mut self) {
        self.early_timeouts = 0;
    }

    pub const fn on_late(&mut self, _late: u64, _most: u64) {}

    pub const fn on_spurious(&mut self, _newest: u64, _sent: u64, _least: u64, _most: u64) {}

    pub const fn on_loss(&mut self, _least: u64) {}

    pub const fn excuse(&mut self, _sent: u64) {}

    /// The peer reports how many frames it got twice. On a path that keeps the order, each of them is a time-out that was too early. The
    /// round trip of a frame that was sent twice is not known (Karn). If time-outs did not grow after that, the next frames would be
    /// sent twice as well, and a path that became longer would never be measured. Returns 0: none was falsely taken for lost.
    pub const fn on_duplicates(&mut self, duplicates: u16, _latest: u64) -> u16 {
        if duplicates != self.duplicates {
            self.duplicates = duplicates;
            self.early_timeouts = self.early_timeouts.saturating_add(1);
        }
        0
    }
}
