//! Arriving later fragments, and the end of a receive.

use crate::pml::engine::Pml;
use crate::pml::rails::Rails;
use crate::pml::requests::cookie::request_cookie;
use crate::pml::requests::state::{Outcome, Phase, RECEIVE, RequestState};
use crate::pool::Handle;
use crate::rail::{Delivery, Frame, LATER, Lost, Rail};
use crate::wire;

impl<R: Rails> Pml<'_, R> {
    /// Delivers a later fragment to the receive that it names.
    #[inline]
    pub(in crate::pml) fn deliver_fragment(&mut self, rail: usize, frame: &Frame, header: wire::Fragment) {
        let handle = Handle::from_bits(header.receiver.get());
        let body = u64::from(frame.len).saturating_sub(size_of::<wire::Fragment>() as u64);
        let offset = header.offset.get();
        if header.common.flags & wire::FLAG_ABORT != 0 {
            return self.abort_receive(rail, frame, handle);
        }
        let state = self.requests.get_mut(handle).filter(|state| {
            state.phase == Phase::Receiving
                && state.peer == frame.from.0
                && state.flags & RECEIVE != 0
                && state.moved.checked_add(body).is_some_and(|moved| moved <= state.wanted)
                && offset.checked_add(body).is_some_and(|end| end <= state.wanted)
        });
        let Some(state) = state else {
            self.counters.stale = self.counters.stale.wrapping_add(1);
            return self.drop_frame(rail, frame);
        };
        self.counters.fragments_received = self.counters.fragments_received.wrapping_add(1);
        let sink = state.span.window(offset, body);
        state.moved = state.moved.saturating_add(body);
        if frame.is_whole() {
            let bytes = frame.head().get(size_of::<wire::Fragment>()..).unwrap_or_default();
            // SAFETY: the caller of `irecv` guarantees that the sink is valid until the request is done.
            unsafe { sink.unpack(bytes.as_ptr(), bytes.len()) };
        } else if let Some(rail) = self.rails.rail_mut(rail) {
            // SAFETY: as above; while the delivery is pending `inflight` keeps the request from being done.
            let delivery = unsafe { rail.deliver(frame.id, size_of::<wire::Fragment>(), sink, request_cookie(handle)) };
            if delivery == Delivery::Pending {
                if !LATER {
                    return self.lost(frame.from, Lost::Misbehaved); // then the rail does not access the sink any more
                }
                state.inflight = state.inflight.saturating_add(1);
            }
        }
        self.settle_receive(handle.slot());
    }

    /// The sender cannot read the rest of its message. The receive ends as soon as no rail writes its memory. The end of the receive also
    /// ends the registration of memory that a device would have written.
    #[cold]
    fn abort_receive(&mut self, rail: usize, frame: &Frame, handle: Handle) {
        self.drop_frame(rail, frame);
        let is_it = |state: &&mut RequestState| {
            state.peer == frame.from.0 && state.phase == Phase::Receiving && state.flags & RECEIVE != 0
        };
        let Some(state) = self.requests.get_mut(handle).filter(is_it) else {
            self.counters.stale = self.counters.stale.wrapping_add(1);
            return;
        };
        (state.outcome, state.wanted) = (Outcome::Aborted, state.moved); // no more bytes are taken
        self.settle_receive(handle.slot());
    }

    /// Ends a receive if all of its bytes have arrived.
    pub(in crate::pml) fn settle_receive(&mut self, slot: u32) {
        let Some(state) = self.requests.at(slot) else { return };
        if state.phase == Phase::Receiving && state.is_idle() && state.moved >= state.wanted {
            let outcome = if state.outcome == Outcome::Aborted { Outcome::Aborted } else { Outcome::Success };
            self.release_piece(slot);
            self.deactivate(slot);
            self.complete(slot, outcome);
        }
    }
}
