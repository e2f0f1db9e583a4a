//! Frames that arrive.

use super::types::{FrameId, Peer};
use crate::convertor::Span;
use crate::wire::HEAD;

/// A frame that arrived.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Frame {
    /// The rail's name of the frame. It is void if `len` is at most [`HEAD`](crate::rail::HEAD).
    pub id: FrameId,
    /// The sender.
    pub from: Peer,
    /// The active-message tag: which layer the frame belongs to.
    pub tag: u8,
    /// How many bytes of `head` are valid: at least the header; the whole frame if it is not longer than
    /// [`HEAD`](crate::rail::HEAD).
    pub valid: u8,
    /// Bytes of header and body.
    pub len: u32,
    /// The first bytes, copied once. The peer cannot change the copy.
    pub head: [u8; HEAD],
}

impl Frame {
    /// The valid first bytes.
    #[inline]
    pub fn head(&self) -> &[u8] {
        self.head.get(..self.valid as usize).unwrap_or(&self.head)
    }

    /// The frame as [`FastPath::poll_short`](crate::rail::FastPath::poll_short) yields it, with the body in this frame. `None` if
    /// it is not 24 to [`HEAD`](crate::rail::HEAD) bytes long.
    #[inline]
    pub fn short(&self) -> Option<Short> {
        let (header, rest) = self.head.split_first_chunk::<{ size_of::<[u64; 3]>() }>()?;
        let body = rest.get(..(self.len as usize).wrapping_sub(header.len()))?;
        // SAFETY: the body is a slice of `head` after its first 24 bytes, so it has at most 32 bytes.
        Some(unsafe { Short::new(self.from, zerocopy::transmute!(*header), body.as_ptr(), body.len()) })
    }

    /// Whether the whole frame is in `head`, and the rail holds nothing of it.
    #[inline]
    pub const fn is_whole(&self) -> bool {
        self.len as usize <= HEAD
    }
}

/// A frame that lies in memory in one piece, as [`FastPath::poll_short`](crate::rail::FastPath::poll_short) yields it: its header
/// is in registers.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Short {
    /// The sender.
    pub from: Peer,
    /// The first 24 bytes of the frame, as in memory, copied once.
    pub header: [u64; 3],
    /// The bytes after the header.
    pub body: ShortBody,
}

/// A frame whose bytes [`FastPath::poll_copied`](crate::rail::FastPath::poll_copied) has copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Copied {
    /// The sender.
    pub from: Peer,
    /// The tag.
    pub tag: u8,
    /// How many bytes there are.
    pub len: u32,
}

/// The bytes of a [`Short`] after its header, in the rail's memory.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ShortBody {
    base: *const u8,
    len: usize,
}

impl Short {
    /// A frame whose bytes after the header are the `len` bytes at `body`. For implementations of rails.
    ///
    /// # Safety
    /// Those bytes are valid for reads until the rail's next call, or as long as the frame that they are part of. A peer may write
    /// there.
    #[inline(always)]
    pub const unsafe fn new(from: Peer, header: [u64; 3], body: *const u8, len: usize) -> Self {
        Self { from, header, body: ShortBody { base: body, len } }
    }
}

#[expect(clippy::len_without_is_empty, reason = "no caller asks")]
impl ShortBody {
    /// How many bytes there are.
    #[inline(always)]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Copies the bytes from the rail's memory to the sink. Bytes that do not fit the sink are dropped.
    ///
    /// # Safety
    /// The rail was not called since it yielded the frame (for [`Frame::short`]: that frame still exists). The sink's memory is
    /// writable, and not the rail's own.
    #[inline(always)]
    pub unsafe fn deliver(&self, sink: &Span) {
        // SAFETY: the caller vouches for the sink, and the caller of `new` for the body.
        unsafe { sink.unpack(self.base, self.len) };
    }
}
