//! Frames that the link keeps until the peer has acknowledged them: the record of a frame, its flags, and lists of such records.

use zerocopy::FromZeros;

use super::header::{HEADER, MOVED, PREFIX};
use crate::convertor::Span;
use crate::pool::Pool;
use crate::rail::{HEAD, Lane};

/// Bytes kept before each slot's room: the first ones of the frame, as the rail below gets them.
pub(super) const HEAD_ROOM: usize = 64;

/// The body is the caller's: it is told when it is read no more.
pub(super) const IN_PLACE: u8 = 1;
/// The rail below reads it.
pub(super) const READING: u8 = 2;
/// It left more than once.
pub(super) const RESENT: u8 = 4;
/// Acknowledged, or migrated: waits for the reading to end, then to be told.
pub(super) const OVER: u8 = 8;
/// In the list of those under way.
pub(super) const UNDER_WAY: u8 = 16;
/// In the list of those that wait.
pub(super) const WAITS: u8 = 32;
/// It left at least once.
pub(super) const LEFT: u8 = 64;

/// A frame that is kept. Its first bytes are in the slot's head, at [`HEADER`].
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Kept {
    pub number: u64,
    /// The how-manieth frame it was when it left last, and when that was.
    pub left: u64,
    pub left_at: u64,
    /// The same as `left` before it left again because nothing was heard, which says nothing of its way: it may have come by then.
    /// 0: it did not.
    pub sure: u64,
    /// All of it behind its own header.
    pub body: Span,
    pub cookie: u64,
    pub path: u32,
    pub previous: u32,
    pub next: u32,
    /// Bytes as the rail below counts them.
    pub len: u32,
    pub body_check: u32,
    /// Room of its own for a long frame, plus one.
    pub long: u32,
    pub flags: u8,
    pub lane: u8,
    /// As the rail below gets it.
    pub tag: u8,
    pub own_tag: u8,
    pub header: u8,
    pub origin_link: u8,
    pub origin_number: u32,
}

impl Kept {
    pub const fn is_control(&self) -> bool {
        self.lane == Lane::Control as u8
    }
}

/// Stands for the slot of a frame that left by a third link: its number was given to nothing that will come.
pub(super) const VOID: u32 = u32::MAX;
/// The same of one that left by a second link, which the peer has by that one, or has yet to get.
pub(super) const AWAY: u32 = u32::MAX - 1;

/// Kept frames in an order; slots plus one.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct List {
    pub head: u32,
    pub tail: u32,
}

impl List {
    pub fn push(&mut self, pool: &mut Pool<'_, Kept>, slot: u32) {
        let name = slot.wrapping_add(1);
        match pool.at_mut(self.tail.wrapping_sub(1)) {
            Some(last) if self.tail != 0 => last.next = name,
            _ => self.head = name,
        }
        if let Some(kept) = pool.at_mut(slot) {
            (kept.previous, kept.next) = (self.tail, 0);
        }
        self.tail = name;
    }

    pub fn remove(&mut self, pool: &mut Pool<'_, Kept>, slot: u32) {
        let Some(kept) = pool.at(slot) else { return };
        let (previous, next) = (kept.previous, kept.next);
        match pool.at_mut(previous.wrapping_sub(1)) {
            Some(kept) if previous != 0 => kept.next = next,
            _ => self.head = next,
        }
        match pool.at_mut(next.wrapping_sub(1)) {
            Some(kept) if next != 0 => kept.previous = previous,
            _ => self.tail = previous,
        }
    }

    pub fn first(&self) -> Option<u32> {
        self.head.checked_sub(1)
    }

    pub fn last(&self) -> Option<u32> {
        self.tail.checked_sub(1)
    }

    pub const fn is_empty(&self) -> bool {
        self.head == 0
    }
}

/// Why a frame leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Yes,
    /// The rail below has no room.
    Busy,
    /// It does not reach the peer; that will be reported.
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
pub(super) fn rest(kept: &Kept) -> Span {
    let before = HEADER + usize::from(kept.header) + if kept.tag == MOVED { PREFIX } else { 0 };
    kept.body.window(HEAD.saturating_sub(before) as u64, u64::MAX)
}
