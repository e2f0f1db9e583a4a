//! Order over a rail whose frames may overtake each other: how a module knows that what it sent before has arrived.
//!
//! Each side counts the frames of consumers that it has sent to the other one, and those that were handed over here. Before a send
//! that is to be ordered leaves, the other side is asked to tell when as many were handed over there as were sent; what follows
//! waits behind it. Both have to begin at the same time: who removes a peer that goes on has it remove this side, too. So who asks for no order pays nothing but two additions. The bytes are told in `WIRE.md`.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::*;
use crate::rail::{Endpoint, Frame};

/// The version, in the high half of the first byte; kinds of other frames with that tag are in `rma::frames`.
const VERSION: u8 = 1 << 4;
/// The sender wants to be told when as many of its frames were handed over.
const ASKS: u8 = VERSION | 6;
/// As many were handed over.
const TELLS: u8 = VERSION | 7;

/// One of these frames.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Count {
    kind: u8,
    reserved: [u8; 3],
    count: U32,
}

/// What is counted of a peer.
#[derive(Clone, Copy, FromZeros, Debug)]
pub(in crate::btl) struct Counts {
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
    pub(in crate::btl) const fn left(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// One of the peer's was handed over, or dropped. Whether the peer is to be told.
    pub(super) const fn came(&mut self) -> bool {
        self.came = self.came.wrapping_add(1);
        self.wants
    }

    /// An operation is complete: what follows can be ordered behind it.
    pub(super) const fn completes(&mut self) {
        self.complete = true;
    }

    /// Whether this is the order of anything.
    pub(super) const fn takes(&self, order: u8) -> bool {
        order == NO_ORDER || (order == ORDER && self.complete)
    }

    /// Whether all has arrived that was sent before the send that waits first. If not, the peer is to be asked.
    pub(super) const fn is_settled(&mut self) -> bool {
        if !self.has_goal {
            (self.goal, self.has_goal) = (self.sent, true); // what has priority goes on meanwhile
        }
        self.has(self.goal)
    }

    /// The send that waited first waits no more.
    pub(super) const fn goes_on(&mut self) {
        self.has_goal = false;
    }

    /// The same for all that was sent so far.
    pub(super) const fn has_all(&mut self) -> bool {
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
    pub(super) const fn awaits_answer(&self) -> bool {
        self.has_goal && !self.asks && self.asked != self.arrived
    }

    /// What is to be said to the peer.
    fn due(&self) -> Option<Count> {
        let reserved = [0; 3];
        // There may be more by now than it wanted to be told.
        let enough = self.came.wrapping_sub(self.wanted) <= u32::MAX / 2;
        if self.wants && enough {
            return Some(Count { kind: TELLS, reserved, count: U32::new(self.wanted) });
        }
        self.asks.then_some(Count { kind: ASKS, reserved, count: U32::new(self.ask_for) })
    }

    /// That was said.
    const fn said(&mut self, count: &Count) {
        if count.kind == TELLS {
            self.wants = false;
        } else {
            (self.asks, self.asked) = (false, count.count.get());
        }
    }

    fn hear(&mut self, count: &Count) {
        match count.kind {
            TELLS if count.count.get() == self.asked => self.arrived = self.asked,
            ASKS => (self.wants, self.wanted) = (true, count.count.get()),
            _ => {} // of no question that there is
        }
    }
}

impl<R: FullRail> Btl<'_, R> {
    /// Takes a frame, if it is one of these.
    pub(super) fn take_count(&mut self, frame: &Frame) -> bool {
        let Ok(count) = Count::read_from_bytes(frame.head()) else { return false };
        if !frame.is_whole() || !matches!(count.kind, ASKS | TELLS) {
            return false;
        }
        if let Some(reach) = self.endpoints.at_mut(frame.from.0) {
            reach.counts.hear(&count);
            self.counts_due = true;
        }
        true
    }

    /// A frame of a peer was handed over, or dropped.
    pub(super) fn count_in(&mut self, endpoint: Option<EndpointId>) {
        if let Some(reach) = endpoint.and_then(|endpoint| self.endpoints.get_mut(endpoint.0)) {
            self.counts_due |= reach.counts.came();
        }
    }

    /// Whether all that was sent before the send that waits first has arrived. If not, that is asked for.
    pub(super) fn is_settled(&mut self, endpoint: EndpointId) -> bool {
        self.counted(endpoint, Counts::is_settled)
    }

    /// The same for all that was sent so far.
    pub(super) fn has_all(&mut self, endpoint: EndpointId) -> bool {
        self.counted(endpoint, Counts::has_all)
    }

    fn counted(&mut self, endpoint: EndpointId, is_there: fn(&mut Counts) -> bool) -> bool {
        let Some(reach) = self.endpoints.get_mut(endpoint.0) else { return true };
        let there = is_there(&mut reach.counts);
        self.counts_due |= !there;
        there
    }

    /// Sends that nothing but a frame of their peer helps.
    pub(super) fn awaiting_answers(&self) -> u32 {
        let slots = (0..self.endpoints.capacity()).filter_map(|slot| self.endpoints.at(slot));
        slots.filter(|reach| reach.counts.awaits_answer()).map(|reach| reach.waiting).sum()
    }

    /// Whether there was room.
    fn say(&mut self, to: Endpoint, count: &Count) -> bool {
        let bytes = count.as_bytes();
        let (header, len) = (bytes.len() as u8, bytes.len() as u32);
        let shape = Shape { tag: tags::BTL_BASE, lane: Lane::Control, header, len };
        let Ok(mut grant) = self.rail.reserve(to, shape) else { return false };
        grant.write(0, bytes);
        let ticket = grant.finish();
        self.rail.commit(ticket);
        self.rail.signal(to); // who sleeps there is waited for
        true
    }

    /// Asks and tells what is due, as far as there is room.
    pub(super) fn push_counts(&mut self) {
        if !core::mem::take(&mut self.counts_due) {
            return;
        }
        for slot in 0..self.endpoints.capacity() {
            while let Some(reach) = self.endpoints.at(slot).filter(|reach| !reach.lost).copied()
                && let Some(count) = reach.counts.due()
            {
                if !self.say(reach.rail, &count) {
                    self.counts_due = true; // the peer is lost, or there is room later
                    break;
                }
                if let Some(reach) = self.endpoints.at_mut(slot) {
                    reach.counts.said(&count);
                }
            }
        }
    }
}
