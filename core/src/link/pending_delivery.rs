//! Frames that have arrived and are not finished: the record of such a frame, and its stages.

use core::cell::Cell;

use zerocopy::FromZeros;

use super::header::{HEADER, PREFIX};
use crate::convertor::Span;
use crate::rail::{HEAD, Origin};

/// Longest frame that is handed over whole although the rail below counts it as longer than a head: what is behind.
pub(super) const TAIL: usize = HEADER + PREFIX;

/// Where a frame stands that has arrived and is not finished.
#[derive(FromZeros, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Stage {
    /// The reader has it, and the rail below.
    Held,
    /// The reader has it; it must come once more before there is more of it than its first bytes.
    HeldInPart,
    /// The rail below writes it to its sink.
    Coming,
    /// The rail below writes it to the scratch.
    InScratch,
    /// It has to wait for the scratch.
    ForScratch,
    /// Its sink is known, and it must come once more.
    Awaited,
    /// It is short, and the rail below writes its last bytes to the record's own memory.
    Tail,
    /// All of it is in its sink; the reader is to be told.
    Done,
}

/// A frame that has arrived and is not finished.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Coming {
    pub number: u64,
    pub raw: u64,
    pub sink: Span,
    pub skip: u64,
    pub cookie: u64,
    pub path: u32,
    /// Bytes as the rail below counts them.
    pub len: u32,
    pub body_check: u32,
    pub stage: Stage,
    pub moved: bool,
    /// Its number was passed over: the bit for those of which there is a record is another's by now, or nobody's.
    pub passed: bool,
    pub tag: u8,
    pub origin_link: u8,
    pub origin_number: u32,
    pub head: [u8; HEAD],
}

impl Coming {
    /// Bytes of the link's own before the frame's.
    pub fn before(&self) -> usize {
        if self.moved { HEADER + PREFIX } else { HEADER }
    }

    /// Bytes of the frame.
    pub fn own(&self) -> u64 {
        (self.len as u64).saturating_sub(self.before() as u64)
    }

    /// Of those, the ones that are in `head`.
    pub fn in_head(&self) -> u64 {
        (HEAD as u64).saturating_sub(self.before() as u64)
    }

    pub fn origin(&self) -> Origin {
        Origin { link: self.origin_link, number: self.origin_number }
    }
}

/// How far a held body has been summed: bytes, and their sum; [`BAD`] where the sum was wrong.
pub(super) type Progress = Cell<u64>;
pub(super) const BAD: u64 = u64::MAX;

/// What a look at a body says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    Bad,
    /// It is not all in.
    Open,
}
