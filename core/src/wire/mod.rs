//! The headers of the engine's frames: little-endian, with a version, specified in `WIRE.md`.
//!
//! Every header begins with [`Common`]. Its first byte has the version and the kind. Headers are written by value, and read from
//! a private copy of a frame's first bytes, never from memory that a peer can write.
//!
//! ```
//! use towline_core::wire::{Kind, Match, kind};
//! use zerocopy::{FromBytes, IntoBytes};
//!
//! let header = Match::new(7, 42, 1);
//! assert_eq!(header.as_bytes()[0], 0x11); // version 1, kind 1
//! assert_eq!(kind(header.as_bytes()), Some(Kind::Match));
//! let (read, body) = Match::read_from_prefix(header.as_bytes()).unwrap();
//! assert_eq!((read.tag.get(), body.len()), (42, 0));
//! ```

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::pool::Handle;

mod opaque;

pub use opaque::{HEAD, KEY, Key, REMOTE_BUFFER_BYTES, RemoteBuffer};

/// Version of the headers. A frame of another version is counted and dropped.
pub const VERSION: u8 = 1;

/// In [`Rendezvous`]: the sender expects an answer when its message is matched (`MCA_PTL_FLAGS_ACK`).
pub const FLAG_ACK: u8 = 0x01;
/// In [`Fragment`]: the sender cannot read the rest of its message. The receive fails.
pub const FLAG_ABORT: u8 = 0x01;
/// In [`Rendezvous`]: ready mode. Without a posted receive the message is rejected.
pub const FLAG_READY: u8 = 0x02;
/// In [`Rendezvous`]: the message answers an [`Ask`]. It takes no credit and no sequence number. In [`Credit`], with
/// [`FLAG_KEEPALIVE`]: the sender gives up the receiver, since it seems to be stalled.
pub const FLAG_ANSWER: u8 = 0x04;
/// In [`Ask`]: it is for a probe, so the answer may be kept unmatched. In [`Ack`]: the message is kept by a matched probe, and
/// the ack that counts follows.
pub const FLAG_PROBE: u8 = 0x08;
/// In [`Nothing`]: the sender does not hold back any message any more.
pub const FLAG_NONE_HELD: u8 = 0x08;
/// In [`Credit`]: the receiver answers with a credit frame as soon as it makes progress.
pub const FLAG_KEEPALIVE: u8 = 0x08;
/// In [`Rendezvous`]: the message is exposed. The body is not payload but a [`RemoteBuffer`], by which the receiver's rail may
/// read the message.
pub const FLAG_EXPOSED: u8 = 0x10;
/// In [`Ack`]: the sender's device puts the bytes that do not come in frames.
pub const FLAG_PUT: u8 = 0x20;
/// In [`Ack`]: the receiver's device gets the bytes that do not come in frames.
pub const FLAG_GET: u8 = 0x40;

/// The kind of a header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum Kind {
    /// [`Match`]: a whole message.
    Match = 1,
    /// [`Rendezvous`]: the first fragment of a message. The rest waits for an [`Ack`].
    Rendezvous = 2,
    /// [`Ack`]: the message is matched, and the rest may be sent.
    Ack = 3,
    /// [`Fragment`]: a piece of the rest of a message.
    Fragment = 4,
    /// [`Finish`]: the message is matched, and the receiver needs no more of it.
    Finish = 5,
    /// [`Reject`]: the message is not accepted.
    Reject = 6,
    /// [`Credit`]: credit is returned.
    Credit = 7,
    /// [`Held`]: the sender holds back messages for lack of credit.
    Held = 8,
    /// [`Ask`]: a receive or a probe asks for a message that is held back.
    Ask = 9,
    /// [`Nothing`]: no message that is held back matches the ask.
    Nothing = 10,
    /// [`Offer`]: memory that the other side's device may access.
    Offer = 11,
    /// [`Performed`]: a device has moved a piece of a message.
    Performed = 12,
}

impl Kind {
    /// Bytes of the header.
    pub const fn header_len(self) -> usize {
        match self {
            Self::Match => size_of::<Match>(),
            Self::Rendezvous => size_of::<Rendezvous>(),
            Self::Ack => size_of::<Ack>(),
            Self::Fragment => size_of::<Fragment>(),
            Self::Finish => size_of::<Finish>(),
            Self::Reject => size_of::<Reject>(),
            Self::Credit => size_of::<Credit>(),
            Self::Held => size_of::<Held>(),
            Self::Ask => size_of::<Ask>(),
            Self::Nothing => size_of::<Nothing>(),
            Self::Offer => size_of::<Offer>(),
            Self::Performed => size_of::<Performed>(),
        }
    }

    /// The first byte of a header of this kind.
    #[inline]
    pub(crate) const fn byte(self) -> u8 {
        VERSION << 4 | self as u8
    }
}

/// The kind of the header at the start of `bytes`. `None` if the version or the kind is unknown, or if there are too few bytes.
#[inline]
pub fn kind(bytes: &[u8]) -> Option<Kind> {
    let first = *bytes.first()?;
    let kind = match first {
        0x11 => Kind::Match,
        0x12 => Kind::Rendezvous,
        0x13 => Kind::Ack,
        0x14 => Kind::Fragment,
        0x15 => Kind::Finish,
        0x16 => Kind::Reject,
        0x17 => Kind::Credit,
        0x18 => Kind::Held,
        0x19 => Kind::Ask,
        0x1a => Kind::Nothing,
        0x1b => Kind::Offer,
        0x1c => Kind::Performed,
        _ => return None,
    };
    (bytes.len() >= kind.header_len()).then_some(kind)
}

macro_rules! header {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name {
            /// The common fields, with which every header begins.
            pub common: Common,
            $($(#[$field_doc])* pub $field: $type,)*
        }

        format_by_debug!($name);

        impl Header for $name {
            #[inline]
            fn common_mut(&mut self) -> &mut Common {
                &mut self.common
            }
        }
    };
}

/// A header of any kind.
pub trait Header: FromBytes + IntoBytes + Immutable {
    /// The common fields, with which the header begins.
    fn common_mut(&mut self) -> &mut Common;
}

/// The first 12 bytes of every header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Common {
    /// Version in the high half, [`Kind`] in the low half.
    pub kind: u8,
    /// The flags: `FLAG_*`.
    pub flags: u8,
    /// Credit: envelopes that the sender of this frame returns to its receiver.
    pub envelopes: U16,
    /// Credit: payload units that the sender of this frame returns to its receiver.
    pub units: U16,
    /// Zero.
    pub reserved: U16,
    /// The number of this frame among all frames from its sender to its receiver, over all rails. For traces only: no receiver
    /// uses it.
    pub frame: U32,
}

format_by_debug!(Common);

impl Common {
    #[inline]
    const fn new(kind: Kind) -> Self {
        Self {
            kind: kind.byte(),
            flags: 0,
            envelopes: U16::new(0),
            units: U16::new(0),
            reserved: U16::new(0),
            frame: U32::new(0),
        }
    }

    /// Whether the header returns credit, of envelopes or of units.
    #[inline]
    pub(crate) fn has_credit(&self) -> bool {
        u32::from(self.units.get()) << 16 | u32::from(self.envelopes.get()) != 0 // both at once
    }
}

header! {
    /// A whole message: 24 bytes, then the payload.
    Match {
        /// The context of the communicator.
        context: U32,
        /// The tag of the message.
        tag: U32,
        /// The number of the message among all messages from its sender to its receiver. It wraps.
        sequence: U32,
    }
}

header! {
    /// First fragment of a message: 40 bytes, then as much payload as the sender chose.
    Rendezvous {
        /// The context of the communicator.
        context: U32,
        /// The tag of the message.
        tag: U32,
        /// The number of the message, as in [`Match`]. In an answer, the number that the next message will have.
        sequence: U32,
        /// The sender's handle of its request.
        sender: U64,
        /// The length of the message in bytes.
        total: U64,
    }
}

header! {
    /// The message is matched: 40 bytes.
    Ack {
        /// The sender's handle, from [`Rendezvous`].
        sender: U64,
        /// The receiver's handle, which each [`Fragment`] has.
        receiver: U64,
        /// Bytes of the message that the receiver wants, counted from its start.
        wanted: U64,
        /// With [`FLAG_PUT`] or [`FLAG_GET`]: bytes that come in frames, in addition to those of the first fragment. A device
        /// moves the rest, in pieces that are offered one after another. Otherwise 0.
        by_frames: U32,
    }
}

header! {
    /// A piece of the rest of a message: 28 bytes, then the payload.
    Fragment {
        /// The receiver's handle, from [`Ack`].
        receiver: U64,
        /// The offset of the payload in the message.
        offset: U64,
    }
}

header! {
    /// The message is matched, and the receiver needs no more of it: 20 bytes.
    Finish {
        /// The sender's handle, from [`Rendezvous`].
        sender: U64,
    }
}

header! {
    /// A refusal: 24 bytes.
    Reject {
        /// The sender's handle, from [`Rendezvous`].
        sender: U64,
        /// The number of the [`Reason`].
        reason: U32,
    }
}

header! {
    /// Credit alone: 12 bytes.
    Credit {}
}

header! {
    /// Messages are held back for lack of credit: 16 bytes.
    Held {
        /// The number of this notice.
        notice: U32,
    }
}

header! {
    /// A receive or a probe asks for a message that is held back: 20 bytes.
    Ask {
        /// The context of the communicator.
        context: U32,
        /// The tag, or `u32::MAX` for any tag below `0x8000_0000`.
        tag: U32,
    }
}

header! {
    /// No message that is held back matches the ask: 16 bytes.
    Nothing {
        /// The number of the last notice that was sent before this.
        notice: U32,
    }
}

header! {
    /// Memory for the next piece of a message, which the other side's device may access: 56 bytes. If the sender's device puts,
    /// the receiver offers. If the receiver's device gets ([`FLAG_GET`]), the sender offers.
    Offer {
        /// The other side's handle of its request.
        request: U64,
        /// The offset of the piece in the message.
        offset: U64,
        /// The bytes of the piece. 0, from a receiver: no more is offered, and the rest comes in frames.
        len: U32,
        /// The key of the memory, for the rail that brings this frame. If the frame was first sent by another link, the key is
        /// not used.
        key: [u8; KEY],
    }
}

header! {
    /// A device has moved a piece that was offered: 32 bytes.
    Performed {
        /// The other side's handle of its request.
        request: U64,
        /// The offset of the piece in the message.
        offset: U64,
        /// The bytes of the piece. 0, from a receiver: its device has failed, and the rest comes in frames.
        len: U32,
    }
}

/// Why a message is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u32)]
pub enum Reason {
    /// The answer was not matched any more: the sender holds back the message again.
    Unmatched = 1,
    /// The message was sent in ready mode, but no receive was posted.
    NotReady = 2,
    /// The receiver has deleted the communicator.
    NoCommunicator = 3,
}

impl Reason {
    /// The reason with this number on the wire.
    pub const fn from_wire(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Unmatched),
            2 => Some(Self::NotReady),
            3 => Some(Self::NoCommunicator),
            _ => None,
        }
    }
}

impl Match {
    /// A header without credit and frame number.
    #[inline]
    pub const fn new(context: u32, tag: u32, sequence: u32) -> Self {
        Self {
            common: Common::new(Kind::Match),
            context: U32::new(context),
            tag: U32::new(tag),
            sequence: U32::new(sequence),
        }
    }
}

impl Match {
    /// The bytes of the header as words, least significant byte first, for a writer that keeps them in registers. `credit` has
    /// envelopes in the low half and units in the high half.
    #[inline(always)]
    pub const fn words(context: u32, tag: u32, sequence: u32, credit: u32, frame: u32) -> [u64; 3] {
        [
            Kind::Match.byte() as u64 | (credit as u64) << 16,
            frame as u64 | (context as u64) << 32,
            tag as u64 | (sequence as u64) << 32,
        ]
    }
}

impl Rendezvous {
    /// A header without credit and frame number.
    pub const fn new(context: u32, tag: u32, sequence: u32, sender: Handle, total: u64) -> Self {
        Self {
            common: Common::new(Kind::Rendezvous),
            context: U32::new(context),
            tag: U32::new(tag),
            sequence: U32::new(sequence),
            sender: U64::new(sender.to_bits()),
            total: U64::new(total),
        }
    }
}

impl Ack {
    /// A header without credit and frame number.
    pub const fn new(sender: u64, receiver: Handle, wanted: u64) -> Self {
        Self {
            common: Common::new(Kind::Ack),
            sender: U64::new(sender),
            receiver: U64::new(receiver.to_bits()),
            wanted: U64::new(wanted),
            by_frames: U32::new(0),
        }
    }

    /// The same header for a message of which a device moves the bytes that do not come in frames. `flag` says which side's
    /// device: [`FLAG_PUT`] or [`FLAG_GET`].
    pub const fn with_device(mut self, flag: u8, by_frames: u32) -> Self {
        self.common.flags |= flag;
        self.by_frames = U32::new(by_frames);
        self
    }
}

impl Fragment {
    /// A header without credit and frame number.
    #[inline]
    pub const fn new(receiver: u64, offset: u64) -> Self {
        Self { common: Common::new(Kind::Fragment), receiver: U64::new(receiver), offset: U64::new(offset) }
    }
}

impl Finish {
    /// A header without credit and frame number.
    pub const fn new(sender: u64) -> Self {
        Self { common: Common::new(Kind::Finish), sender: U64::new(sender) }
    }
}

impl Reject {
    /// A header without credit and frame number.
    pub const fn new(sender: u64, reason: Reason) -> Self {
        Self { common: Common::new(Kind::Reject), sender: U64::new(sender), reason: U32::new(reason as u32) }
    }
}

impl Credit {
    /// A header without credit and frame number.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self { common: Common::new(Kind::Credit) }
    }
}

impl Held {
    /// A header without credit and frame number.
    pub const fn new(notice: u32) -> Self {
        Self { common: Common::new(Kind::Held), notice: U32::new(notice) }
    }
}

impl Ask {
    /// A header without credit and frame number.
    pub const fn new(context: u32, tag: u32) -> Self {
        Self { common: Common::new(Kind::Ask), context: U32::new(context), tag: U32::new(tag) }
    }
}

impl Nothing {
    /// A header without credit and frame number.
    pub const fn new(notice: u32) -> Self {
        Self { common: Common::new(Kind::Nothing), notice: U32::new(notice) }
    }
}

impl Offer {
    /// A header without credit and frame number.
    pub const fn new(request: u64, offset: u64, len: u32, key: Key) -> Self {
        Self {
            common: Common::new(Kind::Offer),
            request: U64::new(request),
            offset: U64::new(offset),
            len: U32::new(len),
            key: key.0,
        }
    }
}

impl Performed {
    /// A header without credit and frame number.
    pub const fn new(request: u64, offset: u64, len: u32) -> Self {
        Self {
            common: Common::new(Kind::Performed),
            request: U64::new(request),
            offset: U64::new(offset),
            len: U32::new(len),
        }
    }
}

const _: () = assert!(size_of::<Match>() == 24, "an eager header takes at most 24 bytes");
const _: () = assert!(size_of::<Rendezvous>() == 40 && size_of::<Ack>() == 40 && size_of::<Fragment>() == 28);
const _: () = assert!(size_of::<Rendezvous>() + REMOTE_BUFFER_BYTES == HEAD);
const _: () = assert!(size_of::<Rendezvous>() <= HEAD && size_of::<Ack>() <= HEAD);
const _: () = assert!(size_of::<Offer>() <= HEAD);

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(mut common: Common) -> Common {
        common.flags = 0x05;
        common.envelopes.set(0x0102);
        common.units.set(0x0304);
        common.frame.set(0x0506_0708);
        common
    }

    /// The bytes of `WIRE.md`, the same on hosts of either byte order.
    #[test]
    fn p33_golden_bytes() {
        let mut header = Match::new(0x0a0b_0c0d, 0x1112_1314, 0xffff_fffe);
        header.common = filled(header.common);
        #[rustfmt::skip]
        assert_eq!(header.as_bytes(), &[
            0x11, 0x05, 0x02, 0x01, 0x04, 0x03, 0, 0, 0x08, 0x07, 0x06, 0x05,
            0x0d, 0x0c, 0x0b, 0x0a, 0x14, 0x13, 0x12, 0x11, 0xfe, 0xff, 0xff, 0xff,
        ]);
        header.common.flags = 0;
        let words = Match::words(0x0a0b_0c0d, 0x1112_1314, 0xffff_fffe, 0x0304_0102, 0x0506_0708);
        assert_eq!(words.map(u64::to_le_bytes).as_flattened(), header.as_bytes());
        let header = Rendezvous::new(1, 2, 3, Handle::from_bits(0x1122_3343_5566_7788), 1 << 40);
        #[rustfmt::skip]
        assert_eq!(header.as_bytes(), &[
            0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0,
            0x88, 0x77, 0x66, 0x55, 0x43, 0x33, 0x22, 0x11, 0, 0, 0, 0, 0, 1, 0, 0,
        ]);
        let header = Ack::new(5, Handle::from_bits(1 << 32 | 6), 7).with_device(FLAG_GET, 8);
        #[rustfmt::skip]
        assert_eq!(header.as_bytes(), &[
            0x13, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0,
        ]);
        let header = Fragment::new(9, 0x0100);
        #[rustfmt::skip]
        assert_eq!(header.as_bytes(), &[
            0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
        ]);
        let tail = |bytes: &[u8]| bytes.get(12..).map(<[u8]>::to_vec);
        assert_eq!(tail(Finish::new(2).as_bytes()).unwrap(), [2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(tail(Reject::new(3, Reason::NotReady).as_bytes()).unwrap(), [3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(Credit::new().as_bytes(), [0x17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(tail(Held::new(4).as_bytes()).unwrap(), [4, 0, 0, 0]);
        assert_eq!(tail(Ask::new(5, u32::MAX).as_bytes()).unwrap(), [5, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(tail(Nothing::new(6).as_bytes()).unwrap(), [6, 0, 0, 0]);
        let offer = Offer::new(0x0102, 0x0304, 0x0506, Key([0x77; KEY]));
        let fields = [2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0, 6, 5, 0, 0];
        assert_eq!(tail(offer.as_bytes()).unwrap(), [&fields[..], &[0x77; KEY]].concat());
        assert_eq!(tail(Performed::new(0x0102, 0x0304, 0x0506).as_bytes()).unwrap(), fields);
        assert_eq!([offer.common.kind, Performed::new(0, 0, 0).common.kind], [0x1b, 0x1c]);
    }

    #[test]
    fn p33_unknown_kinds_versions_and_short_headers_are_refused() {
        let mut known = 0;
        for first in 0..=u8::MAX {
            let bytes = [first; 64];
            match kind(&bytes) {
                Some(kind) => {
                    known += 1;
                    assert_eq!(first, kind.byte());
                    let short = bytes.get(..kind.header_len() - 1).unwrap();
                    assert_eq!(super::kind(short), None);
                }
                None => assert!(first >> 4 != VERSION || first & 15 == 0 || first & 15 > 12),
            }
        }
        assert_eq!(known, 12);
    }
}
