//! What is kept of messages that are longer than a device has room for. Their hosts move them in pieces (`pieces.rs`; `core/WINDOW.md`,
//! *Long messages*).

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use towline_core::convertor::Span;
use towline_core::pml::Request as EngineRequest;
use towline_core::pml::offload::{Delivered, DeviceFailure};
use towline_window::command::{ANNOUNCED, MOST_ANNOUNCED};

use crate::errors::Refusal;
use crate::transport::{Buffer, Comm, Request, Transport};

/// The longest piece.
const LONGEST: u64 = 256 << 10;
/// A device that has no memory for pieces of this length moves none.
const SHORTEST: u64 = 1 << 10;
/// A buffer has at most one of so many parts of the device's memory.
const PART: u64 = 64;
/// Buffers that are kept for pieces.
const KEPT: usize = 4;
/// The most messages that are announced at a time.
const NUMBERS: u16 = (MOST_ANNOUNCED >> ANNOUNCED.ilog2()) as u16;
/// Bytes of what a receiver asks for.
pub const WANT: usize = 16;
/// Bit of the tag of a piece. The lower bits are the number of its message, as in the tag of a want.
pub const PIECE: u32 = 1 << 16;
/// The last bytes of a card with limits.
const MARK: [u8; 4] = *b"TWPL";
/// The longest message that is announced.
pub const MOST: u64 = ANNOUNCED - 1;

/// What a host has room for. It is behind the card of its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of the longest message that it receives in one piece.
    pub whole: u64,
    /// Bytes of the longest piece that it sends or receives.
    pub piece: u32,
}

impl Limits {
    /// A card with these limits behind it, or without them if this host moves no pieces.
    pub fn behind(self, mut card: Vec<u8>) -> Vec<u8> {
        if self.piece == 0 {
            return card;
        }
        card.extend(self.whole.to_le_bytes());
        card.extend(self.piece.to_le_bytes());
        card.extend(MARK);
        card
    }

    /// The card of a device, and the limits of its host. `None`: the host moves no pieces.
    pub fn split(card: &[u8]) -> (&[u8], Option<Self>) {
        let limits = || {
            let (card, mark) = card.split_last_chunk::<4>()?;
            let (card, piece) = card.split_last_chunk()?;
            let (card, whole) = card.split_last_chunk()?;
            let limits = Self { whole: u64::from_le_bytes(*whole), piece: u32::from_le_bytes(*piece) };
            (*mark == MARK).then_some((card, Some(limits).filter(|limits| limits.piece != 0)))
        };
        limits().unwrap_or((card, None))
    }
}

/// The length that announces a message.
pub const fn announced(number: u16, len: u64) -> u64 {
    (number as u64) << ANNOUNCED.ilog2() | len
}

/// The number and the length of an announced message. `None`: the message comes as a whole.
pub const fn announcement_of(length: u64) -> Option<(u16, u64)> {
    if length < ANNOUNCED { None } else { Some(((length >> ANNOUNCED.ilog2()) as u16, length & MOST)) }
}

/// The length of a message, announced or not.
pub const fn length_of(length: u64) -> u64 {
    length & MOST
}

/// Which way a piece goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Send,
    Receive,
}

/// What a receiver asks for: bytes of a message. No bytes: it wants nothing more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    pub at: u64,
    pub bytes: u64,
}

impl Want {
    pub fn encode(self) -> [u8; WANT] {
        let mut bytes = [0; WANT];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: [[u8; WANT / 2]; 2]) -> Self {
        let [at, bytes] = bytes.map(u64::from_le_bytes);
        Self { at, bytes }
    }
}

/// A message that is sent.
#[derive(Debug)]
pub struct Outgoing {
    /// Its number at this host, which no other one has.
    pub key: u64,
    /// Its number for its receiver.
    pub number: u16,
    pub request: EngineRequest,
    pub peer: u32,
    pub data: Span,
    /// A receive has got its announcement.
    pub is_matched: bool,
    /// Where the next want goes. It is there while `asking` is.
    pub want: Option<Buffer>,
    /// The receive of the next want.
    pub asking: Option<Request>,
    /// That receive was cancelled, or could not be.
    pub is_cancelled: bool,
    /// What the receiver has asked for, and was not sent.
    pub wants: VecDeque<Want>,
    /// Sends in progress: the announcement, or pieces.
    pub sends: u32,
    pub outcome: Option<Result<(), DeviceFailure>>,
    /// The engine knows the outcome.
    pub is_told: bool,
}

/// A message that is received.
#[derive(Debug)]
pub struct Incoming {
    /// Its number at this host, which no other one has.
    pub key: u64,
    /// Its number for its sender.
    pub number: u16,
    /// The receive. `None`: nobody receives the message.
    pub request: Option<EngineRequest>,
    pub peer: u32,
    pub delivered: Delivered,
    pub sink: Span,
    /// Bytes that the receive takes.
    pub wanted: u64,
    /// Bytes of them that were asked for.
    pub asked: u64,
    /// Bytes of them that have arrived.
    pub arrived: u64,
    /// What is to be said to the sender.
    pub unsaid: VecDeque<Want>,
    /// Receives of pieces in progress.
    pub receives: u32,
    pub outcome: Option<Result<(), DeviceFailure>>,
}

/// The long messages of a host, and its buffers for their pieces.
#[derive(Debug, Default)]
pub struct Pipeline {
    /// The communicator of pieces and wants.
    pub comm: Option<Comm>,
    /// Bytes of a buffer. 0: this host moves no pieces.
    pub piece: u64,
    /// Free buffers.
    free: Vec<Buffer>,
    /// Buffers that the device has, with the cookies of their operations.
    pub busy: Vec<(u64, Buffer)>,
    pub sends: Vec<Outgoing>,
    pub receives: Vec<Incoming>,
    /// Announced messages that probes have taken: by their numbers, the announced length.
    pub taken: FxHashMap<u32, u64>,
    /// The engine has ended, and with it the memory of its receives.
    is_abandoned: bool,
    keys: u64,
    numbers: u16,
}

impl Pipeline {
    /// Takes buffers of a device that knows announcements.
    pub fn new(transport: &mut Transport) -> Self {
        let mut pipeline = Self::default();
        let piece = (transport.most_bytes() / PART).min(LONGEST);
        if piece < SHORTEST || !transport.has_announcements() {
            return pipeline;
        }
        pipeline.free = std::iter::from_fn(|| transport.buffer(piece).ok()).take(KEPT).collect();
        if pipeline.free.len() == KEPT {
            pipeline.piece = piece;
        } else {
            pipeline.free.drain(..).for_each(|buffer| transport.free(buffer));
        }
        pipeline
    }

    /// Takes a buffer, one of the device's memory if none is kept. `has`: how many its message has. A message may have two, or one if there
    /// are others. So messages do not wait for each other, unless all memory of the device is in use. `Ok(None)`: the message has enough.
    ///
    /// # Errors
    /// [`Refusal::Busy`]: the message has none, and there is no memory for one.
    pub fn take_buffer(
        &mut self,
        transport: &mut Transport,
        has: u32,
        what: Direction,
    ) -> Result<Option<Buffer>, Refusal> {
        let most = if self.sends.len() + self.receives.len() > 1 { 1 } else { 2 };
        if has >= most {
            return Ok(None);
        }
        // A piece that is sent needs nothing from a host. So pieces of receives leave it a buffer: if they had all memory of two hosts,
        // both would wait for ever.
        let left = match what {
            Direction::Send => 0,
            Direction::Receive => 1,
        };
        let kept = if self.free.len() > left { self.free.pop() } else { None };
        match kept.map_or_else(|| transport.buffer(self.piece), Ok) {
            Ok(buffer) => Ok(Some(buffer)),
            Err(_) if has != 0 => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Returns a buffer.
    pub fn return_buffer(&mut self, transport: &mut Transport, buffer: Buffer) {
        if self.free.len() < KEPT { self.free.push(buffer) } else { transport.free(buffer) }
    }

    /// A number that no other message of this host has.
    pub const fn next_key(&mut self) -> u64 {
        self.keys += 1;
        self.keys
    }

    /// A number that no other message has that is sent now. `None`: all are in use.
    pub fn next_number(&mut self) -> Option<u16> {
        if self.sends.len() >= usize::from(NUMBERS) {
            return None;
        }
        loop {
            self.numbers = if self.numbers < NUMBERS { self.numbers + 1 } else { 1 };
            if !self.sends.iter().any(|send| send.number == self.numbers) {
                return Some(self.numbers);
            }
        }
    }

    /// The engine ends: its memory is not accessed any more, and no end is reported.
    pub fn abandon(&mut self) {
        (self.sends, self.receives, self.is_abandoned) = (Vec::new(), Vec::new(), true);
    }

    /// Whether the engine has ended.
    pub const fn is_abandoned(&self) -> bool {
        self.is_abandoned
    }

    /// Takes the buffer of an operation that has ended.
    pub fn buffer_of(&mut self, cookie: u64) -> Option<Buffer> {
        let place = self.busy.iter().position(|(other, _)| *other == cookie)?;
        Some(self.busy.swap_remove(place).1)
    }

    /// How many operations of the device receive wants, now or soon.
    pub fn asking(&self) -> u32 {
        self.sends.iter().filter(|send| send.is_matched).count() as u32
    }

    /// Whether no message is on its way.
    pub const fn is_idle(&self) -> bool {
        self.sends.is_empty() && self.receives.is_empty()
    }

    /// Whether a message is being sent of which the engine does not know the outcome.
    pub fn is_sending(&self) -> bool {
        self.sends.iter().any(|send| !send.is_told)
    }

    /// Whether pieces are on their way from or to a peer.
    pub fn moves(&self, peer: u32) -> bool {
        let sends = self.sends.iter().any(|send| send.peer == peer && send.is_matched && send.outcome.is_none());
        sends || self.receives.iter().any(|receive| receive.peer == peer && receive.outcome.is_none())
    }

    /// Whether this host has to do something before a message goes on, and no completion comes before that.
    pub fn has_work(&self) -> bool {
        let send = |send: &Outgoing| match send.outcome {
            Some(_) => send.sends == 0 && !send.is_told,
            None => send.is_matched && (send.can_ask() || send.sends == 0 && !send.wants.is_empty()),
        };
        let receive = |receive: &Incoming| match receive.outcome {
            Some(_) => receive.receives == 0,
            None => !receive.unsaid.is_empty() || receive.receives == 0 && receive.asked < receive.wanted,
        };
        self.sends.iter().any(send) || self.receives.iter().any(receive)
    }
}

impl Outgoing {
    /// Whether the next want may be received.
    pub fn can_ask(&self) -> bool {
        self.is_matched && self.outcome.is_none() && self.asking.is_none() && self.wants.len() < 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_behind_a_card() {
        let limits = Limits { whole: 0x0102_0304_0506_0708, piece: 0x090a_0b0c };
        let card = limits.behind(b"card".to_vec());
        assert_eq!(card, b"card\x08\x07\x06\x05\x04\x03\x02\x01\x0c\x0b\x0a\x09TWPL");
        assert_eq!(Limits::split(&card), (&b"card"[..], Some(limits)));
        assert_eq!(Limits { piece: 0, ..limits }.behind(b"card".to_vec()), b"card");
        let without = [&card[..12], &[0; 4], &MARK].concat();
        assert_eq!(Limits::split(&without), (&b"card"[..], None));
        for other in [&card[..19], &card[5..], b"TWPL", b""] {
            assert_eq!(Limits::split(other), (other, None));
        }
    }

    #[test]
    fn wants_and_announcements_have_the_bytes_of_the_specification() {
        let want = Want { at: 0x0102_0304, bytes: 5 };
        let bytes = [4, 3, 2, 1, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
        let halves = [[4, 3, 2, 1, 0, 0, 0, 0], [5, 0, 0, 0, 0, 0, 0, 0]];
        assert_eq!((want.encode(), Want::decode(halves)), (bytes, want));
        assert_eq!(announced(0x7fff, 0x0102_0304), 0x7fff_0000_0102_0304);
        assert_eq!(announcement_of(0x7fff_0000_0102_0304), Some((0x7fff, 0x0102_0304)));
        assert_eq!(announcement_of(MOST), None);
        assert_eq!([length_of(MOST), length_of(announced(1, 7))], [MOST, 7]);
    }
}
