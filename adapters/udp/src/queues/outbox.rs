//! Frames that wait to be sent. They are staged one behind the other, so that frames to one peer are one piece of memory, which
//! the kernel segments.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use socket2::SockAddr;
use towline_core::rail::Lane;

use crate::config::{Config, MAX_DATAGRAM};
use crate::counters::Counters;
use crate::system::batch::{Batch, BatchResult};

/// Maximum number of messages of one system call.
const MESSAGES: usize = 64;
/// Maximum number of datagrams of one message (`UDP_MAX_SEGMENTS` of older kernels).
const SEGMENTS: usize = 64;
/// Slots for control frames beside those for other frames.
const CONTROL_SLOTS: usize = 16;
/// The endpoint of a frame that is dropped.
const DROPPED: u32 = u32::MAX;

/// The frames that wait, in their order. Staging is filled from its start, and again from its start once it is empty: the socket
/// accepts everything except in rare moments.
#[derive(Debug)]
pub(crate) struct Outbox {
    staging: Box<[u8]>,
    /// Bytes for frames of all lanes, from the start on. The rest is for control frames only.
    common: usize,
    /// Maximum number of frames of other lanes than the control lane.
    limit: usize,
    frames: VecDeque<Staged>,
    head: usize,
    tail: usize,
    batch: Batch,
    /// The frames and bytes of each message of a batch.
    runs: Vec<Run>,
    /// Maximum number of datagrams of one message: 1 where the kernel does not segment.
    max_segments: usize,
}

#[derive(Clone, Copy, Debug)]
struct Staged {
    endpoint: u32,
    len: u32,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    frames: usize,
    bytes: usize,
}

/// The result of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flushed {
    /// All frames were sent.
    Empty,
    /// The socket accepts no more now.
    Full,
    /// The allowance is used up.
    Paced,
    /// The call failed with this error number. The frames still wait.
    Failed(i32),
}

impl Outbox {
    pub(crate) fn new(config: &Config, datagram: u32, segmentation: bool) -> Self {
        let staging = config.staging(datagram);
        let limit = config.send_queue_frames as usize;
        Self {
            staging: vec![0; staging].into(),
            common: staging - Config::control_staging(datagram),
            limit,
            frames: VecDeque::with_capacity(limit + CONTROL_SLOTS),
            head: 0,
            tail: 0,
            batch: Batch::new(MESSAGES),
            runs: Vec::with_capacity(MESSAGES),
            max_segments: if segmentation { SEGMENTS } else { 1 },
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Staged bytes that wait.
    #[inline]
    pub(crate) const fn waiting(&self) -> usize {
        self.tail - self.head
    }

    /// Room for a datagram of `len` bytes; `None` if there is none. [`stage`](Self::stage) takes the room.
    #[inline]
    pub(crate) fn room(&mut self, lane: Lane, len: usize) -> Option<&mut [u8]> {
        let (bytes, limit) = match lane {
            Lane::Control => (self.staging.len(), self.limit + CONTROL_SLOTS),
            Lane::Eager | Lane::Bulk => (self.common, self.limit),
        };
        if self.frames.len() >= limit || self.tail + len > bytes {
            return None;
        }
        self.staging.get_mut(self.tail..self.tail + len)
    }

    /// The latest [room](Self::room) that was given out.
    #[inline]
    pub(crate) fn granted(&mut self, len: usize) -> Option<&mut [u8]> {
        self.staging.get_mut(self.tail..self.tail + len)
    }

    /// Queues the datagram in the latest room.
    #[inline]
    pub(crate) fn stage(&mut self, endpoint: u32, len: usize) {
        self.frames.push_back(Staged { endpoint, len: len as u32 });
        self.tail += len;
    }

    /// Whether a frame to this endpoint waits.
    pub(crate) fn has(&self, endpoint: u32) -> bool {
        self.frames.iter().any(|frame| frame.endpoint == endpoint)
    }

    /// Drops the frames to this endpoint.
    pub(crate) fn drop_endpoint(&mut self, endpoint: u32) {
        self.frames.iter_mut().filter(|frame| frame.endpoint == endpoint).for_each(|frame| frame.endpoint = DROPPED);
        self.skip_dropped();
    }

    /// Stops segmentation, as the kernel cannot segment on this path. Returns whether it was on.
    pub(crate) fn stop_segmentation(&mut self) -> bool {
        std::mem::replace(&mut self.max_segments, 1) != 1
    }

    /// Drops the first frame.
    pub(crate) fn drop_first(&mut self) {
        if let Some(frame) = self.frames.front_mut() {
            frame.endpoint = DROPPED;
            self.skip_dropped();
        }
    }

    fn skip_dropped(&mut self) {
        while let Some(frame) = self.frames.pop_front_if(|frame| frame.endpoint == DROPPED) {
            self.head += frame.len as usize;
        }
        self.rewind();
    }

    fn rewind(&mut self) {
        if self.frames.is_empty() {
            (self.head, self.tail) = (0, 0);
        }
    }

    /// Sends frames that wait, up to about `allowance` bytes. `to` returns the address of an endpoint. Returns the number of sent
    /// bytes too.
    pub(crate) fn flush<'a>(
        &mut self,
        socket: RawFd,
        to: impl Fn(u32) -> Option<&'a SockAddr>,
        allowance: u64,
        counters: &mut Counters,
    ) -> (u64, Flushed) {
        let mut sent = 0;
        loop {
            if self.frames.is_empty() {
                return (sent, Flushed::Empty);
            }
            if sent >= allowance {
                return (sent, Flushed::Paced);
            }
            self.fill(&to, (allowance - sent).min(usize::MAX as u64) as usize);
            if self.runs.is_empty() {
                self.skip_dropped();
                continue;
            }
            match self.batch.send(socket) {
                BatchResult::Messages(count) => {
                    counters.sends += 1;
                    for run in self.runs.iter().take(count) {
                        self.frames.drain(..run.frames);
                        self.head += run.bytes;
                        sent += run.bytes as u64;
                        counters.frames_sent += run.frames as u64;
                    }
                    self.skip_dropped();
                }
                BatchResult::WouldBlock => return (sent, Flushed::Full),
                BatchResult::Failed(number) => return (sent, Flushed::Failed(number)),
            }
        }
    }

    /// Makes messages of the frames that wait. A message has as many frames to one peer as the kernel may segment; all of them
    /// but the last have the same length. Stops before a frame whose endpoint has no address.
    fn fill<'a>(&mut self, to: &impl Fn(u32) -> Option<&'a SockAddr>, allowance: usize) {
        self.batch.clear();
        self.runs.clear();
        let (mut at, mut bytes) = (0, 0);
        while bytes < allowance && !self.batch.is_full() {
            let Some(first) = self.frames.get(at).copied() else { break };
            let Some(address) = to(first.endpoint) else {
                if self.runs.is_empty()
                    && let Some(frame) = self.frames.front_mut()
                {
                    frame.endpoint = DROPPED;
                }
                break;
            };
            let mut run = Run { frames: 1, bytes: first.len as usize };
            let more = self.max_segments.min((MAX_DATAGRAM / first.len.max(1)) as usize);
            for next in self.frames.range(at + 1..).take(more.saturating_sub(1)) {
                if next.endpoint != first.endpoint || next.len > first.len || run.bytes >= allowance - bytes {
                    break;
                }
                run = Run { frames: run.frames + 1, bytes: run.bytes + next.len as usize };
                if next.len < first.len {
                    break;
                }
            }
            let Some(piece) = self.staging.get(self.head + bytes..self.head + bytes + run.bytes) else { break };
            let segment = (run.frames > 1).then_some(first.len as u16);
            // SAFETY: the piece is staged until the call; the address belongs to a peer, which does not change until then.
            unsafe { self.batch.add_send(address, piece.as_ptr(), piece.len(), segment) };
            self.runs.push(run);
            (at, bytes) = (at + run.frames, bytes + run.bytes);
        }
    }
}
