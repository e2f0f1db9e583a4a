//! The fallback of all communicators from a device to the rails, when the device of a process of the job has failed.
//!
//! A message that was given to a device comes before a message that goes by the rails. So a process that falls back tells all
//! others how many messages it has given to its device for each (an announcement, WIRE.md), and posts no receive to its rails before
//! all messages of the others' devices have arrived or are known to be lost. Messages of the rails wait in the engine until then, as
//! messages do for which no receive is posted.

use super::communicator::Comm;
use super::fallback_state::Stage;
use super::offload::mode_on_rails;
use super::source::Source;
use super::transport::Mtl;
use crate::convertor::Span;
use crate::pml::matching::{ANY, Pattern};
use crate::pml::offload::{ANNOUNCEMENT, ANNOUNCEMENT_TAG, DeviceFailure, Ended, Found};
use crate::pml::{Mode, Rails, Refusal, Request, Sending};

/// The context of announcements.
const CONTEXT: u32 = u32::MAX;
/// Announcements of all processes.
const PATTERN: Pattern = Pattern { context: CONTEXT, source: ANY, tag: ANNOUNCEMENT_TAG };

impl<R: Rails> Mtl<'_, R> {
    /// Makes progress of the device: ends operations, and falls back if a device has failed. Returns how many operations ended.
    #[inline(never)]
    pub(super) fn progress_offload(&mut self) -> u32 {
        let count = self.end_offloaded();
        let heard = self.hear();
        if self.fallback.stage == Stage::Device {
            if !heard && !self.pml.offload().is_some_and(|device| device.has_failed()) {
                return count;
            }
            self.leave();
        }
        self.announce();
        if self.fallback.stage == Stage::Leaving && self.pml.device_has_all() {
            self.fallback.stage = Stage::Draining;
            self.post_unmatched();
        }
        if self.fallback.stage == Stage::Draining && self.pml.offload().is_some_and(|device| device.is_drained()) {
            self.fallback.stage = Stage::Rails;
            for slot in 0..self.comms.capacity() {
                if let Some(state) = self.comms.at_mut(slot) {
                    state.leave_device();
                }
            }
        }
        count
    }

    /// Sends go by the rails from now on, also those that the device was not given.
    fn leave(&mut self) {
        self.fallback.stage = Stage::Leaving;
        if let Some(device) = self.pml.offload() {
            device.leave();
        }
        while let Some(held) = self.pml.offload().and_then(|device| device.next_held()) {
            self.pml.send_offloaded(held.request, mode_on_rails(held.mode), held.data);
        }
    }

    /// Takes announcements of other processes. Returns whether there was one.
    fn hear(&mut self) -> bool {
        let mut heard = false;
        loop {
            if let Some((request, from)) = self.fallback.hearing {
                let Some(outcome) = self.pml.test(request) else { return heard };
                self.fallback.hearing = None;
                if outcome.is_ok()
                    && let Some(device) = self.pml.offload()
                {
                    device.heard(from);
                    heard = true;
                }
            }
            // A sender may have to hold its announcement back. It is asked for it only while announcements are waited for, since asks
            // for several messages disturb each other.
            let is_there = match self.fallback.stage {
                Stage::Leaving => self.pml.iprobe(PATTERN).is_some(),
                _ => self.pml.has_unexpected(&PATTERN),
            };
            // Without a free request it is tried again later.
            if !is_there || self.pml.free_requests() == 0 {
                return heard;
            }
            let Ok(Some((message, envelope))) = self.pml.improbe(PATTERN) else { return heard };
            let place = self.pml.offload().and_then(|device| device.announcement_of(envelope.peer));
            // One of another length is dropped.
            let place = place.filter(|_| envelope.len == ANNOUNCEMENT as u64).unwrap_or(Span::EMPTY);
            // SAFETY: the place stays until the device is dropped, after this engine, and is written by this receive only.
            match unsafe { self.pml.imrecv(message, place) } {
                Ok(request) => self.fallback.hearing = Some((request, envelope.peer)),
                Err(_) => return heard,
            }
        }
    }

    /// Sends announcements.
    fn announce(&mut self) {
        while let Some((peer, span)) = self.pml.offload().and_then(|device| device.next_announcement()) {
            // SAFETY: the memory stays as it is until the device is dropped, after this engine.
            match unsafe { self.pml.isend(peer, CONTEXT, ANNOUNCEMENT_TAG, Mode::Standard, span) } {
                Ok(Sending::Complete) => {}
                Ok(Sending::Pending(request)) => self.pml.detach(request),
                Err(Refusal::Busy) => return,
                Err(_) => {} // the peer is lost, and nothing is waited for from it
            }
            if let Some(device) = self.pml.offload() {
                device.announced(peer);
            }
        }
    }

    /// Posts the receives for which the device has no message to the rails.
    fn post_unmatched(&mut self) {
        while let Some(request) = self.pml.offload().and_then(|device| device.next_unmatched()) {
            let context = self.pml.offloaded_context(request);
            let is_from_any = self.pml.offloaded_peer(request) == ANY;
            self.pml.post_offloaded(request);
            if is_from_any && let Some(comm) = context.and_then(|context| self.comm_of(context)) {
                self.interrupt_among_failed(comm, request);
            }
        }
        self.end_offloaded();
    }

    /// A receive while the device is drained: it gets a message of the device, or the news of a loss, or goes to the rails.
    ///
    /// # Safety
    /// As [`irecv`](Self::irecv).
    pub(super) unsafe fn irecv_drained(
        &mut self,
        comm: Comm,
        number: u32,
        rank: u32,
        pattern: Pattern,
        sink: Span,
    ) -> Result<Request, Refusal> {
        let request = self.pml.offload_receive(pattern.source, pattern.context, pattern.tag, sink)?;
        if let Some(peer) = self.pml.offload().and_then(|device| device.take_loss(number, rank)) {
            self.pml.end_offloaded(&Ended { request, outcome: Err(DeviceFailure::MessagesLost(peer.0)) });
            return Ok(request);
        }
        let found =
            self.take_from_device(number, rank, pattern.tag).inspect_err(|_| self.pml.forget_offloaded(request))?;
        if let Some(found) = found {
            let Some(device) = self.pml.offload() else { return Err(Refusal::Invalid) };
            // SAFETY: passed on from the caller.
            if let Err(refusal) = unsafe { device.imrecv(&found, request, sink) } {
                self.pml.forget_offloaded(request);
                return Err(refusal);
            }
            return Ok(request);
        }
        self.pml.post_offloaded(request);
        if pattern.source == ANY {
            self.interrupt_among_failed(comm, request);
        }
        Ok(request)
    }

    /// A message of the device. A device that has failed has none.
    fn take_from_device(&mut self, number: u32, rank: u32, tag: u32) -> Result<Option<Found>, Refusal> {
        let Some(device) = self.pml.offload() else { return Ok(None) };
        match device.probe(number, rank, tag, true) {
            Err(Refusal::DeviceFailed) => Ok(None),
            found => found,
        }
    }

    /// The pattern on the rails of a receive or probe in a communicator of the device.
    pub(super) fn pattern_on_rails(&self, comm: Comm, source: Source, tag: u32) -> Option<Pattern> {
        let state = self.comms.get(comm.0)?;
        let source = match source {
            Source::Rank(rank) => state.peer(rank)?.0,
            Source::Any => ANY,
        };
        Some(Pattern { context: state.context, source, tag })
    }
}
