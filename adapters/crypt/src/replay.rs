//! Replay protection for numbered datagrams.

/// Length of the window in numbers, the highest accepted one included.
const BITS: u64 = 2048;
const WORDS: usize = BITS as usize / 64;

/// A replay window over the numbers of datagrams (RFC 6479). It accepts each number once, and never a number that is 2048
/// or more below the highest accepted one.
///
/// ```
/// let mut window = towline_crypt::ReplayWindow::new();
/// assert!(window.is_new(7));
/// window.accept(7);
/// assert!(!window.is_new(7), "sent again");
/// window.accept(10_000);
/// assert!(!window.is_new(8), "too old to tell");
/// assert!(window.is_new(9_999));
/// ```
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    /// One more than the highest accepted number.
    top: u64,
    bits: [u64; WORDS],
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self::new()
    }
}

impl ReplayWindow {
    /// A window that has accepted no number.
    pub const fn new() -> Self {
        Self { top: 0, bits: [0; WORDS] }
    }

    /// Whether a number is new. The caller [accepts](Self::accept) the number later, when it has found the datagram to be
    /// genuine.
    #[inline]
    pub const fn is_new(&self, number: u64) -> bool {
        if number >= self.top {
            return number != u64::MAX;
        }
        self.top - number <= BITS && self.bits[word(number)] & bit(number) == 0
    }

    /// Accepts a number.
    #[inline]
    pub fn accept(&mut self, number: u64) {
        if number >= self.top && number != u64::MAX {
            let gap = number - self.top;
            if gap >= BITS {
                self.bits = [0; WORDS];
            } else {
                (self.top..number).for_each(|skipped| self.bits[word(skipped)] &= !bit(skipped));
            }
            self.top = number + 1;
            self.bits[word(number)] |= bit(number);
        } else if self.is_new(number) {
            self.bits[word(number)] |= bit(number);
        }
    }
}

const fn word(number: u64) -> usize {
    (number / 64) as usize % WORDS
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares the window with a set of accepted numbers.
        #[test]
        fn each_number_is_accepted_once(start in 0u64..1 << 40, steps in prop::collection::vec((0u64..5000, any::<bool>()), 1..300)) {
            let (mut window, mut seen, mut top) = (ReplayWindow::new(), HashSet::new(), start);
            window.accept(start);
            seen.insert(start);
            for (step, ahead) in steps {
                let number = if ahead { top + step } else { top.saturating_sub(step) };
                let within = number >= top || top - number < BITS;
                prop_assert_eq!(window.is_new(number), within && !seen.contains(&number) , "{} of {}", number, top);
                if window.is_new(number) {
                    window.accept(number);
                    seen.insert(number);
                    top = top.max(number);
                }
            }
        }
    }

    #[test]
    fn the_last_number_is_never_used() {
        let mut window = ReplayWindow::new();
        assert!(!window.is_new(u64::MAX));
        window.accept(u64::MAX);
        window.accept(u64::MAX - 1);
        assert!(!window.is_new(u64::MAX - 1) && !window.is_new(u64::MAX));
    }
}
