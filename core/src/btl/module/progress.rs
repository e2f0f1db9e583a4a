//! Progress of a module: it hands frames to consumers, waiting sends to the rail, and completions to callbacks.

use super::state::Btl;
use super::types::{Completion, ErrorFlags};
use crate::btl::active::Received;
use crate::btl::descriptor::{Descriptor, DescriptorFlags, ORDER};
use crate::btl::endpoint::EndpointId;
use crate::btl::errors::Failure;
use crate::btl::receives::Incoming;
use crate::btl::sends::{PendingSend, Stage};
use crate::convertor::Span;
use crate::pool::Handle;
use crate::rail::LINKED_HEAD;
use crate::rail::{
    self, Capabilities, Cookie, Copied, Delivery, Endpoint, Event, Frame, FullRail, Lane, Lost, Peer, Sent, Shape, tags,
};
use crate::rma::{self, Rma};
use crate::time::Instant;

/// The most events that one call of [`Btl::progress`] takes from the rail.
const BURST: u32 = 64;

impl<R: FullRail> Btl<'_, R> {
    /// Hands frames that have arrived to their consumers, gives waiting sends to the rail, and makes the callbacks that are due.
    /// Returns the number of completions: complete sends, with or without a callback, complete one-sided operations, and frames
    /// that a consumer got; 0 means idle. Within a callback it does nothing.
    pub fn progress(&mut self, now: Instant) -> u32 {
        let (delivered, is_idle) = self.deliver();
        if is_idle { delivered } else { delivered.wrapping_add(self.progress_after_delivery(now)) }
    }

    /// The fast part of [`progress`](Self::progress), which needs no time: hands over the frames that the rail copies by one call, which
    /// are most frames of the eager lane. Returns their number, and whether there is nothing else to do. Otherwise the caller calls
    /// [`progress_after_delivery`](Self::progress_after_delivery).
    #[inline]
    pub fn deliver(&mut self) -> (u32, bool) {
        if self.in_progress {
            return (0, true);
        }
        if self.has_work() {
            return (0, false);
        }
        self.in_progress = true;
        let mut count = 0u32;
        for _ in 0..BURST {
            let Some(delivered) = self.deliver_next() else { break };
            count += delivered;
        }
        self.in_progress = false;
        // The consumers may have begun something.
        (count, (count == 0 || !self.has_work()) && self.rail.is_idle())
    }

    /// The rest of [`progress`](Self::progress). Its result does not count what [`deliver`](Self::deliver) has handed over.
    pub fn progress_after_delivery(&mut self, now: Instant) -> u32 {
        if self.in_progress {
            return 0;
        }
        self.in_progress = true;
        let mut count = 0u32;
        for _ in 0..BURST {
            let waiting = self.receives.next_waiting();
            if let Some(frame) = waiting {
                count += self.start_delivery(frame);
            }
            let event = if self.rail.is_idle() { None } else { self.rail.poll(now) };
            let Some(event) = event else {
                if waiting.is_some() {
                    continue;
                }
                break;
            };
            count += self.handle(event);
        }
        self.send_waiting();
        self.send_counts();
        self.send_queued_rma();
        count = count.wrapping_add(self.run_callbacks()).wrapping_add(self.run_rma_callbacks());
        self.in_progress = false;
        count
    }

    /// Whether something is to be done although the rail reports nothing.
    #[inline]
    fn has_work(&self) -> bool {
        let sends = self.pending.len() != 0 || self.urgent.len() != 0 || self.finished.len() != 0;
        sends || self.counts_due || self.receives.has_waiting() || !self.rma.is_idle()
    }

    /// Gives a send to the rail. Returns the stage that it has reached.
    pub(super) fn transmit(&mut self, handle: Handle, send: PendingSend) -> Stage {
        let Some(state) = self.endpoints.get(send.endpoint.0).copied() else {
            return Stage::Finished(Err(Failure::Removed));
        };
        // A descriptor without properties cannot be here, since a descriptor in flight is not freed.
        let Some(flags) = self.descriptors.properties(send.descriptor).map(|own| own.flags) else {
            return Stage::Finished(Err(Failure::Removed));
        };
        let sent = self.submit(state.rail, handle, &send);
        if let Some(state) = self.endpoints.get_mut(send.endpoint.0) {
            if sent.is_ok() {
                state.counts.count_sent();
            }
            if send.ordered && !matches!(sent, Err(rail::SendError::Busy)) {
                state.counts.on_ordered_left();
            }
        }
        if sent.is_ok() && flags.contains(DescriptorFlags::SIGNAL) {
            self.rail.signal(state.rail);
        }
        match sent {
            Ok(Sent::Done) => Stage::Finished(Ok(())),
            Ok(Sent::Staged) if self.rail.drained(state.rail) => Stage::Finished(Ok(())),
            Ok(Sent::Staged) => Stage::Staged,
            Ok(Sent::InPlace) => Stage::InPlace,
            Err(rail::SendError::Busy) => Stage::Waiting,
            Err(error) => Stage::Finished(Err(Failure::Refused(error))),
        }
    }

    /// Submits the segments of a descriptor to the rail as one frame.
    fn submit(&mut self, to: Endpoint, handle: Handle, send: &PendingSend) -> Result<Sent, rail::SendError> {
        let segments = self.descriptors.segments(send.descriptor).unwrap_or(&[]);
        let len = segments.iter().fold(0u64, |len, segment| len.saturating_add(segment.len())) as u32;
        let lane = if len <= self.rail.attributes().eager_limit { Lane::Eager } else { Lane::Bulk };
        let own = segments.first().copied().unwrap_or(Span::EMPTY);
        // A link accepts no header that is longer than this.
        let (head, rest) = (own.window(0, LINKED_HEAD as u64), own.window(LINKED_HEAD as u64, u64::MAX));
        let shape = Shape { tag: send.tag, lane, header: head.len() as u8, len };
        // A rail may read a header and one body in place. Other segments are gathered.
        let body = match segments {
            [_] | [] => Some(rest),
            [_, body] if rest.is_empty() => Some(*body),
            _ => None,
        };
        if let Some(body) = body {
            let mut header = [0; LINKED_HEAD];
            // SAFETY: the head is the descriptor's own memory, which nobody writes while the descriptor is in flight.
            let len = unsafe { head.pack(header.as_mut_ptr(), LINKED_HEAD) };
            let header = header.get(..len).unwrap_or(&[]);
            // SAFETY: the user of the descriptor vouches for attached memory until all sends are complete. The descriptor's own
            // memory cannot be written or given to others while a send is in progress. An in-place send is complete with `Sent`,
            // `Lost` or `del_peer`, and not before.
            return unsafe { self.rail.send(to, shape, header, body, Cookie(handle.to_bits())) };
        }
        let mut grant = self.rail.reserve(to, shape)?;
        let mut at = 0usize;
        for segment in segments {
            // SAFETY: as above. The rail reads the segment only during the call.
            unsafe { grant.gather(at, *segment) };
            at = at.saturating_add(segment.len() as usize);
        }
        let ticket = grant.finish();
        Ok(self.rail.commit(ticket))
    }

    /// Sets the stage of a send, and puts the send in the queue of that stage.
    pub(super) fn set_stage(&mut self, handle: Handle, stage: Stage) {
        let Some(send) = self.sends.get_mut(handle) else { return };
        send.stage = stage;
        let (endpoint, urgent) = (send.endpoint, send.urgent);
        match stage {
            Stage::Waiting => {
                if let Some(state) = self.endpoints.get_mut(endpoint.0) {
                    let waiting = if urgent { &mut state.urgent } else { &mut state.waiting };
                    *waiting = waiting.saturating_add(1);
                }
                self.sends.push(if urgent { &mut self.urgent } else { &mut self.pending }, handle);
            }
            Stage::Staged => self.sends.push(&mut self.pending, handle),
            Stage::InPlace => {}
            Stage::Finished(_) => self.sends.push(&mut self.finished, handle),
        }
    }

    /// Tries each waiting send once, in order, and checks whether each staged send has left.
    pub(super) fn send_waiting(&mut self) {
        self.pass = self.pass.wrapping_add(1);
        for _ in 0..self.urgent.len() {
            let Some(handle) = self.sends.pop(&mut self.urgent) else { break };
            self.retry(handle);
        }
        for _ in 0..self.pending.len() {
            let Some(handle) = self.sends.pop(&mut self.pending) else { return };
            self.retry(handle);
        }
    }

    fn retry(&mut self, handle: Handle) {
        let Some(send) = self.sends.get(handle).copied() else { return };
        let waited = send.stage == Stage::Waiting;
        let stage = match self.endpoints.get(send.endpoint.0).copied() {
            None => Stage::Finished(Err(Failure::Removed)),
            Some(state) if state.lost => Stage::Finished(Err(Failure::Lost)),
            Some(state) if waited && state.full == self.pass => Stage::Waiting,
            Some(_) if waited && send.ordered && !self.ordered_may_leave(send.endpoint) => Stage::Waiting,
            Some(_) if waited => self.transmit(handle, send),
            Some(state) if self.rail.drained(state.rail) => Stage::Finished(Ok(())),
            Some(_) => send.stage,
        };
        if waited && let Some(state) = self.endpoints.get_mut(send.endpoint.0) {
            let waiting = if send.urgent { &mut state.urgent } else { &mut state.waiting };
            *waiting = waiting.saturating_sub(1);
            if stage == Stage::Waiting {
                state.full = self.pass;
            }
        }
        self.set_stage(handle, stage);
    }

    /// Makes the callbacks of the sends that are complete now. Sends that become complete during these callbacks have to wait.
    pub(super) fn run_callbacks(&mut self) -> u32 {
        let mut count = 0;
        for _ in 0..self.finished.len() {
            let Some(handle) = self.sends.pop(&mut self.finished) else { break };
            let Some(send) = self.sends.end(handle) else { break };
            let PendingSend { descriptor, endpoint, stage, .. } = send;
            let Stage::Finished(status) = stage else { continue };
            self.descriptors.end(descriptor);
            self.note_completion(endpoint);
            self.counters.completed = self.counters.completed.wrapping_add(1);
            count += 1;
            let Some(properties) = self.descriptors.properties(descriptor).copied() else { continue };
            if let Some(callback) = properties.callback {
                callback.completed(self, Completion { endpoint, descriptor, status, order: ORDER });
            }
            self.free_if_owned(descriptor, properties.flags);
        }
        count
    }

    pub(super) fn free_if_owned(&mut self, descriptor: Descriptor, flags: DescriptorFlags) {
        if flags.contains(DescriptorFlags::BTL_OWNERSHIP) {
            // Fails if the callback has sent it again or has freed it; both are allowed.
            let _ = self.descriptors.free(descriptor);
        }
    }

    fn handle(&mut self, event: Event) -> u32 {
        match event {
            Event::Frame(frame) if frame.tag == tags::BTL_BASE => {
                if !self.on_count_frame(&frame) {
                    let from = self.endpoints.at(frame.from.0).map(|state| state.rail);
                    self.rma.on_frame(&mut self.rail, from, &frame);
                }
                0
            }
            Event::Frame(frame) if frame.is_whole() => self.deliver_short(&frame),
            Event::Frame(frame) => self.start_delivery(Incoming::of(&frame)),
            Event::Delivered(cookie) if Rma::is_own(cookie) => {
                self.rma.on_delivered(cookie);
                0
            }
            Event::Sent(cookie) if Rma::is_own(cookie) => {
                self.rma.on_sent(cookie);
                0
            }
            Event::Delivered(cookie) => self.deliver_long(Handle::from_bits(cookie.0)),
            Event::Sent(cookie) => {
                let handle = Handle::from_bits(cookie.0);
                if self.sends.get(handle).is_some_and(|send| send.stage == Stage::InPlace) {
                    self.set_stage(handle, Stage::Finished(Ok(())));
                }
                0
            }
            Event::Lost(peer, reason) => {
                self.on_lost(peer, reason);
                0
            }
            // A module has only one rail: if its link is down, the peer is lost. A bundle of links reports no link that is down.
            Event::Down(peer, reason) => {
                if let Some(handle) = self.endpoints.handle(peer.0)
                    && let Some(state) = self.endpoints.get_mut(handle)
                    && !core::mem::replace(&mut state.deleted, true)
                {
                    self.rail.del_peer(state.rail); // after this the rail uses none of the memory that callers get back
                }
                self.on_lost(peer, reason);
                0
            }
            Event::Performed(cookie, result) => {
                self.rma.on_device_completion(cookie, result);
                0
            }
            Event::Up(_) | Event::Silent(..) => 0,
            Event::Migrated(_, frame) => {
                self.counters.unregistered = self.counters.unregistered.wrapping_add(1);
                if !frame.is_whole() {
                    self.rail.release(frame.id);
                }
                0
            }
        }
    }

    /// Hands the next frame to its consumer, if the rail has copied it by one call.
    #[inline]
    fn deliver_next(&mut self) -> Option<u32> {
        let (base, room) = self.receives.spare();
        // SAFETY: see `spare`; this reference ends with the call.
        let memory = unsafe { core::slice::from_raw_parts_mut(base, room) };
        let Copied { from, tag, len } = self.rail.poll_copied(tags::BTL_BASE, memory)?;
        // SAFETY: as above. Only this function writes to the memory, and `deliver`, which calls it, does nothing while a callback runs.
        let data = unsafe { core::slice::from_raw_parts(base, (len as usize).min(room)) };
        Some(self.call_consumer(from, tag, data))
    }

    /// Hands a short frame to its consumer.
    fn deliver_short(&mut self, frame: &Frame) -> u32 {
        let data = frame.head();
        let data = data.get(..frame.len as usize).unwrap_or(data);
        self.call_consumer(frame.from, frame.tag, data)
    }

    /// Has the rail deliver a long frame into memory of the module.
    fn start_delivery(&mut self, frame: Incoming) -> u32 {
        let too_long = frame.len as usize > self.receives.bytes();
        if too_long || self.consumers.get(frame.tag).is_none() {
            let counter = if too_long { &mut self.counters.oversize } else { &mut self.counters.unregistered };
            *counter = counter.wrapping_add(1);
            self.drop_frame(&frame);
            return 0;
        }
        let Some((handle, sink)) = self.receives.take(frame) else {
            if !self.receives.push_waiting(frame) {
                self.counters.oversize = self.counters.oversize.wrapping_add(1);
                self.drop_frame(&frame);
            }
            return 0;
        };
        // SAFETY: the slot's memory is the module's, and nobody accesses it until the delivery is complete, or the slot is freed.
        // The slot is freed after `Lost`, or just before `del_peer`, and no slot is taken between the two.
        match unsafe { self.rail.deliver(frame.id(), 0, sink, Cookie(handle.to_bits())) } {
            Delivery::Done => self.deliver_long(handle),
            Delivery::Pending => 0,
        }
    }

    /// Releases a frame that no consumer gets.
    fn drop_frame(&mut self, frame: &Incoming) {
        self.rail.release(frame.id());
        self.count_delivered(self.endpoints.handle(frame.from).map(EndpointId));
    }

    /// Hands a long frame that has arrived as a whole to its consumer.
    fn deliver_long(&mut self, handle: Handle) -> u32 {
        let Some((frame, bytes)) = self.receives.get(handle) else { return 0 };
        let Some((base, len)) = bytes.as_contiguous() else { return 0 };
        // SAFETY: the slot's memory lives for 'm, was zeroed at first, and no rail writes it any more; slots are taken
        // in `progress` only, which does nothing while a callback runs, so it is not written during the callback.
        let data = unsafe { core::slice::from_raw_parts(base.cast_const(), len) };
        let count = self.call_consumer(Peer(frame.from), frame.tag, data);
        self.receives.free(handle);
        count
    }

    fn call_consumer(&mut self, from: Peer, tag: u8, data: &[u8]) -> u32 {
        let endpoint = self.endpoints.handle(from.0).map(EndpointId);
        let Some(consumer) = self.consumers.get(tag) else {
            self.counters.unregistered = self.counters.unregistered.wrapping_add(1);
            self.count_delivered(endpoint);
            return 0;
        };
        self.counters.received = self.counters.received.wrapping_add(1);
        consumer.receive(self, &Received::new(endpoint, tag, data));
        self.count_delivered(endpoint);
        1
    }

    fn on_lost(&mut self, peer: Peer, reason: Lost) {
        let Some(handle) = self.endpoints.handle(peer.0) else { return };
        let endpoint = EndpointId(handle);
        let Some(state) = self.endpoints.get_mut(handle).filter(|state| !state.lost) else { return };
        state.lost = true;
        let proc = state.proc;
        self.forget(endpoint);
        self.rma.forget(peer, rma::Failure::Lost);
        self.fail_in_place(endpoint, Failure::Lost);
        let fails_over = self.rail.attributes().capabilities.contains(Capabilities::FAILOVER_SUPPORT);
        let flags = if reason == Lost::Closed || fails_over { ErrorFlags::NONFATAL } else { ErrorFlags::FATAL };
        if let Some(handler) = self.on_error {
            handler.failed(self, flags, Some(proc), reason);
        }
    }

    /// Forgets the frames of a peer that are being delivered, or wait for a slot.
    pub(super) fn forget(&mut self, endpoint: EndpointId) {
        let rail = &mut self.rail;
        self.receives.forget(Peer(endpoint.0.slot()), |frame| rail.release(frame));
    }

    /// Ends the sends to a peer whose memory the rail read in place. The caller makes sure that the rail does not read it any
    /// more. Sends that wait or are staged end in the next pass.
    pub(super) fn fail_in_place(&mut self, endpoint: EndpointId, failure: Failure) {
        for slot in 0..self.sends.capacity() {
            if let Some((handle, send)) = self.sends.at(slot)
                && send.endpoint == endpoint
                && send.stage == Stage::InPlace
            {
                self.set_stage(handle, Stage::Finished(Err(failure)));
            }
        }
    }
}
