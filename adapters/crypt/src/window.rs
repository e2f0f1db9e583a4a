//! Which numbers have come, where each may come once, in about any order.

/// Numbers behind the highest that are remembered.
const BITS: u64 = 2048;
const WORDS: usize = BITS as usize / 64;

/// A window over the numbers of datagrams (RFC 6479): each is taken once, and those that are too old never.
///
/// ```
/// let mut window = towline_crypt::Window::new();
/// assert!(window.is_new(7));
/// window.take(7);
/// assert!(!window.is_new(7), "sent again");
/// window.take(10_000);
/// assert!(!window.is_new(8), "who knows");
/// assert!(window.is_new(9_999));
/// ```
#[derive(Clone, Debug)]
pub struct Window {
    /// One beyond the highest number that has come.
    top: u64,
    bits: [u64; WORDS],
}

impl Default for Window {
    fn default() -> Self {
        Self::new()
    }
}

impl Window {
    /// Of which no number has come.
    pub const fn new() -> Self {
        Self { top: 0, bits: [0; WORDS] }
    }

    /// Whether a number has not come before. To be asked first; only what turns out to be genuine is [taken](Self::take).
    #[inline]
    pub const fn is_new(&self, number: u64) -> bool {
        if number >= self.top {
            return number != u64::MAX;
        }
        self.top - number <= BITS && self.bits[word(number)] & bit(number) == 0
    }

    /// A number has come.
    #[inline]
    pub fn take(&mut self, number: u64) {
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
        /// As a set would have it, as far back as it is remembered.
        #[test]
        fn each_number_is_taken_once(start in 0u64..1 << 40, steps in prop::collection::vec((0u64..5000, any::<bool>()), 1..300)) {
            let (mut window, mut seen, mut top) = (Window::new(), HashSet::new(), start);
            window.take(start);
            seen.insert(start);
            for (step, ahead) in steps {
                let number = if ahead { top + step } else { top.saturating_sub(step) };
                let within = number >= top || top - number < BITS;
                prop_assert_eq!(window.is_new(number), within && !seen.contains(&number) , "{} of {}", number, top);
                if window.is_new(number) {
                    window.take(number);
                    seen.insert(number);
                    top = top.max(number);
                }
            }
        }
    }

    #[test]
    fn the_last_number_is_never_used() {
        let mut window = Window::new();
        assert!(!window.is_new(u64::MAX));
        window.take(u64::MAX);
        window.take(u64::MAX - 1);
        assert!(!window.is_new(u64::MAX - 1) && !window.is_new(u64::MAX));
    }
}
