//! Whether a sum of multiples of strides lies in an interval: the arithmetic of the overlap check.

use super::layout::MAX_DEPTH;

/// Most strides of one sum: those of two nested layouts, and one around both.
const MAX_TERMS: usize = 2 * MAX_DEPTH + 1;

/// The steps that a check may still take. They bound the work, since the question is hard for many strides without a common
/// divisor.
#[derive(Debug)]
pub(super) struct Budget(u32);

impl Budget {
    pub(super) const fn new(steps: u32) -> Self {
        Self(steps)
    }

    /// Takes one step. `None` if none is left.
    pub(super) fn step(&mut self) -> Option<()> {
        self.0 = self.0.checked_sub(1)?;
        Some(())
    }
}

/// Multiples of a stride: it is positive, and taken 0 to `most` times.
#[derive(Clone, Copy, Debug, Default)]
struct Term {
    stride: i128,
    most: i128,
}

/// A sum of a constant and of multiples of strides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    constant: i128,
    /// By stride, the longest first. No two strides are equal.
    terms: [Term; MAX_TERMS],
    used: usize,
}

impl Sum {
    pub(super) const fn new(constant: i128) -> Self {
        Self { constant, terms: [Term { stride: 0, most: 0 }; MAX_TERMS], used: 0 }
    }

    /// Adds `stride` times a number between `least` and `most`.
    pub(super) fn add(&mut self, stride: i128, least: i128, most: i128) {
        let (stride, least, most) = if stride < 0 {
            (stride.wrapping_neg(), most.wrapping_neg(), least.wrapping_neg())
        } else {
            (stride, least, most)
        };
        self.constant = self.constant.wrapping_add(stride.wrapping_mul(least));
        let mut term = Term { stride, most: most.wrapping_sub(least) };
        if term.stride == 0 || term.most <= 0 {
            return;
        }
        for place in self.terms.iter_mut().take(self.used) {
            if place.stride == term.stride {
                place.most = place.most.wrapping_add(term.most);
                return;
            }
        }
        for place in self.terms.iter_mut() {
            if place.stride < term.stride {
                core::mem::swap(place, &mut term);
            }
        }
        self.used = self.used.saturating_add(1).min(MAX_TERMS);
    }

    /// Whether the sum may lie between `low` and `high`, both included. `None` if the budget was used up.
    pub(super) fn reaches(&self, low: i128, high: i128, budget: &mut Budget) -> Option<bool> {
        budget.step()?;
        let (mut low, high) = (low.wrapping_sub(self.constant), high.wrapping_sub(self.constant));
        let mut terms = self.terms.get(..self.used).unwrap_or_default();
        // A stride that is no longer than the interval leaves no gaps: its multiples make the interval longer.
        while let Some((last, others)) = terms.split_last()
            && last.stride <= high.wrapping_sub(low).wrapping_add(1)
        {
            low = low.wrapping_sub(last.stride.wrapping_mul(last.most));
            terms = others;
        }
        // For each term, what the shorter ones add at most, and the greatest number that divides all of their strides and its
        // own.
        let (mut rest, mut divisors) = ([0i128; MAX_TERMS], [0i128; MAX_TERMS]);
        let (mut sum, mut divisor) = (0i128, 0i128);
        for ((term, rest), common) in terms.iter().zip(&mut rest).zip(&mut divisors).rev() {
            *rest = sum;
            sum = sum.wrapping_add(term.stride.wrapping_mul(term.most));
            divisor = greatest_divisor(term.stride, divisor);
            *common = divisor;
        }
        search(terms, &rest, &divisors, low, high, budget)
    }
}

/// Tries the multiples of one stride after the other, the longest first.
fn search(
    terms: &[Term],
    rest: &[i128; MAX_TERMS],
    divisors: &[i128; MAX_TERMS],
    low: i128,
    high: i128,
    budget: &mut Budget,
) -> Option<bool> {
    // For each term, the sum of the multiples of the longer ones, and the multiples of this one that are to be tried.
    let mut levels = [(0i128, 0i128, -1i128); MAX_TERMS];
    let mut depth = 0usize;
    let mut sum = 0i128;
    loop {
        budget.step()?;
        let (low, high) = (low.wrapping_sub(sum), high.wrapping_sub(sum));
        match (terms.get(depth), rest.get(depth), divisors.get(depth), levels.get_mut(depth)) {
            (Some(term), Some(rest), Some(divisor), Some(level)) => {
                // Some multiple of the divisor must be in the interval, whatever is added.
                if high.checked_div_euclid(*divisor)?.wrapping_mul(*divisor) >= low {
                    let least = low.wrapping_sub(*rest).wrapping_add(term.stride).wrapping_sub(1);
                    let least = least.checked_div_euclid(term.stride)?.max(0);
                    let most = high.checked_div_euclid(term.stride)?.min(term.most);
                    *level = (sum, least, most);
                } else {
                    *level = (sum, 0, -1);
                }
            }
            _ if low <= 0 && 0 <= high => return Some(true),
            _ => {}
        }
        // The next multiple of the innermost term that has one left.
        loop {
            if let (Some(term), Some((before, next, most))) = (terms.get(depth), levels.get_mut(depth))
                && *next <= *most
            {
                sum = before.wrapping_add(term.stride.wrapping_mul(*next));
                *next = next.wrapping_add(1);
                depth = depth.saturating_add(1);
                break;
            }
            let Some(outer) = depth.checked_sub(1) else { return Some(false) };
            depth = outer;
        }
    }
}

fn greatest_divisor(mut one: i128, mut other: i128) -> i128 {
    while let Some(rest) = one.checked_rem(other) {
        (one, other) = (other, rest);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{vec, vec::Vec};

    proptest! {
        #[test]
        fn p27_sums_reach_what_a_list_of_all_sums_has(
            constant in -20i128..20,
            terms in prop::collection::vec((-30i128..30, -3i128..3, 0i128..5), 0..4),
            low in -60i128..60,
            len in 0i128..9,
        ) {
            let (mut sum, mut all) = (Sum::new(constant), vec![constant]);
            for (stride, least, more) in terms {
                sum.add(stride, least, least + more);
                all = all.iter().flat_map(|sum| (least..=least + more).map(move |n| sum + n * stride)).collect();
            }
            let expected = all.iter().any(|sum| (low..=low + len).contains(sum));
            prop_assert_eq!(sum.reaches(low, low + len, &mut Budget::new(1 << 16)), Some(expected));
        }
    }

    #[test]
    fn a_stride_longer_than_the_interval_leaves_gaps() {
        for len in 1..5i128 {
            let mut sum = Sum::new(0);
            sum.add(len + 1, 0, 3);
            let reaches = |low: i128| sum.reaches(low, low + len - 1, &mut Budget::new(100));
            assert_eq!([1, len + 2].map(reaches), [Some(false); 2], "between two multiples of {}", len + 1);
            assert_eq!([0, 2].map(reaches), [Some(true); 2], "with a multiple of {}", len + 1);
        }
    }

    #[test]
    fn p27_the_work_is_bounded() {
        // The strides have no common divisor, and only the last of many sums is near the interval.
        let strides: Vec<i128> = vec![1_000_003, 999_983, 999_979, 999_961];
        let mut sum = Sum::new(0);
        strides.iter().for_each(|stride| sum.add(*stride, 0, 1_000_000));
        let target = 499_999_000_001;
        assert_eq!(sum.reaches(target, target, &mut Budget::new(2)), None);
    }
}
