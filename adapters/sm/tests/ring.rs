//! The ring compared with a plain queue: long random histories of frames, dropped grants, padding and late release, with
//! positions that wrap.
#![cfg(not(loom))]

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use towline_sm::atomics::{AtomicU32, AtomicU64};
use towline_sm::ring::{PREFIX, ProtocolViolation, Receiver, RingMemory, SLOT, Sender, meta, slots_for};

const SLOTS: u32 = 16;
/// 5 slots.
const LIMIT: u32 = 5 * 64 - 8;

/// A ring in this process's memory.
struct Memory {
    words: Box<[UnsafeCell<u64>]>,
    credit: AtomicU32,
}

impl Memory {
    fn new(start: u32) -> Self {
        let words = (0..SLOTS as usize * SLOT / 8).map(|_| UnsafeCell::new(0)).collect();
        Self { words, credit: AtomicU32::new(start) }
    }

    fn at(&self, position: u32) -> *mut u8 {
        self.words[(position & (SLOTS - 1)) as usize * SLOT / 8].get().cast()
    }

    /// Writes a frame's bytes, as a grant would; all of them look like the header words of this lap and the next ones.
    fn fill(&self, position: u32, seed: u64, len: u32) {
        let from = self.at(position).wrapping_add(PREFIX);
        for at in 0..len {
            // SAFETY: the caller reserved the slots, so the bytes are inside the memory; one thread is here.
            unsafe { from.wrapping_add(at as usize).write(byte(seed, position, at)) };
        }
    }

    fn check(&self, position: u32, seed: u64, len: u32) -> bool {
        let from = self.at(position).wrapping_add(PREFIX);
        // SAFETY: as in `fill`.
        (0..len).all(|at| unsafe { from.wrapping_add(at as usize).read() } == byte(seed, position, at))
    }
}

/// The worst possible payload: at the place of a slot's header word, the very header word that a later lap expects there.
fn byte(seed: u64, position: u32, at: u32) -> u8 {
    let from_slot = at as usize + PREFIX;
    let slot = position.wrapping_add((from_slot / SLOT) as u32);
    let later = slot.wrapping_add(SLOTS * (seed % 2) as u32);
    let trap = u64::from(meta(3, 9)) << 32 | u64::from(later << 1 | 1);
    if from_slot % SLOT < 8 { trap.to_le_bytes()[from_slot % SLOT] } else { (seed as u8).wrapping_add(at as u8) }
}

impl RingMemory for Memory {
    fn header(&self, position: u32) -> &AtomicU64 {
        // SAFETY: inside the memory, aligned to 8; a header word is accessed by atomics alone while it is one.
        unsafe { AtomicU64::from_ptr(self.at(position).cast()) }
    }

    fn credit(&self) -> &AtomicU32 {
        &self.credit
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Send a frame of the first number of bytes, with the second number of slots reserved.
    Send(u32, u32),
    /// Write a grant of this many bytes and drop it.
    DropGrant(u32),
    Receive,
    /// Give the oldest frame back.
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![0..=56u32, 0..=LIMIT, Just(56), Just(57), Just(LIMIT)];
    prop_oneof![
        3 => (len.clone(), 0..4u32).prop_map(|(len, reserved)| Step::Send(len, reserved)),
        1 => len.prop_map(Step::DropGrant),
        3 => Just(Step::Receive),
        3 => Just(Step::Release),
    ]
}

proptest! {
    #[test]
    fn p25_frames_come_out_as_they_went_in(start in any::<u32>(), near in any::<bool>(), steps in prop::collection::vec(step(), 1..400)) {
        let start = if near { start | 0xFFFF_FF00 } else { start };
        let memory = Memory::new(start);
        let (mut sender, mut receiver) = (Sender::new(SLOTS, start), Receiver::new(SLOTS, LIMIT, start));
        let (mut sent, mut unreleased) = (VecDeque::new(), VecDeque::new());
        let mut seed = 0u64;
        for step in steps {
            seed += 1;
            match step {
                Step::Send(len, reserved) => {
                    prop_assert!(sender.refresh(&memory).is_ok());
                    sender.pad(&memory, slots_for(len), reserved);
                    if let Some(position) = sender.reserve(slots_for(len), reserved) {
                        memory.fill(position, seed, len);
                        sender.publish(&memory, slots_for(len), meta(len, seed as u8));
                        sent.push_back((seed, len));
                    }
                }
                Step::DropGrant(len) => {
                    if let Some(position) = sender.reserve(slots_for(len), 0) {
                        memory.fill(position, seed, len);
                    }
                }
                Step::Receive => {
                    // As an engine does it: the fast paths first, and then a second look, or the general path.
                    let tag = sent.front().map_or(0, |(seed, _): &(u64, u32)| *seed as u8);
                    let fast = receiver.peek(&memory).filter(|_| !seed.is_multiple_of(3)).and_then(|pending| {
                        receiver.take_short(pending, tag).or_else(|| receiver.take_long(pending, tag))
                    });
                    let mut found = match fast {
                        Some(more) => {
                            let again = receiver.last_taken(&memory).expect("nobody has overwritten it");
                            prop_assert_eq!(again.len, more + 24);
                            Some(Ok(Some(again)))
                        }
                        None => receiver.peek(&memory).map(|pending| receiver.take(pending)),
                    };
                    if found == Some(Ok(None)) {
                        found = receiver.peek(&memory).map(|pending| receiver.take(pending));
                    }
                    match found {
                        None => prop_assert!(sent.is_empty()),
                        Some(got) => {
                            let got = got.expect("the sender keeps to the protocol").expect("no padding twice in a row");
                            let (seed, len) = sent.pop_front().expect("a frame that was not sent");
                            prop_assert_eq!((got.len, got.tag), (len, seed as u8));
                            prop_assert!(memory.check(got.position, seed, len));
                            unreleased.push_back((got, seed));
                        }
                    }
                }
                Step::Release => {
                    if let Some((got, seed)) = unreleased.pop_front() {
                        prop_assert!(memory.check(got.position, seed, got.len), "overwritten while held");
                    }
                    let to = unreleased.front().map_or(receiver.position(), |(got, _)| got.position);
                    receiver.return_credit(&memory, to);
                }
            }
        }
        // Frames that are still held have not been overwritten.
        for (got, seed) in unreleased {
            prop_assert!(memory.check(got.position, seed, got.len));
        }
    }

    #[test]
    fn b9_frames_of_a_hostile_sender_stay_within_the_ring(start in any::<u32>(), words in prop::collection::vec((0..SLOTS, any::<u32>(), any::<bool>()), 1..200)) {
        let memory = Memory::new(start);
        let mut receiver = Receiver::new(SLOTS, LIMIT, start);
        for (slot, meta, valid) in words {
            let position = if valid { receiver.position() } else { slot };
            let word = u64::from(meta) << 32 | u64::from(position << 1 | 1);
            memory.header(position).store(word, Ordering::Relaxed);
            let Some(pending) = receiver.peek(&memory) else { continue };
            let before = receiver.position();
            match receiver.take(pending) {
                Ok(Some(frame)) => {
                    prop_assert!(frame.len <= LIMIT);
                    prop_assert!((before & (SLOTS - 1)) + slots_for(frame.len) <= SLOTS);
                }
                Ok(None) => prop_assert_eq!(receiver.position() & (SLOTS - 1), 0),
                Err(ProtocolViolation) => prop_assert_eq!(receiver.position(), before),
            }
        }
    }

    #[test]
    fn b9_credit_beyond_the_slots_that_were_sent_is_detected(start in any::<u32>(), ahead in 1..1000u32) {
        let memory = Memory::new(start);
        let mut sender = Sender::new(SLOTS, start);
        prop_assert_eq!(sender.refresh(&memory), Ok(false));
        memory.credit.store(start.wrapping_add(ahead), Ordering::Relaxed);
        prop_assert_eq!(sender.refresh(&memory), Err(ProtocolViolation));
    }
}

#[test]
fn p20_reserved_slots_are_left_for_control_frames() {
    let memory = Memory::new(0);
    let mut sender = Sender::new(SLOTS, 0);
    let mut frames = 0;
    while sender.reserve(1, 4).is_some() {
        sender.publish(&memory, 1, meta(8, 1));
        frames += 1;
    }
    assert_eq!(frames, SLOTS - 5, "four reserved, and the slot of the next header word");
    let mut control = 0;
    while sender.reserve(1, 0).is_some() {
        sender.publish(&memory, 1, meta(8, 1));
        control += 1;
    }
    assert_eq!(control, 4);
}

#[test]
fn p34_a_short_frame_is_taken_on_the_fast_path_and_can_be_read_once_more() {
    for (len, short) in [(23, false), (24, true), (56, true), (57, true), (184, true), (185, false)] {
        let memory = Memory::new(0);
        let (mut sender, mut receiver) = (Sender::new(SLOTS, 0), Receiver::new(SLOTS, LIMIT, 0));
        let position = sender.reserve(slots_for(len), 0).unwrap();
        memory.fill(position, 2, len);
        sender.publish(&memory, slots_for(len), meta(len, 7));
        let pending = receiver.peek(&memory).unwrap();
        let take = |receiver: &mut Receiver, tag| {
            let short = receiver.take_short(pending, tag);
            assert!(short.is_none() || len <= 56, "{len} bytes do not fit one slot");
            short.or_else(|| receiver.take_long(pending, tag))
        };
        assert_eq!([6, 8, 0x47].map(|tag| take(&mut receiver, tag)), [None; 3]);
        assert_eq!(take(&mut receiver, 7), short.then(|| len - 24));
        let again = receiver.last_taken(&memory).map(|frame| (frame.position, frame.len, frame.tag));
        assert_eq!(again, short.then_some((0, len, 7)), "{len} bytes");
        if !short {
            assert_eq!(receiver.peek(&memory), Some(pending), "the position did not move");
            continue;
        }
        // A header word that the sender changes meanwhile is checked again.
        memory.header(0).store(u64::from(meta(25, 7)) << 32 | 3, Ordering::Relaxed);
        assert_eq!(receiver.last_taken(&memory), None);
    }
    // A frame that no correct peer writes does not take the fast path: it is too long, or runs over the ring's end.
    for (at, len) in [(0, LIMIT + 1), (0, 0xff_fffe), (0, 0xff_ffff), (SLOTS - 1, 57)] {
        let memory = Memory::new(at);
        memory.header(at).store(u64::from(meta(len, 7)) << 32 | u64::from(at << 1 | 1), Ordering::Relaxed);
        let mut receiver = Receiver::new(SLOTS, LIMIT, at);
        let pending = receiver.peek(&memory).unwrap();
        assert_eq!((receiver.take_short(pending, 7), receiver.take_long(pending, 7)), (None, None), "{len} bytes");
        assert_eq!(receiver.take(pending), Err(ProtocolViolation));
    }
    // Where credit is due, the frame does not take the fast path.
    let memory = Memory::new(0);
    let (mut sender, mut receiver) = (Sender::new(SLOTS, 0), Receiver::new(SLOTS, LIMIT, 0));
    for count in 1..=SLOTS / 4 {
        sender.reserve(1, 0).unwrap();
        sender.publish(&memory, 1, meta(30, 7));
        let pending = receiver.peek(&memory).unwrap();
        assert_eq!(receiver.take_short(pending, 7).is_some(), count < SLOTS / 4);
    }
}
