//! How frames lie in a ring: sizes, the header word, and access to the ring's memory.

use crate::atomics::{AtomicU32, AtomicU64};

/// Bytes of a slot: a cache line.
pub const SLOT: usize = 64;
/// Bytes of a frame's first slot that hold the header word: sequence number, length, tag.
pub const PREFIX: usize = 8;
/// Position of the first frame of each ring: a multiple of every ring size, and soon followed by the wrap.
pub const START: u32 = 0u32.wrapping_sub(MAX_SLOTS);
/// Slots of the largest ring.
pub const MAX_SLOTS: u32 = 1 << 20;
/// Bytes of the longest frame that the header word has room for; the next length stands for padding up to the ring's end.
pub const MAX_LEN: u32 = PAD - 1;
/// Length that marks padding; also the mask of the length within [`meta`].
pub(super) const PAD: u32 = 0xFF_FFFF;
/// Bytes of the shortest frame that counts as short: the engine's header alone. A short frame fits one slot.
pub const MIN_SHORT: u32 = 24;

/// Memory of a ring that both sides reach. `header` takes any position and finds its slot by the ring's size.
pub trait RingMemory {
    /// The first word of the slot at `position`, which holds the header word of a frame that begins there.
    fn header(&self, position: u32) -> &AtomicU64;
    /// The receiver's position up to which it has returned slots to the sender.
    fn credit(&self) -> &AtomicU32;
}

/// Slots that a frame of `len` bytes takes.
#[inline]
pub const fn slots_for(len: u32) -> u32 {
    len.wrapping_add((PREFIX + SLOT - 1) as u32) / SLOT as u32
}

/// Sequence number of a frame that begins at `position`: never 0, and unlike that of the laps before.
#[inline]
pub(super) const fn sequence(position: u32) -> u32 {
    position << 1 | 1
}

/// Length and tag of a frame in one word.
#[inline]
pub const fn meta(len: u32, tag: u8) -> u32 {
    (tag as u32) << 24 | len
}

/// How many bytes a short frame with `tag` has beyond [`MIN_SHORT`]; `None` for other frames. Tag and length are one number,
/// so one comparison decides.
#[inline(always)]
pub(super) fn beyond_short(meta: u32, tag: u8) -> Option<u32> {
    let more = meta.wrapping_sub(self::meta(MIN_SHORT, tag));
    (more <= (SLOT - PREFIX) as u32 - MIN_SHORT).then_some(more)
}

/// The other side wrote a value that no correct peer writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProtocolViolation;
