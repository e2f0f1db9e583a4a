//! Buffers for what comes, and the frames in them that the reader keeps.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use socket2::SockAddrStorage;
use towline_core::rail::FrameId;

use crate::config::Config;
use crate::system::socket::{self as sys, Calls, Done};

/// Bytes of a buffer: what the kernel joins to one message at most.
pub(crate) const SLOT: usize = 64 * 1024;
/// Messages of one call at most.
const MESSAGES: usize = 8;

#[derive(Debug)]
pub(crate) struct Inbox {
    memory: Box<[u8]>,
    slots: Box<[Slot]>,
    names: Box<[SockAddrStorage]>,
    /// Free ones; the last that was given back is the next that is used.
    free: Vec<u16>,
    /// Those with datagrams that were not looked at.
    arrived: VecDeque<u16>,
    held: Box<[Held]>,
    free_held: Vec<u16>,
    calls: Calls,
    /// Messages to ask for: more, the more came last time.
    appetite: usize,
}

#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    len: u32,
    /// Each datagram is so long, but for the last.
    cut: u32,
    at: u32,
    name_len: u32,
    /// Frames in it that are held.
    pins: u16,
    arrived: bool,
}

/// A frame that the reader keeps.
#[derive(Clone, Copy, Default, Debug)]
struct Held {
    taken: bool,
    /// Tells it from others that had the same place.
    generation: u32,
    endpoint: u32,
    slot: u16,
    at: u32,
    len: u32,
}

/// A datagram that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    slot: u16,
    at: u32,
    len: u32,
}

/// What came of asking the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// Something, perhaps cut short: messages of which nothing could be kept.
    Some {
        /// Messages that were longer than a buffer.
        short: usize,
    },
    /// Nothing now.
    Nothing,
    /// All buffers are in use.
    NoRoom,
    /// The call failed.
    Failed(i32),
}

impl Inbox {
    pub(crate) fn new(config: &Config) -> Self {
        let slots = config.slots() as usize;
        let kept = config.frames_kept as usize;
        Self {
            memory: vec![0; slots * SLOT].into(),
            slots: vec![Slot::default(); slots].into(),
            names: (0..slots).map(|_| SockAddrStorage::zeroed()).collect(),
            free: (0..slots as u16).rev().collect(),
            arrived: VecDeque::with_capacity(slots),
            held: vec![Held::default(); kept].into(),
            free_held: (0..kept as u16).rev().collect(),
            calls: Calls::new(MESSAGES),
            appetite: 1,
        }
    }

    /// Whether the reader may keep another frame.
    #[inline]
    pub(crate) fn can_hold(&self) -> bool {
        !self.free_held.is_empty()
    }

    /// The datagram to be looked at next.
    #[inline]
    pub(crate) fn front(&self) -> Option<Arrived> {
        let slot = *self.arrived.front()?;
        let Slot { len, cut, at, .. } = *self.slots.get(usize::from(slot))?;
        Some(Arrived { slot, at, len: cut.min(len - at) })
    }

    #[inline]
    pub(crate) fn bytes(&self, it: Arrived) -> &[u8] {
        let from = usize::from(it.slot) * SLOT + it.at as usize;
        self.memory.get(from..from + it.len as usize).unwrap_or_default()
    }

    /// Where it came from.
    pub(crate) fn sender(&self, it: Arrived) -> Option<SocketAddr> {
        let slot = usize::from(it.slot);
        sys::named(self.names.get(slot)?, self.slots.get(slot)?.name_len)
    }

    /// The front one was looked at.
    #[inline]
    pub(crate) fn pass(&mut self) {
        let Some(front) = self.arrived.front().copied() else { return };
        let Some(slot) = self.slots.get_mut(usize::from(front)) else { return };
        slot.at += slot.cut.min(slot.len - slot.at);
        if slot.at >= slot.len {
            slot.arrived = false;
            self.arrived.pop_front();
            self.free_if_unused(front);
        }
    }

    #[inline]
    fn free_if_unused(&mut self, index: u16) {
        if let Some(slot) = self.slots.get(usize::from(index))
            && slot.pins == 0
            && !slot.arrived
        {
            self.free.push(index);
        }
    }

    /// Puts what was opened into the place of what came.
    #[inline]
    pub(crate) fn put(&mut self, it: Arrived, skip: usize, bytes: &[u8]) {
        let from = usize::from(it.slot) * SLOT + it.at as usize + skip;
        if let Some(place) = self.memory.get_mut(from..from + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Keeps `len` bytes of a datagram for the reader, behind the first `skip`.
    #[inline]
    pub(crate) fn hold(&mut self, it: Arrived, skip: usize, len: usize, endpoint: u32) -> Option<FrameId> {
        let index = self.free_held.pop()?;
        let held = self.held.get_mut(usize::from(index))?;
        let generation = held.generation.wrapping_add(1);
        let (at, len) = (it.at + skip as u32, it.len.saturating_sub(skip as u32).min(len as u32));
        *held = Held { taken: true, generation, endpoint, slot: it.slot, at, len };
        if let Some(slot) = self.slots.get_mut(usize::from(it.slot)) {
            slot.pins += 1;
        }
        Some(FrameId(u64::from(generation) << 32 | u64::from(index)))
    }

    fn find(&self, frame: FrameId) -> Option<(u16, &Held)> {
        let index = u16::try_from(frame.0 & 0xffff_ffff).ok()?;
        let held = self.held.get(usize::from(index))?;
        (held.taken && u64::from(held.generation) == frame.0 >> 32).then_some((index, held))
    }

    /// The bytes of a frame that is kept.
    #[inline]
    pub(crate) fn frame(&self, frame: FrameId) -> Option<&[u8]> {
        let (_, held) = self.find(frame)?;
        Some(self.bytes(Arrived { slot: held.slot, at: held.at, len: held.len }))
    }

    /// The reader keeps it no more.
    #[inline]
    pub(crate) fn release(&mut self, frame: FrameId) {
        if let Some((index, _)) = self.find(frame) {
            self.let_go(index);
        }
    }

    fn let_go(&mut self, index: u16) {
        let Some(held) = self.held.get_mut(usize::from(index)).filter(|held| held.taken) else { return };
        held.taken = false;
        let slot = held.slot;
        self.free_held.push(index);
        if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
            slot.pins -= 1;
        }
        self.free_if_unused(slot);
    }

    /// Nothing of this endpoint is kept any more.
    pub(crate) fn forget(&mut self, endpoint: u32) {
        for index in 0..self.held.len() {
            if self.held[index].taken && self.held[index].endpoint == endpoint {
                self.let_go(index as u16);
            }
        }
    }

    /// Asks the kernel for more.
    #[inline]
    pub(crate) fn receive(&mut self, socket: RawFd) -> Received {
        let wanted = self.appetite.min(self.free.len());
        if wanted == 0 {
            return Received::NoRoom;
        }
        self.calls.clear();
        for index in self.free.iter().rev().take(wanted).map(|index| usize::from(*index)) {
            let room = self.memory.get_mut(index * SLOT..(index + 1) * SLOT);
            let (Some(room), Some(name)) = (room, self.names.get_mut(index)) else { return Received::NoRoom };
            // SAFETY: the room and the name are ours, and not touched before the call.
            unsafe { self.calls.add_receive(name, room.as_mut_ptr(), room.len()) };
        }
        let count = match self.calls.receive(socket) {
            Done::Messages(count) => count,
            Done::Nothing => {
                self.appetite = 1;
                return Received::Nothing;
            }
            Done::Failed(number) => return Received::Failed(number),
        };
        self.appetite = if count == wanted { (2 * count).min(MESSAGES) } else { count.max(1) };
        let mut short = 0;
        // Those that got something are the last free ones; those that got nothing are put back.
        for at in 0..count {
            let Some(index) = self.free.pop() else { break };
            match self.calls.received(at) {
                Some((len, cut)) if len > 0 => {
                    let name_len = self.calls.name_len(at);
                    let slot = Slot { len: len as u32, cut: cut as u32, at: 0, name_len, pins: 0, arrived: true };
                    self.slots[usize::from(index)] = slot;
                    self.arrived.push_back(index);
                }
                _ => {
                    short += 1;
                    // Not at the end, where the next message's buffer is.
                    self.free.insert(0, index);
                }
            }
        }
        Received::Some { short }
    }
}
