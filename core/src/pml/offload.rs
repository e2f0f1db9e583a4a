//! Matching by a device: the engine hands the messages of some communicators to a device that matches, sends and receives them by
//! itself, and keeps a request for each operation.
//!
//! All traffic of a communicator goes through the device or none of it, so that receives from any source have one owner. The
//! device is beside the rails: the engine never mixes its messages with theirs.

use crate::convertor::Span;
use crate::pml::engine::Pml;
use crate::pml::matching::ANY;
use crate::pml::rails::Rails;
use crate::pml::requests::errors::Refusal;
use crate::pml::requests::request::{Mode, Request, Sending};
use crate::pml::requests::state::{Outcome, Phase, RECEIVE, RequestState, SYNCHRONOUS};
use crate::pml::unexpected::message::{Message, MessageSource};
use crate::rail::Peer;

/// A device that matches messages. Numbers of communicators and messages are the device's; ranks are those of the communicator.
/// `source` and `tag` may be [`ANY`](crate::pml::matching::ANY). It is used by one thread at a time.
///
/// Each operation that was not refused ends once: [`next_ended`](Self::next_ended) returns its request.
pub trait Offload {
    /// Makes a communicator on the device: rank r is the r-th of `members`, and this process has rank `rank`. `None`: the device
    /// does not serve this communicator, which is the same at all members.
    ///
    /// # Errors
    /// [`Refusal::Busy`] if the device has no more room for communicators, [`Refusal::DeviceFailed`].
    fn add_comm(
        &mut self,
        context: u32,
        members: &mut dyn Iterator<Item = Peer>,
        rank: u32,
    ) -> Result<Option<u32>, Refusal>;

    /// Deletes a communicator. Its receives that have not matched end as cancelled.
    fn del_comm(&mut self, comm: u32);

    /// Forgets a peer. Operations with it end with a failure.
    fn del_peer(&mut self, peer: Peer);

    /// A peer was lost. Operations with it end with a failure.
    fn lose_peer(&mut self, peer: Peer);

    /// The caller knows of the failures of a communicator's members so far: receives from any source wait for the other members.
    fn acknowledge(&mut self, comm: u32);

    /// Begins to send. [`Sending::Complete`]: the memory may be reused at once, and no end is reported.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was begun then.
    ///
    /// # Safety
    /// The memory of `data` stays readable and unchanged until the operation has ended.
    unsafe fn isend(&mut self, operation: &Operation, mode: Mode, data: Span) -> Result<Sending, Refusal>;

    /// Begins to receive.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    ///
    /// # Safety
    /// The memory of `sink` stays writable, and nothing else accesses it, until the operation has ended.
    unsafe fn irecv(&mut self, operation: &Operation, sink: Span) -> Result<(), Refusal>;

    /// Finds a message. With `take`, no other receive gets the message.
    ///
    /// # Errors
    /// [`Refusal`].
    fn probe(&mut self, comm: u32, source: u32, tag: u32, take: bool) -> Result<Option<Found>, Refusal>;

    /// Receives a message that a probe took.
    ///
    /// # Errors
    /// As [`isend`](Self::isend): the message may be received later.
    ///
    /// # Safety
    /// As [`irecv`](Self::irecv).
    unsafe fn imrecv(&mut self, message: u32, request: Request, sink: Span) -> Result<(), Refusal>;

    /// Cancels an operation, which ends in any case. Returns whether it was cancelled.
    fn cancel(&mut self, request: Request) -> bool;

    /// Makes progress, and returns the next operation that has ended.
    fn next_ended(&mut self) -> Option<Ended>;

    /// Whether operations are in progress, so that this process must look for their end.
    fn is_busy(&self) -> bool;
}

/// An operation that a device is to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Operation {
    /// The engine's request, which the device returns when the operation has ended.
    pub request: Request,
    /// The communicator.
    pub comm: u32,
    /// The rank of the receiver; of a receive the rank of the sender, or any.
    pub rank: u32,
    /// The tag; of a receive also any.
    pub tag: u32,
}

/// A message that a probe found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Found {
    /// Its number, if it was taken.
    pub message: u32,
    /// The rank of the sender.
    pub rank: u32,
    /// The tag.
    pub tag: u32,
    /// The length in bytes.
    pub len: u64,
}

/// The end of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Ended {
    /// Its request.
    pub request: Request,
    /// How it ended.
    pub outcome: Result<Delivered, DeviceFailure>,
}

/// A send or receive that has succeeded. Of a send all fields are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Delivered {
    /// The sender of a received message.
    pub peer: u32,
    /// The tag of a received message.
    pub tag: u32,
    /// Bytes of a received message. The memory has as many of them as it has room for.
    pub received: u64,
}

/// Why an operation of a device has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum DeviceFailure {
    /// It was cancelled.
    Cancelled,
    /// The peer was lost. Of a receive from any source: the number of the lost member.
    PeerFailed(u32),
    /// The peer has ended. Of a receive from any source: the number of the member that ended last.
    PeerClosed(u32),
    /// A ready send found no receive.
    NotReady,
    /// The receiver deleted the communicator, or refuses all messages.
    NoCommunicator,
    /// The device has failed.
    Device,
}

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
            flags: RECEIVE,
            peer,
            context,
            tag,
            span: sink,
            ..zerocopy::FromZeros::new_zeroed()
        })
    }

    fn take_offloaded(&mut self, state: RequestState) -> Result<Request, Refusal> {
        let state = RequestState { phase: Phase::Offloaded, ..state };
        self.requests.take(state).map(Request).map_err(|_| Refusal::Busy)
    }

    /// Gives back the request of an operation that the device has refused.
    pub(crate) fn forget_offloaded(&mut self, request: Request) {
        self.requests.free(request.0);
    }

    /// Whether a device has the send or the receive of a request.
    pub(crate) fn is_offloaded(&self, request: Request, receive: bool) -> bool {
        let is_it = |state: &RequestState| {
            state.phase == Phase::Offloaded && (state.flags & RECEIVE != 0) == receive
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

    /// The request and the device's number of a message that was [kept](Self::keep_offloaded).
    pub(crate) fn offloaded_message(&self, message: &Message) -> Option<(Request, u32)> {
        let MessageSource::Request(handle) = message.0 else { return None };
        let state = self.requests.get(handle).filter(|state| state.phase == Phase::OffloadedMessage)?;
        Some((Request(handle), state.remote.as_handle() as u32))
    }

    /// The message of such a request is being received into `sink`.
    pub(crate) fn receive_offloaded(&mut self, request: Request, sink: Span) {
        if let Some(state) = self.requests.get_mut(request.0) {
            (state.phase, state.span) = (Phase::Offloaded, sink);
        }
    }

    /// Ends the operation of a device.
    pub(crate) fn end_offloaded(&mut self, ended: &Ended) {
        let Some(state) = self.requests.get_mut(ended.request.0).filter(|state| state.phase == Phase::Offloaded) else {
            return;
        };
        let is_receive = state.flags & RECEIVE != 0;
        if let Err(DeviceFailure::PeerFailed(peer) | DeviceFailure::PeerClosed(peer)) = ended.outcome
            && state.peer == ANY
        {
            state.peer = peer;
        }
        let outcome = match ended.outcome {
            Ok(delivered) => {
                if is_receive {
                    if state.peer == ANY {
                        state.peer = delivered.peer;
                    }
                    (state.tag, state.total) = (delivered.tag, delivered.received);
                }
                Outcome::Success
            }
            Err(DeviceFailure::Cancelled) => Outcome::Cancelled,
            Err(DeviceFailure::PeerFailed(_)) => Outcome::PeerFailed,
            Err(DeviceFailure::PeerClosed(_)) => Outcome::PeerClosed,
            Err(DeviceFailure::NotReady) => Outcome::NotReady,
            Err(DeviceFailure::NoCommunicator) => Outcome::NoCommunicator,
            Err(DeviceFailure::Device) => Outcome::DeviceFailed,
        };
        self.complete(ended.request.0.slot(), outcome);
    }
}
