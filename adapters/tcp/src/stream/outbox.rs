//! Frames that wait to be sent on one connection: staged frames, frames with a body in the user's memory, and control frames,
//! which have a ring of their own.

use std::collections::VecDeque;

use towline_core::rail::Cookie;

use crate::config::Config;
use crate::counters::Counters;
use crate::stream::channel::Channel;
use crate::stream::pack_buffers::PackBuffers;
use crate::stream::ring::Ring;
use crate::stream::splice::SplicePipe;
use crate::system::socket::{Transfer, iovec, piece};

/// Maximum number of pieces of one system call.
const PIECES: usize = 16;
/// Maximum number of bodies in the user's memory that may wait on one connection; a further one is answered by `Busy`.
pub(crate) const MAX_IN_PLACE: usize = 32;
/// Maximum number of control frames that may wait.
pub(crate) const MAX_CONTROL_FRAMES: usize = 128;

/// The queue in which a frame waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    Control,
    Main,
}

/// A frame that waits, by the place of its bytes. The prefix is included.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueuedFrame {
    /// The whole frame is in the queue's ring.
    Staged { start: u32, len: u32 },
    /// The whole frame is in a pack buffer.
    Packed { slot: u32, len: u32 },
    /// Prefix and header are in the ring, and the body is in the user's memory. A body with a checksum may be spliced.
    InPlace { start: u32, len: u32, body: *mut u8, body_len: u32, summed: bool, cookie: Cookie },
}

// SAFETY: the address is that of a body whose sender guarantees that it stays readable, for any thread that uses the rail.
unsafe impl Send for QueuedFrame {}

/// The result of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flush {
    /// The kernel accepted all frames.
    Empty,
    /// The kernel accepts no more now.
    Full,
    /// The connection is broken.
    Broken(i32),
}

/// Frames that wait to be sent on one connection.
#[derive(Debug)]
pub(crate) struct Outbox {
    control: SendQueue,
    main: SendQueue,
    /// Sent bytes of the frame at the front of the queue `current`.
    sent: u32,
    /// The queue whose first frame was sent in part; meaningful where `sent` is not 0.
    current: Queue,
    /// Bodies in the user's memory that wait.
    in_place: usize,
    /// Pack buffers that this connection holds.
    pub(crate) packed: u32,
    pub(crate) broken: bool,
    /// The rest of an encrypted record waits to be sent, of frames that are not queued any more.
    pub(crate) record_waits: bool,
}

#[derive(Debug)]
struct SendQueue {
    ring: Ring,
    frames: VecDeque<QueuedFrame>,
    /// Maximum number of frames that may wait.
    limit: usize,
}

impl Outbox {
    pub(crate) fn new(config: &Config) -> Self {
        let queue = |bytes: u32, limit: usize| SendQueue {
            ring: Ring::new(bytes as usize),
            frames: VecDeque::with_capacity(limit),
            limit,
        };
        Self {
            control: queue(config.control_staging_bytes, MAX_CONTROL_FRAMES),
            main: queue(config.send_staging_bytes, config.send_queue_frames as usize),
            sent: 0,
            current: Queue::Main,
            in_place: 0,
            packed: 0,
            broken: false,
            record_waits: false,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.main.frames.is_empty() && self.control.frames.is_empty() && !self.record_waits
    }

    /// Whether no byte of the next frame was sent, so that other bytes may be sent before it.
    pub(crate) fn at_boundary(&self) -> bool {
        self.sent == 0
    }

    /// Whether one more body in the user's memory may wait.
    pub(crate) fn has_in_place_slot(&self) -> bool {
        self.in_place < MAX_IN_PLACE
    }

    #[inline]
    fn queue(&mut self, queue: Queue) -> &mut SendQueue {
        match queue {
            Queue::Control => &mut self.control,
            Queue::Main => &mut self.main,
        }
    }

    /// Whether one more frame may wait in a queue.
    #[inline]
    pub(crate) fn has_slot(&self, queue: Queue) -> bool {
        match queue {
            Queue::Control => self.control.frames.len() < self.control.limit,
            Queue::Main => self.main.frames.len() < self.main.limit,
        }
    }

    /// Free bytes for a frame of `len` bytes in a queue's ring, not taken yet. `None`: the ring is full now.
    #[inline]
    pub(crate) fn room(&mut self, queue: Queue, len: usize) -> Option<(u32, *mut u8)> {
        self.queue(queue).ring.room(len)
    }

    /// The address of the byte at `start` of a queue's ring.
    #[inline]
    pub(crate) fn at(&mut self, queue: Queue, start: u32) -> *mut u8 {
        self.queue(queue).ring.at(start)
    }

    /// Longest frame that is staged in a queue's ring, in bytes.
    #[inline]
    pub(crate) fn max_staged(&self, queue: Queue) -> usize {
        match queue {
            Queue::Control => self.control.ring.len() / 2,
            Queue::Main => self.main.ring.len() / 2,
        }
    }

    /// Queues a frame of which `sent` bytes were sent already; only where the outbox is empty may that be more than 0.
    pub(crate) fn push(&mut self, queue: Queue, frame: QueuedFrame, sent: u32) {
        if sent != 0 {
            self.sent = sent;
            self.current = queue;
        }
        match frame {
            QueuedFrame::Staged { start, len } => self.queue(queue).ring.take(start, len),
            QueuedFrame::InPlace { start, len, .. } => {
                self.in_place += 1;
                self.queue(queue).ring.take(start, len);
            }
            QueuedFrame::Packed { .. } => {}
        }
        self.queue(queue).frames.push_back(frame);
    }

    /// Sends as much as the kernel accepts. `sent` is called for each body in the user's memory that is not read any more.
    pub(crate) fn flush(
        &mut self,
        channel: &mut Channel<'_>,
        buffers: &mut PackBuffers,
        pipe: &mut SplicePipe,
        counters: &mut Counters,
        mut sent: impl FnMut(Cookie),
    ) -> Flush {
        while !self.is_empty() {
            let moved = match self.splice(channel, pipe, counters) {
                Some(moved) => moved,
                None => self.send_pieces(channel, buffers, pipe),
            };
            self.record_waits = channel.has_unsent_record();
            match moved {
                Transfer::Bytes(bytes) => self.complete(bytes, buffers, &mut sent),
                Transfer::WouldBlock | Transfer::End | Transfer::Forged => return Flush::Full,
                Transfer::Broken(number) => {
                    self.broken = true;
                    return Flush::Broken(number);
                }
            }
        }
        Flush::Empty
    }

    /// Sends a part of a body without a copy, if the body is next and the pipe is free for it.
    fn splice(&self, channel: &Channel<'_>, pipe: &mut SplicePipe, counters: &mut Counters) -> Option<Transfer> {
        let queue = match self.current {
            Queue::Control => &self.control,
            Queue::Main => &self.main,
        };
        let QueuedFrame::InPlace { len, body, body_len, summed: true, .. } = *queue.frames.front()? else {
            return None;
        };
        let (at, body_len) = (self.sent.checked_sub(len)? as usize, body_len as usize);
        let (token, rest) = (channel.token, body_len - at);
        if self.sent == 0 || channel.records.is_some() || (pipe.holds(token) == 0 && rest < pipe.threshold(token)) {
            return None;
        }
        // SAFETY: the sender guarantees that the body is valid until its completion is reported, and has said that the body has a
        // checksum.
        let moved = unsafe { pipe.push(token, channel.socket, body.wrapping_add(at), rest) };
        if let Some(Transfer::Bytes(bytes)) = moved {
            counters.spliced_bytes += bytes as u64;
        }
        moved
    }

    /// Sends the next bytes from where they are.
    fn send_pieces(&self, channel: &mut Channel<'_>, buffers: &PackBuffers, pipe: &SplicePipe) -> Transfer {
        let threshold = if channel.records.is_some() { usize::MAX } else { pipe.threshold(channel.token) };
        let mut pieces = [piece(std::ptr::null_mut(), 0); PIECES];
        let count = self.gather(buffers, threshold, &mut pieces);
        // SAFETY: the pieces lie in rings and pack buffers that this connection holds, and in bodies for which the sender vouches
        // until their completion is reported.
        unsafe { channel.send_pieces(&mut pieces[..count]) }
    }

    /// The next bytes to send: the rest of the frame that was sent in part, then control frames, then the others. A body with a
    /// checksum that has at least `splice_threshold` bytes ends the list.
    fn gather(&self, buffers: &PackBuffers, splice_threshold: usize, pieces: &mut [iovec; PIECES]) -> usize {
        let mut list = PieceList { pieces, count: 0, closed: false, splice_threshold };
        let begun = (self.sent != 0).then_some(self.current);
        if begun == Some(Queue::Main)
            && let Some(frame) = self.main.frames.front()
        {
            list.frame(frame, self.sent as usize, &self.main.ring, buffers);
        }
        for (at, frame) in self.control.frames.iter().enumerate() {
            let skip = if at == 0 && begun == Some(Queue::Control) { self.sent as usize } else { 0 };
            list.frame(frame, skip, &self.control.ring, buffers);
        }
        let skip = usize::from(begun == Some(Queue::Main));
        for frame in self.main.frames.iter().skip(skip) {
            if list.closed {
                break;
            }
            list.frame(frame, 0, &self.main.ring, buffers);
        }
        list.count
    }

    /// Removes `bytes` sent bytes from the front, in the order of `gather`.
    fn complete(&mut self, bytes: usize, buffers: &mut PackBuffers, sent_body: &mut impl FnMut(Cookie)) {
        let mut left = bytes;
        while left != 0 {
            if self.sent == 0 {
                self.current = if self.control.frames.is_empty() { Queue::Main } else { Queue::Control };
            }
            let current = self.current;
            let sent = self.sent as usize;
            let Some(frame) = self.queue(current).frames.front().copied() else { return };
            let rest = frame.len() - sent;
            if left < rest {
                self.sent += left as u32;
                return;
            }
            left -= rest;
            self.sent = 0;
            let queue = self.queue(current);
            queue.frames.pop_front();
            match frame {
                QueuedFrame::Staged { start, len } => queue.ring.free(start, len),
                QueuedFrame::InPlace { start, len, cookie, .. } => {
                    queue.ring.free(start, len);
                    self.in_place -= 1;
                    sent_body(cookie);
                }
                QueuedFrame::Packed { slot, .. } => {
                    buffers.give_back(slot);
                    self.packed -= 1;
                }
            }
        }
    }

    /// Drops all frames and gives back the pack buffers of the connection.
    pub(crate) fn abandon(&mut self, buffers: &mut PackBuffers) {
        for frame in self.main.frames.drain(..).chain(self.control.frames.drain(..)) {
            if let QueuedFrame::Packed { slot, .. } = frame {
                buffers.give_back(slot);
            }
        }
    }
}

impl QueuedFrame {
    fn len(&self) -> usize {
        match *self {
            Self::Staged { len, .. } | Self::Packed { len, .. } => len as usize,
            Self::InPlace { len, body_len, .. } => len as usize + body_len as usize,
        }
    }
}

/// A list of pieces under construction. Pieces that are adjacent in memory become one.
struct PieceList<'p> {
    pieces: &'p mut [iovec; PIECES],
    count: usize,
    /// A piece did not fit, so nothing may follow it, not even bytes that are adjacent to the last piece.
    closed: bool,
    /// Bodies with a checksum and at least this many bytes are spliced, and no later frame may be sent before them.
    splice_threshold: usize,
}

impl PieceList<'_> {
    /// Adds a frame from byte `skip` on, or as much of it as fits.
    fn frame(&mut self, frame: &QueuedFrame, skip: usize, ring: &Ring, buffers: &PackBuffers) {
        match *frame {
            QueuedFrame::Staged { start, len } => self.add(ring.at(start), len as usize, skip),
            QueuedFrame::Packed { slot, len } => self.add(buffers.at(slot), len as usize, skip),
            QueuedFrame::InPlace { start, len, body, body_len, summed, .. } => {
                let body_skip = skip.saturating_sub(len as usize);
                self.add(ring.at(start), len as usize, skip);
                if summed && body_len as usize - body_skip >= self.splice_threshold {
                    self.closed = true;
                } else {
                    self.add(body, body_len as usize, body_skip);
                }
            }
        }
    }

    fn add(&mut self, base: *mut u8, len: usize, skip: usize) {
        if skip >= len || self.closed {
            return;
        }
        let (base, len) = (base.wrapping_add(skip), len - skip);
        if let Some(last) = self.count.checked_sub(1).and_then(|last| self.pieces.get_mut(last))
            && last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == base
        {
            last.iov_len += len;
        } else if let Some(place) = self.pieces.get_mut(self.count) {
            *place = piece(base, len);
            self.count += 1;
        } else {
            self.closed = true;
        }
    }
}
