//! What arrives on one connection: a staging buffer from which frames are read, and the sink of a long body.

use towline_core::convertor::Span;
use towline_core::rail::{Cookie, HEAD};

use crate::framing::{Announced, PREFIX, decode};
use crate::stream::block::Block;
use crate::stream::channel::Channel;
use crate::system::socket::{Moved, iovec, piece};

/// Bytes read beyond a long body while long frames follow each other: the next prefix and header, and little of the
/// body, which is to go to its sink directly.
const SIP: usize = PREFIX + HEAD + 64;
/// Frames from this length on make the next read a sip.
const LONG: u32 = 32 * 1024;

/// Pieces of memory that one read goes to at most, the staging buffer among them.
const PIECES: usize = 16;
/// Runs of a sink shorter than this on average are filled by the staging buffer: copying is cheaper than many pieces.
const SHORT_RUN: usize = 4096;

/// Bytes and state of the receiving side of one connection.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Holds the longest frame, for a reader who wants all of one at once; otherwise only `window` bytes are used, so
    /// that the rest is never given memory.
    staging: Block,
    window: usize,
    start: usize,
    end: usize,
    /// Bytes to ask for at most where they go to the staging buffer.
    appetite: usize,
    state: State,
    /// The socket may have more than was read.
    pub(crate) more: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The next byte is the first of a prefix.
    Between,
    /// A frame was reported; the staging buffer has its first bytes.
    Held { len: u32 },
    /// A body is on its way to its sink.
    Sinking(Sink),
}

#[derive(Clone, Copy, Debug)]
struct Sink {
    sink: Span,
    /// Bytes of the sink that are written.
    at: u64,
    /// Bytes to leave out before the sink's.
    skip: u32,
    /// Bytes of the frame that are still to come, `skip` included.
    rest: u32,
    /// Whom to tell; nobody where the body is swallowed.
    cookie: Option<Cookie>,
}

/// A frame whose header is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) tag: u8,
    pub(crate) len: u32,
    pub(crate) valid: u8,
    pub(crate) head: [u8; HEAD],
}

/// What the staging buffer holds next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    Frame(Arrived),
    Goodbye,
    /// No towline wrote this.
    Garbage,
    /// Bytes are missing.
    Missing,
    /// A frame is held: nothing is next before it is released.
    Held,
    /// A body is on its way.
    Sinking,
}

/// What a read brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filled {
    /// Bytes.
    Some,
    /// Bytes, which end the body that was on its way; whom to tell.
    Delivered(Option<Cookie>),
    /// Nothing now.
    Nothing,
    /// The peer sends no more.
    End,
    /// The connection is broken; the system's error number.
    Broken(i32),
    /// What came is not what the peer has sealed.
    Forged,
}

impl Inbox {
    pub(crate) fn new(window: u32, longest_frame: u32) -> Self {
        let window = window as usize;
        let staging = Block::new(window.max(PREFIX + longest_frame as usize));
        Self { staging, window, start: 0, end: 0, appetite: window, state: State::Between, more: true }
    }

    /// Whether a body is on its way to its sink.
    pub(crate) fn is_sinking(&self) -> bool {
        matches!(self.state, State::Sinking(_))
    }

    /// Whether staged bytes wait to be looked at.
    #[inline]
    pub(crate) fn has_staged(&self) -> bool {
        self.start != self.end
    }

    /// Looks at what is staged. A short frame is taken, a longer one is held from here on.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Next {
        match self.state {
            State::Between => {}
            State::Held { .. } => return Next::Held,
            State::Sinking(_) => return Next::Sinking,
        }
        let staged = self.end - self.start;
        if staged < PREFIX {
            return Next::Missing;
        }
        let mut prefix = [0; PREFIX];
        self.copy_out(self.start, &mut prefix);
        let (len, tag, header) = match decode(prefix) {
            Some(Announced::Frame { len, tag, header }) => (len, tag, header),
            Some(Announced::Goodbye) => return Next::Goodbye,
            None => return Next::Garbage,
        };
        let here = (staged - PREFIX).min(len as usize);
        let needed = if len as usize <= HEAD { len as usize } else { usize::from(header) };
        if here < needed {
            return Next::Missing;
        }
        let mut head = [0; HEAD];
        let valid = here.min(HEAD);
        self.copy_out(self.start + PREFIX, &mut head[..valid]);
        self.start += PREFIX;
        self.appetite = if len >= LONG { SIP.min(self.window) } else { self.window };
        if len as usize <= HEAD {
            self.start += len as usize;
        } else {
            self.state = State::Held { len };
        }
        Next::Frame(Arrived { tag, len, valid: valid as u8, head })
    }

    /// Copies staged bytes; the caller has seen that they are there.
    #[inline]
    fn copy_out(&self, from: usize, into: &mut [u8]) {
        debug_assert!(from + into.len() <= self.end);
        // SAFETY: the bytes up to `end` lie in the staging buffer and were received; nobody else has a reference.
        unsafe { std::ptr::copy_nonoverlapping(self.staging.at(from), into.as_mut_ptr(), into.len()) }
    }

    /// Bytes of the held frame that are staged.
    fn held(&self) -> Option<(u32, usize)> {
        let State::Held { len } = self.state else { return None };
        Some((len, (self.end - self.start).min(len as usize)))
    }

    /// Copies bytes of the held frame from `at` on; returns how many there were.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) -> usize {
        let Some((_, here)) = self.held() else { return 0 };
        let count = here.saturating_sub(at).min(into.len());
        if count != 0 {
            self.copy_out(self.start + at, &mut into[..count]);
        }
        count
    }

    /// Sends the held frame from `skip` on to `sink`. `true`: all is there. `false`: the rest is still to come.
    ///
    /// # Safety
    /// The sink is writable until the frame is all in.
    pub(crate) unsafe fn deliver(&mut self, skip: usize, sink: Span, cookie: Option<Cookie>) -> bool {
        let Some((len, _)) = self.held() else { return true };
        let skip = skip.min(len as usize) as u32;
        self.state = State::Sinking(Sink { sink, at: 0, skip, rest: len, cookie });
        // SAFETY: the caller vouches for the sink.
        unsafe { self.absorb() }.is_some()
    }

    /// Moves staged bytes on to the sink. The body's end gives whom to tell.
    ///
    /// # Safety
    /// The sink is writable.
    unsafe fn absorb(&mut self) -> Option<Option<Cookie>> {
        let State::Sinking(sink) = &mut self.state else { return None };
        let here = (self.end - self.start).min(sink.rest as usize);
        let skipped = here.min(sink.skip as usize);
        let (from, count) = (self.start + skipped, here - skipped);
        if count != 0 && sink.at < sink.sink.len() {
            let window = sink.sink.window(sink.at, count as u64);
            // SAFETY: `count` received bytes are staged from `from` on; the caller vouches for the sink, which is
            // user memory and so not the staging buffer.
            sink.at += unsafe { window.unpack(self.staging.at(from), count) } as u64;
        }
        sink.skip -= skipped as u32;
        sink.rest -= here as u32;
        self.start += here;
        if sink.rest != 0 {
            return None;
        }
        let cookie = sink.cookie;
        self.state = State::Between;
        Some(cookie)
    }

    /// Reads from the socket once: to the sink where a body is on its way, else to the staging buffer.
    #[inline]
    pub(crate) fn fill(&mut self, channel: &mut Channel<'_>) -> Filled {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if let State::Sinking(sink) = self.state {
            return self.fill_sink(channel, sink);
        }
        let limit = if matches!(self.state, State::Held { .. }) { self.staging.len() } else { self.window };
        if limit.saturating_sub(self.end) < SIP && self.start != 0 {
            self.compact();
        }
        // The held frame may be a peer's with longer frames than ours: it fills the staging buffer, and waits there.
        let room = limit.saturating_sub(self.end).min(self.appetite);
        if room == 0 {
            self.more = false;
            return Filled::Nothing;
        }
        // SAFETY: `room` bytes from `end` on are in the staging buffer, and free.
        let moved = unsafe { channel.receive(self.staging.at(self.end), room) };
        self.took(moved, room, channel, |inbox, bytes| {
            inbox.end += bytes;
            Filled::Some
        })
    }

    fn fill_sink(&mut self, channel: &mut Channel<'_>, sink: Sink) -> Filled {
        let direct = if sink.skip == 0 { u64::from(sink.rest).min(sink.sink.len() - sink.at) as usize } else { 0 };
        let mut pieces = [piece(std::ptr::null_mut(), 0); PIECES];
        let (mut count, direct) = runs(&sink.sink.window(sink.at, direct as u64), &mut pieces);
        if direct == 0 {
            // What the sink does not want, or would take in small runs, goes by the staging buffer.
            let room = self.window;
            // SAFETY: the staging buffer is empty while a body is on its way.
            let moved = unsafe { channel.receive(self.staging.at(0), room) };
            return self.took(moved, room, channel, |inbox, bytes| {
                inbox.end = bytes;
                // SAFETY: whoever gave the sink vouches for it until it is told of the end.
                unsafe { inbox.absorb() }.map_or(Filled::Some, Filled::Delivered)
            });
        }
        let mut asked = direct;
        if direct == sink.rest as usize {
            pieces[count] = piece(self.staging.at(0), self.appetite);
            count += 1;
            asked += self.appetite;
        }
        // SAFETY: whoever gave the sink vouches for it until it is told of the end; the staging buffer is empty.
        let moved = unsafe { channel.receive_pieces(&mut pieces[..count]) };
        self.took(moved, asked, channel, |inbox, bytes| {
            let body = bytes.min(direct);
            inbox.end = bytes - body;
            let rest = sink.rest - body as u32;
            if rest == 0 {
                inbox.state = State::Between;
                return Filled::Delivered(sink.cookie);
            }
            inbox.state = State::Sinking(Sink { at: sink.at + body as u64, rest, ..sink });
            Filled::Some
        })
    }

    #[inline]
    fn took(
        &mut self,
        moved: Moved,
        asked: usize,
        channel: &Channel<'_>,
        taken: impl FnOnce(&mut Self, usize) -> Filled,
    ) -> Filled {
        match moved {
            Moved::Bytes(bytes) => {
                // A short read emptied the socket: the next would be for nothing.
                self.more = bytes >= asked || channel.has_more();
                taken(self, bytes)
            }
            Moved::Nothing => {
                self.more = false;
                Filled::Nothing
            }
            Moved::End => Filled::End,
            Moved::Broken(number) => Filled::Broken(number),
            Moved::Forged => Filled::Forged,
        }
    }

    /// Moves staged bytes to the front.
    #[cold]
    fn compact(&mut self) {
        let count = self.end - self.start;
        // SAFETY: both runs lie in the staging buffer; they may overlap.
        unsafe { std::ptr::copy(self.staging.at(self.start), self.staging.at(0), count) };
        (self.start, self.end) = (0, count);
    }
}

/// The first runs of a window, and how many bytes they are; none where they are too short to be worth it, or the system cannot write there.
#[inline]
fn runs(window: &Span, pieces: &mut [iovec; PIECES]) -> (usize, usize) {
    if window.is_empty() || window.accelerator().is_some() {
        return (0, 0);
    }
    if let Some((base, len)) = window.as_contiguous() {
        pieces[0] = piece(base, len);
        return (1, len);
    }
    let (mut count, mut bytes) = (0, 0);
    for (place, (base, len)) in pieces.iter_mut().zip(window.runs()).take(PIECES - 1) {
        *place = piece(base, len);
        count += 1;
        bytes += len;
    }
    if bytes / count.max(1) < SHORT_RUN { (0, 0) } else { (count, bytes) }
}
