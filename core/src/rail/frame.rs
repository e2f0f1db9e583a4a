//! A frame that arrived.

use super::types::{FrameId, Peer};
use crate::convertor::Span;
use crate::wire::HEAD;

/// A frame that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Names it to the rail; void where `len` is at most [`HEAD`](crate::rail::HEAD).
    pub id: FrameId,
    /// Who sent it.
    pub from: Peer,
    /// Whose it is: the active-message tag.
    pub tag: u8,
    /// Bytes of `head` that are valid: at least the header, and all of a frame that is not longer than [`HEAD`](crate::rail::HEAD).
    pub valid: u8,
    /// Bytes of header and body.
    pub len: u32,
    /// Its first bytes, copied once: no longer in reach of the peer.
    pub head: [u8; HEAD],
}

impl Frame {
    /// The first bytes that are in.
    #[inline]
    pub fn head(&self) -> &[u8] {
        self.head.get(..self.valid as usize).unwrap_or(&self.head)
    }

    /// The same as [`FastPath::poll_short`](crate::rail::FastPath::poll_short) has it, with the body in this frame: `None` for one that is not of 24 to [`HEAD`](crate::rail::HEAD)
    /// bytes.
    #[inline]
    pub fn short(&self) -> Option<Short> {
        let (header, rest) = self.head.split_first_chunk::<{ size_of::<[u64; 3]>() }>()?;
        let body = rest.get(..(self.len as usize).wrapping_sub(header.len()))?;
        // SAFETY: the body is a slice, of what `head` has behind 24 bytes at most.
        Some(unsafe { Short::new(self.from, zerocopy::transmute!(*header), body.as_ptr(), body.len()) })
    }

    /// Whether all of it is in `head`, and nothing left in the rail.
    #[inline]
    pub const fn is_whole(&self) -> bool {
        self.len as usize <= HEAD
    }
}

/// A frame that is not longer than [`HEAD`](crate::rail::HEAD), as [`FastPath::poll_short`](crate::rail::FastPath::poll_short) yields it: as much as fits registers.
#[derive(Clone, Copy, Debug)]
pub struct Short {
    /// Who sent it.
    pub from: Peer,
    /// Its first 24 bytes as they lay in memory, copied once.
    pub header: [u64; 3],
    /// What lies behind the header.
    pub body: ShortBody,
}

/// The bytes of a [`Short`] behind its header, where the rail has them.
#[derive(Clone, Copy, Debug)]
pub struct ShortBody {
    base: *const u8,
    len: usize,
}

impl Short {
    /// A frame whose bytes behind the header are the `len` ones at `body`; made by rails.
    ///
    /// # Safety
    /// `len` is at most 32, and those bytes are valid for reads until the rail's next call, or as long as the frame that
    /// they are a part of. A peer may write there.
    #[inline(always)]
    pub const unsafe fn new(from: Peer, header: [u64; 3], body: *const u8, len: usize) -> Self {
        Self { from, header, body: ShortBody { base: body, len } }
    }
}

#[expect(clippy::len_without_is_empty, reason = "nobody asks")]
impl ShortBody {
    /// How many there are.
    #[inline(always)]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Copies them, straight from the rail's memory, to where they belong; those that do not fit the sink are dropped.
    ///
    /// # Safety
    /// The rail was not called since it yielded the frame (or that of [`Frame::short`] is still there), and the sink's memory
    /// is writable and not the rail's own.
    #[inline(always)]
    pub unsafe fn deliver(&self, sink: &Span) {
        // SAFETY: the caller vouches for the sink, and who made this for the body.
        unsafe { sink.unpack(self.base, self.len) };
    }
}
