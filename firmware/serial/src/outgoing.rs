//! The frame that is being written.

use cobs::CobsEncoder;
use towline_core::arena::{Arena, OutOfMemory};

/// An encoded frame with its delimiters, of which a part may have been written.
#[derive(Debug)]
pub struct Outgoing<'m> {
    bytes: &'m mut [u8],
    written: usize,
    len: usize,
}

/// The most bytes of an encoded frame with `longest` decoded bytes, delimiters included.
pub const fn encoded(longest: usize) -> usize {
    cobs::max_encoding_length(longest).saturating_add(2)
}

impl<'m> Outgoing<'m> {
    /// Room for a frame of `longest` decoded bytes.
    pub fn new(longest: usize, arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        Ok(Self { bytes: arena.table(encoded(longest))?, written: 0, len: 0 })
    }

    /// The bytes that were not written yet.
    pub fn rest(&self) -> &[u8] {
        self.bytes.get(self.written..self.len).unwrap_or_default()
    }

    /// Notes that some bytes of the rest were written.
    pub fn wrote(&mut self, count: usize) {
        self.written = self.written.saturating_add(count);
    }

    /// Drops the rest.
    pub fn drop_rest(&mut self) {
        self.written = self.len;
    }

    /// Encodes a frame of several pieces, in place of what was there. Returns whether it has room.
    pub fn encode(&mut self, pieces: [&[u8]; 3]) -> bool {
        (self.written, self.len) = (0, 0);
        // The first delimiter ends whatever the receiver has seen before, so noise costs no frame.
        let Some((first, rest)) = self.bytes.split_first_mut() else { return false };
        *first = 0;
        let mut encoder = CobsEncoder::new(rest);
        for piece in pieces {
            if encoder.push(piece).is_err() {
                return false;
            }
        }
        let end = encoder.finalize().saturating_add(1);
        let Some(last) = self.bytes.get_mut(end) else { return false };
        *last = 0;
        self.len = end.saturating_add(1);
        true
    }
}
