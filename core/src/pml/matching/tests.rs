//! The matcher against a plain list, and the length of its searches.

use std::{vec, vec::Vec};

use proptest::prelude::*;

use super::tables::LEAST_REQUESTS;
use super::*;
use crate::arena::Arena;

/// A model of the rules in their simplest form: two lists, searched from the front.
#[derive(Default)]
struct Reference {
    posted: Vec<(u32, Pattern)>,
    unexpected: Vec<(u32, Key)>,
}

impl Reference {
    fn post(&mut self, slot: u32, pattern: Pattern) {
        if slot < REQUESTS && self.posted.iter().all(|(posted, _)| *posted != slot) {
            self.posted.push((slot, pattern));
        }
    }

    fn unpost(&mut self, slot: u32) -> bool {
        let before = self.posted.len();
        self.posted.retain(|(posted, _)| *posted != slot);
        self.posted.len() != before
    }

    fn peek(&self, key: &Key) -> Option<u32> {
        self.posted.iter().find(|(_, pattern)| pattern.accepts(key)).map(|(slot, _)| *slot)
    }

    fn take(&mut self, key: &Key) -> Option<u32> {
        let slot = self.peek(key)?;
        self.unpost(slot);
        Some(slot)
    }

    fn add(&mut self, slot: u32, key: Key) {
        if slot < UNEXPECTED && self.unexpected.iter().all(|(held, _)| *held != slot) {
            self.unexpected.push((slot, key));
        }
    }

    fn find(&self, pattern: &Pattern) -> Option<u32> {
        self.unexpected.iter().find(|(_, key)| pattern.accepts(key)).map(|(slot, _)| *slot)
    }

    fn remove(&mut self, slot: u32) -> bool {
        let before = self.unexpected.len();
        self.unexpected.retain(|(held, _)| *held != slot);
        self.unexpected.len() != before
    }
}

const REQUESTS: u32 = 24;
const UNEXPECTED: u32 = 20;

#[derive(Clone, Debug)]
enum Op {
    Post(u32, Pattern),
    Unpost(u32),
    Peek(Key),
    /// A message goes to the receive that accepts it, else into the slot of an unexpected one.
    Arrive(u32, Key),
    /// A receive takes the message that it accepts, else it is posted.
    Receive(u32, Pattern),
    Probe(Pattern),
    Add(u32, Key),
    Remove(u32),
}

fn part() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0u32..3, 1 => 0u32..64]
}

fn tag() -> impl Strategy<Value = u32> {
    prop_oneof![8 => part(), 1 => Just(INTERNAL_TAGS), 1 => Just(ANY), 1 => Just(INTERNAL_TAGS - 1)]
}

fn key() -> impl Strategy<Value = Key> {
    let source = prop_oneof![12 => part(), 1 => Just(ANY)];
    (0u32..2, source, tag()).prop_map(|(context, source, tag)| Key { context, source, tag })
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let source = prop_oneof![3 => part(), 1 => Just(ANY)];
    let tag = prop_oneof![3 => tag(), 1 => Just(ANY)];
    (0u32..2, source, tag).prop_map(|(context, source, tag)| Pattern { context, source, tag })
}

fn op() -> impl Strategy<Value = Op> {
    let (request, message) = (0..REQUESTS + 2, 0..UNEXPECTED + 2);
    prop_oneof![
        4 => (request.clone(), pattern()).prop_map(|(slot, pattern)| Op::Post(slot, pattern)),
        2 => request.clone().prop_map(Op::Unpost),
        1 => key().prop_map(Op::Peek),
        4 => (message.clone(), key()).prop_map(|(slot, key)| Op::Arrive(slot, key)),
        4 => (request, pattern()).prop_map(|(slot, pattern)| Op::Receive(slot, pattern)),
        1 => pattern().prop_map(Op::Probe),
        2 => (message.clone(), key()).prop_map(|(slot, key)| Op::Add(slot, key)),
        1 => message.prop_map(Op::Remove),
    ]
}

fn with_matcher<T>(requests: u32, unexpected: u32, seed: u64, test: impl FnOnce(Matcher<'_>) -> T) -> T {
    let mut block = vec![0u8; Matcher::cost(requests, unexpected)];
    test(Matcher::new(&mut Arena::new(&mut block), requests, unexpected, seed).unwrap())
}

fn agree(matcher: &mut Matcher<'_>, reference: &mut Reference, op: Op) -> Result<(), TestCaseError> {
    match op {
        Op::Post(slot, pattern) => {
            matcher.post(slot, pattern);
            reference.post(slot, pattern);
        }
        Op::Unpost(slot) => prop_assert_eq!(matcher.unpost(slot), reference.unpost(slot)),
        Op::Peek(key) => prop_assert_eq!(matcher.peek_posted(&key), reference.peek(&key)),
        Op::Arrive(slot, key) => {
            let taken = matcher.take_posted(&key);
            prop_assert_eq!(taken, reference.take(&key));
            if taken.is_none() {
                matcher.add_unexpected(slot, key);
                reference.add(slot, key);
            }
        }
        Op::Receive(slot, pattern) => {
            let found = matcher.find_unexpected(&pattern);
            prop_assert_eq!(found, reference.find(&pattern));
            if let Some(found) = found {
                prop_assert!(matcher.remove_unexpected(found) && reference.remove(found));
            } else {
                matcher.post(slot, pattern);
                reference.post(slot, pattern);
            }
        }
        Op::Probe(pattern) => prop_assert_eq!(matcher.find_unexpected(&pattern), reference.find(&pattern)),
        Op::Add(slot, key) => {
            matcher.add_unexpected(slot, key);
            reference.add(slot, key);
        }
        Op::Remove(slot) => prop_assert_eq!(matcher.remove_unexpected(slot), reference.remove(slot)),
    }
    prop_assert_eq!(matcher.posted_len() as usize, reference.posted.len());
    prop_assert_eq!(matcher.unexpected_len() as usize, reference.unexpected.len());
    let posted: Vec<_> =
        core::iter::successors(matcher.next_posted(None), |(slot, _)| matcher.next_posted(Some(*slot)))
            .take(reference.posted.len() + 1)
            .collect();
    prop_assert_eq!(&posted, &reference.posted);
    let arrived: Vec<_> =
        core::iter::successors(matcher.next_unexpected(None), |(slot, _)| matcher.next_unexpected(Some(*slot)))
            .take(reference.unexpected.len() + 1)
            .collect();
    prop_assert_eq!(&arrived, &reference.unexpected);
    Ok(())
}

proptest! {
    #[test]
    fn m10_p27_matches_like_a_plain_list(seed: u64, ops in prop::collection::vec(op(), 0..300)) {
        with_matcher(REQUESTS, UNEXPECTED, seed, |mut matcher| {
            let mut reference = Reference::default();
            for op in ops {
                agree(&mut matcher, &mut reference, op)?;
            }
            Ok::<(), TestCaseError>(())
        })?;
    }
}

proptest! {
    /// The table of held-back sends against a plain list: asks for a tag and for any tag, among several receivers and contexts.
    #[test]
    fn m10_p27_held_back_sends_are_found_like_in_a_plain_list(
        seed: u64,
        ops in prop::collection::vec((0..3u8, 0..LEAST_REQUESTS + 1, 0..2u32, 0..2u32, tag()), 0..300),
    ) {
        let mut block = vec![0u8; HeldTable::cost(LEAST_REQUESTS)];
        let mut table = HeldTable::new(&mut Arena::new(&mut block), LEAST_REQUESTS, seed).unwrap();
        let mut model: Vec<(u32, Key)> = Vec::new();
        for (op, slot, context, source, tag) in ops {
            match op {
                0 => {
                    table.add(slot, Key { context, source, tag });
                    let known = model.iter().any(|(held, _)| *held == slot);
                    if slot < LEAST_REQUESTS && !known && tag != ANY {
                        model.push((slot, Key { context, source, tag }));
                    }
                }
                1 => {
                    table.remove(slot);
                    model.retain(|(held, _)| *held != slot);
                }
                _ => {
                    let pattern = Pattern { context, source, tag };
                    let expected = model.iter().find(|(_, key)| pattern.accepts(key)).map(|(slot, _)| *slot);
                    let mut steps = 0;
                    prop_assert_eq!(table.find(&pattern, &mut steps), expected);
                }
            }
        }
    }
}

/// The other receives, while `depth` receives without wildcards are matched.
fn post_wildcards(matcher: &mut Matcher<'_>, depth: u32) {
    matcher.post(depth, Pattern { context: 1, source: ANY, tag: INTERNAL_TAGS });
    matcher.post(depth + 1, Pattern { context: 1, source: u32::MAX - 1, tag: ANY });
    matcher.post(depth + 2, Pattern { context: u32::MAX, source: ANY, tag: ANY });
}

/// Slots in posting order, or in an order that is far from it.
fn order(depth: u32, in_order: bool) -> impl Iterator<Item = u32> {
    // An odd factor permutes a power of two.
    (0..depth).map(move |i| if in_order { i } else { i.wrapping_mul(0x9e37_79b1) & (depth - 1) })
}

const DEPTHS: [u32; 5] = [1, 16, 256, 4096, 65536];

/// Ways in which the keys of many messages differ. The last ones are what a peer would send to make them collide.
const KEYS: [fn(u32) -> Key; 7] = [
    |i| Key { context: 1, source: 3, tag: i },
    |i| Key { context: 1, source: i, tag: 7 },
    |i| Key { context: 1, source: i & 255, tag: i >> 8 },
    |i| Key { context: i, source: i, tag: i },
    |i| Key { context: 1, source: 3, tag: i << 15 },
    |i| Key { context: 1, source: 3, tag: i.reverse_bits() >> 1 },
    |i| Key { context: 1, source: i << 9, tag: (i << 9) ^ 0x1ff },
];

fn exactly(key: Key) -> Pattern {
    Pattern { context: key.context, source: key.source, tag: key.tag }
}

/// The mean and the maximum of the steps since the matcher was made.
fn steps(matcher: &Matcher<'_>) -> (f64, u32) {
    mean_and_most([matcher.counters()])
}

fn mean_and_most(counters: impl IntoIterator<Item = Counters>) -> (f64, u32) {
    let (matches, steps, most) = counters.into_iter().fold((0, 0, 0), |(matches, steps, most), one| {
        (matches + one.matches, steps + one.steps, one.most_steps.max(most))
    });
    (steps as f64 / matches as f64, most)
}

/// The fewer receives, the more seeds: in a table of four buckets one seed says little.
fn seeds(depth: u32) -> impl Iterator<Item = u64> {
    (0..u64::from(64 / depth).max(1)).map(move |i| 0x5eed ^ u64::from(depth) ^ i << 32)
}

#[test]
fn m10_p27_a_posted_receive_is_found_in_constant_steps_at_any_depth() {
    for (depth, key, in_order, wildcards) in runs() {
        let run = |seed| {
            with_matcher(depth + 3, 0, seed, |mut matcher| {
                if wildcards {
                    post_wildcards(&mut matcher, depth);
                }
                (0..depth).for_each(|slot| matcher.post(slot, exactly(key(slot))));
                for slot in order(depth, in_order) {
                    assert_eq!(matcher.take_posted(&key(slot)), Some(slot));
                }
                matcher.counters()
            })
        };
        let (mean, most) = mean_and_most(seeds(depth).map(run));
        let (mean_limit, most_limit) = if wildcards { (6.0, 24) } else { (2.0, 16) };
        assert!(mean <= mean_limit && most <= most_limit, "depth {depth}: {mean} steps, {most} at most");
    }
}

#[test]
fn m10_p27_an_unexpected_message_is_found_in_constant_steps_at_any_depth() {
    for (depth, key, in_order, _) in runs() {
        let run = |seed| {
            with_matcher(0, depth, seed, |mut matcher| {
                (0..depth).for_each(|slot| matcher.add_unexpected(slot, key(slot)));
                for slot in order(depth, in_order) {
                    assert_eq!(matcher.find_unexpected(&exactly(key(slot))), Some(slot));
                    assert!(matcher.remove_unexpected(slot));
                }
                assert_eq!((matcher.unexpected_len(), matcher.next_unexpected(None)), (0, None));
                matcher.counters()
            })
        };
        let (mean, most) = mean_and_most(seeds(depth).map(run));
        assert!(mean <= 2.0 && most <= 16, "depth {depth}: {mean} steps, {most} at most");
    }
}

fn runs() -> impl Iterator<Item = (u32, fn(u32) -> Key, bool, bool)> {
    let ways = [(true, false), (false, false), (true, true), (false, true)];
    DEPTHS.into_iter().flat_map(move |depth| {
        KEYS.into_iter().flat_map(move |key| ways.map(|(in_order, wildcards)| (depth, key, in_order, wildcards)))
    })
}

#[test]
fn m10_a_receive_with_wildcards_takes_the_earliest_message() {
    with_matcher(0, 4, 1, |mut matcher| {
        let key = |source, tag| Key { context: 0, source, tag };
        matcher.add_unexpected(0, key(0, INTERNAL_TAGS));
        matcher.add_unexpected(1, key(2, 9));
        matcher.add_unexpected(2, key(1, 9));
        matcher.add_unexpected(3, key(1, 5));
        let find = |source, tag| matcher.find_unexpected(&Pattern { context: 0, source, tag });
        assert_eq!((find(ANY, ANY), find(ANY, 9), find(1, ANY), find(1, 5)), (Some(1), Some(1), Some(2), Some(3)));
        assert_eq!((find(0, ANY), find(0, INTERNAL_TAGS), find(ANY, INTERNAL_TAGS)), (None, Some(0), Some(0)));
    });
}

#[test]
fn m10_p27_a_flood_of_one_key_does_not_lengthen_the_search_for_others() {
    const FLOOD: u32 = 65536;
    const OTHERS: u32 = 4096;
    let flood = Key { context: 1, source: 3, tag: 7 };
    let other = |i| Key { context: 1, source: 4 + i, tag: 7 };
    with_matcher(FLOOD + OTHERS, FLOOD + OTHERS, 11, |mut matcher| {
        for slot in 0..FLOOD {
            matcher.post(slot, exactly(flood));
            matcher.add_unexpected(slot, flood);
        }
        for i in 0..OTHERS {
            matcher.post(FLOOD + i, exactly(other(i)));
            matcher.add_unexpected(FLOOD + i, other(i));
        }
        for i in 0..OTHERS {
            assert_eq!(matcher.take_posted(&other(i)), Some(FLOOD + i));
            assert_eq!(matcher.find_unexpected(&exactly(other(i))), Some(FLOOD + i));
        }
        // The flood itself: taken back from the middle and from both ends, matched in order otherwise.
        for slot in (0..FLOOD).filter(|slot| slot % 3 == 0 || *slot == FLOOD - 1) {
            assert!(matcher.unpost(slot) && matcher.remove_unexpected(slot));
            assert!(!matcher.unpost(slot) && !matcher.remove_unexpected(slot));
        }
        for slot in (0..FLOOD - 1).filter(|slot| slot % 3 != 0) {
            assert_eq!(matcher.take_posted(&flood), Some(slot));
            assert_eq!(matcher.find_unexpected(&exactly(flood)), Some(slot));
            assert!(matcher.remove_unexpected(slot));
        }
        assert_eq!((matcher.take_posted(&flood), matcher.posted_len(), matcher.unexpected_len()), (None, 0, OTHERS));
        let (mean, most) = steps(&matcher);
        assert!(mean <= 2.0 && most <= 8, "{mean} steps, {most} at most");
    });
}

#[test]
fn m10_p27_keys_that_collide_for_one_seed_do_not_for_another() {
    // A peer that knew the seed of one job: 1024 tags, all in one bucket of that job's matcher.
    const DEPTH: u32 = 1024;
    let key = |tag| Key { context: 1, source: 3, tag };
    let known = tables::Hasher::new(1);
    let mask = tables::buckets(DEPTH) as u32 - 1;
    let tags: Vec<u32> = (0..).filter(|tag| known.hash(&key(*tag)) & mask == 0).take(DEPTH as usize).collect();
    let mean = |seed| {
        with_matcher(DEPTH, 0, seed, |mut matcher| {
            for (slot, tag) in (0..).zip(&tags) {
                matcher.post(slot, exactly(key(*tag)));
            }
            for tag in tags.iter().rev() {
                assert!(matcher.take_posted(&key(*tag)).is_some());
            }
            steps(&matcher).0
        })
    };
    assert!(mean(1) > f64::from(DEPTH / 4), "the tags do not collide, so the test shows nothing");
    for seed in 2..10 {
        assert!(mean(seed) < 2.0, "seed {seed}: {} steps", mean(seed));
    }
}

#[test]
fn m10_the_smallest_matcher_is_small_and_the_budget_is_kept() {
    assert!(Matcher::cost(16, 32) <= 1800, "{} bytes", Matcher::cost(16, 32));
    for (requests, unexpected) in [(0, 0), (1, 0), (0, 1), (5, 9), (16, 32), (100, 1000)] {
        with_matcher(requests, unexpected, 0, |mut matcher| {
            for slot in [0, requests.wrapping_sub(1), requests, u32::MAX] {
                matcher.post(slot, Pattern { context: 0, source: ANY, tag: 1 });
                matcher.add_unexpected(slot, Key { context: 0, source: 0, tag: 0 });
            }
            assert!(matcher.posted_len() <= requests && matcher.unexpected_len() <= unexpected);
            assert!(!matcher.unpost(requests) && !matcher.remove_unexpected(u32::MAX));
        });
        // A table of each. No matcher can do with less.
        let mut block = vec![0u8; 32 * (requests + unexpected) as usize];
        assert!(Matcher::new(&mut Arena::new(&mut block), requests, unexpected, 0).is_err());
    }
    let mut block = [0u8; 64];
    assert!(Matcher::new(&mut Arena::new(&mut block), u32::MAX, u32::MAX, 0).is_err());
}

#[test]
fn m10_an_only_receive_is_found_at_once_unless_it_has_a_wildcard() {
    let key = |source, tag| Key { context: 1, source, tag };
    // As a caller with four slots understands it.
    let only_posted = |matcher: &Matcher, key: &Key| matcher.only_match(key).filter(|slot| *slot < 4);
    let only = |pattern: Pattern, key: &Key| {
        with_matcher(4, 4, 0, |mut matcher| {
            matcher.post(2, pattern);
            let found = only_posted(&matcher, key);
            assert!(found.is_none() || found == matcher.peek_posted(key), "{pattern:?} {key:?}");
            if found.is_some() {
                matcher.take_only();
            }
            assert_eq!((matcher.posted_len(), only_posted(&matcher, key)), (u32::from(found.is_none()), None));
            found
        })
    };
    assert_eq!(only(Pattern { context: 1, source: 3, tag: 7 }, &key(3, 7)), Some(2));
    assert_eq!(only(Pattern { context: 1, source: 3, tag: 7 }, &key(3, 8)), None);
    assert_eq!(only(Pattern { context: 1, source: 3, tag: 7 }, &key(4, 7)), None);
    assert_eq!(only(Pattern { context: 2, source: 3, tag: 7 }, &key(3, 7)), None);
    assert_eq!(only(Pattern { context: 1, source: ANY, tag: 7 }, &key(3, 7)), None);
    // A hostile peer may send this: no receive of any tag takes it.
    assert_eq!(only(Pattern { context: 1, source: 3, tag: ANY }, &key(3, ANY)), None);
    // Two receives are not one. The one that is left of them is in the table.
    with_matcher(4, 4, 0, |mut matcher| {
        matcher.post(0, Pattern { context: 1, source: 3, tag: 7 });
        matcher.post(1, Pattern { context: 1, source: 3, tag: 7 });
        assert_eq!(only_posted(&matcher, &key(3, 7)), None);
        assert_eq!(matcher.take_posted(&key(3, 7)), Some(0));
        assert_eq!((only_posted(&matcher, &key(3, 7)), matcher.take_posted(&key(3, 7))), (None, Some(1)));
        matcher.post(3, Pattern { context: 1, source: 3, tag: 7 });
        assert_eq!(only_posted(&matcher, &key(3, 7)), Some(3));
    });
    // A receive is not the only entry while there is a message, whichever came first. It is the only one again when the message
    // is gone.
    for first in [true, false] {
        with_matcher(4, 4, 0, |mut matcher| {
            let pattern = Pattern { context: 1, source: 3, tag: 7 };
            if first {
                matcher.add_unexpected(1, key(5, 5));
                assert!(!matcher.post_only(0, pattern));
            }
            matcher.post(0, pattern);
            if !first {
                matcher.add_unexpected(1, key(5, 5));
            }
            assert_eq!(only_posted(&matcher, &key(3, 7)), None);
            assert_eq!(matcher.take_posted(&key(3, 7)), Some(0));
            assert!(!matcher.post_only(0, pattern));
            assert!(matcher.remove_unexpected(1));
            assert!(matcher.post_only(0, pattern));
            assert_eq!(only_posted(&matcher, &key(3, 7)), Some(0));
        });
    }
}
