//! Frames that wait to leave, packed one behind the other, so that those to one peer are one piece for the kernel to cut.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use socket2::SockAddr;
use towline_core::rail::Lane;

use crate::config::{Config, MOST};
use crate::counters::Counters;
use crate::system::socket::{Calls, Done};

/// Messages of one call at most.
const MESSAGES: usize = 64;
/// Datagrams that the kernel cuts one message into at most (`UDP_MAX_SEGMENTS` of its older versions).
const SEGMENTS: usize = 64;
/// Places for control frames beside those for others.
const CONTROL_PLACES: usize = 16;
/// Names no endpoint.
const NOBODY: u32 = u32::MAX;

/// The frames that wait, in the order in which they came. The staging is filled from its start, and again once all are gone:
/// the socket takes everything but in rare moments.
#[derive(Debug)]
pub(crate) struct Outbox {
    staging: Box<[u8]>,
    /// Bytes that frames of other lanes may use, from the start on; the rest is for control frames.
    common: usize,
    places: usize,
    frames: VecDeque<Staged>,
    head: usize,
    tail: usize,
    calls: Calls,
    /// Of each message of a call: its frames and bytes.
    runs: Vec<Run>,
    /// Datagrams that one message may be cut into: 1 where the kernel cannot cut.
    segments: usize,
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

/// What came of sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flushed {
    /// All has left.
    Empty,
    /// The socket takes no more now.
    Full,
    /// No more may leave now.
    Paced,
    /// The call failed with this error number; the frames are still there.
    Failed(i32),
}

impl Outbox {
    pub(crate) fn new(config: &Config, datagram: u32, cuts: bool) -> Self {
        let staging = config.staging(datagram);
        let places = config.send_queue_frames as usize;
        Self {
            staging: vec![0; staging].into(),
            common: staging - Config::control(datagram),
            places,
            frames: VecDeque::with_capacity(places + CONTROL_PLACES),
            head: 0,
            tail: 0,
            calls: Calls::new(MESSAGES),
            runs: Vec::with_capacity(MESSAGES),
            segments: if cuts { SEGMENTS } else { 1 },
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Bytes that wait.
    #[inline]
    pub(crate) const fn waiting(&self) -> usize {
        self.tail - self.head
    }

    /// Room for a datagram of `len` bytes, if there is any; [`stage`](Self::stage) takes it.
    #[inline]
    pub(crate) fn room(&mut self, lane: Lane, len: usize) -> Option<&mut [u8]> {
        let (bytes, places) = match lane {
            Lane::Control => (self.staging.len(), self.places + CONTROL_PLACES),
            Lane::Eager | Lane::Bulk => (self.common, self.places),
        };
        if self.frames.len() >= places || self.tail + len > bytes {
            return None;
        }
        self.staging.get_mut(self.tail..self.tail + len)
    }

    /// The datagram that [`room`](Self::room) was given for last.
    #[inline]
    pub(crate) fn granted(&mut self, len: usize) -> Option<&mut [u8]> {
        self.staging.get_mut(self.tail..self.tail + len)
    }

    /// Lets the datagram wait to leave.
    #[inline]
    pub(crate) fn stage(&mut self, endpoint: u32, len: usize) {
        self.frames.push_back(Staged { endpoint, len: len as u32 });
        self.tail += len;
    }

    /// Whether something to this endpoint waits.
    pub(crate) fn has(&self, endpoint: u32) -> bool {
        self.frames.iter().any(|frame| frame.endpoint == endpoint)
    }

    /// Forgets what is for this endpoint.
    pub(crate) fn forget(&mut self, endpoint: u32) {
        self.frames.iter_mut().filter(|frame| frame.endpoint == endpoint).for_each(|frame| frame.endpoint = NOBODY);
        self.skip_nobodys();
    }

    /// The kernel does not cut datagrams here after all; whether that is news.
    pub(crate) fn cut_no_more(&mut self) -> bool {
        std::mem::replace(&mut self.segments, 1) != 1
    }

    /// Gives up what would leave first.
    pub(crate) fn drop_first(&mut self) {
        if let Some(frame) = self.frames.front_mut() {
            frame.endpoint = NOBODY;
            self.skip_nobodys();
        }
    }

    fn skip_nobodys(&mut self) {
        while let Some(frame) = self.frames.pop_front_if(|frame| frame.endpoint == NOBODY) {
            self.head += frame.len as usize;
        }
        self.rewind();
    }

    fn rewind(&mut self) {
        if self.frames.is_empty() {
            (self.head, self.tail) = (0, 0);
        }
    }

    /// Gives the kernel what waits, up to about `allowance` bytes; `to` knows where an endpoint's frames go. Returns the bytes
    /// that left.
    pub(crate) fn flush<'a>(
        &mut self,
        socket: RawFd,
        to: impl Fn(u32) -> Option<&'a SockAddr>,
        allowance: u64,
        counters: &mut Counters,
    ) -> (u64, Flushed) {
        let mut left = 0;
        loop {
            if self.frames.is_empty() {
                return (left, Flushed::Empty);
            }
            if left >= allowance {
                return (left, Flushed::Paced);
            }
            self.fill(&to, (allowance - left).min(usize::MAX as u64) as usize);
            if self.runs.is_empty() {
                self.skip_nobodys();
                continue;
            }
            match self.calls.send(socket) {
                Done::Messages(count) => {
                    counters.sends += 1;
                    for run in self.runs.iter().take(count) {
                        self.frames.drain(..run.frames);
                        self.head += run.bytes;
                        left += run.bytes as u64;
                        counters.frames_sent += run.frames as u64;
                    }
                    self.skip_nobodys();
                }
                Done::Nothing => return (left, Flushed::Full),
                Done::Failed(number) => return (left, Flushed::Failed(number)),
            }
        }
    }

    /// Makes messages of the frames that wait: as many of one peer's as the kernel may cut out of one piece, which are equally
    /// long but for the last. Stops before one that is for nobody.
    fn fill<'a>(&mut self, to: &impl Fn(u32) -> Option<&'a SockAddr>, allowance: usize) {
        self.calls.clear();
        self.runs.clear();
        let (mut at, mut bytes) = (0, 0);
        while bytes < allowance && !self.calls.is_full() {
            let Some(first) = self.frames.get(at).copied() else { break };
            let Some(address) = to(first.endpoint) else {
                if self.runs.is_empty()
                    && let Some(frame) = self.frames.front_mut()
                {
                    frame.endpoint = NOBODY;
                }
                break;
            };
            let mut run = Run { frames: 1, bytes: first.len as usize };
            let more = self.segments.min((MOST / first.len.max(1)) as usize);
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
            let cut = (run.frames > 1).then_some(first.len as u16);
            // SAFETY: the piece is staged and stays so until the call; the address is the peer's, who is not touched until then.
            unsafe { self.calls.add_send(address, piece.as_ptr(), piece.len(), cut) };
            self.runs.push(run);
            (at, bytes) = (at + run.frames, bytes + run.bytes);
        }
    }
}
