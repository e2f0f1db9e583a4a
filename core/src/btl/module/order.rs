//! Order over a rail whose frames may overtake each other: how a module knows that what it sent before has arrived.
//!
//! Each side counts the frames of consumers that it has sent to the other one, and those that were handed over here. Before a send
//! that is to be ordered leaves, the other side is asked to tell when as many were handed over there as were sent; what follows
//! waits behind it. Both have to begin at the same time: who removes a peer that goes on has it remove this side, too. So who asks for no order pays nothing but two additions. The bytes are told in `WIRE.md`.

use zerocopy::{FromBytes, IntoBytes};

use super::state::Btl;
use crate::btl::counts::{ASKS, Count, Counts, TELLS};
use crate::btl::endpoint::EndpointId;
use crate::rail::{Endpoint, Frame, FullRail, Lane, Shape, tags};

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
