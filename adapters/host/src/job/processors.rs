//! The processors that the ranks of this host may use, and whether a rank has to share one with other ranks. Each rank publishes
//! its affinity mask, since a launcher, a script or a resource manager may have bound each rank to a processor of its own.

use rustix::thread::CpuSet;
use towline_bootstrap::{Error, Job};

use crate::job::cards::component;
use crate::values::address::Grid;

/// The component under which a rank publishes its processors.
const PROCESSORS: &str = "processors";
/// Words of a set of processors: as many processors as the kernel reports through [`CpuSet`].
const WORDS: usize = CpuSet::MAX_CPU.div_ceil(u64::BITS as usize);

/// Publishes the processors that this thread may use.
pub(crate) fn publish(job: &mut Job) -> Result<(), Error> {
    job.publish(&component(PROCESSORS), &Processors::own().to_bytes())
}

/// How many contexts of this host, with this rank's among them, share a processor, because there are more of them than processors
/// that they may use. 1 where none have to. Known once the ranks have exchanged their publications.
pub(crate) fn contexts_per_processor(job: &Job, grid: Grid) -> u32 {
    let own = Processors::own();
    let published = |rank: &u32| job.card(&component(PROCESSORS), *rank).map_or(own, Processors::from_bytes);
    let ranks = match job.local_ranks() {
        Some(ranks) => ranks.iter().map(published).collect(),
        None => vec![own],
    };
    // A container may allow less processor time than its processors have.
    let quota = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
    let quota = if quota < own.count() { quota } else { usize::MAX };
    sharing(own, &ranks, grid.contexts as usize, quota) as u32
}

/// How many contexts share a processor, rounded up, where each rank has that many contexts: among all ranks that compete with this
/// one directly or through others, or among those whose processors are all among some rank's.
fn sharing(own: Processors, ranks: &[Processors], contexts: usize, quota: usize) -> usize {
    let mut group = own;
    loop {
        let before = group;
        for rank in ranks.iter().filter(|rank| rank.intersects(before)) {
            group = group.union(*rank);
        }
        if group == before {
            break;
        }
    }
    let holders = ranks.iter().copied().filter(|rank| own.is_within(*rank));
    let degree = |processors: Processors| {
        let competing = ranks.iter().filter(|rank| rank.is_within(processors)).count();
        (competing * contexts).div_ceil(processors.count().min(quota).max(1))
    };
    [own, group].into_iter().chain(holders).map(degree).fold(1, usize::max)
}

/// A set of processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Processors([u64; WORDS]);

impl Processors {
    /// Those that this thread may use. All, where the kernel does not say.
    fn own() -> Self {
        let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Self([u64::MAX; WORDS]) };
        (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
    }

    /// From a publication. Processors beyond the bytes are not in the set.
    fn from_bytes(bytes: &[u8]) -> Self {
        let is_in = |at: &usize| bytes.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 != 0);
        (0..CpuSet::MAX_CPU).filter(is_in).collect()
    }

    /// A bit for each processor, the lowest one first, up to the last byte that has one.
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        bytes
    }

    fn count(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn union(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    fn intersects(self, other: Self) -> bool {
        self.0.iter().zip(other.0).any(|(one, two)| one & two != 0)
    }

    fn is_within(self, other: Self) -> bool {
        self.0.iter().zip(other.0).all(|(one, two)| one & !two == 0)
    }
}

impl FromIterator<usize> for Processors {
    fn from_iter<I: IntoIterator<Item = usize>>(processors: I) -> Self {
        let mut words = [0; WORDS];
        for processor in processors {
            words[processor / u64::BITS as usize] |= 1 << (processor % u64::BITS as usize);
        }
        Self(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processors(list: &[usize]) -> Processors {
        list.iter().copied().collect()
    }

    /// How many contexts share the processor of the first rank.
    fn degree(ranks: &[&[usize]], contexts: usize) -> usize {
        let ranks: Vec<Processors> = ranks.iter().map(|list| processors(list)).collect();
        sharing(ranks[0], &ranks, contexts, usize::MAX)
    }

    /// Whether the first of the ranks has to share.
    fn shares(ranks: &[&[usize]], contexts: usize) -> bool {
        degree(ranks, contexts) > 1
    }

    #[test]
    fn the_contexts_of_a_processor_are_counted() {
        let all: &[usize] = &[0, 1];
        assert_eq!([2, 3, 4, 5, 16].map(|ranks| degree(&vec![all; ranks], 1)), [1, 2, 2, 3, 8]);
        assert_eq!((degree(&[all; 2], 4), degree(&[&[0], &[0], all], 1)), (4, 2));
        assert_eq!(degree(&[&[]], 1), 1, "no processor is known");
    }

    #[test]
    fn a_rank_shares_its_processor_only_where_ranks_outnumber_processors() {
        assert!(!shares(&[&[0, 1], &[0, 1]], 1));
        assert!(shares(&[&[0, 1], &[0, 1], &[0, 1]], 1));
        assert!(shares(&[&[0, 1]], 3), "each context counts");
    }

    #[test]
    fn a_rank_that_is_bound_to_a_processor_of_its_own_does_not_share() {
        assert!(!shares(&[&[0], &[1]], 1));
        assert!(!shares(&[&[0], &[1], &[2], &[3]], 1));
        assert!(shares(&[&[0], &[0]], 1));
        assert!(!shares(&[&[2], &[0], &[0]], 1), "others share a processor that this rank does not use");
    }

    #[test]
    fn ranks_that_compete_through_others_count_together() {
        assert!(shares(&[&[0], &[0, 1], &[1, 2], &[2]], 1), "three processors for four ranks");
        assert!(!shares(&[&[0], &[0, 1], &[1, 2], &[2, 3]], 1));
        let all: Vec<usize> = (0..8).collect();
        assert!(shares(&[&[0], &[0], &all], 1), "other processors do not help two ranks that are bound to one");
        assert!(shares(&[&[0], &[0, 1], &[0, 1], &all], 1), "three ranks have two processors");
    }

    #[test]
    fn a_quota_of_processor_time_counts() {
        let ranks = [processors(&[0, 1, 2, 3]); 2];
        assert_eq!([1, 2, 4].map(|quota| sharing(ranks[0], &ranks, 1, quota)), [2, 1, 1]);
    }

    #[test]
    fn a_publication_gives_back_the_set() {
        for list in [&[][..], &[0], &[7, 8], &[1023], &[0, 63, 64, 500]] {
            let set = processors(list);
            let bytes = set.to_bytes();
            assert_eq!(bytes.len(), list.last().map_or(0, |last| last / 8 + 1));
            assert_eq!(Processors::from_bytes(&bytes), set);
        }
        assert_eq!(Processors::from_bytes(&[255; 4096]).count(), CpuSet::MAX_CPU, "further bytes are ignored");
    }
}
