//! Models of the ring, the log and the doorbell: all interleavings, and every order that the memory model allows.
//!
//! `RUSTFLAGS="--cfg window_model" cargo test -p towline-window --test loom --release`
#![cfg(window_model)]

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use towline_window::atomics::AtomicU32;
use towline_window::doorbell::{Ringer, Sleeper};
use towline_window::log::{Bytes, LogReader, LogWriter, Taken};
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

/// A bell: a byte in a pipe that the sleeper waits for.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    ring: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.ring.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.ring.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// A reader that sleeps whenever there is no entry gets each entry, although nothing but the bell wakes it.
#[test]
fn a_sleeper_misses_no_entry() {
    const ENTRIES: u32 = 2;
    loom::model(|| {
        let (ring, asleep, bell) = (Ring::new(), Arc::new(AtomicU32::new(0)), Arc::new(Bell::default()));
        let (writing, word, rope) = (ring.clone(), asleep.clone(), bell.clone());
        let writer = thread::spawn(move || {
            let (mut writer, mut ringer) = (Writer::new(), Ringer::new());
            for number in 1..=ENTRIES {
                assert_eq!(writer.push(&*writing, &[number, 0]), Ok(Pushed::Done));
                if ringer.must_ring(&word) {
                    rope.ring();
                }
            }
        });
        let (mut reader, mut sleeper) = (Reader::new(), Sleeper::new());
        for number in 1..=ENTRIES {
            let entry = loop {
                sleeper.announce(&asleep);
                if let Some(entry) = reader.pop(&*ring) {
                    break entry;
                }
                // A lost bell is a deadlock, which loom reports.
                bell.wait();
                sleeper.awake(&asleep);
            };
            sleeper.awake(&asleep);
            assert_eq!(entry[0], number);
        }
        writer.join().unwrap();
    });
}

const LOG: usize = 4;

/// A log of four bytes. Loom reports an access to a byte that races with another one.
struct Log {
    bytes: [UnsafeCell<u8>; LOG],
    written: AtomicU32,
    taken: AtomicU32,
}

// SAFETY: the protocol of the log gives each byte to one side at a time, which loom checks.
unsafe impl Sync for Log {}
// SAFETY: as above.
unsafe impl Send for Log {}

impl Log {
    fn new() -> Arc<Self> {
        let bytes = std::array::from_fn(|_| UnsafeCell::new(0));
        Arc::new(Self { bytes, written: AtomicU32::new(0), taken: AtomicU32::new(0) })
    }
}

impl Bytes for Log {
    fn length(&self) -> u32 {
        LOG as u32
    }

    fn write(&self, at: u32, bytes: &[u8]) {
        for (cell, byte) in self.bytes[at as usize..].iter().zip(bytes) {
            // SAFETY: loom checks that nothing else accesses the byte meanwhile.
            cell.with_mut(|cell| unsafe { *cell = *byte });
        }
    }

    fn read(&self, at: u32, into: &mut [u8]) {
        for (cell, byte) in self.bytes[at as usize..].iter().zip(into) {
            // SAFETY: as above.
            *byte = cell.with(|cell| unsafe { *cell });
        }
    }

    fn written(&self) -> &AtomicU32 {
        &self.written
    }

    fn taken(&self) -> &AtomicU32 {
        &self.taken
    }
}

/// Frames of three bytes arrive whole and in order, or are lost as a whole, in a log that has room for one of them.
#[test]
fn frames_of_the_log_arrive_whole_or_not_at_all() {
    const FRAMES: u8 = 3;
    loom::model(|| {
        let log = Log::new();
        let mut writer = LogWriter::new(&*log);
        let mut reader = LogReader::new(&*log);
        let writing = log.clone();
        let device = thread::spawn(move || {
            (1..=FRAMES)
                .filter(|number| {
                    writer.append(&*writing, &[*number]);
                    writer.append(&*writing, &[*number + 10, 0]);
                    writer.end(&*writing)
                })
                .collect::<Vec<u8>>()
        });
        let mut bytes = Vec::new();
        let mut take = |reader: &mut LogReader| {
            let mut into = [0; 3];
            let Taken::Bytes(count) = reader.read(&*log, &mut into) else { panic!("a position cannot be wrong") };
            bytes.extend_from_slice(&into[..count]);
        };
        take(&mut reader);
        take(&mut reader);
        let whole = device.join().unwrap();
        (0..FRAMES).for_each(|_| take(&mut reader));
        let expected: Vec<_> = whole.iter().flat_map(|number| [*number, number + 10, 0]).collect();
        assert_eq!(bytes, expected);
        assert_eq!(whole.first(), Some(&1), "an empty log has room");
    });
}
