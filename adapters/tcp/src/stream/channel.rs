//! The channel between the buffers of a connection and its socket: plain, or encrypted in records.

use std::os::fd::RawFd;

use crate::stream::records::RecordLayer;
use crate::system::socket::{self as sys, Transfer, iovec, piece};

/// The socket of a connection, with its encryption.
#[derive(Debug)]
pub(crate) struct Channel<'c> {
    pub(crate) socket: RawFd,
    /// The token of the connection, which identifies it.
    pub(crate) token: u64,
    pub(crate) records: Option<&'c mut RecordLayer>,
}

impl Channel<'_> {
    /// Sends one piece.
    ///
    /// # Safety
    /// The memory is readable for `len` bytes.
    #[inline]
    pub(crate) unsafe fn send(&mut self, from: *const u8, len: usize) -> Transfer {
        match &mut self.records {
            // SAFETY: passed on from the caller.
            None => unsafe { sys::send(self.socket, from, len) },
            // SAFETY: as above.
            Some(records) => unsafe { records.send(self.socket, &[piece(from.cast_mut(), len)]) },
        }
    }

    /// Sends pieces, in order. On an encrypted connection, no pieces send the rest of the last record.
    ///
    /// # Safety
    /// The memory of each piece is readable.
    #[inline]
    pub(crate) unsafe fn send_pieces(&mut self, pieces: &mut [iovec]) -> Transfer {
        match &mut self.records {
            // SAFETY: passed on from the caller.
            None => unsafe { sys::send_pieces(self.socket, pieces) },
            // SAFETY: as above.
            Some(records) => unsafe { records.send(self.socket, pieces) },
        }
    }

    /// Receives into one piece.
    ///
    /// # Safety
    /// The memory is writable for `len` bytes.
    #[inline]
    pub(crate) unsafe fn receive(&mut self, into: *mut u8, len: usize) -> Transfer {
        match &mut self.records {
            // SAFETY: passed on from the caller.
            None => unsafe { sys::receive(self.socket, into, len) },
            // SAFETY: as above.
            Some(records) => unsafe { records.receive(self.socket, &mut [piece(into, len)]) },
        }
    }

    /// Receives into pieces, in order.
    ///
    /// # Safety
    /// The memory of each piece is writable.
    #[inline]
    pub(crate) unsafe fn receive_pieces(&mut self, pieces: &mut [iovec]) -> Transfer {
        match &mut self.records {
            // SAFETY: passed on from the caller.
            None => unsafe { sys::receive_pieces(self.socket, pieces) },
            // SAFETY: as above.
            Some(records) => unsafe { records.receive(self.socket, pieces) },
        }
    }

    /// Whether the rest of a record waits to be sent.
    #[inline]
    pub(crate) fn has_unsent_record(&self) -> bool {
        self.records.as_ref().is_some_and(|records| records.has_unsent())
    }

    /// Whether the stream ended in the middle of a record.
    pub(crate) fn ended_mid_record(&self) -> bool {
        self.records.as_ref().is_some_and(|records| records.has_partial_record())
    }

    /// Whether there is more to receive although the socket may have no bytes.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.records.as_ref().is_some_and(|records| records.has_more())
    }
}
