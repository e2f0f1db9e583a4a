//! Received bytes of one connection: a staging buffer from which frames are read, and the sink of a long body.

use towline_core::convertor::Span;
use towline_core::rail::{Cookie, HEAD};

use crate::stream::block::Block;
use crate::stream::channel::Channel;
use crate::system::socket::{Transfer, iovec, piece};
use crate::wire::framing::{Announced, PREFIX, decode};

/// Bytes that are read beyond a long body while long frames follow each other: the next prefix and header, and a small part of
/// the body, whose rest is then read into its sink directly.
const READ_AHEAD: usize = PREFIX + HEAD + 64;
/// After a frame of at least this length, the next read into staging is limited to [`READ_AHEAD`].
const LONG_FRAME: u32 = 32 * 1024;

/// Maximum number of pieces of memory of one read, the staging buffer included.
const PIECES: usize = 16;
/// A sink whose runs are shorter than this on average is filled from the staging buffer: a copy is cheaper than many pieces.
const SHORT_RUN: usize = 4096;

/// The receiving side of one connection.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Has room for the longest frame, for a reader that waits for a complete one. Otherwise only `read_limit` bytes are used, so
    /// that the pages behind them are never touched.
    staging: Block,
    /// Maximum number of staged bytes while no frame is held.
    read_limit: usize,
    /// The staged bytes are those from `start` to `end`.
    start: usize,
    end: usize,
    /// Maximum number of bytes of the next read into the staging buffer.
    read_size: usize,
    state: ReadState,
    /// The socket may have more bytes than were read.
    pub(crate) more: bool,
}

#[derive(Clone, Copy, Debug)]
enum ReadState {
    /// The next byte is the first of a prefix.
    BetweenFrames,
    /// A frame was reported; the staging buffer has its first bytes.
    Held { len: u32 },
    /// A body is being received into its sink.
    Delivering(Sink),
}

#[derive(Clone, Copy, Debug)]
struct Sink {
    sink: Span,
    /// Bytes of the sink that are written.
    at: u64,
    /// Bytes of the frame to drop before those of the sink.
    skip: u32,
    /// Bytes of the frame that are still missing, `skip` included.
    rest: u32,
    /// The cookie of the delivery; `None` where the frame is dropped.
    cookie: Option<Cookie>,
}

/// A frame whose header has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivedFrame {
    pub(crate) tag: u8,
    pub(crate) len: u32,
    pub(crate) valid: u8,
    pub(crate) head: [u8; HEAD],
}

/// The next item in the staging buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    Frame(ArrivedFrame),
    Goodbye,
    /// The next bytes are not a prefix.
    Malformed,
    /// The next item is not complete.
    Incomplete,
    /// A frame is held, and must be released before the next one.
    Held,
    /// A body is being received into its sink.
    Delivering,
}

/// The result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadResult {
    /// Bytes arrived.
    Some,
    /// Bytes arrived and complete the body that was being received; the cookie of its delivery.
    Delivered(Option<Cookie>),
    /// No bytes have arrived.
    WouldBlock,
    /// The peer sends nothing more.
    End,
    /// The connection is broken; the system's error number.
    Broken(i32),
    /// The received bytes are not a record that the peer sealed.
    Forged,
}

impl Inbox {
    pub(crate) fn new(read_limit: u32, longest_frame: u32) -> Self {
        let read_limit = read_limit as usize;
        let staging = Block::new(read_limit.max(PREFIX + longest_frame as usize));
        Self {
            staging,
            read_limit,
            start: 0,
            end: 0,
            read_size: read_limit,
            state: ReadState::BetweenFrames,
            more: true,
        }
    }

    /// Whether a body is being received into its sink.
    pub(crate) fn is_delivering(&self) -> bool {
        matches!(self.state, ReadState::Delivering(_))
    }

    /// Whether there are staged bytes.
    #[inline]
    pub(crate) fn has_staged(&self) -> bool {
        self.start != self.end
    }

    /// The next item in the staging buffer. A short frame is removed, a longer one is held from now on.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Next {
        match self.state {
            ReadState::BetweenFrames => {}
            ReadState::Held { .. } => return Next::Held,
            ReadState::Delivering(_) => return Next::Delivering,
        }
        let staged = self.end - self.start;
        if staged < PREFIX {
            return Next::Incomplete;
        }
        let mut prefix = [0; PREFIX];
        self.copy_out(self.start, &mut prefix);
        let (len, tag, header) = match decode(prefix) {
            Some(Announced::Frame { len, tag, header }) => (len, tag, header),
            Some(Announced::Goodbye) => return Next::Goodbye,
            None => return Next::Malformed,
        };
        let here = (staged - PREFIX).min(len as usize);
        let needed = if len as usize <= HEAD { len as usize } else { usize::from(header) };
        if here < needed {
            return Next::Incomplete;
        }
        let mut head = [0; HEAD];
        let valid = here.min(HEAD);
        self.copy_out(self.start + PREFIX, &mut head[..valid]);
        self.start += PREFIX;
        self.read_size = if len >= LONG_FRAME { READ_AHEAD.min(self.read_limit) } else { self.read_limit };
        if len as usize <= HEAD {
            self.start += len as usize;
        } else {
            self.state = ReadState::Held { len };
        }
        Next::Frame(ArrivedFrame { tag, len, valid: valid as u8, head })
    }

    /// Copies staged bytes. The caller has checked that they are staged.
    #[inline]
    fn copy_out(&self, from: usize, into: &mut [u8]) {
        debug_assert!(from + into.len() <= self.end);
        // SAFETY: the bytes up to `end` lie in the staging buffer and were received; nobody else has a reference to them.
        unsafe { std::ptr::copy_nonoverlapping(self.staging.at(from), into.as_mut_ptr(), into.len()) }
    }

    /// The length of the held frame, and how many of its bytes are staged.
    fn held(&self) -> Option<(u32, usize)> {
        let ReadState::Held { len } = self.state else { return None };
        Some((len, (self.end - self.start).min(len as usize)))
    }

    /// Copies staged bytes of the held frame from `at` on, and returns how many were copied.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) -> usize {
        let Some((_, here)) = self.held() else { return 0 };
        let count = here.saturating_sub(at).min(into.len());
        if count != 0 {
            self.copy_out(self.start + at, &mut into[..count]);
        }
        count
    }

    /// Delivers the held frame from `skip` on to `sink`. `true`: all bytes are delivered. `false`: the rest has not arrived yet.
    ///
    /// # Safety
    /// The sink is writable until the whole frame has arrived.
    pub(crate) unsafe fn deliver(&mut self, skip: usize, sink: Span, cookie: Option<Cookie>) -> bool {
        let Some((len, _)) = self.held() else { return true };
        let skip = skip.min(len as usize) as u32;
        self.state = ReadState::Delivering(Sink { sink, at: 0, skip, rest: len, cookie });
        // SAFETY: the caller guarantees that the sink is valid.
        unsafe { self.unstage() }.is_some()
    }

    /// Moves staged bytes to the sink. At the end of the body returns the cookie of its delivery.
    ///
    /// # Safety
    /// The sink is writable.
    unsafe fn unstage(&mut self) -> Option<Option<Cookie>> {
        let ReadState::Delivering(sink) = &mut self.state else { return None };
        let here = (self.end - self.start).min(sink.rest as usize);
        let skipped = here.min(sink.skip as usize);
        let (from, count) = (self.start + skipped, here - skipped);
        if count != 0 && sink.at < sink.sink.len() {
            let part = sink.sink.window(sink.at, count as u64);
            // SAFETY: `count` received bytes are staged from `from` on; the caller vouches for the sink, which is user memory and
            // so does not overlap the staging buffer.
            sink.at += unsafe { part.unpack(self.staging.at(from), count) } as u64;
        }
        sink.skip -= skipped as u32;
        sink.rest -= here as u32;
        self.start += here;
        if sink.rest != 0 {
            return None;
        }
        let cookie = sink.cookie;
        self.state = ReadState::BetweenFrames;
        Some(cookie)
    }

    /// Reads from the socket once: into the sink of the body that is being received, or into the staging buffer.
    #[inline]
    pub(crate) fn read_from(&mut self, channel: &mut Channel<'_>) -> ReadResult {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if let ReadState::Delivering(sink) = self.state {
            return self.read_into_sink(channel, sink);
        }
        let limit = if matches!(self.state, ReadState::Held { .. }) { self.staging.len() } else { self.read_limit };
        if limit.saturating_sub(self.end) < READ_AHEAD && self.start != 0 {
            self.compact();
        }
        // The held frame may come from a peer with a higher limit than this rail's: it fills the staging buffer and waits there.
        let room = limit.saturating_sub(self.end).min(self.read_size);
        if room == 0 {
            self.more = false;
            return ReadResult::WouldBlock;
        }
        // SAFETY: the `room` bytes from `end` on lie in the staging buffer and are free.
        let received = unsafe { channel.receive(self.staging.at(self.end), room) };
        self.account(received, room, channel, |inbox, bytes| {
            inbox.end += bytes;
            ReadResult::Some
        })
    }

    fn read_into_sink(&mut self, channel: &mut Channel<'_>, sink: Sink) -> ReadResult {
        let direct = if sink.skip == 0 { u64::from(sink.rest).min(sink.sink.len() - sink.at) as usize } else { 0 };
        let mut pieces = [piece(std::ptr::null_mut(), 0); PIECES];
        let (mut count, direct) = runs(&sink.sink.window(sink.at, direct as u64), &mut pieces);
        if direct == 0 {
            // Bytes that are skipped, or that the sink would take in short runs, go through the staging buffer.
            let room = self.read_limit;
            // SAFETY: the staging buffer is empty while a body is being received into its sink.
            let received = unsafe { channel.receive(self.staging.at(0), room) };
            return self.account(received, room, channel, |inbox, bytes| {
                inbox.end = bytes;
                // SAFETY: the caller of `deliver` guarantees that the sink is valid until the delivery is reported.
                unsafe { inbox.unstage() }.map_or(ReadResult::Some, ReadResult::Delivered)
            });
        }
        let mut asked = direct;
        if direct == sink.rest as usize {
            pieces[count] = piece(self.staging.at(0), self.read_size);
            count += 1;
            asked += self.read_size;
        }
        // SAFETY: the caller of `deliver` guarantees that the sink is valid until the delivery is reported; the staging buffer is
        // empty.
        let received = unsafe { channel.receive_pieces(&mut pieces[..count]) };
        self.account(received, asked, channel, |inbox, bytes| {
            let body = bytes.min(direct);
            inbox.end = bytes - body;
            let rest = sink.rest - body as u32;
            if rest == 0 {
                inbox.state = ReadState::BetweenFrames;
                return ReadResult::Delivered(sink.cookie);
            }
            inbox.state = ReadState::Delivering(Sink { at: sink.at + body as u64, rest, ..sink });
            ReadResult::Some
        })
    }

    /// The result of a read that asked for `asked` bytes; `taken` accounts for the bytes that arrived.
    #[inline]
    fn account(
        &mut self,
        received: Transfer,
        asked: usize,
        channel: &Channel<'_>,
        taken: impl FnOnce(&mut Self, usize) -> ReadResult,
    ) -> ReadResult {
        match received {
            Transfer::Bytes(bytes) => {
                // A short read has emptied the socket, so that another read would find nothing.
                self.more = bytes >= asked || channel.has_more();
                taken(self, bytes)
            }
            Transfer::WouldBlock => {
                self.more = false;
                ReadResult::WouldBlock
            }
            Transfer::End => ReadResult::End,
            Transfer::Broken(number) => ReadResult::Broken(number),
            Transfer::Forged => ReadResult::Forged,
        }
    }

    /// Moves the staged bytes to the front of the buffer.
    #[cold]
    fn compact(&mut self) {
        let count = self.end - self.start;
        // SAFETY: both runs lie in the staging buffer; `copy` allows them to overlap.
        unsafe { std::ptr::copy(self.staging.at(self.start), self.staging.at(0), count) };
        (self.start, self.end) = (0, count);
    }
}

/// The first runs of a part of a sink as pieces: how many they are, and how many bytes. None where the runs are short, or where
/// the kernel cannot write to the memory.
#[inline]
fn runs(part: &Span, pieces: &mut [iovec; PIECES]) -> (usize, usize) {
    if part.is_empty() || part.accelerator().is_some() {
        return (0, 0);
    }
    if let Some((base, len)) = part.as_contiguous() {
        pieces[0] = piece(base, len);
        return (1, len);
    }
    let (mut count, mut bytes) = (0, 0);
    for (place, (base, len)) in pieces.iter_mut().zip(part.runs()).take(PIECES - 1) {
        *place = piece(base, len);
        count += 1;
        bytes += len;
    }
    if bytes / count.max(1) < SHORT_RUN { (0, 0) } else { (count, bytes) }
}
