//! Single copy: the receiver's rail reads a message from the sender's memory.
//!
//! The rendezvous of such a message carries a [`RemoteBuffer`] in place of payload: the memory is *exposed*. When the message has
//! matched, the receiver reads the bytes that it wants and answers with a finish, as if the frame had carried them all. If it
//! cannot read, it answers with an ack, as if the frame had carried none, and the message follows in fragments. So a failure
//! costs time, but no message is lost. The sender waits for one of the two answers.
//!
//! A message that fits a payload unit and has no receive yet is read into the unit at once, so that its sender does not wait.
//!
//! At most one message is exposed to a peer at a time, and only if one link to the peer is in use. This is the fastest way for a
//! message for which the receiver waits already. Messages that are sent before the answer are a stream: they are sent in
//! fragments, so that both processes copy at the same time.

use crate::convertor::Span;
use crate::list::OptSlot;
use crate::pml::engine::Pml;
use crate::pml::peers::flags::EXPOSING;
use crate::pml::rails::Rails;
use crate::pml::requests::state::Remote;
use crate::pool::Handle;
use crate::ptl::First;
use crate::rail::{COPIED, Frame, REMOTE_BUFFER_BYTES, RemoteBuffer, SINGLE_COPY, SingleCopy};
use crate::wire;
use crate::wire::Finish;

/// Bytes that a remote buffer and the index of its rail take in a payload unit.
pub(super) const KEPT_BUFFER_BYTES: u32 = REMOTE_BUFFER_BYTES as u32 + 8;

const _: () = assert!(REMOTE_BUFFER_BYTES as u64 <= COPIED, "a rail copies a buffer, which lies on the sender's stack");

/// The remote buffer in a first fragment.
pub(super) fn remote_buffer_of(frame: &Frame) -> RemoteBuffer {
    RemoteBuffer(frame.head.last_chunk().copied().unwrap_or([0; REMOTE_BUFFER_BYTES])) // its length was checked with the header
}

impl<R: Rails> Pml<'_, R> {
    /// Asks the rail of the next first fragment to expose a message. `None`: the message is not exposed.
    pub(super) fn expose(&mut self, to: u32, slot: u32) -> Option<RemoteBuffer> {
        if !SINGLE_COPY {
            return None;
        }
        let peer = self.peers.get(to as usize)?;
        let state = self.requests.at(slot)?;
        // Over several links a message is striped. A remote buffer that the receiver must keep takes a unit, as payload does.
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

    /// Notes that a message was exposed.
    pub(super) fn note_exposed(&mut self, slot: u32) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        state.remote.set(Remote::EXPOSED);
        self.counters.exposed = self.counters.exposed.wrapping_add(1);
        if let Some(peer) = self.peers.get_mut(state.peer as usize) {
            peer.set(EXPOSING);
        }
    }

    /// Notes that the receiver of a waiting send has answered. If the message was exposed, another one may be exposed now.
    #[inline]
    pub(super) fn settle_exposed(&mut self, slot: u32) {
        if !SINGLE_COPY {
            return;
        }
        let Some(state) = self.requests.at_mut(slot) else { return };
        if state.remote.has(Remote::EXPOSED) {
            state.remote.clear(Remote::EXPOSED);
            if let Some(peer) = self.peers.get_mut(state.peer as usize) {
                peer.clear(EXPOSING);
            }
        }
    }

    /// Reads the wanted bytes of an exposed message into the memory of its matched receive. No byte has arrived before.
    #[inline(never)]
    pub(super) fn read_exposed(&mut self, slot: u32, rail: usize, buffer: &RemoteBuffer) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        state.moved = 0;
        if state.wanted == 0 {
            return;
        }
        let (from, wanted) = (state.peer, state.wanted);
        let sink = state.span.window(0, wanted);
        // SAFETY: the caller of `irecv` guarantees that the sink is valid until the request is done, which it is not before this.
        let fetched = unsafe { self.read_from(from, rail, buffer, sink) };
        if !fetched {
            self.counters.single_copy_failures = self.counters.single_copy_failures.wrapping_add(1);
        } else if let Some(state) = self.requests.at_mut(slot) {
            state.moved = wanted;
            self.counters.single_copies = self.counters.single_copies.wrapping_add(1);
        }
    }

    /// Reads a message without a receive into its payload unit, if it fits and its send may complete before the match. Then the
    /// message is kept like any short message. `false`: nothing has changed.
    pub(super) fn read_into_unit(&mut self, handle: Handle, rail: usize, first: First, buffer: &RemoteBuffer) -> bool {
        let Some(envelope) = self.envelopes.get(handle) else { return false };
        let early = first.flags & (wire::FLAG_ACK | wire::FLAG_READY) == 0;
        if !early || first.total == 0 || first.total > u64::from(self.unit_bytes) {
            return false;
        }
        let (from, len) = (envelope.peer, first.total as u32);
        let place = self.unit_span(envelope.unit, len);
        // SAFETY: the unit belongs to this engine, and no other code uses it until it is freed.
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
            envelope.flags &= !wire::FLAG_EXPOSED;
        }
        true
    }

    /// Reads exposed memory of a peer into `sink`. `false`: it could not be read.
    ///
    /// # Safety
    /// As [`SingleCopy::read_exposed`](crate::rail::SingleCopy::read_exposed).
    unsafe fn read_from(&mut self, from: u32, rail: usize, buffer: &RemoteBuffer, sink: Span) -> bool {
        let Some(endpoint) = self.link_of(from, rail) else { return false };
        // SAFETY: passed on from the caller.
        self.rails.rail_mut(rail).is_some_and(|rail| unsafe { rail.read_exposed(endpoint, buffer, sink) })
    }

    /// Keeps a remote buffer, and the index of the rail that brought it, in a payload unit of at least [`KEPT_BUFFER_BYTES`]
    /// bytes.
    pub(super) fn keep_remote_buffer(&mut self, unit: OptSlot, rail: usize, buffer: &RemoteBuffer) {
        let place = self.unit_span(unit, KEPT_BUFFER_BYTES);
        let number = (rail as u64).to_le_bytes();
        // SAFETY: no other code uses the unit until it is freed, and it is long enough, as the caller has checked.
        unsafe {
            place.unpack(buffer.0.as_ptr(), REMOTE_BUFFER_BYTES);
            place.window(REMOTE_BUFFER_BYTES as u64, 8).unpack(number.as_ptr(), number.len());
        }
    }

    /// The remote buffer and the rail's index that [`keep_remote_buffer`](Self::keep_remote_buffer) stored.
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
