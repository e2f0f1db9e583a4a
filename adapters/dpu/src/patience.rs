//! How long this process has waited for its device. A process that was stopped has not waited meanwhile: its device may have answered, or
//! may have been stopped, too.

use std::time::{Duration, Instant};

/// At most this part of the limit counts between two questions.
const PART: u32 = 4;

/// A wait. Its caller asks whether it is over, looks for what it waits for, and asks again.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    limit: Duration,
    waited: Duration,
    /// The time of the last question.
    asked: Instant,
    /// The wait was too long at the last question.
    is_late: bool,
}

impl Patience {
    /// A wait that begins now.
    pub fn new(limit: Duration) -> Self {
        Self { limit, waited: Duration::ZERO, asked: Instant::now(), is_late: false }
    }

    /// Whether the wait is over. It was too long at the last question already, so the caller has looked once more since. Of the time between
    /// two questions, at most a quarter of the limit counts.
    pub fn is_over(&mut self) -> bool {
        self.is_over_at(Instant::now())
    }

    fn is_over_at(&mut self, now: Instant) -> bool {
        let was_late = self.is_late;
        let passed = now.saturating_duration_since(self.asked).min(self.limit / PART);
        (self.waited, self.asked) = (self.waited.saturating_add(passed), now);
        self.is_late = self.waited > self.limit;
        was_late
    }

    /// Whether half of the wait is over.
    pub fn is_half_over(&self) -> bool {
        self.waited > self.limit / 2
    }

    /// The wait begins again with the last question.
    pub const fn restart(&mut self) {
        (self.waited, self.is_late) = (Duration::ZERO, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(8);

    /// Asks in these steps of seconds. Returns how many questions it took.
    fn questions(patience: &mut Patience, steps: impl IntoIterator<Item = u64>) -> Option<usize> {
        let mut now = patience.asked;
        let is_over = |seconds| {
            now += Duration::from_secs(seconds);
            patience.is_over_at(now)
        };
        steps.into_iter().map(is_over).position(|is_over| is_over)
    }

    #[test]
    fn a_wait_is_over_after_one_more_look() {
        let mut patience = Patience::new(LIMIT);
        assert_eq!(questions(&mut patience, [1; 8]), None);
        assert_eq!(questions(&mut patience, [1, 0]), Some(1), "too long, and a look since");
        patience.restart();
        assert!(!patience.is_half_over());
        assert_eq!(questions(&mut patience, [2; 5]), None);
        assert!(patience.is_half_over());
        assert_eq!(questions(&mut patience, [0]), Some(0));
    }

    #[test]
    fn a_stop_counts_for_a_quarter_at_most() {
        let mut patience = Patience::new(LIMIT);
        assert_eq!(questions(&mut patience, [1, 1000, 1, 1, 1, 1, 0]), None);
        assert_eq!(questions(&mut patience, [1000, 0]), Some(1));
        // A process that asks seldom sees that its device is silent, too.
        let mut patience = Patience::new(LIMIT);
        assert_eq!(questions(&mut patience, [1000; 10]), Some(5));
    }
}
