//! An acknowledgement of a large window, which takes several frames.

use zerocopy::FromZeros;

use super::header::ACK_SPAN;

/// What the upper parts of an acknowledgement in several told. They go first; with the lowest one, all that came is told, and
/// only then does it count that something which left late is among it.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Parts {
    /// The number from which on the last part told.
    from: u64,
    /// Of the frame in these parts that left last: the how-manieth it was, and how long it took.
    newest: u64,
    trip: u64,
}

impl Parts {
    pub fn hear(&mut self, from: u64, newest: u64, trip: u64) {
        if self.from != from.wrapping_add(ACK_SPAN) {
            (self.newest, self.trip) = (0, 0); // a part between has not come
        }
        self.from = from;
        if newest > self.newest {
            (self.newest, self.trip) = (newest, trip);
        }
    }

    /// The lowest part has come.
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
            let mut all = Parts::new_zeroed();
            parts.iter().for_each(|(part, newest)| all.hear(1000 + part * ACK_SPAN, *newest, 7));
            all.end(1000).0
        };
        assert_eq!(told(&[(3, 5), (2, 9), (1, 4)]), 9);
        assert_eq!(told(&[(3, 9), (1, 4)]), 4, "the second was lost");
        assert_eq!(told(&[(3, 9), (2, 4)]), 0, "the first was lost");
    }
}
