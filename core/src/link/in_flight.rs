//! Frames that the link keeps until the peer has acknowledged them: the record of a frame, and its flags.

use zerocopy::FromZeros;

use super::header::{HEADER, PREFIX, is_migrated};
use crate::convertor::Span;
use crate::list::{Linked, Links};
use crate::rail::{HEAD, Lane};

/// Bytes at the start of each slot, for the head of the frame, which the rail below gets as its header. A head has up to
/// [`HEAD`] bytes.
pub(super) const HEAD_ROOM: usize = 64;

/// The body is in the caller's memory. The completion is reported when the body is no longer read.
pub(super) const IN_PLACE: u8 = 1;
/// The rail below reads the body.
pub(super) const READING: u8 = 2;
/// The frame was sent more than once.
pub(super) const RETRANSMITTED: u8 = 4;
/// The frame is acknowledged, or has migrated. It ends when the rail below no longer reads it, and that is reported to the
/// user.
pub(super) const FINISHED: u8 = 8;
/// The frame is in the list of frames in flight.
pub(super) const IN_FLIGHT: u8 = 16;
/// The frame is in a list of frames that wait for a transmission.
pub(super) const QUEUED: u8 = 32;
/// The frame was sent at least once.
pub(super) const SENT: u8 = 64;

/// A frame that is kept until it is acknowledged. Its own first bytes are in its slot, after the [`HEADER`] bytes of the link's
/// header.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct InFlightFrame {
    pub number: u64,
    /// The count of all transmissions when the frame was last sent.
    pub transmission: u64,
    /// When that was, in nanoseconds.
    pub sent_at: u64,
    /// `transmission` as it was before a tail loss probe sent the frame again; 0: none did. An acknowledgement after a probe
    /// does not give the round trip of the last transmission, since the earlier one may have arrived.
    pub before_probe: u64,
    /// All bytes after the frame's own header.
    pub body: Span,
    pub cookie: u64,
    /// The peer.
    pub path: u32,
    /// The frames before and after this one in its list: those in flight, or those of a lane that wait for a transmission.
    pub links: Links,
    /// Bytes of the frame as the rail below counts them.
    pub len: u32,
    pub body_check: u32,
    /// The place of a long grant, plus one; 0: the frame has none.
    pub long: u32,
    pub flags: u8,
    pub lane: u8,
    /// The tag as the rail below gets it.
    pub tag: u8,
    /// The tag as the user gave it.
    pub own_tag: u8,
    /// Bytes of the frame's own header.
    pub header: u8,
    pub origin_link: u8,
    pub origin_number: u32,
}

impl InFlightFrame {
    pub const fn is_control(&self) -> bool {
        self.lane == Lane::Control as u8
    }
}

impl Linked for InFlightFrame {
    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// The window entry of a frame that migrated here from another link, and then to a third one. No frame will arrive with its
/// number.
pub(super) const GAP: u32 = u32::MAX;
/// The window entry of a frame that migrated to another link. The peer has the frame by that link, or has yet to get it.
pub(super) const MIGRATED_ENTRY: u32 = u32::MAX - 1;

/// The result of a transmission.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Transmit {
    Sent,
    /// The rail below has no room.
    Busy,
    /// The rail below does not reach the peer. It will report that.
    Unreachable,
}

pub(super) const fn lane_of(byte: u8) -> Lane {
    match byte {
        0 => Lane::Control,
        1 => Lane::Eager,
        _ => Lane::Bulk,
    }
}

const _: () = assert!(Lane::Control as u8 == 0 && Lane::Eager as u8 == 1 && Lane::Bulk as u8 == 2);

/// The part of a frame's body that the rail below does not get as its header.
pub(super) fn rest(frame: &InFlightFrame) -> Span {
    let before = HEADER + usize::from(frame.header) + if is_migrated(frame.tag) { PREFIX } else { 0 };
    frame.body.window(HEAD.saturating_sub(before) as u64, u64::MAX)
}
