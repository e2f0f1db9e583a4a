//! Measures the cost of a match depending on the depth of the queues, and compares it with a plain list.
//!
//! `cargo run --release -p towline-core --example matching [depth]` prints nanoseconds and steps of one match with so
//! many receives posted (or messages unexpected), the counterpart arriving in posting order and in random order. Each
//! match is followed by a new post (or arrival) of the same kind, whose time is included, so the depth stays.

use std::hint::black_box;
use std::time::Instant;

use towline_core::arena::Arena;
use towline_core::pml::matching::{ANY, Key, Matcher, Pattern};

const DEPTHS: [u32; 5] = [1, 16, 256, 4096, 65536];

fn main() {
    let depths: Vec<u32> = match std::env::args().nth(1).and_then(|depth| depth.parse().ok()) {
        Some(depth) => vec![depth],
        None => DEPTHS.to_vec(),
    };
    println!("{:<34} {:>6} | {:>8} {:>6} | {:>8} {:>6}", "", "depth", "in order", "steps", "random", "steps");
    for case in CASES {
        for &depth in &depths {
            let (in_order, random) = (run(case, depth, false), run(case, depth, true));
            if let (Some((ns, steps)), Some((random_ns, random_steps))) = (in_order, random) {
                let name = case.name;
                println!("{name:<34} {depth:>6} | {ns:>5.1} ns {steps:>6.2} | {random_ns:>5.1} ns {random_steps:>6.2}");
            }
        }
    }
}

/// One group of rows: which queue is measured, and which other receives are posted.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    queue: Queue,
    /// Keys differ by source rather than by tag.
    by_source: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Queue {
    Posted,
    PostedBehindWildcards,
    Unexpected,
    PlainList,
}

const CASES: [Case; 6] = [
    Case { name: "posted, a tag each", queue: Queue::Posted, by_source: false },
    Case { name: "posted, a source each", queue: Queue::Posted, by_source: true },
    Case { name: "posted, 3 kinds of wildcard as well", queue: Queue::PostedBehindWildcards, by_source: false },
    Case { name: "unexpected, a tag each", queue: Queue::Unexpected, by_source: false },
    Case { name: "unexpected, a source each", queue: Queue::Unexpected, by_source: true },
    Case { name: "plain list, a tag each", queue: Queue::PlainList, by_source: false },
];

/// Nanoseconds and steps of one match and one post.
fn run(case: Case, depth: u32, random: bool) -> Option<(f64, f64)> {
    let key = |slot: u32| match case.by_source {
        true => Key { context: 1, source: slot, tag: 7 },
        false => Key { context: 1, source: 3, tag: slot },
    };
    let rounds = 4_000_000 / depth;
    // Few different orders in turn, so that they stay small beside the tables.
    let mut orders: Vec<Vec<u32>> = vec![(0..depth).collect(); if random { 3 } else { 1 }];
    let mut state = 0x2545_f491_4f6c_dd1d;
    if random {
        orders.iter_mut().for_each(|order| shuffle(order, &mut state));
    }
    match case.queue {
        Queue::PlainList if depth > 4096 => None,
        Queue::PlainList => Some(plain_list(&orders, if depth > 256 { 3 } else { rounds }, key)),
        Queue::Unexpected => Some(unexpected(&orders, rounds, key)),
        Queue::Posted => Some(posted(&orders, rounds, key, false)),
        Queue::PostedBehindWildcards => Some(posted(&orders, rounds, key, true)),
    }
}

fn with_matcher<T>(depth: u32, test: impl FnOnce(Matcher<'_>) -> T) -> T {
    let slots = depth + 3;
    let mut block = vec![0u8; Matcher::cost(slots, slots)];
    test(Matcher::new(&mut Arena::new(&mut block), slots, slots, 0x1234_5678_9abc_def0).unwrap())
}

fn posted(orders: &[Vec<u32>], rounds: u32, key: impl Fn(u32) -> Key, wildcards: bool) -> (f64, f64) {
    let depth = orders[0].len() as u32;
    let pattern = |slot| {
        let Key { context, source, tag } = key(slot);
        Pattern { context, source, tag }
    };
    with_matcher(depth, |mut matcher| {
        if wildcards {
            // None of them accepts an arriving message, but every search has to check them.
            matcher.post(depth, Pattern { context: 1, source: ANY, tag: u32::MAX - 1 });
            matcher.post(depth + 1, Pattern { context: 1, source: u32::MAX - 1, tag: ANY });
            matcher.post(depth + 2, Pattern { context: 2, source: ANY, tag: ANY });
        }
        (0..depth).for_each(|slot| matcher.post(slot, pattern(slot)));
        let start = Instant::now();
        for order in orders.iter().cycle().take(rounds as usize) {
            for &slot in order {
                let found = matcher.take_posted(&key(black_box(slot)));
                assert_eq!(found, Some(slot));
                matcher.post(slot, pattern(slot));
            }
        }
        figures(start, &matcher)
    })
}

fn unexpected(orders: &[Vec<u32>], rounds: u32, key: impl Fn(u32) -> Key) -> (f64, f64) {
    let depth = orders[0].len() as u32;
    with_matcher(depth, |mut matcher| {
        (0..depth).for_each(|slot| matcher.add_unexpected(slot, key(slot)));
        let start = Instant::now();
        for order in orders.iter().cycle().take(rounds as usize) {
            for &slot in order {
                let Key { context, source, tag } = key(black_box(slot));
                let found = matcher.find_unexpected(&Pattern { context, source, tag });
                assert_eq!(found, Some(slot));
                matcher.remove_unexpected(slot);
                matcher.add_unexpected(slot, key(slot));
            }
        }
        figures(start, &matcher)
    })
}

fn figures(start: Instant, matcher: &Matcher<'_>) -> (f64, f64) {
    let elapsed = start.elapsed().as_nanos() as f64;
    let counters = matcher.counters();
    (elapsed / counters.matches as f64, counters.steps as f64 / counters.matches as f64)
}

/// The cost of a match without hashing: a list linked by index, which is searched from the front.
fn plain_list(orders: &[Vec<u32>], rounds: u32, key: impl Fn(u32) -> Key) -> (f64, f64) {
    struct Entry {
        pattern: Pattern,
        next: u32,
    }
    let pattern = |slot| {
        let Key { context, source, tag } = key(slot);
        Pattern { context, source, tag }
    };
    let end = orders[0].len();
    // The last entry only holds the link to the first.
    let mut list: Vec<Entry> =
        (0..=end as u32).map(|slot| Entry { pattern: pattern(slot), next: (slot + 1) % (end as u32 + 1) }).collect();
    let (mut last, mut steps) = (end - 1, 0u64);
    let start = Instant::now();
    for order in orders.iter().cycle().take(rounds as usize) {
        for &slot in order {
            let key = key(black_box(slot));
            let (mut before, mut at) = (end, list[end].next as usize);
            steps += 1;
            while at != end && !list[at].pattern.accepts(&key) {
                (before, at) = (at, list[at].next as usize);
                steps += 1;
            }
            assert_eq!(at, slot as usize);
            list[before].next = list[at].next;
            if last == at {
                last = before;
            }
            list[at] = Entry { pattern: pattern(slot), next: end as u32 };
            list[last].next = slot;
            last = at;
        }
    }
    let matches = f64::from(rounds) * end as f64;
    (start.elapsed().as_nanos() as f64 / matches, steps as f64 / matches)
}

/// Puts a list in an order that looks random and is the same in every run.
fn shuffle(list: &mut [u32], state: &mut u64) {
    for end in (1..list.len()).rev() {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        list.swap(end, (*state % (end as u64 + 1)) as usize);
    }
}
