//! An acknowledgement in one frame, in the place of `ack_parts`: windows are no larger than one frame reports.

use zerocopy::FromZeros;

/// The largest window.
pub(super) const MOST_WINDOW: u32 = 64;
/// Words of the bits of an acknowledgement.
pub(super) const WORDS: usize = 1;

/// No part.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct AckParts;

impl AckParts {
    pub const fn add(&mut self, _from: u64, _newest: u64, _trip: u64) {}

    pub const fn end(&mut self, _from: u64) -> (u64, u64) {
        (0, 0)
    }
}
