//! Reproducible random numbers.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A seeded random number generator. It gives the same numbers on every machine and in every release (xoshiro256++).
///
/// ```
/// use towline_host_tests::random::Random;
///
/// let (mut one, mut other) = (Random::new(7), Random::new(7));
/// assert_eq!(one.between(3, 9), other.between(3, 9));
/// assert!(one.below(1) == 0 && !one.chance(0) && one.chance(1000));
/// ```
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// An independent generator, seeded from this one. Numbers drawn from one do not change those of the other.
    pub fn fork(&mut self) -> Self {
        Self::new(self.word())
    }

    /// 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `permille` times in a thousand.
    pub fn chance(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }

    /// One of the items.
    ///
    /// # Panics
    /// If there is no item.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// Puts the items in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// A length of at most `most`. Small lengths and lengths near powers of two are more frequent.
    pub fn length(&mut self, most: u64) -> u64 {
        let bits = 64 - u64::from(most.leading_zeros());
        let size = 1u64 << self.below(bits + 1);
        match self.below(4) {
            0 => self.below(size + 1),
            1 => size.saturating_sub(1),
            2 => size,
            _ => size + 1,
        }
        .min(most)
    }
}
