//! Prefetches of the slots that frames will be written to next.
//!
//! The cache lines of these slots are in the receiver's cache, and each takes as long to fetch as everything else that a short
//! message needs. Stores fetch their lines one after another; prefetches do not wait for each other. Long frames are left out:
//! their copy takes longer than the fetches.

use super::outgoing::Outgoing;
use crate::ring::{PREFIX, SLOT};
use crate::segment::slots::Slots;

/// Slots of the longest frame that is prefetched for: one with a body of 1 KiB.
const MAX_SLOTS: u32 = 17;
/// Slots that are fetched while a message is processed, at most. A processor fetches few lines at a time.
const AT_A_TIME: u32 = 9;
/// How many slots ahead of a frame its prefetch is. In most rings so many more slots are free, since a sender leaves some to
/// control frames.
const AHEAD: u32 = 16;

/// To be called when a frame of `slots` slots arrived. A message is often answered by one of the same length: its slots are fetched
/// while the message is processed. An earlier prefetch of the first slot would be lost, since the peer reads this slot until the
/// answer is there.
#[inline(always)]
pub fn prefetch_for_answer(outgoing: &mut Outgoing, slots: u32) {
    let position = outgoing.sender.expect_answer();
    outgoing.slots.prefetch_for_write(position);
    if slots != 1 && slots <= MAX_SLOTS {
        prefetch(&outgoing.slots, position.wrapping_add(1), slots.min(AT_A_TIME) - 1);
    }
}

/// To be called when a frame of `slots` slots was sent at `position`; its bytes begin at `frame`. If it is not the first one after
/// a frame that arrived, more frames may follow: as many slots are fetched, `AHEAD` slots further on.
#[inline(always)]
pub fn prefetch_ahead(outgoing: &Outgoing, frame: *mut u8, position: u32, slots: u32) {
    if outgoing.sender.is_answer(position) {
        return;
    }
    if slots == 1 {
        // No look for the ring's end saves two instructions. After the end there may be no memory, or other memory: a prefetch
        // harms neither. The first slots of each lap are fetched when they are written.
        Slots::prefetch_line_for_write::<{ AHEAD as usize * SLOT }>(frame.wrapping_sub(PREFIX));
    } else if slots <= MAX_SLOTS {
        prefetch(&outgoing.slots, position.wrapping_add(AHEAD.max(slots)), slots);
    }
}

#[inline(never)]
fn prefetch(memory: &Slots, position: u32, count: u32) {
    for slot in 0..count {
        memory.prefetch_for_write(position.wrapping_add(slot));
    }
}
