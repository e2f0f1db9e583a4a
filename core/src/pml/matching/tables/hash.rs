//! The keyed hash of both tables.

use crate::pml::matching::key::Key;

/// The secrets of one matcher.
///
/// The hash is one folded multiplication: both halves of the product of two secrets mixed with the key, as in wyhash. A peer can
/// choose keys; without the secrets it cannot choose keys that share a bucket.
#[derive(Debug)]
pub(in crate::pml::matching) struct Hasher {
    left: u64,
    right: u64,
}

/// Low bits of the source and of the tag that are not hashed, so that neighbours share a cache line of buckets.
const NEAR: u32 = 2;

impl Hasher {
    pub(in crate::pml::matching) const fn new(seed: u64) -> Self {
        Self { left: spread(seed, 1), right: spread(seed, 2) }
    }

    /// A word whose low bits select the bucket of `key`.
    ///
    /// The product is the same for a group of four neighbouring sources by four neighbouring tags. The last terms then differ in
    /// their low four bits for each of the sixteen keys, and in no other bit. So keys of one group never share a bucket, and
    /// receives that are posted for consecutive sources or tags have their buckets on one cache line. Two keys of different
    /// groups share a bucket as rarely as two products differ by one given word. In a table of four buckets the low two bits
    /// still distinguish consecutive sources, and consecutive tags.
    #[inline]
    pub(in crate::pml::matching) const fn hash(&self, key: &Key) -> u32 {
        let left = self.left ^ (key.origin() >> NEAR);
        let right = self.right ^ (key.tag >> NEAR) as u64;
        let product = left as u128 * right as u128;
        (product as u32 ^ (product >> 64) as u32) ^ key.tag ^ key.source ^ key.source << NEAR
    }
}

impl Key {
    /// Context and source as one word, which tables store and compare. It is made from both parts in registers: if the parts were
    /// stored one by one and then loaded together, the load would wait until the stores are done.
    #[inline]
    pub(in crate::pml::matching) const fn origin(&self) -> u64 {
        (self.context as u64) << 32 | self.source as u64
    }
}

/// The `index`-th word that follows from a seed (the SplitMix64 generator).
const fn spread(seed: u64, index: u64) -> u64 {
    let word = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most keys in one bucket of 4096 when 4096 keys are hashed.
    fn fullest(seed: u64, key: impl Fn(u32) -> Key) -> u32 {
        let hasher = Hasher::new(seed);
        let mut load = [0u32; 4096];
        for i in 0..4096 {
            load[(hasher.hash(&key(i)) & 4095) as usize] += 1;
        }
        *load.iter().max().unwrap()
    }

    #[test]
    fn m10_neighbours_share_a_line_of_buckets_and_never_meet() {
        for (seed, context) in (0..64).zip([0, 1, u32::MAX].into_iter().cycle()) {
            for (source, tag) in [(0, 0), (4, 1 << 20), (1 << 30, 12), (!3, !3)] {
                let hasher = Hasher::new(seed);
                let hash = |i: u32| hasher.hash(&Key { context, source: source | i >> 2, tag: tag | i & 3 });
                let places = (0..16).fold(0u32, |places, i| places | 1 << (hash(i) & 15));
                assert_eq!(places, 0xffff, "seed {seed}: some of the group meet");
                assert!((0..16).all(|i| hash(i) >> 4 == hash(0) >> 4), "seed {seed}: a group on several lines");
                let few = |step: u32| (0..4).fold(0u32, |places, i| places | 1 << (hash(i * step) & 3));
                assert_eq!((few(1), few(4)), (0xf, 0xf), "seed {seed}: neighbours meet in a table of four");
            }
        }
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
        let mut meeting = (0..).filter(|tag| hasher.hash(&key(*tag)) & 4095 == 5);
        let tags: [u32; 64] = core::array::from_fn(|_| meeting.next().unwrap());
        let other = Hasher::new(2);
        let stay = tags.iter().filter(|tag| (other.hash(&key(**tag)) ^ other.hash(&key(tags[0]))) & 4095 == 0);
        assert!(stay.count() < 16);
    }
}
