//! The frames to and from a peer, counted: what order over a rail whose frames may overtake each other is made of.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::descriptor::{NO_ORDER, ORDER};

/// The version, in the high half of the first byte; kinds of other frames with that tag are in `rma::frames`.
pub(super) const VERSION: u8 = 1 << 4;
/// The sender wants to be told when as many of its frames were handed over.
pub(super) const ASKS: u8 = VERSION | 6;
/// As many were handed over.
pub(super) const TELLS: u8 = VERSION | 7;

/// One of these frames.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Count {
    pub kind: u8,
    pub reserved: [u8; 3],
    pub count: U32,
}

/// What is counted of a peer.
#[derive(Clone, Copy, FromZeros, Debug)]
pub(super) struct Counts {
    /// Frames that were sent to it.
    sent: u32,
    /// As many of them were handed over there, as far as it has told.
    arrived: u32,
    /// It was asked to tell when as many are; one question at a time.
    asked: u32,
    /// It is to be asked, when as many are.
    asks: bool,
    ask_for: u32,
    /// So many have to be there before the first of those that wait leaves.
    goal: u32,
    has_goal: bool,
    /// Its frames that were handed over here, or dropped.
    came: u32,
    /// It wants to be told when as many were.
    wanted: u32,
    wants: bool,
    /// Some operation to it was complete.
    complete: bool,
}

impl Counts {
    /// A frame has left.
    pub const fn left(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// One of the peer's was handed over, or dropped. Whether the peer is to be told.
    pub const fn came(&mut self) -> bool {
        self.came = self.came.wrapping_add(1);
        self.wants
    }

    /// An operation is complete: what follows can be ordered behind it.
    pub const fn completes(&mut self) {
        self.complete = true;
    }

    /// Whether this is the order of anything.
    pub const fn takes(&self, order: u8) -> bool {
        order == NO_ORDER || (order == ORDER && self.complete)
    }

    /// Whether all has arrived that was sent before the send that waits first. If not, the peer is to be asked.
    pub const fn is_settled(&mut self) -> bool {
        if !self.has_goal {
            (self.goal, self.has_goal) = (self.sent, true); // what has priority goes on meanwhile
        }
        self.has(self.goal)
    }

    /// The send that waited first waits no more.
    pub const fn goes_on(&mut self) {
        self.has_goal = false;
    }

    /// The same for all that was sent so far.
    pub const fn has_all(&mut self) -> bool {
        self.has(self.sent)
    }

    const fn has(&mut self, goal: u32) -> bool {
        let there = self.arrived.wrapping_sub(goal) <= u32::MAX / 2;
        if !there && !self.asks && self.asked == self.arrived {
            (self.asks, self.ask_for) = (true, goal);
        }
        there
    }

    /// Whether nothing but the peer's answer helps those that wait.
    pub const fn awaits_answer(&self) -> bool {
        self.has_goal && !self.asks && self.asked != self.arrived
    }

    /// What is to be said to the peer.
    pub fn due(&self) -> Option<Count> {
        let reserved = [0; 3];
        // There may be more by now than it wanted to be told.
        let enough = self.came.wrapping_sub(self.wanted) <= u32::MAX / 2;
        if self.wants && enough {
            return Some(Count { kind: TELLS, reserved, count: U32::new(self.wanted) });
        }
        self.asks.then_some(Count { kind: ASKS, reserved, count: U32::new(self.ask_for) })
    }

    /// That was said.
    pub const fn said(&mut self, count: &Count) {
        if count.kind == TELLS {
            self.wants = false;
        } else {
            (self.asks, self.asked) = (false, count.count.get());
        }
    }

    pub fn hear(&mut self, count: &Count) {
        match count.kind {
            TELLS if count.count.get() == self.asked => self.arrived = self.asked,
            ASKS => (self.wants, self.wanted) = (true, count.count.get()),
            _ => {} // of no question that there is
        }
    }
}
