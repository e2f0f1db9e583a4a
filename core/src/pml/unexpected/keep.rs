//! Keeping messages that have no receive yet, within the credit of their sender.

use crate::convertor::Span;
use crate::list::OptSlot;
use crate::pml::engine::Pml;
use crate::pml::flow::probe::PROBES;
use crate::pml::matching::Key;
use crate::pml::rails::Rails;
use crate::pml::requests::cookie::ENVELOPE_COOKIE;
use crate::pml::single_copy::{KEPT_BUFFER_BYTES, remote_buffer_of};
use crate::pml::unexpected::state::{EnvelopeStage, Unexpected};
use crate::ptl::First;
use crate::rail::{Cookie, Delivery, Frame, LATER, Lost, Rail, SINGLE_COPY};
use crate::wire;
use crate::wire::Reason;

impl<R: Rails> Pml<'_, R> {
    /// Takes an envelope for a first fragment, and a unit for its payload. `None` if the sender has exceeded its credit: the
    /// frame is dropped.
    pub(in crate::pml) fn keep(
        &mut self,
        rail: usize,
        frame: &Frame,
        first: First,
        stage: EnvelopeStage,
    ) -> Option<u32> {
        let body = frame.len.wrapping_sub(u32::from(first.header));
        let answer = PROBES && first.flags & wire::FLAG_ANSWER != 0;
        // Each peer gets at most its share: otherwise a peer that ignores its credit would take the credit of others. Envelopes
        // beyond all credit are only for answers, which carry no payload.
        let quota = self.config.quota();
        let room = self.peers.get(frame.from.0 as usize).is_some_and(|peer| match answer {
            true => body == 0,
            false => peer.granted.kept_envelopes < quota.0 && (body == 0 || peer.granted.kept_units < quota.1),
        });
        let exposed = SINGLE_COPY && first.flags & wire::FLAG_EXPOSED != 0;
        if !room || body > self.unit_bytes || (exposed && self.unit_bytes < KEPT_BUFFER_BYTES) {
            return self.credit_violation(rail, frame);
        }
        let unit = if body == 0 {
            None
        } else {
            match self.units.take(()) {
                Ok(unit) => Some(unit),
                Err(_) => return self.credit_violation(rail, frame),
            }
        };
        let kept = unit.map_or(OptSlot::NONE, |unit| OptSlot::some(unit.slot()));
        let envelope = Unexpected {
            stage,
            filling: false,
            rendezvous: first.rendezvous,
            flags: first.flags & (wire::FLAG_READY | wire::FLAG_ANSWER | wire::FLAG_EXPOSED),
            peer: frame.from.0,
            context: first.context,
            tag: first.tag,
            unit: kept,
            body,
            next: OptSlot::NONE,
            sequence: first.sequence,
            total: first.total,
            sender: first.sender,
        };
        let Ok(handle) = self.envelopes.take(envelope) else {
            if let Some(unit) = unit {
                self.units.free(unit);
            }
            return self.credit_violation(rail, frame);
        };
        if !answer && let Some(peer) = self.peers.get_mut(frame.from.0 as usize) {
            peer.granted.keep(body != 0);
        }
        let place = self.unit_span(kept, body);
        if exposed {
            let buffer = remote_buffer_of(frame);
            if !self.read_into_unit(handle, rail, first, &buffer) {
                self.keep_remote_buffer(kept, rail, &buffer);
            }
        } else if frame.is_whole() {
            let bytes = frame.head().get(first.header as usize..).unwrap_or_default();
            // SAFETY: the unit belongs to this engine, and no other code uses it until it is freed.
            unsafe { place.unpack(bytes.as_ptr(), bytes.len()) };
        } else if let Some(rail) = self.rails.rail_mut(rail) {
            let cookie = Cookie(handle.to_bits() | ENVELOPE_COOKIE);
            // SAFETY: as above; while the delivery is pending `filling` keeps the unit from being freed.
            let delivery = unsafe { rail.deliver(frame.id, first.header as usize, place, cookie) };
            if delivery == Delivery::Pending && !LATER {
                self.lost(frame.from, Lost::Misbehaved); // then the rail does not access the unit any more
                return None;
            }
            if delivery == Delivery::Pending
                && let Some(envelope) = self.envelopes.get_mut(handle)
            {
                envelope.filling = true;
            }
        }
        Some(handle.slot())
    }

    /// Whether messages in ready mode that find no receive are kept, as those in synchronous mode are. At first they are refused. For an
    /// engine on a device whose host has posted receives that the device does not know.
    pub const fn keep_ready(&mut self, keep: bool) {
        self.keeps_ready = keep;
    }

    /// Puts a kept message into the matcher. A ready send without a receive is refused, unless such messages are kept.
    pub(in crate::pml) fn enqueue(&mut self, slot: u32) {
        let Some(envelope) = self.envelopes.at(slot) else { return };
        if envelope.flags & wire::FLAG_READY != 0 && !self.keeps_ready {
            return self.refuse(slot, Reason::NotReady);
        }
        if self.refuses(envelope.tag) {
            return self.refuse_further(slot);
        }
        let Some(envelope) = self.envelopes.at_mut(slot) else { return };
        envelope.stage = EnvelopeStage::Queued;
        let key = Key { context: envelope.context, source: envelope.peer, tag: envelope.tag };
        self.matcher.add_unexpected(slot, key);
    }

    /// Drops a frame that exceeds the credit of its sender.
    fn credit_violation(&mut self, rail: usize, frame: &Frame) -> Option<u32> {
        self.counters.credit_violations = self.counters.credit_violations.wrapping_add(1);
        warn!("peer {} exceeded its credit: its message was dropped", frame.from.0);
        self.drop_frame(rail, frame);
        None
    }

    /// The first bytes of a payload unit as memory.
    pub(in crate::pml) fn unit_span(&self, unit: OptSlot, len: u32) -> Span {
        let Some(unit) = unit.get().filter(|_| len != 0) else { return Span::EMPTY };
        let offset = (unit as usize).wrapping_mul(self.unit_bytes as usize);
        Span::contiguous(self.unit_memory.wrapping_add(offset), len as usize)
    }
}
