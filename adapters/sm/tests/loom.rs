//! Models of small instances of the lock-free parts: all interleavings, and every order that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p towline-sm --test loom --release`
//!
//! Rings start at positions that wrap within the model.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use towline_sm::atomics::{AtomicU32, AtomicU64, Ordering, fence};
use towline_sm::ring::{Receiver, RingMemory, Sender, meta, slots_for};
use towline_sm::{doorbell, sleep};

const SLOTS: u32 = 4;
/// Three slots.
const LIMIT: u32 = 3 * 64 - 8;

/// A ring whose payload is one cell per slot, which loom watches for races, and whose longer frames overwrite the header words of
/// the slots behind the first, as in a real ring.
struct Ring {
    words: [AtomicU64; SLOTS as usize],
    cells: [UnsafeCell<u32>; SLOTS as usize],
    credit: AtomicU32,
    /// The receiver's sleep word, and a model of the kernel's queue of sleepers.
    sleep: AtomicU32,
    queue: Mutex<()>,
    wakes: Condvar,
}

impl RingMemory for Ring {
    fn header(&self, position: u32) -> &AtomicU64 {
        &self.words[(position % SLOTS) as usize]
    }

    fn credit(&self) -> &AtomicU32 {
        &self.credit
    }
}

impl Ring {
    fn new(start: u32) -> Arc<Self> {
        Arc::new(Self {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            cells: std::array::from_fn(|_| UnsafeCell::new(0)),
            credit: AtomicU32::new(start),
            sleep: AtomicU32::new(sleep::AWAKE),
            queue: Mutex::new(()),
            wakes: Condvar::new(),
        })
    }

    fn write(&self, position: u32, slots: u32, value: u32) {
        for slot in 0..slots {
            let at = position.wrapping_add(slot);
            // SAFETY: loom checks that no other thread accesses the cell.
            self.cells[(at % SLOTS) as usize].with_mut(|cell| unsafe { *cell = value });
            if slot != 0 {
                // The very word that the receiver will look for when a frame begins here one lap later.
                let trap = u64::from(meta(1, 66)) << 32 | u64::from(at.wrapping_add(SLOTS) << 1 | 1);
                self.words[(at % SLOTS) as usize].store(trap, Ordering::Relaxed);
            }
        }
    }

    fn read(&self, position: u32, slots: u32) -> u32 {
        let mut value = 0;
        for slot in 0..slots {
            let at = position.wrapping_add(slot);
            // SAFETY: as above.
            value = self.cells[(at % SLOTS) as usize].with(|cell| unsafe { *cell });
        }
        value
    }

    /// Sends a frame, waiting for credit.
    fn send(&self, sender: &mut Sender, len: u32, value: u32) {
        let slots = slots_for(len);
        loop {
            if let Some(position) = sender.reserve(slots, 0) {
                self.write(position, slots, value);
                sender.publish(self, slots, meta(len, value as u8));
                return;
            }
            if sender.refresh(self).expect("both sides keep to the protocol") {
                sender.pad(self, slots, 0);
            } else {
                sender.pad(self, slots, 0);
                thread::yield_now();
            }
        }
    }

    /// Takes the next frame if there is one, and returns its slots.
    fn receive(&self, receiver: &mut Receiver) -> Option<(u32, u32)> {
        let pending = receiver.peek(self)?;
        let Some(frame) = receiver.take(pending).expect("both sides keep to the protocol") else {
            return self.receive(receiver);
        };
        let value = self.read(frame.position, slots_for(frame.len));
        assert_eq!(u32::from(frame.tag), value);
        receiver.return_credit(self, receiver.position());
        Some((frame.len, value))
    }
}

/// Checks all interleavings with up to three preemptions.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn passes_frames(start: u32, lens: &'static [u32]) {
    check(move || {
        let ring = Ring::new(start);
        let (theirs, mut sender) = (ring.clone(), Sender::new(SLOTS, start));
        let other = thread::spawn(move || {
            for (value, len) in lens.iter().enumerate() {
                theirs.send(&mut sender, *len, value as u32 + 1);
            }
        });
        let mut receiver = Receiver::new(SLOTS, LIMIT, start);
        for (value, len) in lens.iter().enumerate() {
            loop {
                if let Some(got) = ring.receive(&mut receiver) {
                    assert_eq!(got, (*len, value as u32 + 1));
                    break;
                }
                thread::yield_now();
            }
        }
        other.join().unwrap();
        assert_eq!(ring.receive(&mut receiver), None);
    });
}

#[test]
fn short_frames_pass_through_a_full_ring() {
    passes_frames(u32::MAX - 2, &[8, 8, 8, 8, 8, 8]);
}

#[test]
fn payload_is_never_mistaken_for_a_header_word() {
    passes_frames(u32::MAX - 3, &[LIMIT, 8, 8, 8, 8]);
}

#[test]
fn padding_at_the_end_of_a_lap() {
    passes_frames(u32::MAX - 1, &[8, 100, 100, 8]);
}

#[test]
fn fragments_that_fill_the_ring_exactly() {
    passes_frames(u32::MAX - 3, &[120, 120, 120, 120]);
}

/// A receiver that sleeps; `barrier` is its barrier between its announcement and its last look.
fn sleeping_receiver(barrier: fn()) {
    check(move || {
        let ring = Ring::new(u32::MAX);
        let (theirs, mut sender) = (ring.clone(), Sender::new(SLOTS, u32::MAX));
        let other = thread::spawn(move || {
            for value in 1..=2 {
                theirs.send(&mut sender, 8, value);
                if sleep::may_sleep(&theirs.sleep) && sleep::claim(&theirs.sleep, false).is_some() {
                    let _queue = theirs.queue.lock().unwrap();
                    theirs.wakes.notify_all();
                }
            }
        });
        let mut receiver = Receiver::new(SLOTS, LIMIT, u32::MAX);
        let mut got = 0;
        while got < 2 {
            if ring.receive(&mut receiver).is_some() {
                got += 1;
                continue;
            }
            sleep::announce(&ring.sleep, sleep::ON_FUTEX, barrier);
            if receiver.peek(&*ring).is_none() {
                // As futex(2): it looks at the word and queues the thread in one step.
                let queue = ring.queue.lock().unwrap();
                if ring.sleep.load(Ordering::Relaxed) == sleep::ON_FUTEX {
                    drop(ring.wakes.wait(queue).unwrap());
                }
            }
            sleep::withdraw(&ring.sleep);
        }
        other.join().unwrap();
    });
}

#[test]
fn no_receiver_sleeps_through_a_message() {
    sleeping_receiver(|| fence(Ordering::SeqCst));
}

/// The models can fail: this one and the next canary each contain one error.
#[test]
#[should_panic(expected = "deadlock")]
fn canary_a_barrier_is_missing_before_the_sleep() {
    sleeping_receiver(|| {});
}

/// A sender that publishes one frame itself, in the ring's own format, with this order of its store.
fn publishes(order: Ordering) {
    check(move || {
        let ring = Ring::new(0);
        let theirs = ring.clone();
        let other = thread::spawn(move || {
            theirs.write(0, 1, 7);
            theirs.header(0).store(u64::from(meta(8, 7)) << 32 | 1, order);
        });
        let mut receiver = Receiver::new(SLOTS, LIMIT, 0);
        let got = loop {
            match ring.receive(&mut receiver) {
                Some(got) => break got,
                None => thread::yield_now(),
            }
        };
        assert_eq!(got, (8, 7));
        other.join().unwrap();
    });
}

#[test]
fn a_header_word_that_is_stored_with_release_publishes() {
    publishes(Ordering::Release);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_a_relaxed_store_where_release_is_needed() {
    publishes(Ordering::Relaxed);
}

#[test]
fn every_bit_of_the_doorbell_is_found() {
    check(|| {
        let door = Arc::new((AtomicU32::new(u32::MAX), [AtomicU64::new(0), AtomicU64::new(0)], AtomicU32::new(0)));
        let others: Vec<_> = [3usize, 64]
            .into_iter()
            .map(|bit| {
                let door = door.clone();
                thread::spawn(move || {
                    door.2.fetch_add(1, Ordering::Relaxed);
                    doorbell::ring(&door.0, &door.1, bit);
                })
            })
            .collect();
        let (mut seen, mut found) = (u32::MAX, Vec::new());
        while found.len() < 2 {
            if doorbell::has_rung(&door.0, seen) {
                doorbell::take_bits(&door.0, &door.1, &mut seen, |bit| found.push(bit));
                // The data that a bit stands for was written before the bit was set.
                assert!(door.2.load(Ordering::Relaxed) as usize >= found.len());
            } else {
                thread::yield_now();
            }
        }
        found.sort();
        assert_eq!(found, [3, 64]);
        for other in others {
            other.join().unwrap();
        }
    });
}
