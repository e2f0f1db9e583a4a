//! Models of the ring: all interleavings, and every order that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p towline-window --test loom --release`
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use towline_window::atomics::AtomicU32;
use towline_window::ring::{Pushed, Reader, START, Slots, Writer};

const SLOTS: u32 = 2;
const WORDS: usize = 3;

/// A ring of two slots, whose entries have two words.
struct Ring {
    words: [[AtomicU32; WORDS]; SLOTS as usize],
    taken: AtomicU32,
}

impl Ring {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            words: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU32::new(0))),
            taken: AtomicU32::new(START),
        })
    }
}

impl Slots for Ring {
    fn slots(&self) -> u32 {
        SLOTS
    }

    fn slot(&self, position: u32) -> Option<&[AtomicU32]> {
        self.words.get((position % SLOTS) as usize).map(|words| &words[..])
    }

    fn taken(&self) -> &AtomicU32 {
        &self.taken
    }
}

/// Each entry is read once, in order, and whole, although the ring is shorter than their number.
#[test]
fn entries_arrive_whole_and_in_order() {
    const ENTRIES: u32 = 4;
    loom::model(|| {
        let ring = Ring::new();
        let writing = ring.clone();
        let writer = thread::spawn(move || {
            let mut writer = Writer::new();
            for number in 1..=ENTRIES {
                while writer.push(&*writing, &[number, number + 100]).unwrap() == Pushed::Full {
                    thread::yield_now();
                }
            }
        });
        let mut reader = Reader::new();
        for number in 1..=ENTRIES {
            let entry = loop {
                match reader.pop(&*ring) {
                    Some(entry) => break entry,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(entry[..2], [number, number + 100]);
        }
        writer.join().unwrap();
        assert!(reader.pop(&*ring).is_none());
    });
}
