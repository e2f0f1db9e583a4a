//! Lent messages: the sender says where a message lies, and the receiver's rail fetches it from there.
//!
//! A lent message is a rendezvous whose first fragment brings a [`RemoteBuffer`] in the place of payload. When it has matched, the
//! receiver fetches what it wants and answers as if that had come along: with a finish. Where nothing can be fetched, it
//! answers as if nothing had come along: with an ack, and the message follows in fragments. So a failure costs time, no
//! message, and the sender waits for one of two answers in either case; its memory is its own again with the answer.
//!
//! A short message that finds no receive is fetched into a payload unit at once, so that its sender need not wait.
//!
//! One message at a time is lent to a peer, and only where one link leads there. That is the quickest way for a message
//! that somebody waits for. Those that are sent before its answer come as a stream, and are copied in fragments: then
//! both processes work on it at once.

use crate::convertor::Span;
use crate::list::OptSlot;
use crate::pml::engine::Pml;
use crate::pml::peers::flags::EXPOSING;
use crate::pml::rails::Rails;
use crate::pml::requests::state::Remote;
use crate::pool::Handle;
use crate::ptl::First;
use crate::rail::{COPIED, Frame, REMOTE_BUFFER_BYTES, RemoteBuffer, SingleCopy};
use crate::wire;
use crate::wire::Finish;

/// Bytes that a payload unit needs for a buffer and the rail that brought it.
pub(super) const KEPT_BUFFER_BYTES: u32 = REMOTE_BUFFER_BYTES as u32 + 8;

const _: () = assert!(REMOTE_BUFFER_BYTES as u64 <= COPIED, "a rail copies a buffer, which lies on the sender's stack");

/// The buffer that a first fragment brought.
pub(super) fn remote_buffer_of(frame: &Frame) -> RemoteBuffer {
    RemoteBuffer(frame.head.last_chunk().copied().unwrap_or([0; REMOTE_BUFFER_BYTES])) // its length was checked with the header
}

impl<R: Rails> Pml<'_, R> {
    /// Asks the rail that is to carry a message's first fragment for a buffer. `None`: the message goes another way.
    pub(super) fn expose(&mut self, to: u32, slot: u32) -> Option<RemoteBuffer> {
        let peer = self.peers.get(to as usize)?;
        let state = self.requests.at(slot)?;
        // Over several links a message is striped. As payload does, a buffer takes a unit of a receiver that has to keep it.
        if peer.route.links != 1
            || peer.has(EXPOSING)
            || peer.credit.units() == 0
            || peer.eager_body < KEPT_BUFFER_BYTES
        {
            return None;
        }
        let span = state.span;
        let (index, endpoint) = self.first_link(to)?;
        self.rails.rail_mut(index)?.expose(endpoint, &span)
    }

    /// Notes that a message was lent.
    pub(super) fn note_exposed(&mut self, slot: u32) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        state.remote.set(Remote::EXPOSED);
        self.counters.exposed = self.counters.exposed.wrapping_add(1);
        if let Some(peer) = self.peers.get_mut(state.peer as usize) {
            peer.set(EXPOSING);
        }
    }

    /// The receiver of a waiting send has answered: if the message was lent, another may be.
    #[inline]
    pub(super) fn settle_exposed(&mut self, slot: u32) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        if state.remote.has(Remote::EXPOSED) {
            state.remote.clear(Remote::EXPOSED);
            if let Some(peer) = self.peers.get_mut(state.peer as usize) {
                peer.clear(EXPOSING);
            }
        }
    }

    /// Fetches what a receive, matched and without a byte so far, wants of a lent message.
    #[inline(never)]
    pub(super) fn read_exposed(&mut self, slot: u32, rail: usize, buffer: &RemoteBuffer) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        state.moved = 0;
        if state.wanted == 0 {
            return;
        }
        let (from, wanted) = (state.peer, state.wanted);
        let sink = state.span.window(0, wanted);
        // SAFETY: the caller of `irecv` vouches for the sink until the request is done, which it is not before this.
        let fetched = unsafe { self.read_from(from, rail, buffer, sink) };
        if !fetched {
            self.counters.single_copy_failures = self.counters.single_copy_failures.wrapping_add(1);
        } else if let Some(state) = self.requests.at_mut(slot) {
            state.moved = wanted;
            self.counters.single_copies = self.counters.single_copies.wrapping_add(1);
        }
    }

    /// Fetches a message without a receive into its payload unit, where it fits and its sender may be told that it is
    /// done before there is a match. Then it is kept like any short message; if not, nothing has changed.
    pub(super) fn read_into_unit(&mut self, handle: Handle, rail: usize, first: First, buffer: &RemoteBuffer) -> bool {
        let Some(envelope) = self.envelopes.get(handle) else { return false };
        let early = first.flags & (wire::FLAG_ACK | wire::FLAG_READY) == 0;
        if !early || first.total == 0 || first.total > u64::from(self.unit_bytes) {
            return false;
        }
        let (from, len) = (envelope.peer, first.total as u32);
        let place = self.unit_span(envelope.unit, len);
        // SAFETY: the unit is ours and nobody else's until it is freed.
        if !unsafe { self.read_from(from, rail, buffer, place) }
            || self.control(from, Finish::new(first.sender)).is_err()
        {
            return false;
        }
        self.counters.single_copies = self.counters.single_copies.wrapping_add(1);
        self.counters.finishes_sent = self.counters.finishes_sent.wrapping_add(1);
        if let Some(envelope) = self.envelopes.get_mut(handle) {
            envelope.body = len;
            envelope.rendezvous = false;
            envelope.flags &= !wire::FLAG_LENT;
        }
        true
    }

    /// # Safety
    /// As [`SingleCopy::read_exposed`](crate::rail::SingleCopy::read_exposed).
    unsafe fn read_from(&mut self, from: u32, rail: usize, buffer: &RemoteBuffer, sink: Span) -> bool {
        let Some(endpoint) = self.link_of(from, rail) else { return false };
        // SAFETY: passed on from the caller.
        self.rails.rail_mut(rail).is_some_and(|rail| unsafe { rail.read_exposed(endpoint, buffer, sink) })
    }

    /// Keeps a buffer, and which rail brought it, in a payload unit of at least [`KEPT_BUFFER_BYTES`] bytes.
    pub(super) fn keep_remote_buffer(&mut self, unit: OptSlot, rail: usize, buffer: &RemoteBuffer) {
        let place = self.unit_span(unit, KEPT_BUFFER_BYTES);
        let number = (rail as u64).to_le_bytes();
        // SAFETY: the unit is ours and nobody else's until it is freed, and long enough as the caller has checked.
        unsafe {
            place.unpack(buffer.0.as_ptr(), REMOTE_BUFFER_BYTES);
            place.window(REMOTE_BUFFER_BYTES as u64, 8).unpack(number.as_ptr(), number.len());
        }
    }

    /// What [`keep_loan`](Self::keep_loan) kept.
    pub(super) fn kept_remote_buffer(&self, unit: OptSlot) -> (RemoteBuffer, usize) {
        let place = self.unit_span(unit, KEPT_BUFFER_BYTES);
        let (mut buffer, mut number) = ([0; REMOTE_BUFFER_BYTES], [0; 8]);
        // SAFETY: as above.
        unsafe {
            place.pack(buffer.as_mut_ptr(), REMOTE_BUFFER_BYTES);
            place.window(REMOTE_BUFFER_BYTES as u64, 8).pack(number.as_mut_ptr(), number.len());
        }
        (RemoteBuffer(buffer), u64::from_le_bytes(number) as usize)
    }
}
