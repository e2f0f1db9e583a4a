//! Frames that arrive and are not in an event: slots, into whose memory long frames are delivered before their consumers get them, a
//! queue of frames that wait for a slot, and memory for a frame that the rail copies at once.

use zerocopy::FromZeros;

use crate::arena::{Arena, OutOfMemory};
use crate::convertor::Span;
use crate::pool::{Handle, Pool};
use crate::rail::{Frame, FrameId, HEAD, Peer};

/// A frame without its bytes.
#[derive(Clone, Copy, FromZeros, Debug)]
pub(super) struct Incoming {
    pub id: u64,
    pub from: u32,
    pub len: u32,
    pub tag: u8,
}

impl Incoming {
    pub(super) const fn of(frame: &Frame) -> Self {
        Self { id: frame.id.0, from: frame.from.0, len: frame.len, tag: frame.tag }
    }

    pub(super) const fn id(&self) -> FrameId {
        FrameId(self.id)
    }
}

#[derive(Debug)]
pub(super) struct Receives<'m> {
    /// The frames that are being delivered, each into the memory of its slot.
    slots: Pool<'m, Incoming>,
    memory: *mut u8,
    bytes: usize,
    /// `bytes`, rounded up so that the memory of each slot is aligned.
    stride: usize,
    /// Frames that the rail holds until a slot is free: a ring buffer.
    waiting: &'m mut [Incoming],
    first: usize,
    count: usize,
}

impl<'m> Receives<'m> {
    pub(super) fn new(arena: &mut Arena<'m>, count: u32, bytes: u32, kept: u32) -> Result<Self, OutOfMemory> {
        let (count, words) = (count.max(1), Self::words(bytes));
        Ok(Self {
            slots: Pool::new(arena, count)?,
            memory: arena.table::<u64>(Self::all_words(count, words))?.as_mut_ptr().cast(),
            bytes: bytes as usize,
            stride: words.saturating_mul(8),
            waiting: arena.table(kept.max(1) as usize)?,
            first: 0,
            count: 0,
        })
    }

    pub(super) const fn cost(count: u32, bytes: u32, kept: u32) -> usize {
        let (count, kept) = (if count == 0 { 1 } else { count }, if kept == 0 { 1 } else { kept });
        Pool::<Incoming>::cost(count)
            .saturating_add(Arena::cost::<u64>(Self::all_words(count, Self::words(bytes))))
            .saturating_add(Arena::cost::<Incoming>(kept as usize))
    }

    /// The words of the slots, and of the spare memory behind them.
    const fn all_words(count: u32, words: usize) -> usize {
        words.saturating_mul(count as usize).saturating_add(words)
    }

    const fn words(bytes: u32) -> usize {
        (if (bytes as usize) < HEAD { HEAD } else { bytes as usize }).div_ceil(8)
    }

    /// Bytes of the longest frame that fits into a slot.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn take(&mut self, frame: Incoming) -> Option<(Handle, Span)> {
        let handle = self.slots.take(frame).ok()?;
        Some((handle, self.memory(handle, frame.len)))
    }

    pub(super) fn get(&self, handle: Handle) -> Option<(Incoming, Span)> {
        let frame = self.slots.get(handle)?;
        Some((*frame, self.memory(handle, frame.len)))
    }

    pub(super) fn free(&mut self, handle: Handle) {
        self.slots.free(handle);
    }

    fn memory(&self, handle: Handle, len: u32) -> Span {
        let base = self.memory.wrapping_add((handle.slot() as usize).saturating_mul(self.stride));
        Span::contiguous(base, (len as usize).min(self.bytes))
    }

    /// Memory for a frame that the rail copies at once, and its length. It lies behind that of the slots, was zeroed at first, and lives
    /// for `'m`. Nothing else uses it.
    pub(super) const fn spare(&self) -> (*mut u8, usize) {
        (self.memory.wrapping_add((self.slots.capacity() as usize).saturating_mul(self.stride)), self.bytes)
    }

    /// Puts a frame in the queue. Returns `false` if the queue is full: the rail holds more frames than its attributes say.
    pub(super) fn push_waiting(&mut self, frame: Incoming) -> bool {
        let place = self.place(self.count);
        match self.waiting.get_mut(place) {
            Some(entry) if self.count < usize::MAX => {
                *entry = frame;
                self.count += 1;
                true
            }
            _ => false,
        }
    }

    /// Takes the next frame out of the queue, if a slot is free for it.
    pub(super) fn next_waiting(&mut self) -> Option<Incoming> {
        if self.count == 0 || self.slots.used() == self.slots.capacity() {
            return None;
        }
        let frame = *self.waiting.get(self.first)?;
        self.first = if self.first + 1 < self.waiting.len() { self.first + 1 } else { 0 };
        self.count -= 1;
        Some(frame)
    }

    /// Whether frames wait for a slot.
    pub(super) const fn has_waiting(&self) -> bool {
        self.count != 0
    }

    /// Whether a frame of a peer is being delivered, or waits for a slot.
    pub(super) fn has_frame_of(&self, peer: Peer) -> bool {
        let waiting = (0..self.count).filter_map(|behind| self.waiting.get(self.place(behind)));
        let slots = (0..self.slots.capacity()).filter_map(|slot| self.slots.get(self.slots.handle(slot)?));
        slots.chain(waiting).any(|frame| frame.from == peer.0)
    }

    /// The index of the entry `behind` places after the first. Out of range if the ring is shorter than that.
    fn place(&self, behind: usize) -> usize {
        if behind >= self.waiting.len() {
            return usize::MAX;
        }
        let place = self.first.saturating_add(behind);
        if place < self.waiting.len() { place } else { place.saturating_sub(self.waiting.len()) }
    }

    /// Forgets all frames of a peer. Calls `release` for those that the rail holds.
    pub(super) fn forget(&mut self, peer: Peer, mut release: impl FnMut(FrameId)) {
        for slot in 0..self.slots.capacity() {
            if let Some(handle) = self.slots.handle(slot)
                && self.slots.get(handle).is_some_and(|frame| frame.from == peer.0)
            {
                self.slots.free(handle);
            }
        }
        let mut kept = 0;
        for behind in 0..self.count {
            let Some(frame) = self.waiting.get(self.place(behind)).copied() else { break };
            if frame.from == peer.0 {
                release(frame.id());
            } else if let Some(entry) = self.waiting.get_mut(self.place(kept)) {
                *entry = frame;
                kept += 1;
            }
        }
        self.count = kept;
    }
}
