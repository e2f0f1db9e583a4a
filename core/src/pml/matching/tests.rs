//! The matcher against a plain list, and the length of its searches.

use std::{vec, vec::Vec};

use proptest::prelude::*;

use super::*;

/// The rules in their plainest form: two lists, searched from the front.
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
    /// A message: to the receive that accepts it, else into the slot of an unexpected one.
    Arrive(u32, Key),
    /// A receive: the message that it accepts, else it is posted.
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
