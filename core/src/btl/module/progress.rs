//! What a module does when it is polled: frames to consumers, waiting sends to the rail, completions to callbacks.

use super::state::Btl;
use super::types::{Completion, ErrorFlags};
use crate::btl::active::Received;
use crate::btl::descriptor::{Descriptor, DescriptorFlags, ORDER};
use crate::btl::endpoint::EndpointId;
use crate::btl::errors::Failure;
use crate::btl::receives::Incoming;
use crate::btl::sends::{Operation, Stage};
use crate::convertor::Span;
use crate::pool::Handle;
use crate::rail::LINKED_HEAD;
use crate::rail::{self, Capabilities, Cookie, Delivery, Event, Frame, FullRail, Lane, Lost, Peer, Sent, Shape, tags};
use crate::rma::{self, Rma};
use crate::time::Instant;

/// Events that one call of [`Btl::progress`] takes from the rail at most.
const BURST: u32 = 64;

impl<R: FullRail> Btl<'_, R> {
    /// Takes in what arrived, pushes out what waits, and makes the callbacks that are due. Returns the number of
    /// completions: sends whose callback is made (or would be, had they one) and frames handed to a consumer; 0 means
    /// idle. Within a callback it does nothing.
    pub fn progress(&mut self, now: Instant) -> u32 {
        if self.in_progress {
            return 0;
        }
        self.in_progress = true;
        let mut count = 0u32;
        for _ in 0..BURST {
            let unparked = self.receives.unpark();
            if let Some(frame) = unparked {
                count += self.take_in(frame);
            }
            let Some(event) = self.rail.poll(now) else {
                if unparked.is_some() {
                    continue;
                }
                break;
            };
            count += self.handle(event);
        }
        self.push_out();
        self.push_counts();
        self.push_out_rma();
        count = count.wrapping_add(self.call_back()).wrapping_add(self.call_back_rma());
        self.in_progress = false;
        count
    }

    /// Hands a send to the rail; says how far that gets it.
    pub(super) fn transmit(&mut self, handle: Handle, operation: Operation) -> Stage {
        let Some(reach) = self.endpoints.get(operation.endpoint.0).copied() else {
            return Stage::Finished(Err(Failure::Removed));
        };
        let Some(segments) = self.descriptors.segments(operation.descriptor) else {
            return Stage::Finished(Err(Failure::Removed)); // not reached: a descriptor in flight is not freed
        };
        let len = segments.iter().fold(0u64, |len, segment| len.saturating_add(segment.len())) as u32;
        let lane = if len <= self.rail.attributes().eager_limit { Lane::Eager } else { Lane::Bulk };
        let own = segments.first().copied().unwrap_or(Span::EMPTY);
        // No longer than what a link takes as a header.
        let (head, rest) = (own.window(0, LINKED_HEAD as u64), own.window(LINKED_HEAD as u64, u64::MAX));
        let shape = Shape { tag: operation.tag, lane, header: head.len() as u8, len };
        // A header and one body are what a rail may take as they lie; anything else is gathered.
        let body = match segments {
            [_] | [] => Some(rest),
            [_, body] if rest.is_empty() => Some(*body),
            _ => None,
        };
        let sent = match body {
            Some(body) => {
                let mut header = [0; LINKED_HEAD];
                // SAFETY: the head is the descriptor's own memory, which nobody writes while it is in flight.
                let len = unsafe { head.pack(header.as_mut_ptr(), LINKED_HEAD) };
                let header = header.get(..len).unwrap_or(&[]);
                // SAFETY: the user of the descriptor vouches for attached memory until all sends are complete; the
                // descriptor's own memory cannot be written or given to others while a send is under way. An in-place
                // send is complete with `Sent`, `Lost` or `del_peer`, and not before.
                unsafe { self.rail.send(reach.rail, shape, header, body, Cookie(handle.to_bits())) }
            }
            None => match self.rail.reserve(reach.rail, shape) {
                Err(error) => Err(error),
                Ok(mut grant) => {
                    let mut at = 0usize;
                    for segment in segments {
                        // SAFETY: as above, and only during the call.
                        unsafe { grant.gather(at, *segment) };
                        at = at.saturating_add(segment.len() as usize);
                    }
                    let ticket = grant.finish();
                    Ok(self.rail.commit(ticket))
                }
            },
        };
        if let Some(reach) = self.endpoints.get_mut(operation.endpoint.0) {
            if sent.is_ok() {
                reach.counts.left();
            }
            if operation.ordered && !matches!(sent, Err(rail::SendError::Busy)) {
                reach.counts.goes_on();
            }
        }
        if sent.is_ok()
            && self
                .descriptors
                .properties(operation.descriptor)
                .is_some_and(|own| own.flags.contains(DescriptorFlags::SIGNAL))
        {
            self.rail.signal(reach.rail);
        }
        match sent {
            Ok(Sent::Done) => Stage::Finished(Ok(())),
            Ok(Sent::Staged) if self.rail.drained(reach.rail) => Stage::Finished(Ok(())),
            Ok(Sent::Staged) => Stage::Staged,
            Ok(Sent::InPlace) => Stage::InPlace,
            Err(rail::SendError::Busy) => Stage::Waiting,
            Err(error) => Stage::Finished(Err(Failure::Refused(error))),
        }
    }

    /// Puts a send where its stage belongs.
    pub(super) fn enter(&mut self, handle: Handle, stage: Stage) {
        let Some(operation) = self.sends.get_mut(handle) else { return };
        operation.stage = stage;
        let (endpoint, urgent) = (operation.endpoint, operation.urgent);
        match stage {
            Stage::Waiting => {
                if let Some(reach) = self.endpoints.get_mut(endpoint.0) {
                    let waiting = if urgent { &mut reach.urgent } else { &mut reach.waiting };
                    *waiting = waiting.saturating_add(1);
                }
                self.sends.push(if urgent { &mut self.urgent } else { &mut self.pending }, handle);
            }
            Stage::Staged => self.sends.push(&mut self.pending, handle),
            Stage::InPlace => {}
            Stage::Finished(_) => self.sends.push(&mut self.finished, handle),
        }
    }

    /// Tries what waits, and asks after what is staged, once each and in order.
    pub(super) fn push_out(&mut self) {
        self.pass = self.pass.wrapping_add(1);
        for _ in 0..self.urgent.len() {
            let Some(handle) = self.sends.pop(&mut self.urgent) else { break };
            self.push_out_one(handle);
        }
        for _ in 0..self.pending.len() {
            let Some(handle) = self.sends.pop(&mut self.pending) else { return };
            self.push_out_one(handle);
        }
    }

    fn push_out_one(&mut self, handle: Handle) {
        let Some(operation) = self.sends.get(handle).copied() else { return };
        let waited = operation.stage == Stage::Waiting;
        let stage = match self.endpoints.get(operation.endpoint.0).copied() {
            None => Stage::Finished(Err(Failure::Removed)),
            Some(reach) if reach.lost => Stage::Finished(Err(Failure::Lost)),
            Some(reach) if waited && reach.full == self.pass => Stage::Waiting,
            Some(_) if waited && operation.ordered && !self.is_settled(operation.endpoint) => Stage::Waiting,
            Some(_) if waited => self.transmit(handle, operation),
            Some(reach) if self.rail.drained(reach.rail) => Stage::Finished(Ok(())),
            Some(_) => operation.stage,
        };
        if waited && let Some(reach) = self.endpoints.get_mut(operation.endpoint.0) {
            let waiting = if operation.urgent { &mut reach.urgent } else { &mut reach.waiting };
            *waiting = waiting.saturating_sub(1);
            if stage == Stage::Waiting {
                reach.full = self.pass;
            }
        }
        self.enter(handle, stage);
    }

    /// Makes the callbacks that are due, but none that become due meanwhile.
    pub(super) fn call_back(&mut self) -> u32 {
        let mut count = 0;
        for _ in 0..self.finished.len() {
            let Some(handle) = self.sends.pop(&mut self.finished) else { break };
            let Some(operation) = self.sends.end(handle) else { break };
            let Operation { descriptor, endpoint, stage, .. } = operation;
            let Stage::Finished(status) = stage else { continue };
            self.descriptors.end(descriptor);
            self.complete(endpoint);
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
            // In flight again, or freed by the callback: then it is not to be freed here.
            let _ = self.descriptors.free(descriptor);
        }
    }

    fn handle(&mut self, event: Event) -> u32 {
        match event {
            Event::Frame(frame) if frame.tag == tags::BTL_BASE => {
                if !self.take_count(&frame) {
                    let from = self.endpoints.at(frame.from.0).map(|reach| reach.rail);
                    self.rma.take(&mut self.rail, from, &frame);
                }
                0
            }
            Event::Frame(frame) if frame.is_whole() => self.hand_over(&frame),
            Event::Frame(frame) => self.take_in(Incoming::of(&frame)),
            Event::Delivered(cookie) if Rma::is_own(cookie) => {
                self.rma.delivered(cookie);
                0
            }
            Event::Sent(cookie) if Rma::is_own(cookie) => {
                self.rma.sent(cookie);
                0
            }
            Event::Delivered(cookie) => self.consume(Handle::from_bits(cookie.0)),
            Event::Sent(cookie) => {
                let handle = Handle::from_bits(cookie.0);
                if self.sends.get(handle).is_some_and(|send| send.stage == Stage::InPlace) {
                    self.enter(handle, Stage::Finished(Ok(())));
                }
                0
            }
            Event::Lost(peer, reason) => {
                self.lose(peer, reason);
                0
            }
            // One rail is all that a module has: a link that is out of order has lost the peer.
            Event::Down(peer, reason) => {
                if let Some(handle) = self.endpoints.handle(peer.0)
                    && let Some(reach) = self.endpoints.get(handle)
                {
                    self.rail.del_peer(reach.rail); // touches none of the memory that is given back now
                }
                self.lose(peer, reason);
                0
            }
            Event::Performed(cookie, result) => {
                self.rma.performed(cookie, result);
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

    /// Gives a short frame to its consumer.
    fn hand_over(&mut self, frame: &Frame) -> u32 {
        let data = frame.head();
        let data = data.get(..frame.len as usize).unwrap_or(data);
        self.call_consumer(frame.from, frame.tag, data)
    }

    /// Has the rail put a long frame into memory of ours.
    fn take_in(&mut self, frame: Incoming) -> u32 {
        let too_long = frame.len as usize > self.receives.bytes();
        if too_long || self.active.get(frame.tag).is_none() {
            let counter = if too_long { &mut self.counters.oversize } else { &mut self.counters.unregistered };
            *counter = counter.wrapping_add(1);
            self.drop_frame(&frame);
            return 0;
        }
        let Some((handle, sink)) = self.receives.take(frame) else {
            if !self.receives.park(frame) {
                self.counters.oversize = self.counters.oversize.wrapping_add(1);
                self.drop_frame(&frame);
            }
            return 0;
        };
        // SAFETY: the slot's memory is ours, and nobody accesses it until the delivery is complete, or the slot is freed
        // after `Lost` or before `del_peer`, between which no slot is taken.
        match unsafe { self.rail.deliver(frame.id(), 0, sink, Cookie(handle.to_bits())) } {
            Delivery::Done => self.consume(handle),
            Delivery::Pending => 0,
        }
    }

    /// Nobody takes a frame.
    fn drop_frame(&mut self, frame: &Incoming) {
        self.rail.release(frame.id());
        self.count_in(self.endpoints.handle(frame.from).map(EndpointId));
    }

    /// Gives a long frame, all of which is here, to its consumer.
    fn consume(&mut self, handle: Handle) -> u32 {
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
        let Some(consumer) = self.active.get(tag) else {
            self.counters.unregistered = self.counters.unregistered.wrapping_add(1);
            self.count_in(endpoint);
            return 0;
        };
        self.counters.received = self.counters.received.wrapping_add(1);
        consumer.receive(self, &Received::new(endpoint, tag, data));
        self.count_in(endpoint);
        1
    }

    fn lose(&mut self, peer: Peer, reason: Lost) {
        let Some(handle) = self.endpoints.handle(peer.0) else { return };
        let endpoint = EndpointId(handle);
        let Some(reach) = self.endpoints.get_mut(handle).filter(|reach| !reach.lost) else { return };
        reach.lost = true;
        let proc = reach.proc;
        self.forget(endpoint);
        self.rma.forget(peer, rma::Failure::Lost);
        self.fail_in_place(endpoint, Failure::Lost);
        let fails_over = self.rail.attributes().capabilities.contains(Capabilities::FAILOVER_SUPPORT);
        let flags = if reason == Lost::Closed || fails_over { ErrorFlags::NONFATAL } else { ErrorFlags::FATAL };
        if let Some(handler) = self.on_error {
            handler.failed(self, flags, Some(proc), &reason);
        }
    }

    /// Forgets what is coming in from a peer.
    pub(super) fn forget(&mut self, endpoint: EndpointId) {
        let rail = &mut self.rail;
        self.receives.forget(Peer(endpoint.0.slot()), |frame| rail.release(frame));
    }

    /// Ends the sends to a peer whose memory the rail no longer reads. Those that wait or are staged end in the next pass.
    pub(super) fn fail_in_place(&mut self, endpoint: EndpointId, failure: Failure) {
        for slot in 0..self.sends.capacity() {
            if let Some((handle, send)) = self.sends.at(slot)
                && send.endpoint == endpoint
                && send.stage == Stage::InPlace
            {
                self.enter(handle, Stage::Finished(Err(failure)));
            }
        }
    }
}
