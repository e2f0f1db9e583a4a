//! A ring of 64-byte slots between one sender and one receiver: index arithmetic, marks and credit.
//!
//! A frame takes one or more consecutive slots. The first begins with a word of 64 bits, its *mark* (32 bits that follow
//! from the position) beside its length and tag; the frame's bytes come right behind it and run on through the
//! following slots. So the mark that the receiver polls and the first 56 bytes share one cache line, and one load takes
//! mark, length and tag together.
//!
//! # Why a stale byte is never taken for a mark
//! The receiver looks at one place only: the word of the slot where the next frame will begin. What stands there is
//! - zero, in the first lap; or
//! - the mark of a frame that began in this slot one lap ago, which differs, since marks follow from positions; or
//! - payload, where a longer frame or padding covered the slot in the lap before, or where a grant was written and
//!   dropped. Only then could it look like the mark. The sender knows when it wrote such frames, and for one lap after
//!   each of them clears the next frame's word *before* it publishes a frame. Publishing is a release store and the
//!   receiver's load of it an acquire, so whoever has seen the frame also sees the next word cleared or newer.
//!
//! For this the next frame's slot must be free, so a ring is never filled to the last slot.
//!
//! # Credit
//! The receiver tells its position once per quarter of the ring; no line is shared beyond that and the slots themselves.
//! A sender reads that word only when the credit it knows of does not suffice.
//!
//! # Who may lie
//! The other side can write any byte of the ring at any time. Each side keeps its own position in private memory and
//! takes from the ring: the receiver a length, which it checks against the ring's end and the longest frame; the sender a
//! credit, which it checks against its own position.
//!
//! Positions count slots, wrap at 2^32, and start near the wrap ([`START`]) so that each run crosses it.

use crate::atomics::{AtomicU32, AtomicU64, Ordering};

/// Bytes of a slot: a cache line.
pub const SLOT: usize = 64;
/// Bytes of a frame's first slot that are not the frame's own: mark, length, tag.
pub const PREFIX: usize = 8;
/// Position of the first frame of each ring: a multiple of every ring size, and soon followed by the wrap.
pub const START: u32 = 0u32.wrapping_sub(MAX_SLOTS);
/// Slots of the largest ring.
pub const MAX_SLOTS: u32 = 1 << 20;
/// The longest frame that the word has room for; the next length stands for padding up to the ring's end.
pub const MAX_LEN: u32 = PAD - 1;
const PAD: u32 = 0xFF_FFFF;
/// Bytes of a short frame at least: a header of the engine's. It has no more than one slot has.
pub const SHORT: u32 = 24;

/// Memory of a ring that both sides reach. `mark` takes any position and finds its slot by the ring's size.
pub trait Shared {
    /// The first word of the slot at `position`.
    fn mark(&self, position: u32) -> &AtomicU64;
    /// The receiver's position as last told to the sender.
    fn credit(&self) -> &AtomicU32;
}

/// Slots that a frame of `len` bytes takes.
#[inline]
pub const fn slots_for(len: u32) -> u32 {
    len.wrapping_add((PREFIX + SLOT - 1) as u32) / SLOT as u32
}

/// What marks a frame that begins at `position`: never 0, and unlike that of the laps before.
#[inline]
const fn mark(position: u32) -> u32 {
    position << 1 | 1
}

/// The other side wrote what no correct peer writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forged;

/// The sending side's private state.
#[derive(Debug)]
pub struct Sender {
    position: u32,
    /// The receiver's position as far as known.
    credit: u32,
    /// Slots of the ring, a power of two; 0 before there is a ring.
    slots: u32,
    /// How many slots further the next frame's word may still hold payload.
    dirty: u32,
}

impl Sender {
    /// A sender without a ring: every reservation fails.
    pub const NONE: Self = Self { position: 0, credit: 0, slots: 0, dirty: 0 };

    /// The sender of a new ring whose memory is zero. `slots` is a power of two, at most [`MAX_SLOTS`].
    pub const fn new(slots: u32, start: u32) -> Self {
        Self { position: start, credit: start, slots, dirty: 0 }
    }

    /// Where the next frame begins.
    #[inline]
    pub const fn position(&self) -> u32 {
        self.position
    }

    /// Whether there is a ring at all.
    #[inline]
    pub const fn exists(&self) -> bool {
        self.slots != 0
    }

    /// Room for a frame of `slots` slots, with `kept` slots to spare, from credit that is known already: its position.
    /// The answer is void once another reservation or `pad` is made. `slots` and `kept` are at most [`MAX_SLOTS`].
    #[inline(always)]
    pub fn reserve(&mut self, slots: u32, kept: u32) -> Option<u32> {
        let used = self.position.wrapping_sub(self.credit);
        let index = self.position & self.slots.wrapping_sub(1);
        if used + slots + kept >= self.slots || index + slots > self.slots {
            return None;
        }
        if slots > 1 {
            self.dirty = self.dirty.max(self.slots + slots);
        }
        Some(self.position)
    }

    /// Takes in the receiver's credit; tells whether there was news.
    pub fn refresh(&mut self, shared: &impl Shared) -> Result<bool, Forged> {
        // Acquire: the receiver's reads of the slots that it gives back come before our writes to them.
        let credit = shared.credit().load(Ordering::Acquire);
        if self.position.wrapping_sub(credit) > self.slots {
            return Err(Forged);
        }
        let news = credit != self.credit;
        self.credit = credit;
        Ok(news)
    }

    /// Fills the rest of the lap with padding where a frame of `slots` slots would run over the ring's end, provided
    /// there is room for both and `kept` more.
    pub fn pad(&mut self, shared: &impl Shared, slots: u32, kept: u32) {
        let used = self.position.wrapping_sub(self.credit);
        let rest = self.slots - (self.position & self.slots.wrapping_sub(1));
        if slots > rest && used + rest + slots + kept < self.slots {
            self.dirty = self.dirty.max(self.slots + rest);
            self.publish(shared, rest, PAD);
        }
    }

    /// Makes the frame visible that was reserved last and has been written since. `slots` as reserved; `meta` from [`meta`].
    #[inline(always)]
    pub fn publish(&mut self, shared: &impl Shared, slots: u32, meta: u32) {
        self.publish_at(shared, self.position, shared.mark(self.position), slots, meta);
    }

    /// The same, for who has kept the sender's position and the first word of the slot there, so that neither need be
    /// looked up again behind the frame's stores.
    #[inline(always)]
    pub fn publish_at(&mut self, shared: &impl Shared, position: u32, first: &AtomicU64, slots: u32, meta: u32) {
        let next = position.wrapping_add(slots);
        if self.dirty != 0 {
            self.dirty = self.dirty.saturating_sub(slots);
            shared.mark(next).store(0, Ordering::Relaxed);
        }
        let word = u64::from(meta) << 32 | u64::from(mark(position));
        // Release: the frame's bytes and the cleared next word come first.
        first.store(word, Ordering::Release);
        self.position = next;
    }
}

/// Length and tag of a frame in one word.
#[inline]
pub const fn meta(len: u32, tag: u8) -> u32 {
    (tag as u32) << 24 | len
}

/// How many bytes a short frame with `tag` has beyond [`SHORT`]; `None` for other frames. Tag and length are one number,
/// so one comparison tells.
#[inline(always)]
fn beyond_short(meta: u32, tag: u8) -> Option<u32> {
    let more = meta.wrapping_sub(self::meta(SHORT, tag));
    (more <= (SLOT - PREFIX) as u32 - SHORT).then_some(more)
}

/// What was found at the receiver's position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The position.
    position: u32,
    /// Length and tag as the sender wrote them.
    meta: u32,
}

impl Waiting {
    /// What stands at a receiver's position, if it is a frame; `word` is the first of the slot there.
    #[inline(always)]
    pub fn look(position: u32, word: &AtomicU64) -> Option<Self> {
        let word = word.load(Ordering::Acquire);
        (word as u32 == mark(position)).then_some(Self { position, meta: (word >> 32) as u32 })
    }
}

/// A frame that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Where it begins.
    pub position: u32,
    /// Its bytes, checked against the longest frame and the ring's end.
    pub len: u32,
    /// Its tag.
    pub tag: u8,
}

/// The receiving side's private state.
#[derive(Debug)]
pub struct Receiver {
    position: u32,
    /// Our position as the sender was last told.
    told: u32,
    slots: u32,
    /// A quarter of them.
    quarter: u32,
    /// The longest frame.
    limit: u32,
}

impl Receiver {
    /// A receiver without a ring.
    pub const NONE: Self = Self { position: 0, told: 0, slots: 0, quarter: 0, limit: 0 };

    /// The receiver of a ring of `slots` slots whose frames have up to `limit` bytes.
    pub const fn new(slots: u32, limit: u32, start: u32) -> Self {
        Self { position: start, told: start, slots, quarter: slots / 4, limit }
    }

    /// Where the next frame begins.
    #[inline]
    pub const fn position(&self) -> u32 {
        self.position
    }

    /// Whether there is a ring at all.
    #[inline]
    pub const fn exists(&self) -> bool {
        self.slots != 0
    }

    /// The frame that waits, unchecked; `None` if there is none.
    #[inline]
    pub fn peek(&self, shared: &impl Shared) -> Option<Waiting> {
        Waiting::look(self.position, shared.mark(self.position))
    }

    /// Takes the frame that `peek` found just now and moves on behind it; `Ok(None)` for padding. The frame's slots stay
    /// ours until [`give_back`](Self::give_back).
    ///
    /// # Errors
    /// [`Forged`] where it cannot be a frame of this ring; nothing moves then.
    #[inline]
    pub fn take(&mut self, waiting: Waiting) -> Result<Option<Arrived>, Forged> {
        let Waiting { position, meta } = waiting;
        let (len, tag) = (meta & PAD, (meta >> 24) as u8);
        // What fits one slot needs no check: there is one, and no ring takes less.
        if len as usize <= SLOT - PREFIX {
            self.position = position.wrapping_add(1);
            return Ok(Some(Arrived { position, len, tag }));
        }
        let slots = self.measure(meta)?;
        self.position = position.wrapping_add(slots);
        if len == PAD {
            return Ok(None);
        }
        Ok(Some(Arrived { position, len, tag }))
    }

    /// As `take`, for a frame with `tag` in one slot, of [`SHORT`] bytes at least, after which the sender need not be told:
    /// how many bytes it has beyond those. `None` for any other, and nothing moves.
    #[inline(always)]
    pub fn take_short(&mut self, waiting: Waiting, tag: u8) -> Option<u32> {
        let Waiting { position, meta } = waiting;
        let (more, next) = (beyond_short(meta, tag)?, position.wrapping_add(1));
        if self.has_to_tell(next) {
            return None;
        }
        self.position = next;
        Some(more)
    }

    /// The frame that [`take_short`](Self::take_short) has just taken, read once more: its slot has not been given back.
    /// `None` where it was, or where its sender has made it another meanwhile.
    pub fn last_short(&self, shared: &impl Shared) -> Option<Arrived> {
        let position = self.position.wrapping_sub(1);
        let Waiting { meta, .. } = Waiting::look(position, shared.mark(position))?;
        let (len, tag) = (meta & PAD, (meta >> 24) as u8);
        beyond_short(meta, tag)?;
        (self.told != self.position).then_some(Arrived { position, len, tag })
    }

    /// Slots of a frame that is longer than one, or of padding.
    #[inline]
    fn measure(&self, meta: u32) -> Result<u32, Forged> {
        let len = meta & PAD;
        let rest = self.slots.wrapping_sub(self.position & self.slots.wrapping_sub(1));
        if len <= self.limit {
            let slots = slots_for(len);
            return if slots <= rest { Ok(slots) } else { Err(Forged) };
        }
        // Padding of a whole lap is of no use to anybody, and would let a peer keep us turning.
        if meta == PAD && rest != self.slots { Ok(rest) } else { Err(Forged) }
    }

    /// Whether the slots before `position` make up a quarter of the ring with what the sender has not been told of.
    #[inline(always)]
    pub fn has_to_tell(&self, position: u32) -> bool {
        position.wrapping_sub(self.told) >= self.quarter
    }

    /// Gives the slots before `position` back to the sender, once they make up a quarter of the ring; tells whether that
    /// was now.
    #[inline(always)]
    pub fn give_back(&mut self, shared: &impl Shared, position: u32) -> bool {
        if !self.has_to_tell(position) {
            return false;
        }
        self.told = position;
        // Release: our reads of those slots come first.
        shared.credit().store(position, Ordering::Release);
        true
    }
}
