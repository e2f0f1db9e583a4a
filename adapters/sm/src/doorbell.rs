//! A doorbell: who has something new for us that we do not poll yet.
//!
//! One bit for each cause, and one word that changes whenever a bit was set, so that an idle receiver polls one line.
//! Bits are set before the bell is rung, and the bell is read before the bits are taken: a bit is found at the latest
//! with the ring that follows it.

use crate::atomics::{AtomicU32, AtomicU64, Ordering};

/// Sets bit `index` and rings. An index beyond the bits does nothing.
pub fn ring(bell: &AtomicU32, bits: &[AtomicU64], index: usize) {
    let Some(word) = bits.get(index / 64) else { return };
    // Release on both: what the bit stands for was written before.
    word.fetch_or(1 << (index % 64), Ordering::Release);
    bell.fetch_add(1, Ordering::Release);
}

/// Whether the bell rang since `seen`.
#[inline]
pub fn rang(bell: &AtomicU32, seen: u32) -> bool {
    bell.load(Ordering::Relaxed) != seen
}

/// Takes all bits that are set, calling `found` with the index of each.
pub fn answer(bell: &AtomicU32, bits: &[AtomicU64], seen: &mut u32, mut found: impl FnMut(usize)) {
    *seen = bell.load(Ordering::Acquire);
    for (at, word) in bits.iter().enumerate() {
        if word.load(Ordering::Relaxed) == 0 {
            continue;
        }
        let mut set = word.swap(0, Ordering::Acquire);
        while set != 0 {
            found(at * 64 + set.trailing_zeros() as usize);
            set &= set - 1;
        }
    }
}
