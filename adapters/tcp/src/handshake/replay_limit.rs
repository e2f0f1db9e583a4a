//! Questions for keys that were answered before. Each answer costs a Diffie-Hellman, and who has recorded a question, which only
//! ranks of the job can make, may ask it again as often as he likes before he has to prove anything.
//!
//! No rank asks the same twice, so what is asked again is asked by somebody else. It is not refused for good: he may also have
//! been quicker than the rank whose question it is, who is not to be locked out for that.

use std::cell::Cell;

use towline_core::time::{Duration, Instant};
use towline_crypt::MESSAGE;

/// Questions that are remembered: as many as a large job asks of one rank, and again after some breakdowns.
const MOST: usize = 4096;
/// Questions asked again that are answered in one [`SPAN`]: less than a hundredth of a processor.
pub(crate) const AGAIN: u32 = 50;
const SPAN: Duration = Duration::from_secs(1);

/// What was answered. A ring: the oldest is forgotten first.
#[derive(Debug)]
pub(crate) struct Answered {
    /// The first bytes of the keys in each, which are random.
    questions: Box<[Cell<u64>]>,
    next: Cell<usize>,
    span_began: Cell<Instant>,
    again: Cell<u32>,
}

impl Answered {
    pub(crate) fn new() -> Self {
        let questions = std::iter::repeat_with(Cell::default).take(MOST).collect();
        Self { questions, next: Cell::new(0), span_began: Cell::new(Instant::ZERO), again: Cell::new(0) }
    }

    /// Whether a question may be answered now.
    pub(crate) fn allows(&self, question: &[u8; MESSAGE], now: Instant) -> bool {
        let name = name(question);
        if !self.questions.iter().any(|known| known.get() == name) {
            return true;
        }
        if now.since(self.span_began.get()) >= SPAN {
            self.span_began.set(now);
            self.again.set(0);
        }
        self.again.set(self.again.get().saturating_add(1));
        self.again.get() <= AGAIN
    }

    /// A question was answered, so it was made by who knows the job's key.
    pub(crate) fn note(&self, question: &[u8; MESSAGE]) {
        let name = name(question);
        if self.questions.iter().any(|known| known.get() == name) {
            return;
        }
        let at = self.next.get();
        self.questions[at].set(name);
        self.next.set((at + 1) % self.questions.len());
    }
}

fn name(question: &[u8; MESSAGE]) -> u64 {
    question.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_again_is_answered_at_a_rate_and_what_is_new_always() {
        let (answered, second) = (Answered::new(), 1_000_000_000);
        let [old, new] = [[1; MESSAGE], [2; MESSAGE]];
        for start in [5, 8, 100].map(|start| start * second) {
            answered.note(&old);
            let at = |part: u64| Instant::from_nanos(start + part);
            let allowed = (0..1000).filter(|part| answered.allows(&old, at(*part))).count();
            assert_eq!(allowed, AGAIN as usize);
            assert!(answered.allows(&new, at(1000)));
        }
        for number in 1..=MOST as u64 {
            let mut other = [3; MESSAGE];
            other[..8].copy_from_slice(&(number + 1000).to_le_bytes());
            answered.note(&other);
        }
        assert!((0..1000).all(|_| answered.allows(&old, Instant::ZERO)), "forgotten as the oldest");
    }
}
