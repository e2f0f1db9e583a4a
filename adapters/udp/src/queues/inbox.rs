//! Receive buffers, and the frames in them that the reader holds.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use socket2::SockAddrStorage;
use towline_core::rail::FrameId;

use crate::config::Config;
use crate::system::batch::{Batch, BatchResult};
use crate::system::socket::address_of;

/// Bytes of a buffer: the longest message that the kernel coalesces.
pub(crate) const BUFFER_BYTES: usize = 64 * 1024;
/// Maximum number of messages of one system call.
const MESSAGES: usize = 8;

/// The receive buffers of a rail.
#[derive(Debug)]
pub(crate) struct Inbox {
    memory: Box<[u8]>,
    buffers: Box<[Buffer]>,
    names: Box<[SockAddrStorage]>,
    /// Free buffers. The one that was freed last is used next.
    free: Vec<u16>,
    /// Buffers with datagrams that were not handled yet, in order.
    arrived: VecDeque<u16>,
    held: Box<[HeldFrame]>,
    /// Free entries of `held`.
    free_held: Vec<u16>,
    batch: Batch,
    /// Messages to ask for: more, the more arrived last time.
    next_batch: usize,
}

#[derive(Clone, Copy, Default, Debug)]
struct Buffer {
    len: u32,
    /// Length of each datagram but the last.
    segment: u32,
    /// Where the next datagram is.
    at: u32,
    name_len: u32,
    /// Frames in it that the reader holds.
    pins: u16,
    /// It is in `Inbox::arrived`.
    arrived: bool,
}

/// A frame that the reader holds.
#[derive(Clone, Copy, Default, Debug)]
struct HeldFrame {
    taken: bool,
    /// Tells the frame from others that had the same entry.
    generation: u32,
    endpoint: u32,
    buffer: u16,
    at: u32,
    len: u32,
}

/// A datagram that arrived and was not handled yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    buffer: u16,
    at: u32,
    len: u32,
}

/// The result of a receive call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// Messages arrived.
    Some {
        /// Number of messages that were dropped because they were empty or longer than a buffer.
        truncated: usize,
    },
    /// No message has arrived.
    WouldBlock,
    /// All buffers are in use.
    NoBuffer,
    /// The call failed.
    Failed(i32),
}

impl Inbox {
    pub(crate) fn new(config: &Config) -> Self {
        let buffers = config.receive_buffers() as usize;
        let frames = config.frames_kept as usize;
        Self {
            memory: vec![0; buffers * BUFFER_BYTES].into(),
            buffers: vec![Buffer::default(); buffers].into(),
            names: (0..buffers).map(|_| SockAddrStorage::zeroed()).collect(),
            free: (0..buffers as u16).rev().collect(),
            arrived: VecDeque::with_capacity(buffers),
            held: vec![HeldFrame::default(); frames].into(),
            free_held: (0..frames as u16).rev().collect(),
            batch: Batch::new(MESSAGES),
            next_batch: 1,
        }
    }

    /// Whether the reader may hold another frame.
    #[inline]
    pub(crate) fn can_hold(&self) -> bool {
        !self.free_held.is_empty()
    }

    /// The next datagram to be handled.
    #[inline]
    pub(crate) fn front(&self) -> Option<Arrived> {
        let buffer = *self.arrived.front()?;
        let Buffer { len, segment, at, .. } = *self.buffers.get(usize::from(buffer))?;
        Some(Arrived { buffer, at, len: segment.min(len - at) })
    }

    /// The bytes of a datagram.
    #[inline]
    pub(crate) fn bytes(&self, it: Arrived) -> &[u8] {
        let from = usize::from(it.buffer) * BUFFER_BYTES + it.at as usize;
        self.memory.get(from..from + it.len as usize).unwrap_or_default()
    }

    /// The sender of a datagram.
    pub(crate) fn sender(&self, it: Arrived) -> Option<SocketAddr> {
        let buffer = usize::from(it.buffer);
        address_of(self.names.get(buffer)?, self.buffers.get(buffer)?.name_len)
    }

    /// The front datagram was handled.
    #[inline]
    pub(crate) fn pop(&mut self) {
        let Some(front) = self.arrived.front().copied() else { return };
        let Some(buffer) = self.buffers.get_mut(usize::from(front)) else { return };
        buffer.at += buffer.segment.min(buffer.len - buffer.at);
        if buffer.at >= buffer.len {
            buffer.arrived = false;
            self.arrived.pop_front();
            self.free_if_unused(front);
        }
    }

    #[inline]
    fn free_if_unused(&mut self, index: u16) {
        if let Some(buffer) = self.buffers.get(usize::from(index))
            && buffer.pins == 0
            && !buffer.arrived
        {
            self.free.push(index);
        }
    }

    /// Writes the opened bytes over the sealed ones.
    #[inline]
    pub(crate) fn overwrite(&mut self, it: Arrived, skip: usize, bytes: &[u8]) {
        let from = usize::from(it.buffer) * BUFFER_BYTES + it.at as usize + skip;
        if let Some(place) = self.memory.get_mut(from..from + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Holds `len` bytes of a datagram for the reader, behind the first `skip`.
    #[inline]
    pub(crate) fn hold(&mut self, it: Arrived, skip: usize, len: usize, endpoint: u32) -> Option<FrameId> {
        let index = self.free_held.pop()?;
        let held = self.held.get_mut(usize::from(index))?;
        let generation = held.generation.wrapping_add(1);
        let (at, len) = (it.at + skip as u32, it.len.saturating_sub(skip as u32).min(len as u32));
        *held = HeldFrame { taken: true, generation, endpoint, buffer: it.buffer, at, len };
        if let Some(buffer) = self.buffers.get_mut(usize::from(it.buffer)) {
            buffer.pins += 1;
        }
        Some(FrameId(u64::from(generation) << 32 | u64::from(index)))
    }

    fn find(&self, frame: FrameId) -> Option<(u16, &HeldFrame)> {
        let index = u16::try_from(frame.0 & 0xffff_ffff).ok()?;
        let held = self.held.get(usize::from(index))?;
        (held.taken && u64::from(held.generation) == frame.0 >> 32).then_some((index, held))
    }

    /// The bytes of a held frame.
    #[inline]
    pub(crate) fn frame(&self, frame: FrameId) -> Option<&[u8]> {
        let (_, held) = self.find(frame)?;
        Some(self.bytes(Arrived { buffer: held.buffer, at: held.at, len: held.len }))
    }

    /// Releases a frame that the reader holds.
    #[inline]
    pub(crate) fn release(&mut self, frame: FrameId) {
        if let Some((index, _)) = self.find(frame) {
            self.release_entry(index);
        }
    }

    fn release_entry(&mut self, index: u16) {
        let Some(held) = self.held.get_mut(usize::from(index)).filter(|held| held.taken) else { return };
        held.taken = false;
        let buffer = held.buffer;
        self.free_held.push(index);
        if let Some(buffer) = self.buffers.get_mut(usize::from(buffer)) {
            buffer.pins -= 1;
        }
        self.free_if_unused(buffer);
    }

    /// Releases all frames of an endpoint.
    pub(crate) fn release_all(&mut self, endpoint: u32) {
        for index in 0..self.held.len() {
            if self.held[index].taken && self.held[index].endpoint == endpoint {
                self.release_entry(index as u16);
            }
        }
    }

    /// Receives messages from the socket.
    #[inline]
    pub(crate) fn receive(&mut self, socket: RawFd) -> Received {
        let wanted = self.next_batch.min(self.free.len());
        if wanted == 0 {
            return Received::NoBuffer;
        }
        self.batch.clear();
        for index in self.free.iter().rev().take(wanted).map(|index| usize::from(*index)) {
            let room = self.memory.get_mut(index * BUFFER_BYTES..(index + 1) * BUFFER_BYTES);
            let (Some(room), Some(name)) = (room, self.names.get_mut(index)) else { return Received::NoBuffer };
            // SAFETY: the room and the name belong to this inbox, and are not used before the call.
            unsafe { self.batch.add_receive(name, room.as_mut_ptr(), room.len()) };
        }
        let count = match self.batch.receive(socket) {
            BatchResult::Messages(count) => count,
            BatchResult::WouldBlock => {
                self.next_batch = 1;
                return Received::WouldBlock;
            }
            BatchResult::Failed(number) => return Received::Failed(number),
        };
        self.next_batch = if count == wanted { (2 * count).min(MESSAGES) } else { count.max(1) };
        let mut truncated = 0;
        // The buffers with a message are the last ones of the free list. The others stay in it.
        for at in 0..count {
            let Some(index) = self.free.pop() else { break };
            match self.batch.received(at) {
                Some((len, segment)) if len > 0 => {
                    let name_len = self.batch.name_len(at);
                    let (len, segment) = (len as u32, segment as u32);
                    self.buffers[usize::from(index)] = Buffer { len, segment, at: 0, name_len, pins: 0, arrived: true };
                    self.arrived.push_back(index);
                }
                _ => {
                    truncated += 1;
                    // It goes to the front of the list: the buffer of the next message is at the end.
                    self.free.insert(0, index);
                }
            }
        }
        Received::Some { truncated }
    }
}
