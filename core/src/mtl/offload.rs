//! Communicators whose messages a device matches ([`Offload`](crate::pml::offload::Offload)). None of this is on the path of the
//! other communicators' messages.

use super::communicator::Comm;
use super::errors::CommError;
use super::source::{Source, Tag};
use super::transport::Mtl;
use crate::convertor::{Parts, Span};
use crate::pml::matching::{ANY, Pattern};
use crate::pml::offload::{DeviceFailure, Ended, Found, Operation};
use crate::pml::{Envelope, Message, Mode, Rails, Refusal, Request, Sending};
use crate::rail::{Lost, Peer};

/// A communicator that the device has.
#[derive(Clone, Copy)]
struct Offloaded {
    /// The device's number of it.
    number: u32,
    context: u32,
}

/// The mode in which a send goes by the rails after the fallback. Receives may still be with the device of the receiver, so a ready send
/// would fail although its receive is posted.
pub(super) const fn mode_on_rails(mode: Mode) -> Mode {
    if matches!(mode, Mode::Ready) { Mode::Synchronous } else { mode }
}

impl<R: Rails> Mtl<'_, R> {
    /// Has the device match the messages of a new communicator, if there is a device that serves it.
    pub(super) fn offload_comm(&mut self, comm: Comm) -> Result<(), CommError> {
        if self.fallback.is_over() {
            return Ok(());
        }
        let Some((state, device)) = self.comms.get_mut(comm.0).zip(self.pml.offload()) else { return Ok(()) };
        let mut made = device.add_comm(state.context, &mut state.members(), state.rank, state.is_lasting());
        if made == Err(Refusal::DeviceFailed) {
            self.progress_offload(); // falls back to the rails
            if self.fallback.is_over() {
                return Ok(());
            }
            let Some((state, device)) = self.comms.get_mut(comm.0).zip(self.pml.offload()) else { return Ok(()) };
            made = device.add_comm(state.context, &mut state.members(), state.rank, state.is_lasting());
        }
        match made {
            Ok(Some(number)) => {
                if let Some(state) = self.comms.get_mut(comm.0) {
                    state.offload(number);
                }
            }
            Ok(None) => {}
            Err(why) => {
                self.comms.free(comm.0);
                return Err(if why == Refusal::DeviceFailed { CommError::DeviceFailed } else { CommError::Full });
            }
        }
        Ok(())
    }

    /// The number and the context of a communicator that the device has.
    fn offloaded(&self, comm: Comm) -> Option<Offloaded> {
        let state = self.comms.get(comm.0)?;
        state.offloaded().map(|number| Offloaded { number, context: state.context })
    }

    /// The rank of a source, or any. `None` if there is no such rank.
    fn word_of(&self, comm: Comm, source: Source) -> Option<u32> {
        match source {
            Source::Rank(rank) => self.comms.get(comm.0)?.peer(rank).map(|_| rank),
            Source::Any => Some(ANY),
        }
    }

    /// A send in a communicator that the device has, or to a rank that does not exist.
    ///
    /// # Safety
    /// As [`isend`](Self::isend).
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn isend_offloaded(
        &mut self,
        comm: Comm,
        dest: u32,
        tag: u32,
        mode: Mode,
        data: Parts,
    ) -> Result<Sending, Refusal> {
        let data = Span::of_parts(data);
        let peer = self.comms.get(comm.0).and_then(|state| state.peer(dest));
        let Some((offloaded, peer)) = self.offloaded(comm).zip(peer) else {
            return Err(self.refusal(comm, Source::Rank(dest)));
        };
        if tag == ANY {
            return Err(Refusal::Invalid);
        }
        if self.excluded(comm, Source::Rank(dest)).is_some() {
            return Err(self.refusal(comm, Source::Rank(dest)));
        }
        if self.fallback.sends_by_rails() {
            // SAFETY: passed on from the caller.
            return unsafe { self.pml.isend(peer, offloaded.context, tag, mode_on_rails(mode), data) };
        }
        self.check_present(peer)?;
        let request = self.pml.offload_send(peer, offloaded.context, tag, mode, data.len())?;
        let operation = Operation { request, comm: offloaded.number, rank: dest, peer: peer.0, tag };
        let Some(device) = self.pml.offload() else { return Err(Refusal::Invalid) };
        // SAFETY: passed on from the caller.
        match unsafe { device.isend(&operation, mode, data) } {
            Err(Refusal::DeviceFailed) if self.falls_back(request) => {
                // SAFETY: passed on from the caller.
                unsafe { self.pml.isend(peer, offloaded.context, tag, mode_on_rails(mode), data) }
            }
            Ok(Sending::Complete) => {
                self.pml.forget_offloaded(request);
                Ok(Sending::Complete)
            }
            Ok(pending) => Ok(pending),
            Err(refusal) => {
                self.pml.forget_offloaded(request);
                Err(refusal)
            }
        }
    }

    /// Refuses an operation with a peer that is lost.
    fn check_present(&self, peer: Peer) -> Result<(), Refusal> {
        match self.pml.why_lost(peer) {
            None => Ok(()),
            Some(Lost::Closed) => Err(Refusal::PeerClosed(peer)),
            Some(_) => Err(Refusal::PeerFailed(peer)),
        }
    }

    /// A receive in a communicator that the device has.
    ///
    /// # Safety
    /// As [`irecv`](Self::irecv).
    pub(super) unsafe fn irecv_offloaded(
        &mut self,
        comm: Comm,
        source: Source,
        tag: Tag,
        sink: Span,
    ) -> Result<Request, Refusal> {
        let state = self.comms.get(comm.0).ok_or(Refusal::Invalid)?;
        let (Some(number), Some(word)) = (state.offloaded(), tag.word()) else { return Err(Refusal::Invalid) };
        let (rank, peer) = match source {
            Source::Rank(rank) => (rank, state.peer(rank).ok_or(Refusal::Invalid)?.0),
            Source::Any => (ANY, ANY),
        };
        let pattern = Pattern { context: state.context, source: peer, tag: word };
        if self.fallback.receives_by_rails() {
            // SAFETY: passed on from the caller.
            return unsafe { self.irecv_drained(comm, number, rank, pattern, sink) };
        }
        let request = self.pml.offload_receive(peer, pattern.context, word, sink)?;
        let operation = Operation { request, comm: number, rank, peer, tag: word };
        let Some(device) = self.pml.offload() else { return Err(Refusal::Invalid) };
        // SAFETY: passed on from the caller.
        match unsafe { device.irecv(&operation, sink) } {
            Ok(()) => Ok(request),
            Err(Refusal::DeviceFailed) if self.falls_back(request) => {
                // SAFETY: passed on from the caller. The fallback has begun, so the device refuses no receive any more.
                unsafe { self.irecv(comm, source, tag, sink) }
            }
            Err(refusal) => {
                self.pml.forget_offloaded(request);
                Err(refusal)
            }
        }
    }

    /// A device that has failed refuses an operation. Gives its request back, and falls back to the rails.
    #[cold]
    fn falls_back(&mut self, request: Request) -> bool {
        self.pml.forget_offloaded(request);
        self.progress_offload();
        self.fallback.sends_by_rails()
    }

    /// Asks the device for a message.
    fn probe_offloaded(
        &mut self,
        comm: Comm,
        source: Source,
        tag: Tag,
        take: bool,
    ) -> Result<Option<(Found, Envelope)>, Refusal> {
        let (Some(offloaded), Some(rank), Some(tag)) = (self.offloaded(comm), self.word_of(comm, source), tag.word())
        else {
            return Err(self.refusal(comm, source));
        };
        let Some(device) = self.pml.offload() else { return Err(Refusal::Invalid) };
        let Some(found) = device.probe(offloaded.number, rank, tag, take)? else { return Ok(None) };
        let peer = self.peer_of(comm, found.rank).ok_or(Refusal::DeviceFailed)?;
        Ok(Some((found, Envelope { peer, tag: found.tag, len: found.len })))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn iprobe_offloaded(&mut self, comm: Comm, source: Source, tag: Tag) -> Option<Envelope> {
        match self.probe_offloaded(comm, source, tag, false) {
            Ok(Some((_, envelope))) => Some(envelope),
            Ok(None) | Err(_) if self.fallback.receives_by_rails() => {
                let pattern = self.pattern_on_rails(comm, source, tag.word()?)?;
                self.pml.iprobe(pattern)
            }
            Ok(None) | Err(_) => None,
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn improbe_offloaded(
        &mut self,
        comm: Comm,
        source: Source,
        tag: Tag,
    ) -> Result<Option<(Message, Envelope)>, Refusal> {
        if self.pml.free_requests() == 0 {
            return Err(Refusal::Busy); // a message that was taken needs a request
        }
        let found = match self.probe_offloaded(comm, source, tag, true) {
            Err(Refusal::DeviceFailed) if self.fallback.sends_by_rails() => None,
            found => found?,
        };
        let Some((found, envelope)) = found else {
            if !self.fallback.receives_by_rails() {
                return Ok(None);
            }
            let tag = tag.word().ok_or(Refusal::Invalid)?;
            let pattern = self.pattern_on_rails(comm, source, tag).ok_or(Refusal::Invalid)?;
            return self.pml.improbe(pattern);
        };
        let context = self.context_of(comm).unwrap_or(0);
        Ok(Some((self.pml.keep_offloaded(envelope.peer, context, &found)?, envelope)))
    }

    /// Receives a message that the device keeps.
    ///
    /// # Safety
    /// As [`imrecv`](Self::imrecv).
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn imrecv_offloaded(
        &mut self,
        request: Request,
        found: &Found,
        message: Message,
        sink: Span,
    ) -> Result<Request, (Refusal, Message)> {
        let Some(device) = self.pml.offload() else { return Err((Refusal::Invalid, message)) };
        // SAFETY: passed on from the caller.
        match unsafe { device.imrecv(found, request, sink) } {
            Ok(()) => {
                self.pml.receive_offloaded(request, sink);
                Ok(request)
            }
            // The message is gone, and its receive ends with the reason.
            Err(Refusal::DeviceFailed) => {
                self.pml.receive_offloaded(request, sink);
                self.pml.end_offloaded(&Ended { request, outcome: Err(DeviceFailure::Device) });
                Ok(request)
            }
            Err(refusal) => Err((refusal, message)),
        }
    }

    /// Cancels a receive or a send that the device has.
    #[cold]
    #[inline(never)]
    pub(super) fn cancel_offloaded(&mut self, request: Request, receive: bool) -> bool {
        if !self.pml.is_offloaded(request, receive) {
            return false;
        }
        let cancelled = self.pml.offload().is_some_and(|device| device.cancel(request));
        self.end_offloaded(); // the outcome can be taken at once, as that of other operations
        cancelled
    }

    /// Ends operations that the device has ended. Returns how many.
    pub(super) fn end_offloaded(&mut self) -> u32 {
        let mut count = 0_u32;
        while let Some(ended) = self.pml.offload().and_then(|device| device.next_ended()) {
            match ended.outcome {
                Ok(delivered) => self.pml.deliver_offloaded(ended.request, &delivered),
                Err(why) => {
                    let outcome = Err(self.as_known(ended.request, why));
                    self.pml.end_offloaded(&Ended { outcome, ..ended });
                }
            }
            count = count.wrapping_add(1);
        }
        count
    }

    /// The failure of a request, with the peer that is the reason: a device may not know the peer, and may report as lost what this
    /// engine knows to have ended.
    fn as_known(&self, request: Request, why: DeviceFailure) -> DeviceFailure {
        let (DeviceFailure::PeerFailed(told) | DeviceFailure::PeerClosed(told)) = why else { return why };
        let own = self.pml.offloaded_peer(request);
        let peer = [own, told].into_iter().find(|peer| *peer != ANY).or_else(|| self.missing_member(request));
        let Some(peer) = peer else { return why };
        if self.has_replaced(request, Peer(peer)) {
            return DeviceFailure::Restarted(peer);
        }
        let is_closed =
            matches!(why, DeviceFailure::PeerClosed(_)) || self.pml.why_lost(Peer(peer)) == Some(Lost::Closed);
        if is_closed { DeviceFailure::PeerClosed(peer) } else { DeviceFailure::PeerFailed(peer) }
    }

    /// Whether a peer was replaced since the communicator of a request was made.
    fn has_replaced(&self, request: Request, peer: Peer) -> bool {
        let comm = self.pml.offloaded_context(request).and_then(|context| self.comm_of(context));
        comm.and_then(|comm| self.comms.get(comm.0)).is_some_and(|state| state.excludes(self.rejoins.of(peer)))
    }

    /// A member of a request's communicator that was lost.
    fn missing_member(&self, request: Request) -> Option<u32> {
        let comm = self.comm_of(self.pml.offloaded_context(request)?)?;
        let state = self.comms.get(comm.0)?;
        state.members().find(|peer| self.pml.is_lost(*peer)).map(|peer| peer.0)
    }
}
