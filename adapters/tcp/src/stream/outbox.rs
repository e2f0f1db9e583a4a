//! What waits to leave on one connection: staged frames, bodies in place, and control frames with room of their own.

use std::collections::VecDeque;

use towline_core::rail::Cookie;

use crate::config::Config;
use crate::counters::Counters;
use crate::stream::block::Block;
use crate::stream::channel::Channel;
use crate::stream::pack_buffers::Large;
use crate::stream::splice::Pipe;
use crate::system::socket::{Moved, iovec, piece};

/// Pieces given to the kernel at once.
const PIECES: usize = 16;
/// Bodies in place that may wait on one connection; more are answered `Busy`.
pub(crate) const IN_PLACE_MAX: usize = 32;
/// Control frames that may wait.
pub(crate) const CONTROL_FRAMES: usize = 128;

/// Which of the two queues a frame waits in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    Control,
    Main,
}

/// Where the bytes of a frame lie, prefix included.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// In the queue's ring, all of it.
    Ring { start: u32, len: u32 },
    /// In a large buffer, all of it.
    Large { slot: u32, len: u32 },
    /// Prefix and header in the ring, the body with the user; a summed one may go by the pipe.
    Split { start: u32, len: u32, body: *mut u8, body_len: u32, summed: bool, cookie: Cookie },
}

// SAFETY: the address is that of a body whose sender vouches for it, on whatever thread the rail is used.
unsafe impl Send for Place {}

/// How far a flush came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flush {
    /// The kernel has all.
    Empty,
    /// The kernel takes no more now.
    Full,
    /// The connection is broken.
    Broken(i32),
}

/// Frames that wait to leave on one connection.
#[derive(Debug)]
pub(crate) struct Outbox {
    control: Line,
    main: Line,
    /// Bytes of the frame in `current` that have left.
    sent: u32,
    /// Where the frame is that has left in part; of meaning where `sent` is not 0.
    current: Queue,
    in_place: usize,
    /// Large buffers that are held by this connection.
    pub(crate) large_held: u32,
    pub(crate) broken: bool,
    /// Something sealed, of frames that are no more here, waits to leave.
    pub(crate) lags: bool,
}

#[derive(Debug)]
struct Line {
    ring: Ring,
    frames: VecDeque<Place>,
    most: usize,
}

impl Outbox {
    pub(crate) fn new(config: &Config) -> Self {
        let line = |bytes: u32, most: usize| Line {
            ring: Ring::new(bytes as usize),
            frames: VecDeque::with_capacity(most),
            most,
        };
        Self {
            control: line(config.control_staging_bytes, CONTROL_FRAMES),
            main: line(config.send_staging_bytes, config.send_queue_frames as usize),
            sent: 0,
            current: Queue::Main,
            in_place: 0,
            large_held: 0,
            broken: false,
            lags: false,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.main.frames.is_empty() && self.control.frames.is_empty() && !self.lags
    }

    /// Whether nothing has left of the frame that is next: other bytes may go before it.
    pub(crate) fn at_boundary(&self) -> bool {
        self.sent == 0
    }

    pub(crate) fn has_in_place_room(&self) -> bool {
        self.in_place < IN_PLACE_MAX
    }

    #[inline]
    fn line(&mut self, queue: Queue) -> &mut Line {
        match queue {
            Queue::Control => &mut self.control,
            Queue::Main => &mut self.main,
        }
    }

    /// Whether one more frame may queue.
    #[inline]
    pub(crate) fn has_place(&self, queue: Queue) -> bool {
        match queue {
            Queue::Control => self.control.frames.len() < self.control.most,
            Queue::Main => self.main.frames.len() < self.main.most,
        }
    }

    /// Room of `len` bytes in a queue's ring, not taken yet. `None`: full now.
    #[inline]
    pub(crate) fn room(&mut self, queue: Queue, len: usize) -> Option<(u32, *mut u8)> {
        self.line(queue).ring.room(len)
    }

    /// The bytes at `start` of a queue's ring.
    #[inline]
    pub(crate) fn at(&mut self, queue: Queue, start: u32) -> *mut u8 {
        self.line(queue).ring.at(start)
    }

    /// Most bytes of a frame that go to a queue's ring.
    #[inline]
    pub(crate) fn longest(&self, queue: Queue) -> usize {
        match queue {
            Queue::Control => self.control.ring.bytes.len() / 2,
            Queue::Main => self.main.ring.bytes.len() / 2,
        }
    }

    /// Queues a frame of which `sent` bytes have left already; those are not 0 only where the outbox is empty.
    pub(crate) fn push(&mut self, queue: Queue, place: Place, sent: u32) {
        if sent != 0 {
            self.sent = sent;
            self.current = queue;
        }
        match place {
            Place::Ring { start, len } => self.line(queue).ring.take(start, len),
            Place::Split { start, len, .. } => {
                self.in_place += 1;
                self.line(queue).ring.take(start, len);
            }
            Place::Large { .. } => {}
        }
        self.line(queue).frames.push_back(place);
    }

    /// Gives the kernel what it takes. `done` is told of bodies that are no longer read.
    pub(crate) fn flush(
        &mut self,
        channel: &mut Channel<'_>,
        large: &mut Large,
        pipe: &mut Pipe,
        counters: &mut Counters,
        mut done: impl FnMut(Cookie),
    ) -> Flush {
        while !self.is_empty() {
            let moved = match self.send_by_pipe(channel, pipe, counters) {
                Some(moved) => moved,
                None => self.send_pieces(channel, large, pipe),
            };
            self.lags = channel.lags();
            match moved {
                Moved::Bytes(bytes) => self.account(bytes, large, &mut done),
                Moved::Nothing | Moved::End | Moved::Forged => return Flush::Full,
                Moved::Broken(number) => {
                    self.broken = true;
                    return Flush::Broken(number);
                }
            }
        }
        Flush::Empty
    }

    /// Sends some of a body without copying it, if that is what is next and the pipe is there for it.
    fn send_by_pipe(&self, channel: &Channel<'_>, pipe: &mut Pipe, counters: &mut Counters) -> Option<Moved> {
        let line = match self.current {
            Queue::Control => &self.control,
            Queue::Main => &self.main,
        };
        let Place::Split { len, body, body_len, summed: true, .. } = *line.frames.front()? else { return None };
        let (at, body_len) = (self.sent.checked_sub(len)? as usize, body_len as usize);
        let (word, rest) = (channel.word, body_len - at);
        if self.sent == 0 || channel.sealed.is_some() || (pipe.holds(word) == 0 && rest < pipe.from(word)) {
            return None;
        }
        // SAFETY: the body's sender vouches for it until it is told that it is sent, and has said that it is summed.
        let moved = unsafe { pipe.push(word, channel.socket, body.wrapping_add(at), rest) };
        if let Some(Moved::Bytes(bytes)) = moved {
            counters.uncopied_bytes += bytes as u64;
        }
        moved
    }

    /// Sends what comes next as it lies.
    fn send_pieces(&self, channel: &mut Channel<'_>, large: &Large, pipe: &Pipe) -> Moved {
        let by_pipe = if channel.sealed.is_some() { usize::MAX } else { pipe.from(channel.word) };
        let mut pieces = [piece(std::ptr::null_mut(), 0); PIECES];
        let count = self.gather(large, by_pipe, &mut pieces);
        // SAFETY: the pieces lie in rings and large buffers that this connection holds, and in bodies whose sender
        // vouches for them until it is told that they are sent.
        unsafe { channel.send_pieces(&mut pieces[..count]) }
    }

    /// The next bytes to leave: the rest of a frame that was begun, then control frames, then the others, up to a summed body
    /// of `by_pipe` bytes or more.
    fn gather(&self, large: &Large, by_pipe: usize, pieces: &mut [iovec; PIECES]) -> usize {
        let mut list = PieceList { pieces, count: 0, closed: false, by_pipe };
        let begun = (self.sent != 0).then_some(self.current);
        if begun == Some(Queue::Main)
            && let Some(place) = self.main.frames.front()
        {
            list.frame(place, self.sent as usize, &self.main.ring, large);
        }
        for (at, place) in self.control.frames.iter().enumerate() {
            let skip = if at == 0 && begun == Some(Queue::Control) { self.sent as usize } else { 0 };
            list.frame(place, skip, &self.control.ring, large);
        }
        let skip = usize::from(begun == Some(Queue::Main));
        for place in self.main.frames.iter().skip(skip) {
            if list.closed {
                break;
            }
            list.frame(place, 0, &self.main.ring, large);
        }
        list.count
    }

    /// Takes `bytes` off the front, in the order of `gather`.
    fn account(&mut self, bytes: usize, large: &mut Large, done: &mut impl FnMut(Cookie)) {
        let mut left = bytes;
        while left != 0 {
            if self.sent == 0 {
                self.current = if self.control.frames.is_empty() { Queue::Main } else { Queue::Control };
            }
            let current = self.current;
            let sent = self.sent as usize;
            let Some(place) = self.line(current).frames.front().copied() else { return };
            let rest = place.len() - sent;
            if left < rest {
                self.sent += left as u32;
                return;
            }
            left -= rest;
            self.sent = 0;
            let line = self.line(current);
            line.frames.pop_front();
            match place {
                Place::Ring { start, len } => line.ring.free(start, len),
                Place::Split { start, len, cookie, .. } => {
                    line.ring.free(start, len);
                    self.in_place -= 1;
                    done(cookie);
                }
                Place::Large { slot, .. } => {
                    large.give_back(slot);
                    self.large_held -= 1;
                }
            }
        }
    }

    /// Gives back what is held outside of the connection.
    pub(crate) fn abandon(&mut self, large: &mut Large) {
        for place in self.main.frames.drain(..).chain(self.control.frames.drain(..)) {
            if let Place::Large { slot, .. } = place {
                large.give_back(slot);
            }
        }
    }
}

impl Place {
    fn len(&self) -> usize {
        match *self {
            Self::Ring { len, .. } | Self::Large { len, .. } => len as usize,
            Self::Split { len, body_len, .. } => len as usize + body_len as usize,
        }
    }
}

/// Pieces under construction; neighbours in memory become one.
struct PieceList<'p> {
    pieces: &'p mut [iovec; PIECES],
    count: usize,
    /// A piece found no place: nothing may follow, not even what would join the last piece.
    closed: bool,
    /// Summed bodies of so many bytes go another way, and nothing overtakes them.
    by_pipe: usize,
}

impl PieceList<'_> {
    /// Adds a frame from byte `skip` on, or as much of it as finds place.
    fn frame(&mut self, place: &Place, skip: usize, ring: &Ring, large: &Large) {
        match *place {
            Place::Ring { start, len } => self.add(ring.at(start), len as usize, skip),
            Place::Large { slot, len } => self.add(large.at(slot), len as usize, skip),
            Place::Split { start, len, body, body_len, summed, .. } => {
                let body_skip = skip.saturating_sub(len as usize);
                self.add(ring.at(start), len as usize, skip);
                if summed && body_len as usize - body_skip >= self.by_pipe {
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

/// Bytes in a ring, each frame in one run. Starts over where it is empty, so that light traffic stays in few lines.
#[derive(Debug)]
struct Ring {
    bytes: Block,
    head: u32,
    tail: u32,
    frames: u32,
}

impl Ring {
    fn new(len: usize) -> Self {
        Self { bytes: Block::new(len), head: 0, tail: 0, frames: 0 }
    }

    #[inline]
    fn at(&self, start: u32) -> *mut u8 {
        self.bytes.at(start as usize)
    }

    #[inline]
    fn room(&mut self, len: usize) -> Option<(u32, *mut u8)> {
        if self.frames == 0 {
            (self.head, self.tail) = (0, 0);
        }
        let (head, tail) = (self.head as usize, self.tail as usize);
        let start = if tail >= head {
            if self.bytes.len() - tail >= len {
                tail
            } else if head > len {
                0
            } else {
                return None;
            }
        } else if head - tail > len {
            tail
        } else {
            return None;
        };
        Some((start as u32, self.at(start as u32)))
    }

    #[inline]
    fn take(&mut self, start: u32, len: u32) {
        self.tail = start + len;
        self.frames += 1;
    }

    #[inline]
    fn free(&mut self, start: u32, len: u32) {
        self.head = start + len;
        self.frames -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_gives_each_frame_one_run_and_never_the_same_byte_twice() {
        let mut ring = Ring::new(100);
        let mut live: VecDeque<(u32, u32)> = VecDeque::new();
        let mut seed = 7u32;
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let len = 1 + (seed >> 16) % 50;
            match ring.room(len as usize) {
                Some((start, _)) => {
                    assert!(start + len <= 100);
                    assert!(live.iter().all(|(at, of)| start + len <= *at || at + of <= start), "overlap");
                    ring.take(start, len);
                    live.push_back((start, len));
                }
                None => {
                    let (start, len) = live.pop_front().expect("an empty ring has room for half of it");
                    ring.free(start, len);
                }
            }
        }
    }
}
