//! A ring in shared memory. A hostile process on its other side writes header words and credit.

use std::sync::atomic::Ordering;

use arbitrary::{Arbitrary, Result, Unstructured};
use towline_sm::atomics::{AtomicU32, AtomicU64};
use towline_sm::ring::{PREFIX, ProtocolViolation, Receiver, RingMemory, SLOT, Sender, meta, slots_for};

const SLOTS: u32 = 16;
/// 5 slots.
const LIMIT: u32 = 5 * SLOT as u32 - PREFIX as u32;

struct Memory {
    headers: [AtomicU64; SLOTS as usize],
    credit: AtomicU32,
}

impl RingMemory for Memory {
    fn header(&self, position: u32) -> &AtomicU64 {
        &self.headers[(position % SLOTS) as usize]
    }

    fn credit(&self) -> &AtomicU32 {
        &self.credit
    }
}

/// Runs one input. The slots that a sender and a receiver use must lie within the ring, or the receiver reports a protocol
/// violation.
pub fn run(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let Ok(start) = u32::arbitrary(&mut data) else { return };
    let memory = Memory { headers: Default::default(), credit: AtomicU32::new(start) };
    let (mut sender, mut receiver) = (Sender::new(SLOTS, start), Receiver::new(SLOTS, LIMIT, start));
    while !data.is_empty() {
        if step(&memory, &mut sender, &mut receiver, &mut data).is_err() {
            break;
        }
    }
}

fn step(memory: &Memory, sender: &mut Sender, receiver: &mut Receiver, data: &mut Unstructured<'_>) -> Result<()> {
    match u8::arbitrary(data)? % 5 {
        // The other side writes a header word: the one that the receiver expects, or an arbitrary one.
        0 => {
            let position = receiver.position();
            let word = u64::from(u32::arbitrary(data)?) << 32 | u64::from(position << 1 | 1);
            memory.header(position).store(word, Ordering::Relaxed);
        }
        1 => memory.header(u8::arbitrary(data)?.into()).store(u64::arbitrary(data)?, Ordering::Relaxed),
        2 => {
            // Credit close to the valid range reaches most of the code.
            let credit = sender.position().wrapping_add_signed(i8::arbitrary(data)?.into());
            memory.credit.store(credit, Ordering::Relaxed);
        }
        3 => receive(memory, receiver),
        _ => send(memory, sender, u16::arbitrary(data)? as u32 % (LIMIT + 1), u32::from(u8::arbitrary(data)? % 4)),
    }
    Ok(())
}

fn receive(memory: &Memory, receiver: &mut Receiver) {
    let Some(word) = receiver.peek(memory) else { return };
    let before = receiver.position();
    let after = match receiver.take(word) {
        Ok(Some(frame)) => {
            assert!(frame.position == before && frame.len <= LIMIT, "{frame:?}");
            assert!(before % SLOTS + slots_for(frame.len) <= SLOTS, "a frame beyond the ring's end: {frame:?}");
            before.wrapping_add(slots_for(frame.len))
        }
        Ok(None) => {
            assert!(!before.is_multiple_of(SLOTS), "padding as long as the ring");
            before.wrapping_add(SLOTS - before % SLOTS)
        }
        Err(ProtocolViolation) => before,
    };
    assert_eq!(receiver.position(), after);
    let credit = memory.credit.load(Ordering::Relaxed);
    let returned = receiver.return_credit(memory, after);
    assert_eq!(memory.credit.load(Ordering::Relaxed), if returned { after } else { credit });
}

fn send(memory: &Memory, sender: &mut Sender, len: u32, kept: u32) {
    let slots = slots_for(len);
    if sender.refresh(memory).is_ok() {
        sender.pad(memory, slots, kept);
    }
    if let Some(position) = sender.reserve(slots, kept) {
        assert!(position % SLOTS + slots <= SLOTS, "a frame beyond the ring's end");
        sender.publish(memory, slots, meta(len, 9));
        assert_eq!(sender.position(), position.wrapping_add(slots));
    }
}
