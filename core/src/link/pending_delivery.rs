//! Frames that have arrived and are not finished: the record of such a frame, and its stages.

use core::cell::Cell;

use zerocopy::FromZeros;

use super::header::{HEADER, MIGRATION, PREFIX};
use crate::convertor::Span;
use crate::rail::{HEAD, MULTIRAIL, Origin};

/// Whether the rail below may hand up frames before all of their bytes have arrived, and may write them to a sink later: the feature
/// `partial`. Code behind this constant is for such rails.
pub(super) const PARTIAL: bool = cfg!(feature = "partial");

/// Whether a frame with a record may have to arrive once more: if its body may arrive later and be wrong, or if its link may come up
/// again. Code behind this constant is for that.
pub(super) const REPEATS: bool = PARTIAL || MULTIRAIL;

/// The most bytes of a short frame that are beyond the head. The user gets a frame of up to [`HEAD`] bytes whole. The head also
/// has the link's own bytes, so that up to this many bytes of such a frame do not fit it.
pub(super) const TAIL: usize = HEADER + PREFIX;

/// The stage of a frame that has arrived and is not finished.
#[derive(FromZeros, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Stage {
    /// The reader holds the frame, and so does the rail below.
    Held,
    /// The reader holds the frame; the rail below does not. The frame must arrive once more before more than its first bytes
    /// can be read.
    HeldInPart,
    /// The rail below writes the body to its sink.
    ToSink,
    /// The rail below writes the body to the scratch.
    ToScratch,
    /// The body waits for the scratch to become free.
    WaitsForScratch,
    /// The sink is known; the frame must arrive once more.
    Awaited,
    /// The frame is short, and the rail below writes its last bytes to the record's own memory.
    Tail,
    /// The body is in its sink; that has to be reported to the reader.
    Done,
}

/// A frame that has arrived and is not finished.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct PendingDelivery {
    pub number: u64,
    /// The rail below's name of the frame ([`FrameId`](crate::rail::FrameId)).
    pub raw: u64,
    pub sink: Span,
    /// Bytes of the frame before those that belong to the sink.
    pub skip: u64,
    pub cookie: u64,
    /// The peer.
    pub path: u32,
    /// Bytes of the frame as the rail below counts them.
    pub len: u32,
    pub body_check: u32,
    pub stage: Stage,
    /// The frame migrated from another link.
    pub migrated: bool,
    /// The number was skipped. Its bit among the pending numbers belongs to another frame by now, or to none.
    pub skipped: bool,
    pub tag: u8,
    pub origin_link: u8,
    pub origin_number: u32,
    pub head: [u8; HEAD],
}

impl PendingDelivery {
    /// Bytes of the link's header, and of the prefix of a migrated frame, before the user's bytes.
    pub fn before(&self) -> usize {
        if MIGRATION && self.migrated { HEADER + PREFIX } else { HEADER }
    }

    /// Bytes of the frame as the user counts them: header and body, without the link's bytes.
    pub fn own(&self) -> u64 {
        (self.len as u64).saturating_sub(self.before() as u64)
    }

    /// Bytes after the head.
    pub const fn body(&self) -> u32 {
        self.len.saturating_sub(HEAD as u32)
    }

    /// How many of the user's bytes fit `head`.
    pub fn in_head(&self) -> u64 {
        (HEAD as u64).saturating_sub(self.before() as u64)
    }

    pub fn origin(&self) -> Origin {
        Origin { link: self.origin_link, number: self.origin_number }
    }
}

/// The progress of the checksum of a held body: bytes in the upper half, their checksum in the lower half; or [`BAD`].
pub(super) type Progress = Cell<u64>;
/// The checksum of the whole body was wrong.
pub(super) const BAD: u64 = u64::MAX;

/// The result of a check of a body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    Bad,
    /// The body has not arrived completely.
    Open,
}
