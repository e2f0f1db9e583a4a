//! The log of the firmware: a ring of bytes, which the device writes and the host reads.
//!
//! Positions count bytes and wrap at 2^32. The place of a byte is its position modulo the length of the ring. The device writes the
//! bytes of a frame, and then its position with release ordering. The host loads that with acquire ordering, copies the bytes before
//! it, and then stores its own position with release ordering, which the device loads with acquire ordering before it writes further.
//! So the bytes between both positions belong to the host, and all others to the device.
//!
//! The other side can write any word at any time. A device whose host has written a position that it cannot have takes the ring for
//! full. A host that finds such a position skips what the ring has.

use crate::atomics::{AtomicU32, Ordering};
use crate::ring::START;

/// The memory of a ring of bytes.
pub trait Bytes {
    /// Its length, a power of two.
    fn length(&self) -> u32;
    /// Copies bytes to a place. They do not cross the end.
    fn write(&self, at: u32, bytes: &[u8]);
    /// Copies bytes from a place. They do not cross the end.
    fn read(&self, at: u32, into: &mut [u8]);
    /// The word in which the device stores its position.
    fn written(&self) -> &AtomicU32;
    /// The word in which the host stores its position.
    fn taken(&self) -> &AtomicU32;
}

/// The place of a position, and how many of `bytes` bytes come before the end of the ring.
fn place(ring: &impl Bytes, position: u32, bytes: usize) -> (u32, usize) {
    let at = position & ring.length().wrapping_sub(1);
    (at, bytes.min(ring.length().wrapping_sub(at) as usize))
}

/// The end that writes. It is used by one thread at a time.
#[derive(Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct LogWriter {
    written: u32,
    /// Bytes of the frame that is being written.
    frame: u32,
    /// Bytes of that frame that did not fit. It is no `bool`, so that an `Option` of a writer in static memory begins as zeros, which take
    /// no room in a program.
    missing: u32,
    /// Bytes that fit behind the frame, as far as that is known.
    room: u32,
}

impl LogWriter {
    /// The writer of an empty ring.
    pub fn new(ring: &impl Bytes) -> Self {
        ring.written().store(START.to_le(), Ordering::Relaxed);
        ring.taken().store(START.to_le(), Ordering::Relaxed);
        Self { written: START, frame: 0, missing: 0, room: ring.length() }
    }

    /// Writes bytes of the present frame. They are not seen before its end.
    pub fn append(&mut self, ring: &impl Bytes, bytes: &[u8]) {
        let length = bytes.len();
        if length > self.room as usize {
            let taken = u32::from_le(ring.taken().load(Ordering::Acquire));
            // A reader that is ahead, or more than a ring behind, leaves no room.
            let unread = self.written.wrapping_sub(taken);
            self.room = ring.length().saturating_sub(unread).saturating_sub(self.frame);
        }
        if self.missing != 0 || length > self.room as usize {
            self.missing = self.missing.saturating_add(length as u32);
            return;
        }
        let (at, before) = place(ring, self.written.wrapping_add(self.frame), length);
        if let Some((first, rest)) = bytes.split_at_checked(before) {
            ring.write(at, first);
            if !rest.is_empty() {
                ring.write(0, rest);
            }
        }
        self.frame = self.frame.wrapping_add(length as u32);
        self.room = self.room.wrapping_sub(length as u32);
    }

    /// Ends the present frame. Returns whether the host can read it; otherwise there was no room for all of it, and it is lost.
    pub fn end(&mut self, ring: &impl Bytes) -> bool {
        let is_whole = self.missing == 0;
        if is_whole {
            self.written = self.written.wrapping_add(self.frame);
            ring.written().store(self.written.to_le(), Ordering::Release);
        } else {
            self.room = self.room.wrapping_add(self.frame);
        }
        (self.frame, self.missing) = (0, 0);
        is_whole
    }
}

/// What a read has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Taken {
    /// So many bytes, which may be none.
    Bytes(usize),
    /// One of the positions cannot be: the device has started again meanwhile, or a side has written a wrong one. What the ring had
    /// is skipped.
    Skipped,
}

/// The end that reads. It is used by one thread at a time, and by one process at a time.
#[derive(Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct LogReader {
    taken: u32,
}

impl LogReader {
    /// A reader that goes on where the last one has ended.
    pub fn new(ring: &impl Bytes) -> Self {
        Self { taken: u32::from_le(ring.taken().load(Ordering::Relaxed)) }
    }

    /// Copies the next bytes, and gives their place back to the device.
    pub fn read(&mut self, ring: &impl Bytes, into: &mut [u8]) -> Taken {
        let written = u32::from_le(ring.written().load(Ordering::Acquire));
        let unread = written.wrapping_sub(self.taken);
        if unread > ring.length() {
            self.taken = written;
            ring.taken().store(written.to_le(), Ordering::Release);
            return Taken::Skipped;
        }
        let bytes = into.len().min(unread as usize);
        if bytes == 0 {
            return Taken::Bytes(0);
        }
        let (at, before) = place(ring, self.taken, bytes);
        if let Some((first, rest)) = into.get_mut(..bytes).and_then(|into| into.split_at_mut_checked(before)) {
            ring.read(at, first);
            if !rest.is_empty() {
                ring.read(0, rest);
            }
        }
        self.taken = self.taken.wrapping_add(bytes as u32);
        ring.taken().store(self.taken.to_le(), Ordering::Release);
        Taken::Bytes(bytes)
    }
}
