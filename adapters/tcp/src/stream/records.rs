//! Encryption of a connection: frames travel in sealed records.
//!
//! Sealing copies, so the accepted part of a body in the user's memory is free at once; the part of a record that the socket does
//! not accept waits here. A received record is opened into its destination if that has room for the whole sealed record,
//! otherwise into a buffer from which it is copied.

use std::os::fd::RawFd;

use towline_crypt::record::{self, PLAIN, Record, WHOLE};
use towline_crypt::{Cipher, TAG};
use zeroize::Zeroizing;

use crate::system::socket::{self as sys, Transfer, iovec};

/// Bytes that are read from the socket at once.
const READ: usize = 2 * WHOLE;
/// Memory of a record layer, in bytes.
pub(crate) const BYTES: usize = PLAIN + WHOLE + READ + PLAIN + TAG;

/// The keys of a connection, and its partial records.
#[derive(Debug)]
pub(crate) struct RecordLayer {
    cipher: Cipher,
    /// Where the pieces of a record are gathered before it is sealed.
    gathered: Zeroizing<Vec<u8>>,
    /// A sealed record, and the part of it that was not sent yet.
    sealed: Box<[u8]>,
    unsent: Range,
    /// Received bytes, and the part of them that was not opened yet.
    received: Box<[u8]>,
    unopened: Range,
    /// An opened record, and the part of it that was not delivered yet.
    opened: Zeroizing<Vec<u8>>,
    undelivered: Range,
    /// A record was forged, so no later byte is accepted.
    forged: bool,
}

/// A range of bytes of a buffer.
#[derive(Clone, Copy, Default, Debug)]
struct Range {
    start: usize,
    end: usize,
}

impl Range {
    const fn is_empty(self) -> bool {
        self.start == self.end
    }
}

impl RecordLayer {
    /// A record layer with these keys. Allocates all the memory that it will need.
    pub(crate) fn new(cipher: Cipher) -> Box<Self> {
        Box::new(Self {
            cipher,
            gathered: Zeroizing::new(vec![0; PLAIN]),
            sealed: vec![0; WHOLE].into(),
            unsent: Range::default(),
            received: vec![0; READ].into(),
            unopened: Range::default(),
            opened: Zeroizing::new(vec![0; PLAIN + TAG]),
            undelivered: Range::default(),
            forged: false,
        })
    }

    /// Whether the rest of a record waits to be sent.
    pub(crate) const fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Whether there is more to deliver, or a forgery to report, although the socket may have no bytes.
    pub(crate) const fn has_more(&self) -> bool {
        !self.undelivered.is_empty() || self.forged
    }

    /// Whether a received byte was not delivered yet; the bytes may be only the beginning of a record.
    pub(crate) const fn holds_input(&self) -> bool {
        self.has_more() || !self.unopened.is_empty()
    }

    /// Whether the received bytes end with a part of a record.
    pub(crate) const fn has_partial_record(&self) -> bool {
        !self.unopened.is_empty()
    }

    /// Sends the rest of the record. `None`: all of it was sent.
    fn flush(&mut self, socket: RawFd) -> Option<Transfer> {
        while self.has_unsent() {
            let rest = &self.sealed[self.unsent.start..self.unsent.end];
            // SAFETY: the rest is a slice.
            match unsafe { sys::send(socket, rest.as_ptr(), rest.len()) } {
                Transfer::Bytes(bytes) => self.unsent.start += bytes,
                other => return Some(other),
            }
        }
        self.unsent = Range::default();
        None
    }

    /// Seals and sends pieces, and returns how many of their bytes were accepted. Without pieces, sends the rest of the record.
    ///
    /// # Safety
    /// The memory of each piece is readable.
    pub(crate) unsafe fn send(&mut self, socket: RawFd, pieces: &[iovec]) -> Transfer {
        let (mut taken, mut pieces) = (0, Pieces::new(pieces));
        loop {
            if let Some(stop) = self.flush(socket) {
                return if taken != 0 { Transfer::Bytes(taken) } else { stop };
            }
            // SAFETY: passed on from the caller.
            let plain = unsafe { pieces.next_run(&mut self.gathered) };
            if plain.is_empty() {
                return Transfer::Bytes(taken);
            }
            taken += plain.len();
            self.unsent = Range { start: 0, end: record::seal(&mut self.cipher, plain, &mut self.sealed) };
        }
    }

    /// Receives into pieces, as many bytes as have arrived.
    ///
    /// # Safety
    /// The memory of each piece is writable, and nobody else accesses it.
    pub(crate) unsafe fn receive(&mut self, socket: RawFd, pieces: &mut [iovec]) -> Transfer {
        let mut taken = 0;
        for to in pieces {
            let (mut base, mut room) = (to.iov_base.cast::<u8>(), to.iov_len);
            while room != 0 {
                if self.undelivered.is_empty() {
                    // SAFETY: the caller vouches for the rest of the piece.
                    match unsafe { self.open_next(socket, base, room) } {
                        Ok(0) => {}
                        Ok(direct) => {
                            (base, room, taken) = (base.wrapping_add(direct), room - direct, taken + direct);
                            continue;
                        }
                        Err(_) if taken != 0 => return Transfer::Bytes(taken),
                        Err(stop) => return stop,
                    }
                }
                let opened = &self.opened[self.undelivered.start..self.undelivered.end];
                let count = opened.len().min(room);
                // SAFETY: as above; the opened bytes lie in a buffer of this layer.
                unsafe { std::ptr::copy_nonoverlapping(opened.as_ptr(), base, count) };
                self.undelivered.start += count;
                (base, room, taken) = (base.wrapping_add(count), room - count, taken + count);
            }
        }
        Transfer::Bytes(taken)
    }

    /// Opens the next record. If the whole record fits into `room` bytes, opens it to `base` and returns the number of its bytes.
    /// Otherwise keeps the opened bytes as `undelivered`, and returns 0.
    ///
    /// # Safety
    /// `room` bytes from `base` on are writable.
    unsafe fn open_next(&mut self, socket: RawFd, base: *mut u8, room: usize) -> Result<usize, Transfer> {
        let sealed = loop {
            if self.forged {
                return Err(Transfer::Forged);
            }
            match record::look(&self.received[self.unopened.start..self.unopened.end]) {
                Record::Whole(sealed) => break sealed,
                Record::Malformed => self.forged = true,
                Record::Partial => self.read(socket)?,
            }
        };
        let bytes = &self.received[self.unopened.start..self.unopened.end];
        let opened = if room >= sealed {
            // SAFETY: the caller vouches for the memory, which has room for the tag too; later bytes overwrite the tag.
            let to = unsafe { std::slice::from_raw_parts_mut(base, sealed) };
            record::open(&mut self.cipher, bytes, sealed, to)
        } else {
            let opened = record::open(&mut self.cipher, bytes, sealed, &mut self.opened);
            self.undelivered = Range { start: 0, end: opened.unwrap_or(0) };
            opened.map(|_| 0)
        };
        self.unopened.start += record::PREFIX + sealed;
        opened.map_err(|_| {
            self.forged = true;
            Transfer::Forged
        })
    }

    /// Reads from the socket once.
    fn read(&mut self, socket: RawFd) -> Result<(), Transfer> {
        if self.unopened.is_empty() {
            self.unopened = Range::default();
        } else if self.unopened.start != 0 && self.received.len() - self.unopened.end < WHOLE {
            self.received.copy_within(self.unopened.start..self.unopened.end, 0);
            self.unopened = Range { start: 0, end: self.unopened.end - self.unopened.start };
        }
        let room = &mut self.received[self.unopened.end..];
        // SAFETY: the room is a slice.
        match unsafe { sys::receive(socket, room.as_mut_ptr(), room.len()) } {
            Transfer::Bytes(bytes) => {
                self.unopened.end += bytes;
                Ok(())
            }
            other => Err(other),
        }
    }
}

/// Pieces that are cut into runs of one record each.
struct Pieces<'p> {
    pieces: &'p [iovec],
    skip: usize,
}

impl<'p> Pieces<'p> {
    const fn new(pieces: &'p [iovec]) -> Self {
        Self { pieces, skip: 0 }
    }

    /// The next bytes for one record: in place if they lie in one piece, otherwise gathered. Empty at the end of the pieces.
    ///
    /// # Safety
    /// The memory of each piece is readable.
    unsafe fn next_run<'r>(&mut self, gathered: &'r mut [u8]) -> &'r [u8]
    where
        'p: 'r,
    {
        let mut count = 0;
        while let Some((first, rest)) = self.pieces.split_first() {
            let (base, len) = (first.iov_base.cast::<u8>().wrapping_add(self.skip), first.iov_len - self.skip);
            if len == 0 {
                self.advance(0, 0);
                continue;
            }
            let wanted = len.min(gathered.len() - count);
            if count == 0 && (wanted == gathered.len() || rest.is_empty()) {
                self.advance(wanted, len);
                // SAFETY: the caller guarantees that the memory is valid.
                return unsafe { std::slice::from_raw_parts(base, wanted) };
            }
            // SAFETY: as above; `gathered` is a buffer of the record layer.
            unsafe { std::ptr::copy_nonoverlapping(base, gathered[count..].as_mut_ptr(), wanted) };
            count += wanted;
            self.advance(wanted, len);
            if count == gathered.len() {
                break;
            }
        }
        &gathered[..count]
    }

    fn advance(&mut self, taken: usize, of: usize) {
        if taken == of {
            (self.pieces, self.skip) = (&self.pieces[1..], 0);
        } else {
            self.skip += taken;
        }
    }
}
