//! The requests of operations that a device has.

use crate::convertor::Span;
use crate::pml::engine::Pml;
use crate::pml::matching::ANY;
use crate::pml::offload::ENABLED;
use crate::pml::offload::device::{Delivered, DeviceFailure, Ended, Found};
use crate::pml::peers::state::PeerStatus;
use crate::pml::rails::Rails;
use crate::pml::requests::errors::Refusal;
use crate::pml::requests::request::{Mode, Request};
use crate::pml::requests::state::{DETACHED, NOTIFY, Outcome, Phase, RECEIVE, Remote, RequestState, SYNCHRONOUS};
use crate::pml::send::start::flags_of;
use crate::pml::unexpected::message::{Message, MessageSource};
use crate::rail::Peer;

impl<R: Rails> Pml<'_, R> {
    /// Takes a request for an operation of the device. `peer`: the other side, or any.
    ///
    /// # Errors
    /// [`Refusal::Busy`].
    pub(crate) fn offload_send(
        &mut self,
        peer: Peer,
        context: u32,
        tag: u32,
        mode: Mode,
        len: u64,
    ) -> Result<Request, Refusal> {
        let flags = if matches!(mode, Mode::Synchronous | Mode::Ready) { SYNCHRONOUS } else { 0 };
        self.take_offloaded(RequestState {
            phase: Phase::Offloaded,
            flags,
            peer: peer.0,
            context,
            tag,
            total: len,
            ..zerocopy::FromZeros::new_zeroed()
        })
    }

    /// As [`offload_send`](Self::offload_send), for a receive into `sink`.
    pub(crate) fn offload_receive(
        &mut self,
        peer: u32,
        context: u32,
        tag: u32,
        sink: Span,
    ) -> Result<Request, Refusal> {
        self.take_offloaded(RequestState {
            phase: Phase::Offloaded,
            flags: RECEIVE,
            peer,
            context,
            tag,
            span: sink,
            ..zerocopy::FromZeros::new_zeroed()
        })
    }

    #[inline]
    fn take_offloaded(&mut self, state: RequestState) -> Result<Request, Refusal> {
        self.requests.take(state).map(Request).map_err(|_| Refusal::Busy)
    }

    /// Gives back the request of an operation that the device has refused.
    pub(crate) fn forget_offloaded(&mut self, request: Request) {
        self.requests.free(request.0);
    }

    /// Whether a device has the send or the receive of a request.
    pub(crate) fn is_offloaded(&self, request: Request, receive: bool) -> bool {
        let is_it = |state: &RequestState| {
            ENABLED && state.phase == Phase::Offloaded && (state.flags & RECEIVE != 0) == receive
        };
        self.requests.get(request.0).is_some_and(is_it)
    }

    /// Keeps a message of the device that a probe took, as a request that is to receive it.
    ///
    /// # Errors
    /// [`Refusal::Busy`].
    pub(crate) fn keep_offloaded(&mut self, peer: Peer, context: u32, found: &Found) -> Result<Message, Refusal> {
        let mut state = RequestState {
            phase: Phase::OffloadedMessage,
            flags: RECEIVE,
            peer: peer.0,
            context,
            tag: found.tag,
            total: found.len,
            ..zerocopy::FromZeros::new_zeroed()
        };
        state.remote.set(u64::from(found.message));
        match self.requests.take(state) {
            Ok(handle) => Ok(Message(MessageSource::Request(handle))),
            Err(_) => Err(Refusal::Busy),
        }
    }

    /// The other side of an operation of the device, or any.
    pub(crate) fn offloaded_peer(&self, request: Request) -> u32 {
        self.requests.get(request.0).map_or(ANY, |state| state.peer)
    }

    /// The context of an operation of the device.
    pub(crate) fn offloaded_context(&self, request: Request) -> Option<u32> {
        self.requests.get(request.0).map(|state| state.context)
    }

    /// The request of a message that was [kept](Self::keep_offloaded), and what the probe has found.
    pub(crate) fn offloaded_message(&self, message: &Message) -> Option<(Request, Found)> {
        let MessageSource::Request(handle) = message.0 else { return None };
        let is_it = |state: &&RequestState| ENABLED && state.phase == Phase::OffloadedMessage;
        let state = self.requests.get(handle).filter(is_it)?;
        let found = Found { message: state.remote.as_handle() as u32, rank: ANY, tag: state.tag, len: state.total };
        Some((Request(handle), found))
    }

    /// The message of such a request is being received into `sink`.
    pub(crate) fn receive_offloaded(&mut self, request: Request, sink: Span) {
        if let Some(state) = self.requests.get_mut(request.0) {
            (state.phase, state.span) = (Phase::Offloaded, sink);
        }
    }

    /// [`Fallback::has_all`](super::Fallback::has_all) of the device: nothing is waited for from peers that are not up.
    pub(crate) fn device_has_all(&mut self) -> bool {
        let (rails, peers) = (&mut self.rails, &self.peers);
        let is_up = |peer: Peer| peers.get(peer.0 as usize).is_some_and(|peer| peer.status == PeerStatus::Up);
        rails.offload().is_some_and(|device| device.has_all(&mut |peer| !is_up(peer)))
    }

    /// Posts a receive of the device to the rails. The request stays.
    pub(crate) fn post_offloaded(&mut self, request: Request) {
        let Some(state) = self.requests.get_mut(request.0).filter(|state| state.phase == Phase::Offloaded) else {
            return;
        };
        let kept = state.flags & (DETACHED | NOTIFY);
        state.post();
        state.flags |= kept;
        state.remote = Remote::posting(self.next_posting);
        self.next_posting = self.next_posting.wrapping_add(1);
        let (context, source, tag) = (state.context, state.peer, state.tag);
        self.post(request.0.slot(), context, source, tag);
    }

    /// Sends by the rails what the device has not begun to send. The request stays.
    pub(crate) fn send_offloaded(&mut self, request: Request, mode: Mode, data: Span) {
        let Some(state) = self.requests.get_mut(request.0).filter(|state| state.phase == Phase::Offloaded) else {
            return;
        };
        state.phase = Phase::Held;
        state.flags = state.flags & (DETACHED | NOTIFY) | flags_of(mode);
        state.span = data;
        let to = state.peer;
        if self.peers.get(to as usize).is_some_and(|peer| peer.status == PeerStatus::Up) {
            self.hold(to, request.0);
        } else {
            self.complete(request.0.slot(), self.outcome_of_lost(to));
        }
    }

    /// Ends the operation of a device, which has succeeded.
    #[inline]
    pub(crate) fn deliver_offloaded(&mut self, request: Request, delivered: &Delivered) {
        let Some(state) = self.requests.get_mut(request.0).filter(|state| state.phase == Phase::Offloaded) else {
            return;
        };
        if state.flags & RECEIVE != 0 {
            if state.peer == ANY {
                state.peer = delivered.peer;
            }
            (state.tag, state.total) = (delivered.tag, delivered.received);
        }
        state.finish(Outcome::Success);
        if state.is_awaited() {
            self.end(request.0.slot());
        }
    }

    /// Ends the operation of a device.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_offloaded(&mut self, ended: &Ended) {
        let Some(state) = self.requests.get_mut(ended.request.0).filter(|state| state.phase == Phase::Offloaded) else {
            return;
        };
        if let Err(
            DeviceFailure::PeerFailed(peer)
            | DeviceFailure::PeerClosed(peer)
            | DeviceFailure::Restarted(peer)
            | DeviceFailure::MessagesLost(peer)
            | DeviceFailure::Aborted(peer),
        ) = ended.outcome
            && state.peer == ANY
        {
            state.peer = peer;
        }
        let outcome = match ended.outcome {
            Ok(delivered) => return self.deliver_offloaded(ended.request, &delivered),
            Err(DeviceFailure::Cancelled) => Outcome::Cancelled,
            Err(DeviceFailure::PeerFailed(_)) => Outcome::PeerFailed,
            Err(DeviceFailure::PeerClosed(_)) => Outcome::PeerClosed,
            Err(DeviceFailure::Restarted(_)) => Outcome::Restarted,
            Err(DeviceFailure::NotReady) => Outcome::NotReady,
            Err(DeviceFailure::NoCommunicator) => Outcome::NoCommunicator,
            Err(DeviceFailure::TooLong) => Outcome::TooLong,
            Err(DeviceFailure::Device) => Outcome::DeviceFailed,
            Err(DeviceFailure::MessagesLost(_)) => Outcome::MessagesLost,
            Err(DeviceFailure::BadMemory) => Outcome::BadMemory,
            Err(DeviceFailure::Aborted(_)) => Outcome::Aborted,
        };
        self.complete(ended.request.0.slot(), outcome);
    }
}
