//! What a device does for an engine.

use crate::convertor::Span;
use crate::pml::offload::fallback::Fallback;
use crate::pml::requests::errors::Refusal;
use crate::pml::requests::request::{Mode, Request, Sending};
use crate::rail::Peer;

/// A device that matches messages. Numbers of communicators and messages are the device's; ranks are those of the communicator.
/// `source` and `tag` may be [`ANY`](crate::pml::matching::ANY). It is used by one thread at a time.
///
/// Each operation that was not refused ends once: [`next_ended`](Self::next_ended) returns its request.
pub trait Offload: Fallback {
    /// Makes a communicator on the device: rank r is the r-th of `members`, and this process has rank `rank`. `lasting`: a rank is always
    /// the peer that has its place now, also if that was lost and added again. `None`: the device
    /// does not serve this communicator, which is the same at all members.
    ///
    /// # Errors
    /// [`Refusal::Busy`] if the device has no more room for communicators, [`Refusal::DeviceFailed`].
    fn add_comm(
        &mut self,
        context: u32,
        members: &mut dyn Iterator<Item = Peer>,
        rank: u32,
        lasting: bool,
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

    /// Receives a message that a probe took. Number and length of `found` are those that the probe has told.
    ///
    /// # Errors
    /// As [`isend`](Self::isend): the message may be received later.
    ///
    /// # Safety
    /// As [`irecv`](Self::irecv).
    unsafe fn imrecv(&mut self, found: &Found, request: Request, sink: Span) -> Result<(), Refusal>;

    /// Cancels an operation, which ends in any case. Returns whether it was cancelled.
    fn cancel(&mut self, request: Request) -> bool;

    /// The engine ends: the memory of operations in progress is not accessed any more, and no end is reported.
    fn abandon(&mut self);

    /// Makes progress, and returns the next operation that has ended.
    fn next_ended(&mut self) -> Option<Ended>;

    /// Whether operations are in progress, so that this process must look for their end.
    fn is_busy(&self) -> bool;

    /// Whether no send is in progress, and none waits for room. A send that is over for its caller, since the device has a copy of its
    /// message, may be in progress. If this process ended before, such messages would be lost. A device that has failed has none soon.
    fn has_sent_all(&self) -> bool;

    /// Prepares for a sleep of this process. `true`: there is nothing to do, and the device wakes this process when an operation ends.
    fn arm(&mut self) -> bool {
        !self.is_busy()
    }
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
    /// The peer that has this rank, or any.
    pub peer: u32,
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
    /// The peer was lost and added again: it is no member of the communicator. A device need not tell this.
    Restarted(u32),
    /// A ready send found no receive.
    NotReady,
    /// The receiver deleted the communicator, or refuses all messages.
    NoCommunicator,
    /// The message is longer than the memory of the device.
    TooLong,
    /// The device has failed, or that of the peer.
    Device,
    /// Messages of this peer were lost with a device, although their sends were complete.
    MessagesLost(u32),
    /// The device cannot read or write the memory of the operation.
    BadMemory,
    /// This peer's device cannot read the memory of the message that it has begun to send.
    Aborted(u32),
}
