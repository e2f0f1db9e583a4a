//! Sequences of receives and messages. Compares the matcher with two plain lists.

use arbitrary::{Arbitrary, Unstructured};
use towline_core::arena::Arena;
use towline_core::pml::matching::{ANY, INTERNAL_TAGS, Key, Matcher, Pattern};

const REQUESTS: u32 = 40;
const UNEXPECTED: u32 = 24;

/// One step of a sequence. Some slots are beyond the pools on purpose: the matcher must ignore them.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Op {
    Post(u8, Words),
    Unpost(u8),
    Peek(Words),
    Arrive(u8, Words),
    Receive(u8, Words),
    Probe(Words),
    Add(u8, Words),
    Remove(u8),
}

/// Context, source and tag. They have one byte each, so that equal ones are likely.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Words {
    context: u8,
    source: u8,
    tag: u8,
}

impl Words {
    fn key(self) -> Key {
        Key { context: (self.context & 3).into(), source: word(self.source), tag: word(self.tag) }
    }

    fn pattern(self) -> Pattern {
        let Key { context, source, tag } = self.key();
        Pattern { context, source, tag }
    }
}

fn word(byte: u8) -> u32 {
    match byte {
        0xc0..=0xff => ANY,
        0xb0..=0xbf => INTERNAL_TAGS | u32::from(byte & 7),
        0xaf => INTERNAL_TAGS - 1,
        _ => byte.into(),
    }
}

#[derive(Default)]
struct Lists {
    posted: Vec<(u32, Pattern)>,
    unexpected: Vec<(u32, Key)>,
}

impl Lists {
    fn post(&mut self, slot: u32, pattern: Pattern) {
        if slot < REQUESTS && self.posted.iter().all(|(posted, _)| *posted != slot) {
            self.posted.push((slot, pattern));
        }
    }

    fn add(&mut self, slot: u32, key: Key) {
        if slot < UNEXPECTED && self.unexpected.iter().all(|(held, _)| *held != slot) {
            self.unexpected.push((slot, key));
        }
    }

    fn peek(&self, key: Key) -> Option<u32> {
        self.posted.iter().find(|(_, pattern)| accepts(pattern, &key)).map(|(slot, _)| *slot)
    }

    fn find(&self, pattern: Pattern) -> Option<u32> {
        self.unexpected.iter().find(|(_, key)| accepts(&pattern, key)).map(|(slot, _)| *slot)
    }
}

/// The matching rule, implemented independently of the matcher.
fn accepts(pattern: &Pattern, key: &Key) -> bool {
    if pattern.context != key.context || (pattern.source != ANY && pattern.source != key.source) {
        return false;
    }
    match pattern.tag {
        ANY => key.tag < INTERNAL_TAGS,
        tag => tag == key.tag,
    }
}

/// Removes a slot's entry from a list. Returns false if there is no such entry.
fn remove<T>(list: &mut Vec<(u32, T)>, slot: u32) -> bool {
    let place = list.iter().position(|(held, _)| *held == slot);
    place.map(|place| list.remove(place)).is_some()
}

/// Runs one sequence.
pub fn run(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let Ok(seed) = u64::arbitrary(&mut data) else { return };
    let mut block = vec![0; Matcher::cost(REQUESTS, UNEXPECTED)];
    let mut matcher = Matcher::new(&mut Arena::new(&mut block), REQUESTS, UNEXPECTED, seed).expect("cost is enough");
    let mut lists = Lists::default();
    while !data.is_empty() {
        let Ok(op) = Op::arbitrary(&mut data) else { break };
        apply(&mut matcher, &mut lists, op);
        assert_eq!(matcher.posted_len() as usize, lists.posted.len());
        assert_eq!(matcher.unexpected_len() as usize, lists.unexpected.len());
    }
    let posted = std::iter::successors(matcher.next_posted(None), |(slot, _)| matcher.next_posted(Some(*slot)));
    assert_eq!(posted.take(REQUESTS as usize + 1).collect::<Vec<_>>(), lists.posted);
    let next = |(slot, _): &(u32, Key)| matcher.next_unexpected(Some(*slot));
    let arrived = std::iter::successors(matcher.next_unexpected(None), next);
    assert_eq!(arrived.take(UNEXPECTED as usize + 1).collect::<Vec<_>>(), lists.unexpected);
}

fn apply(matcher: &mut Matcher<'_>, lists: &mut Lists, op: Op) {
    match op {
        Op::Post(slot, words) => {
            matcher.post(slot.into(), words.pattern());
            lists.post(slot.into(), words.pattern());
        }
        Op::Unpost(slot) => assert_eq!(matcher.unpost(slot.into()), remove(&mut lists.posted, slot.into())),
        Op::Peek(words) => assert_eq!(matcher.peek_posted(&words.key()), lists.peek(words.key())),
        Op::Arrive(slot, words) => {
            let taken = lists.peek(words.key());
            assert_eq!(matcher.take_posted(&words.key()), taken);
            match taken {
                Some(taken) => assert!(remove(&mut lists.posted, taken)),
                None => apply(matcher, lists, Op::Add(slot, words)),
            }
        }
        Op::Receive(slot, words) => {
            let found = lists.find(words.pattern());
            assert_eq!(matcher.find_unexpected(&words.pattern()), found);
            match found {
                Some(found) => {
                    assert!(matcher.remove_unexpected(found) && remove(&mut lists.unexpected, found));
                }
                None => apply(matcher, lists, Op::Post(slot, words)),
            }
        }
        Op::Probe(words) => assert_eq!(matcher.find_unexpected(&words.pattern()), lists.find(words.pattern())),
        Op::Add(slot, words) => {
            matcher.add_unexpected(slot.into(), words.key());
            lists.add(slot.into(), words.key());
        }
        Op::Remove(slot) => {
            assert_eq!(matcher.remove_unexpected(slot.into()), remove(&mut lists.unexpected, slot.into()));
        }
    }
}
