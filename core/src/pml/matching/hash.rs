//! The keyed hash of both tables.

use super::Key;

/// Secret multipliers of one matcher.
///
/// The hash is pair-multiply-shift: for any two keys that were chosen without knowledge of the multipliers, all pairs
/// of their top 32 bits are equally likely. A peer can choose keys, but not keys that meet in one bucket.
#[derive(Debug)]
pub(super) struct Hasher {
    context: u64,
    source: u64,
    tag: u64,
    sum: u64,
}

/// Low bits of the source and of the tag that pick a place within a run of 16 buckets, one cache line.
const RUN_BITS: u32 = 2;
/// Fewer buckets than one run are never made, so that a place within a run exists in every table.
pub(super) const LEAST_BUCKETS: usize = 1 << (2 * RUN_BITS);

impl Hasher {
    pub(super) const fn new(seed: u64) -> Self {
        Self { context: spread(seed, 1), source: spread(seed, 2), tag: spread(seed, 3), sum: spread(seed, 4) }
    }

    /// The bucket of `key` in a table of `2^(64 - shift)` buckets, at least [`LEAST_BUCKETS`].
    ///
    /// Neighbouring sources and tags are hashed as one group; their low bits then permute the buckets of a run. The
    /// chance that two keys of different groups meet stays one in the number of buckets, since any fixed distance of
    /// two hashes is as likely as any other; two keys of one group never meet; and receives posted for consecutive
    /// sources or tags find their buckets on one cache line.
    #[inline]
    pub(super) const fn bucket(&self, key: &Key, shift: u32) -> usize {
        const LOW: u32 = (1 << RUN_BITS) - 1;
        let place = (key.source & LOW) << RUN_BITS | key.tag & LOW;
        let pair = self
            .context
            .wrapping_add((key.source >> RUN_BITS) as u64)
            .wrapping_mul(self.source.wrapping_add(key.context as u64));
        let hash = pair.wrapping_add(self.tag.wrapping_mul((key.tag >> RUN_BITS) as u64)).wrapping_add(self.sum);
        hash.wrapping_shr(shift) as usize ^ place as usize
    }
}

/// The `index`th word that follows from a seed (the SplitMix64 generator).
const fn spread(seed: u64, index: u64) -> u64 {
    let word = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most keys in one bucket of 4096 when 4096 keys are hashed.
    fn fullest(seed: u64, key: impl Fn(u32) -> Key) -> u32 {
        let hasher = Hasher::new(seed);
        let mut load = [0u32; 4096];
        for i in 0..4096 {
            load[hasher.bucket(&key(i), 64 - 12)] += 1;
        }
        *load.iter().max().unwrap()
    }

    #[test]
    fn regular_keys_spread_under_every_seed() {
        for seed in 0..64 {
            for stride in [1, 2, 4, 16, 64, 4096, 65536] {
                let tags = fullest(seed, |i| Key { context: 1, source: 0, tag: i.wrapping_mul(stride) });
                let sources = fullest(seed, |i| Key { context: 1, source: i.wrapping_mul(stride), tag: 7 });
                let both = fullest(seed, |i| Key { context: i & 3, source: i, tag: i });
                assert!(tags.max(sources).max(both) <= 64, "seed {seed} stride {stride}: {tags} {sources} {both}");
            }
        }
    }

    #[test]
    fn keys_that_meet_under_one_seed_part_under_another() {
        let hasher = Hasher::new(1);
        let key = |tag| Key { context: 0, source: 0, tag };
        let mut meeting = (0..).filter(|tag| hasher.bucket(&key(*tag), 64 - 12) == 5);
        let tags: [u32; 64] = core::array::from_fn(|_| meeting.next().unwrap());
        let other = Hasher::new(2);
        let stay = tags.iter().filter(|tag| other.bucket(&key(**tag), 64 - 12) == other.bucket(&key(tags[0]), 64 - 12));
        assert!(stay.count() < 16);
    }
}
