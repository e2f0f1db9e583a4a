//! Grants: room for one frame in a rail's memory, which the sender writes.

use core::marker::PhantomData;

use super::types::Endpoint;
use crate::convertor::Span;

/// Room for one frame in a rail's memory. It is write-only: a peer may write there, too, so nothing is read back.
#[must_use = "a grant that is not finished and committed sends nothing"]
#[derive(Debug)]
pub struct Grant<'r> {
    room: *mut u8,
    len: usize,
    ticket: Ticket,
    rail: PhantomData<&'r mut ()>,
}

impl Grant<'_> {
    /// A grant over `len` bytes at `room`. For implementations of rails.
    ///
    /// # Safety
    /// The bytes are valid for writes as long as the rail is borrowed by the grant.
    #[inline(always)]
    pub const unsafe fn new(room: *mut u8, len: usize, ticket: Ticket) -> Self {
        Self { room, len, ticket, rail: PhantomData }
    }

    /// Bytes of room.
    #[inline]
    pub const fn room(&self) -> usize {
        self.len
    }

    /// Writes `bytes` at offset `at`. Bytes beyond the room are left out.
    #[inline(always)]
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        if at > self.len {
            return;
        }
        let len = bytes.len().min(self.len - at);
        // SAFETY: `at + len` is within the room, which `new` vouches for; `bytes` cannot overlap it, since the rail's
        // memory is not reachable as a slice.
        unsafe { crate::convertor::copy::copy(bytes.as_ptr(), self.room.add(at), len) }
    }

    /// Writes words, least significant byte first, at offset `at`; nothing if they do not all fit. So a header in registers goes
    /// straight to the rail.
    #[inline(always)]
    pub fn write_words<const N: usize>(&mut self, at: usize, words: [u64; N]) {
        if self.len < at || self.len - at < N * 8 {
            return;
        }
        for (index, word) in words.into_iter().enumerate() {
            // SAFETY: `at + N * 8` is within the room, which `new` vouches for.
            unsafe { self.room.add(at + index * 8).cast::<u64>().write_unaligned(word.to_le()) }
        }
    }

    /// Packs `body` to offset `at`. Bytes beyond the room are left out.
    ///
    /// # Safety
    /// The body's memory is readable and unchanging during the call, and is not the rail's own.
    #[inline(always)]
    pub unsafe fn gather(&mut self, at: usize, body: Span) {
        if at > self.len {
            return;
        }
        // SAFETY: the room is writable from `at` for the rest of `len`; the caller guarantees that the body is valid.
        unsafe { body.pack(self.room.add(at), self.len - at) };
    }

    /// The address and length of the room, and the ticket: for a rail over several others, which makes a grant of its own of them.
    pub(super) const fn into_parts(self) -> (*mut u8, usize, Ticket) {
        (self.room, self.len, self.ticket)
    }

    /// Ends the borrow of the rail. The ticket commits the written bytes.
    #[inline]
    pub fn finish(self) -> Ticket {
        self.ticket
    }
}

/// Proof of a finished grant, for [`Rail::commit`](crate::rail::Rail::commit). Only the rail interprets the numbers.
#[must_use = "a ticket that is not committed sends nothing"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Ticket {
    /// The rail's number of the peer.
    pub endpoint: Endpoint,
    /// The position of the room.
    pub position: u64,
    /// The length that was asked for, in bytes.
    pub len: u32,
    /// A word of the rail's own.
    pub extra: u32,
}
