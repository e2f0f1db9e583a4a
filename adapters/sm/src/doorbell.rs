//! A doorbell: it tells a receiver which senders have made a ring that it does not poll yet.
//!
//! There is one bit for each cause, and one counter that changes whenever a bit was set, so that an idle receiver polls one
//! cache line. A sender sets its bit before it increments the counter, and the receiver reads the counter before it takes the
//! bits. A bit is therefore found at the latest with the increment that follows it.

use crate::atomics::{AtomicU32, AtomicU64, Ordering};

/// Sets bit `index` and increments the counter. An index beyond the bits does nothing.
pub fn ring(counter: &AtomicU32, bits: &[AtomicU64], index: usize) {
    let Some(word) = bits.get(index / 64) else { return };
    // Release on both, since the data that the bit announces was written before.
    word.fetch_or(1 << (index % 64), Ordering::Release);
    counter.fetch_add(1, Ordering::Release);
}

/// Whether the doorbell was rung since its counter had the value `seen`.
#[inline]
pub fn has_rung(counter: &AtomicU32, seen: u32) -> bool {
    counter.load(Ordering::Relaxed) != seen
}

/// Takes all bits that are set, calls `found` with the index of each, and stores the counter's value in `seen`.
pub fn take_bits(counter: &AtomicU32, bits: &[AtomicU64], seen: &mut u32, mut found: impl FnMut(usize)) {
    *seen = counter.load(Ordering::Acquire);
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
