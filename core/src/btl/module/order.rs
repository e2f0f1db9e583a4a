//! Order over a rail whose frames may overtake each other: how a module finds out that earlier frames have arrived.
//!
//! Each side counts the frames that it has sent to the other side's consumers, and the frames that were handed over to its own
//! consumers. Before an ordered send leaves, the module asks the other side to reply when it has handed over as many frames as
//! were sent. Later sends wait behind the ordered one. A user that needs no order pays only for two additions per frame.
//! `WIRE.md` specifies the bytes.
//!
//! Both sides have to begin to count at the same time. So if one side removes a peer that goes on, the peer has to remove this
//! side, too, before it uses order again.

use zerocopy::{FromBytes, IntoBytes};

use super::state::Btl;
use crate::btl::counts::{COUNT_REPLY, COUNT_REQUEST, CountFrame, PeerCounts};
use crate::btl::endpoint::EndpointId;
use crate::rail::{Endpoint, Frame, FullRail, Lane, Shape, tags};

impl<R: FullRail> Btl<'_, R> {
    /// Takes in a frame, if it is a count. Returns whether it is.
    pub(super) fn on_count_frame(&mut self, frame: &Frame) -> bool {
        let Ok(count) = CountFrame::read_from_bytes(frame.head()) else { return false };
        if !frame.is_whole() || !matches!(count.kind, COUNT_REQUEST | COUNT_REPLY) {
            return false;
        }
        if let Some(state) = self.endpoints.at_mut(frame.from.0) {
            state.counts.on_frame(&count);
            self.counts_due = true;
        }
        true
    }

    /// Counts a frame of a peer that was handed over to its consumer, or dropped.
    pub(super) fn count_delivered(&mut self, endpoint: Option<EndpointId>) {
        if let Some(state) = endpoint.and_then(|endpoint| self.endpoints.get_mut(endpoint.0)) {
            self.counts_due |= state.counts.on_delivered();
        }
    }

    /// Whether all frames that were sent before the first waiting ordered send have arrived. If not, this side asks the peer.
    pub(super) fn ordered_may_leave(&mut self, endpoint: EndpointId) -> bool {
        self.have_arrived(endpoint, PeerCounts::ordered_may_leave)
    }

    /// Whether all frames that were sent so far have arrived. If not, this side asks the peer.
    pub(super) fn all_arrived(&mut self, endpoint: EndpointId) -> bool {
        self.have_arrived(endpoint, PeerCounts::all_arrived)
    }

    fn have_arrived(&mut self, endpoint: EndpointId, check: fn(&mut PeerCounts) -> bool) -> bool {
        let Some(state) = self.endpoints.get_mut(endpoint.0) else { return true };
        let arrived = check(&mut state.counts);
        self.counts_due |= !arrived;
        arrived
    }

    /// Sends that can leave only after their peer has replied.
    pub(super) fn awaiting_replies(&self) -> u32 {
        let slots = (0..self.endpoints.capacity()).filter_map(|slot| self.endpoints.at(slot));
        slots.filter(|state| state.counts.awaits_reply()).map(|state| state.waiting).sum()
    }

    /// Sends a count. Returns whether there was room.
    fn send_count(&mut self, to: Endpoint, count: &CountFrame) -> bool {
        let bytes = count.as_bytes();
        let (header, len) = (bytes.len() as u8, bytes.len() as u32);
        let shape = Shape { tag: tags::BTL_BASE, lane: Lane::Control, header, len };
        let Ok(mut grant) = self.rail.reserve(to, shape) else { return false };
        grant.write(0, bytes);
        let ticket = grant.finish();
        self.rail.commit(ticket);
        self.rail.signal(to); // this side waits for the peer, which may sleep
        true
    }

    /// Sends the requests and replies that are due, as far as there is room.
    pub(super) fn send_counts(&mut self) {
        if !core::mem::take(&mut self.counts_due) {
            return;
        }
        for slot in 0..self.endpoints.capacity() {
            while let Some(state) = self.endpoints.at(slot).filter(|state| !state.lost).copied()
                && let Some(count) = state.counts.due()
            {
                if !self.send_count(state.rail, &count) {
                    self.counts_due = true; // the rail has no room now, or the peer is lost: try again
                    break;
                }
                if let Some(state) = self.endpoints.at_mut(slot) {
                    state.counts.on_sent(&count);
                }
            }
        }
    }
}
