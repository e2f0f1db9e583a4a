//! What the device answers.

use core::fmt;

use crate::atomics::{AtomicU32, Ordering};
use crate::command::{ANY, halves, join};
use crate::ring::{Entry, WORDS};

/// The end of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Completion {
    /// The command's cookie.
    pub cookie: u64,
    /// Its result.
    pub result: Result<Done, Failure>,
    /// If it failed: the rank of the peer whose loss or end is the reason, or [`ANY`]. Of a receive that has lost its message: the
    /// sender. Of a put, get, atomic or frame: the peer.
    pub failed: u32,
}

impl Completion {
    /// The end of a command, whose failure is not that of a peer.
    pub const fn new(cookie: u64, result: Result<Done, Failure>) -> Self {
        Self { cookie, result, failed: ANY }
    }
}

/// The result of a command that succeeded. Fields that it does not set are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Done {
    /// Receive, probe: the rank of the sender. Of a frame: the peer that has sent it.
    pub rank: u32,
    /// Receive, probe: the tag.
    pub tag: u32,
    /// Receive, probe: bytes of the message.
    pub received: u64,
    /// Receive: bytes that were written. Fewer than `received` if the memory was too small.
    pub delivered: u64,
    /// A new communicator, registration or region, a message that a probe took out, the length of a card.
    pub value: u32,
    /// Atomic: the word before the operation.
    pub word: u64,
}

/// Why a command failed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
#[non_exhaustive]
pub enum Failure {
    /// A probe found no message.
    NotFound = 1,
    /// It was cancelled.
    Cancelled = 2,
    /// The device's tables are full. The host tries again later.
    Full = 3,
    /// The host: the communicator, rank, peer, message or tag does not exist.
    NoSuchThing = 4,
    /// The host: the memory is outside the buffers of the window.
    OutOfBounds = 5,
    /// The host: the device does not know the command.
    Unknown = 6,
    /// The host: the command has a value that is not allowed, or names a context, a peer or the card of a peer that exists already.
    Malformed = 7,
    /// The peer was lost.
    PeerFailed = 8,
    /// The peer has ended.
    PeerFinished = 9,
    /// The peer refused the message, or violated the protocol.
    Refused = 10,
    /// No link of the device reaches the peer.
    Unreachable = 11,
    /// A ready send found no receive.
    NotReady = 12,
    /// The host: the key is none of this peer's device, or of an earlier start of it.
    BadKey = 13,
    /// The host: the peer has deregistered the memory, or its session has ended.
    StaleKey = 14,
    /// The peer: it has not registered the memory for this operation, or not for this device.
    NoRight = 15,
    /// The host: the operation reaches beyond the end of the registered memory.
    OutOfMemory = 16,
    /// The host: there is no such atomic, or the word is not at a multiple of its size.
    NotAvailable = 17,
    /// The host: the device could not read or write the body in its region, which is not mapped, or is deregistered.
    BadMemory = 18,
    /// The peer: it cannot read the message that it has begun to send. Some of its bytes may have been written.
    Aborted = 19,
    /// The device does not reach the memory of the host.
    NoHostMemory = 20,
    /// A failure that this host does not know: the firmware is newer.
    Other = 255,
}

impl Failure {
    const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::NotFound,
            2 => Self::Cancelled,
            3 => Self::Full,
            4 => Self::NoSuchThing,
            5 => Self::OutOfBounds,
            6 => Self::Unknown,
            7 => Self::Malformed,
            8 => Self::PeerFailed,
            9 => Self::PeerFinished,
            10 => Self::Refused,
            11 => Self::Unreachable,
            12 => Self::NotReady,
            13 => Self::BadKey,
            14 => Self::StaleKey,
            15 => Self::NoRight,
            16 => Self::OutOfMemory,
            17 => Self::NotAvailable,
            18 => Self::BadMemory,
            19 => Self::Aborted,
            20 => Self::NoHostMemory,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "there is no such message",
            Self::Cancelled => "it was cancelled",
            Self::Full => "the tables of the device are full: try again later",
            Self::NoSuchThing => "the device does not know the communicator, rank, peer, message or tag",
            Self::OutOfBounds => "the memory is outside the buffers of the window",
            Self::Unknown => "the firmware does not know the command: it is older than the host",
            Self::Malformed => {
                "the command has a value that is not allowed, or names a context, a peer or the card of a peer that exists already: check that each device has an address of its own"
            }
            Self::PeerFailed => "the peer was lost",
            Self::PeerFinished => "the peer has ended",
            Self::Refused => "the peer refused the message, or violated the protocol",
            Self::Unreachable => "no link of the device reaches the peer",
            Self::Other => "it failed for a reason that this host does not know: the firmware is newer",
            Self::NotReady => "a ready send found no receive: post the receive first",
            Self::BadKey => {
                "the key is none of this peer's device, or of an earlier start of it: ask the peer for its present key"
            }
            Self::StaleKey => "the peer has deregistered the memory, or its session has ended: ask it for a new key",
            Self::NoRight => {
                "the peer has not registered the memory for this operation, or not for this process: register it with that right"
            }
            Self::OutOfMemory => {
                "the operation reaches beyond the end of the peer's registered memory: check offset and length"
            }
            Self::NotAvailable => {
                "there is no such atomic, or the word is not at a multiple of its size: use another operation or offset"
            }
            Self::BadMemory => {
                "the device cannot read or write the memory of the message: keep it mapped, with the rights that the operation needs, until the end"
            }
            Self::Aborted => "the peer cannot read the memory of the message that it has begun to send: have it send the message again",
            Self::NoHostMemory => {
                "the device does not reach the memory of the host: messages are copied to the buffers of the window"
            }
        })
    }
}

impl core::error::Error for Failure {}

towline_core::debug_as_display!(Failure);

/// The device wrote a completion that is not valid.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct BadCompletion;

impl fmt::Display for BadCompletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the device has written a completion with a value that is not allowed")
    }
}

impl core::error::Error for BadCompletion {}

towline_core::debug_as_display!(BadCompletion);

impl Completion {
    /// The words of the entry.
    pub fn encode(&self) -> Entry {
        let (number, done) = match self.result {
            Ok(done) => (0, done),
            Err(failure) => (failure as u32, Done { rank: self.failed, ..Done::default() }),
        };
        let [cookie_low, cookie_high] = halves(self.cookie);
        let ([received_low, received_high], [delivered_low, delivered_high]) =
            (halves(done.received), halves(done.delivered));
        let [word_low, word_high] = halves(done.word);
        let mut entry = [0; WORDS];
        let used = [
            number,
            cookie_low,
            cookie_high,
            done.rank,
            done.tag,
            received_low,
            received_high,
            delivered_low,
            delivered_high,
            done.value,
            word_low,
            word_high,
        ];
        for (word, value) in entry.iter_mut().zip(used) {
            *word = value;
        }
        entry
    }

    /// The cookie and the result of a receive that has succeeded, from the words of its entry. `None`: the entry is that of a command
    /// that has failed. Value and word of the result are not read.
    #[cfg(not(window_model))]
    #[inline]
    pub(crate) fn received(words: &[AtomicU32]) -> Option<(u64, Done)> {
        let [
            number,
            cookie_low,
            cookie_high,
            rank,
            tag,
            received_low,
            received_high,
            delivered_low,
            delivered_high,
            ..,
        ] = words
        else {
            return None;
        };
        let load = |word: &AtomicU32| u32::from_le(word.load(Ordering::Relaxed));
        let joined = |low, high| join(load(low), load(high));
        let done = Done {
            rank: load(rank),
            tag: load(tag),
            received: joined(received_low, received_high),
            delivered: joined(delivered_low, delivered_high),
            value: 0,
            word: 0,
        };
        (load(number) == 0).then(|| (joined(cookie_low, cookie_high), done))
    }

    /// The completion of an entry.
    ///
    /// # Errors
    /// [`BadCompletion`].
    pub fn decode(entry: &Entry) -> Result<Self, BadCompletion> {
        let [
            number,
            cookie_low,
            cookie_high,
            rank,
            tag,
            received_low,
            received_high,
            delivered_low,
            delivered_high,
            value,
            word_low,
            word_high,
            ..,
        ] = *entry;
        let received = join(received_low, received_high);
        let delivered = join(delivered_low, delivered_high);
        let (result, failed) = match number {
            0 => (Ok(Done { rank, tag, received, delivered, value, word: join(word_low, word_high) }), ANY),
            number => {
                let number = u8::try_from(number).map_err(|_| BadCompletion)?;
                (Err(Failure::from_number(number)), rank)
            }
        };
        Ok(Self { cookie: join(cookie_low, cookie_high), result, failed })
    }
}
