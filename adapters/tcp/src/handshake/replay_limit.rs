//! A limit on replayed key exchanges.
//!
//! Each answer to a key exchange costs a Diffie-Hellman computation. The initiator's message can be made only by a rank of the
//! job, but an observer who has recorded it may send it again and again before the observer has to prove anything.
//!
//! No rank sends the same message twice, so a repeated message comes from another sender. It is not refused permanently: the
//! observer may also have been faster than the rank, and then the rank's own message is the second one and must be answered.

use std::cell::Cell;

use towline_core::time::{Duration, Instant};
use towline_crypt::MESSAGE;

/// Messages that are remembered: as many as a large job sends to one rank, with room for reconnections.
const REMEMBERED: usize = 4096;
/// Repeated messages that are answered in one [`INTERVAL`]: their cost is less than a hundredth of a processor.
pub(crate) const REPLAYS: u32 = 50;
const INTERVAL: Duration = Duration::from_secs(1);

/// The messages that were answered, in a ring: the oldest is forgotten first.
#[derive(Debug)]
pub(crate) struct ReplayLimit {
    /// The first eight bytes of each message, which are random.
    messages: Box<[Cell<u64>]>,
    next: Cell<usize>,
    interval_start: Cell<Instant>,
    /// Repeated messages in this interval.
    replays: Cell<u32>,
}

impl ReplayLimit {
    pub(crate) fn new() -> Self {
        let messages = std::iter::repeat_with(Cell::default).take(REMEMBERED).collect();
        Self { messages, next: Cell::new(0), interval_start: Cell::new(Instant::ZERO), replays: Cell::new(0) }
    }

    /// Whether a message may be answered now.
    pub(crate) fn allows(&self, message: &[u8; MESSAGE], now: Instant) -> bool {
        let start = start(message);
        if !self.messages.iter().any(|known| known.get() == start) {
            return true;
        }
        if now.since(self.interval_start.get()) >= INTERVAL {
            self.interval_start.set(now);
            self.replays.set(0);
        }
        self.replays.set(self.replays.get().saturating_add(1));
        self.replays.get() <= REPLAYS
    }

    /// Remembers a message that was answered, which shows that a rank of the job made it.
    pub(crate) fn remember(&self, message: &[u8; MESSAGE]) {
        let start = start(message);
        if self.messages.iter().any(|known| known.get() == start) {
            return;
        }
        let at = self.next.get();
        self.messages[at].set(start);
        self.next.set((at + 1) % self.messages.len());
    }
}

fn start(message: &[u8; MESSAGE]) -> u64 {
    message.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_messages_are_answered_at_a_limited_rate_and_new_ones_always() {
        let (limit, second) = (ReplayLimit::new(), 1_000_000_000);
        let [old, new] = [[1; MESSAGE], [2; MESSAGE]];
        for start in [5, 8, 100].map(|start| start * second) {
            limit.remember(&old);
            let at = |part: u64| Instant::from_nanos(start + part);
            let allowed = (0..1000).filter(|part| limit.allows(&old, at(*part))).count();
            assert_eq!(allowed, REPLAYS as usize);
            assert!(limit.allows(&new, at(1000)));
        }
        for number in 1..=REMEMBERED as u64 {
            let mut other = [3; MESSAGE];
            other[..8].copy_from_slice(&(number + 1000).to_le_bytes());
            limit.remember(&other);
        }
        assert!((0..1000).all(|_| limit.allows(&old, Instant::ZERO)), "the oldest is forgotten");
    }
}
