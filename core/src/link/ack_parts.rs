//! An acknowledgement of a large window, in several frames (parts).

use zerocopy::FromZeros;

use super::header::{ACK_SPAN, ACK_WORDS};

/// The largest window.
pub(super) const MOST_WINDOW: u32 = 1024;

/// Words of the bits of an acknowledgement.
pub(super) const WORDS: usize = ACK_WORDS;

/// The newest transmission in the upper parts of an acknowledgement. The upper parts are sent first, and the lowest part
/// completes the acknowledgement. Only then does a transmission in the upper parts prove the loss of earlier ones.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct AckParts {
    /// The first number of the last part that arrived.
    from: u64,
    /// The latest transmission in these parts.
    newest: u64,
    /// The round trip of that transmission, in nanoseconds.
    trip: u64,
}

impl AckParts {
    /// An upper part, which begins with number `from`, has arrived.
    pub fn add(&mut self, from: u64, newest: u64, trip: u64) {
        if self.from != from.wrapping_add(ACK_SPAN) {
            (self.newest, self.trip) = (0, 0); // a part in between is missing
        }
        self.from = from;
        if newest > self.newest {
            (self.newest, self.trip) = (newest, trip);
        }
    }

    /// The lowest part has arrived. Returns the latest transmission in the upper parts, and its round trip; zeros if a part is
    /// missing.
    pub fn end(&mut self, from: u64) -> (u64, u64) {
        let told = core::mem::replace(self, Self::new_zeroed());
        if told.from == from.wrapping_add(ACK_SPAN) { (told.newest, told.trip) } else { (0, 0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p15_parts_of_an_acknowledgement_count_when_none_between_is_lost() {
        let told = |parts: &[(u64, u64)]| {
            let mut all = AckParts::new_zeroed();
            parts.iter().for_each(|(part, newest)| all.add(1000 + part * ACK_SPAN, *newest, 7));
            all.end(1000).0
        };
        assert_eq!(told(&[(3, 5), (2, 9), (1, 4)]), 9);
        assert_eq!(told(&[(3, 9), (1, 4)]), 4, "the second was lost");
        assert_eq!(told(&[(3, 9), (2, 4)]), 0, "the first was lost");
    }
}
