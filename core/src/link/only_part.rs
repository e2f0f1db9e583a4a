//! An acknowledgement in one frame, in the place of `ack_parts`: windows are no larger than one frame reports.

use zerocopy::FromZeros;

use super::header::ACK_SPAN;

/// The largest window.
pub(super) const MOST_WINDOW: u32 = (ACK_SPAN as u32 + 1).next_power_of_two() / 2;

/// No part.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct AckParts;

impl AckParts {
    pub const fn add(&mut self, _from: u64, _newest: u64, _trip: u64) {}

    pub const fn end(&mut self, _from: u64) -> (u64, u64) {
        (0, 0)
    }
}
