//! The way between the buffers of a connection and its socket: as it is, or sealed in records.
//!
//! What is sealed is copied on its way, so bodies in place are free at once, as far as they were taken; what the socket does not
//! take of a record waits here. What comes is opened to where it belongs where that has room for a whole sealed record, else to a
//! buffer from which it is copied.

use std::os::fd::RawFd;

use towline_crypt::record::{self, PLAIN, Record, WHOLE};
use towline_crypt::{Cipher, TAG};
use zeroize::Zeroizing;

use crate::system::socket::{self as sys, Moved, iovec, piece};

/// Bytes that are read from the socket at once.
const READ: usize = 2 * WHOLE;
/// What a sealed channel takes, in bytes.
pub(crate) const BYTES: usize = PLAIN + WHOLE + READ + PLAIN + TAG;

/// The socket of a connection, with what seals it.
#[derive(Debug)]
pub(crate) struct Channel<'c> {
    pub(crate) socket: RawFd,
    /// Which connection it is.
    pub(crate) word: u64,
    pub(crate) sealed: Option<&'c mut Sealed>,
}

/// Keys of a connection, and what is half done.
#[derive(Debug)]
pub(crate) struct Sealed {
    cipher: Cipher,
    /// Where pieces come together.
    gathered: Zeroizing<Vec<u8>>,
    /// A record that has not left, or not all of it.
    out: Box<[u8]>,
    left: Run,
    /// What came, as it came.
    into: Box<[u8]>,
    came: Run,
    /// What was opened and not taken.
    opened: Zeroizing<Vec<u8>>,
    ready: Run,
    /// Nothing more that comes can be believed.
    forged: bool,
}

/// From where to where something is.
#[derive(Clone, Copy, Default, Debug)]
struct Run {
    start: usize,
    end: usize,
}

impl Run {
    const fn is_empty(self) -> bool {
        self.start == self.end
    }
}

impl Sealed {
    /// With these keys. Allocates all that it will need.
    pub(crate) fn new(cipher: Cipher) -> Box<Self> {
        Box::new(Self {
            cipher,
            gathered: Zeroizing::new(vec![0; PLAIN]),
            out: vec![0; WHOLE].into(),
            left: Run::default(),
            into: vec![0; READ].into(),
            came: Run::default(),
            opened: Zeroizing::new(vec![0; PLAIN + TAG]),
            ready: Run::default(),
            forged: false,
        })
    }

    /// Whether something sealed waits to leave.
    pub(crate) const fn lags(&self) -> bool {
        !self.left.is_empty()
    }

    /// Whether there is more to take, or to be told, though the socket may have nothing.
    pub(crate) const fn has_more(&self) -> bool {
        !self.ready.is_empty() || self.forged
    }

    /// Whether something that came was not taken yet; perhaps it is only the beginning of a record.
    pub(crate) const fn keeps(&self) -> bool {
        self.has_more() || !self.came.is_empty()
    }

    /// Whether the stream ended in the middle of a record.
    pub(crate) const fn is_cut(&self) -> bool {
        !self.came.is_empty()
    }

    /// Gives the socket what waits. `None`: all has left.
    fn push(&mut self, socket: RawFd) -> Option<Moved> {
        while self.lags() {
            let rest = &self.out[self.left.start..self.left.end];
            // SAFETY: the rest is a slice.
            match unsafe { sys::send(socket, rest.as_ptr(), rest.len()) } {
                Moved::Bytes(bytes) => self.left.start += bytes,
                other => return Some(other),
            }
        }
        self.left = Run::default();
        None
    }

    /// Seals and sends pieces; how many of their bytes were taken. With none, sends what waits.
    ///
    /// # Safety
    /// The memory of each piece is readable.
    unsafe fn send(&mut self, socket: RawFd, pieces: &[iovec]) -> Moved {
        let (mut taken, mut pieces) = (0, Pieces::new(pieces));
        loop {
            if let Some(stop) = self.push(socket) {
                return if taken != 0 { Moved::Bytes(taken) } else { stop };
            }
            // SAFETY: passed on from the caller.
            let plain = unsafe { pieces.next_run(&mut self.gathered) };
            if plain.is_empty() {
                return Moved::Bytes(taken);
            }
            taken += plain.len();
            self.left = Run { start: 0, end: record::seal(&mut self.cipher, plain, &mut self.out) };
        }
    }

    /// Receives into pieces, as many bytes as there are.
    ///
    /// # Safety
    /// The memory of each piece is writable, and nobody else's.
    unsafe fn receive(&mut self, socket: RawFd, pieces: &mut [iovec]) -> Moved {
        let mut taken = 0;
        for to in pieces {
            let (mut base, mut room) = (to.iov_base.cast::<u8>(), to.iov_len);
            while room != 0 {
                if self.ready.is_empty() {
                    // SAFETY: the caller vouches for the rest of the piece.
                    match unsafe { self.open_next(socket, base, room) } {
                        Ok(0) => {}
                        Ok(direct) => {
                            (base, room, taken) = (base.wrapping_add(direct), room - direct, taken + direct);
                            continue;
                        }
                        Err(_) if taken != 0 => return Moved::Bytes(taken),
                        Err(stop) => return stop,
                    }
                }
                let ready = &self.opened[self.ready.start..self.ready.end];
                let count = ready.len().min(room);
                // SAFETY: as above; what was opened is memory of our own.
                unsafe { std::ptr::copy_nonoverlapping(ready.as_ptr(), base, count) };
                self.ready.start += count;
                (base, room, taken) = (base.wrapping_add(count), room - count, taken + count);
            }
        }
        Moved::Bytes(taken)
    }

    /// Opens the next record: to `base`, how many bytes there, where there is room for all of it; else it is `ready`.
    ///
    /// # Safety
    /// `room` bytes from `base` on are writable.
    unsafe fn open_next(&mut self, socket: RawFd, base: *mut u8, room: usize) -> Result<usize, Moved> {
        let sealed = loop {
            if self.forged {
                return Err(Moved::Forged);
            }
            match record::look(&self.into[self.came.start..self.came.end]) {
                Record::Whole(sealed) => break sealed,
                Record::Malformed => self.forged = true,
                Record::Partial => self.read(socket)?,
            }
        };
        let bytes = &self.into[self.came.start..self.came.end];
        let opened = if room >= sealed {
            // SAFETY: the caller vouches for the memory, which takes the seal as well, before the next bytes come there.
            let to = unsafe { std::slice::from_raw_parts_mut(base, sealed) };
            record::open(&mut self.cipher, bytes, sealed, to)
        } else {
            let opened = record::open(&mut self.cipher, bytes, sealed, &mut self.opened);
            self.ready = Run { start: 0, end: opened.unwrap_or(0) };
            opened.map(|_| 0)
        };
        self.came.start += record::PREFIX + sealed;
        opened.map_err(|_| {
            self.forged = true;
            Moved::Forged
        })
    }

    fn read(&mut self, socket: RawFd) -> Result<(), Moved> {
        if self.came.is_empty() {
            self.came = Run::default();
        } else if self.came.start != 0 && self.into.len() - self.came.end < WHOLE {
            self.into.copy_within(self.came.start..self.came.end, 0);
            self.came = Run { start: 0, end: self.came.end - self.came.start };
        }
        let room = &mut self.into[self.came.end..];
        // SAFETY: the room is a slice.
        match unsafe { sys::receive(socket, room.as_mut_ptr(), room.len()) } {
            Moved::Bytes(bytes) => {
                self.came.end += bytes;
                Ok(())
            }
            other => Err(other),
        }
    }
}

/// Pieces that are taken in runs of a record.
struct Pieces<'p> {
    pieces: &'p [iovec],
    skip: usize,
}

impl<'p> Pieces<'p> {
    const fn new(pieces: &'p [iovec]) -> Self {
        Self { pieces, skip: 0 }
    }

    /// Up to a record's bytes: where they lie, if that is in one piece, else gathered. Empty at the end.
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
                // SAFETY: the caller vouches for the memory.
                return unsafe { std::slice::from_raw_parts(base, wanted) };
            }
            // SAFETY: as above; what is gathered is memory of our own.
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

impl Channel<'_> {
    /// Sends one piece.
    ///
    /// # Safety
    /// The memory is readable for `len` bytes.
    #[inline]
    pub(crate) unsafe fn send(&mut self, from: *const u8, len: usize) -> Moved {
        match &mut self.sealed {
            // SAFETY: passed on from the caller.
            None => unsafe { sys::send(self.socket, from, len) },
            // SAFETY: as above.
            Some(sealed) => unsafe { sealed.send(self.socket, &[piece(from.cast_mut(), len)]) },
        }
    }

    /// Sends pieces, in order; sealed, none of them send what waits.
    ///
    /// # Safety
    /// The memory of each piece is readable.
    #[inline]
    pub(crate) unsafe fn send_pieces(&mut self, pieces: &mut [iovec]) -> Moved {
        match &mut self.sealed {
            // SAFETY: passed on from the caller.
            None => unsafe { sys::send_pieces(self.socket, pieces) },
            // SAFETY: as above.
            Some(sealed) => unsafe { sealed.send(self.socket, pieces) },
        }
    }

    /// Receives into one piece.
    ///
    /// # Safety
    /// The memory is writable for `len` bytes.
    #[inline]
    pub(crate) unsafe fn receive(&mut self, into: *mut u8, len: usize) -> Moved {
        match &mut self.sealed {
            // SAFETY: passed on from the caller.
            None => unsafe { sys::receive(self.socket, into, len) },
            // SAFETY: as above.
            Some(sealed) => unsafe { sealed.receive(self.socket, &mut [piece(into, len)]) },
        }
    }

    /// Receives into pieces, in order.
    ///
    /// # Safety
    /// The memory of each piece is writable.
    #[inline]
    pub(crate) unsafe fn receive_pieces(&mut self, pieces: &mut [iovec]) -> Moved {
        match &mut self.sealed {
            // SAFETY: passed on from the caller.
            None => unsafe { sys::receive_pieces(self.socket, pieces) },
            // SAFETY: as above.
            Some(sealed) => unsafe { sealed.receive(self.socket, pieces) },
        }
    }

    /// Whether something sealed waits to leave.
    #[inline]
    pub(crate) fn lags(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.lags())
    }

    /// Whether the stream ended in the middle of a record.
    pub(crate) fn is_cut(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.is_cut())
    }

    /// Whether there is more to take although the socket may have nothing.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.has_more())
    }
}
