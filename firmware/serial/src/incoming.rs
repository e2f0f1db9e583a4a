//! The frame that is arriving.

use cobs::{DecodeResult, DecoderState};
use towline_core::arena::{Arena, OutOfMemory};

/// A frame that arrives byte by byte.
#[derive(Debug)]
pub struct Incoming<'m> {
    decoder: DecoderState,
    /// The decoded bytes.
    frame: &'m mut [u8],
    len: usize,
    /// Bytes on the line since the last delimiter.
    seen: u32,
    /// The frame cannot be decoded, or is too long.
    bad: bool,
}

/// What a byte ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Nothing.
    Nothing,
    /// A frame with this number of decoded bytes, which took `seen` bytes on the line.
    Frame { len: usize, seen: u32 },
    /// A frame that cannot be decoded or is too long.
    Bad { seen: u32 },
}

impl<'m> Incoming<'m> {
    /// Room for a frame of `longest` decoded bytes.
    pub fn new(longest: usize, arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        Ok(Self { decoder: DecoderState::Idle, frame: arena.table(longest)?, len: 0, seen: 0, bad: false })
    }

    /// Takes the next byte of the line.
    pub fn feed(&mut self, byte: u8) -> Ended {
        if byte == 0 {
            return self.end();
        }
        self.seen = self.seen.saturating_add(1);
        if self.bad {
            return Ended::Nothing;
        }
        match self.decoder.feed(byte) {
            Ok(DecodeResult::DataContinue(byte)) => match self.frame.get_mut(self.len) {
                Some(to) => {
                    *to = byte;
                    self.len = self.len.wrapping_add(1);
                }
                None => self.bad = true,
            },
            Ok(_) => {}
            Err(_) => self.bad = true,
        }
        Ended::Nothing
    }

    /// Ends the frame, and begins the next one.
    fn end(&mut self) -> Ended {
        let whole = matches!(self.decoder.feed(0), Ok(DecodeResult::DataComplete));
        let (len, seen, bad) = (self.len, self.seen, self.bad);
        (self.decoder, self.len, self.seen, self.bad) = (DecoderState::Idle, 0, 0, false);
        match seen {
            0 => Ended::Nothing,
            _ if whole && !bad => Ended::Frame { len, seen },
            _ => Ended::Bad { seen },
        }
    }

    /// The decoded bytes of the frame that has just ended.
    pub fn frame(&self, len: usize) -> &[u8] {
        self.frame.get(..len).unwrap_or_default()
    }
}
