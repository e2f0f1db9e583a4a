//! Frame numbers, with 16 bits on the wire and 64 bits here, and sets of the numbers of a window.

use super::ack_parts::WORDS;

/// The number nearest to `near` whose low half-word is `low`.
#[inline]
pub(super) const fn widen(low: u16, near: u64) -> u64 {
    near.wrapping_add_signed(low.wrapping_sub(near as u16) as i16 as i64)
}

/// The number nearest to `near` whose low word is `low`.
pub(super) const fn widen_word(low: u32, near: u64) -> u64 {
    near.wrapping_add_signed(low.wrapping_sub(near as u32) as i32 as i64)
}

/// How many numbers `number` is after `base`; negative if `number` is before `base`.
#[inline]
pub(super) const fn distance(number: u64, base: u64) -> i64 {
    number.wrapping_sub(base) as i64
}

/// One bit for each number of a window: a ring of words, whose count is a power of two.
pub(super) struct Bits<'a>(pub &'a mut [u64]);

impl Bits<'_> {
    #[inline]
    fn at(&self, number: u64) -> usize {
        if WORDS == 1 { 0 } else { (number >> 6) as usize & self.0.len().wrapping_sub(1) }
    }

    #[inline]
    pub fn has(&self, number: u64) -> bool {
        self.0.get(self.at(number)).is_some_and(|word| word >> (number & 63) & 1 == 1)
    }

    #[inline]
    pub fn set(&mut self, number: u64) {
        let at = self.at(number);
        if let Some(word) = self.0.get_mut(at) {
            *word |= 1 << (number & 63);
        }
    }

    #[inline]
    pub fn clear(&mut self, number: u64) {
        let at = self.at(number);
        if let Some(word) = self.0.get_mut(at) {
            *word &= !(1 << (number & 63));
        }
    }

    /// The bits of the 64 numbers from `from` on, the first one in the lowest bit.
    #[inline]
    pub fn word(&self, from: u64) -> u64 {
        let shift = (from & 63) as u32;
        if WORDS == 1 {
            return self.0.first().map_or(0, |word| word.rotate_right(shift));
        }
        let low = self.0.get(self.at(from)).map_or(0, |word| word >> shift);
        if shift == 0 {
            return low;
        }
        low | self.0.get(self.at(from.wrapping_add(64))).map_or(0, |word| word << 64u32.wrapping_sub(shift))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_widened_across_wraps() {
        for near in [0x8000, 0xfff0, 0x1_0000, 0xffff_fff0, 0x1_0000_0005, u64::MAX >> 1] {
            for off in [-0x8000i64, -5, 0, 5, 0x7fff] {
                let number = near.wrapping_add_signed(off);
                assert_eq!(widen(number as u16, near), number);
                assert_eq!(widen_word(number as u32, near), number);
                assert_eq!(distance(number, near), off);
            }
            for off in [-0x8000_0000, -0x1_0000, 0x1_0000, 0x7fff_ffff] {
                let number = near.wrapping_add_signed(off);
                assert_eq!(widen_word(number as u32, near), number);
            }
        }
    }

    #[test]
    fn bits_turn_in_a_ring() {
        for words in [1, 2, 4] {
            let mut memory = [0; 4];
            let mut bits = Bits(&mut memory[..words]);
            for base in [0u64, 5, 63, 64, 0xffff, 0xffff_ffff] {
                let set = [0, 1, 7, 62].map(|at| base + at);
                set.iter().for_each(|number| bits.set(*number));
                let word = bits.word(base);
                assert_eq!(word, 1 | 2 | 1 << 7 | 1 << 62);
                assert!(bits.has(base + 7) && !bits.has(base + 8));
                set.iter().for_each(|number| bits.clear(*number));
                assert_eq!(bits.0, &[0; 4][..words]);
            }
        }
    }
}
