//! The fallback from a device to the rails.

use crate::convertor::Span;
use crate::pml::requests::request::{Mode, Request};
use crate::rail::Peer;

/// The tag of announcements. No user may use it.
pub(crate) const ANNOUNCEMENT_TAG: u32 = u32::MAX - 1;

/// Bytes of an announcement.
pub const ANNOUNCEMENT: usize = 16;

/// What a device does when all processes of a job fall back to their rails, since the device of one of them has failed.
///
/// Each process tells each other one how many messages it has given to its device for it: its *announcement* (WIRE.md). When all of
/// these messages have arrived at the device, or are known to be lost, the rest of the messages comes by the rails. So the order of
/// messages stays. An announcement of another process may come at any time.
pub trait Fallback {
    /// Whether this device, or the way from it to the device of a peer, has failed.
    fn has_failed(&self) -> bool;

    /// The device gets no more sends. It keeps new receives without giving them to the device, except for messages that have arrived
    /// there.
    fn leave(&mut self);

    /// The next send that the device was not given, in the order of the sends.
    fn next_held(&mut self) -> Option<Held>;

    /// The next announcement that is to be sent, to a peer that has not got it. Its memory stays as it is until the device is dropped.
    /// A later announcement to the same peer replaces the former one.
    fn next_announcement(&mut self) -> Option<(Peer, Span)>;

    /// The announcement that [`next_announcement`](Self::next_announcement) has returned is sent, or its peer is lost.
    fn announced(&mut self, peer: Peer);

    /// Where the announcement of a peer goes: [`ANNOUNCEMENT`] bytes that stay until the device is dropped. `None` if the device does not
    /// know the peer.
    fn announcement_of(&mut self, peer: Peer) -> Option<Span>;

    /// The announcement of a peer is in its place.
    fn heard(&mut self, peer: Peer);

    /// Whether all messages that peers have given to their devices for this one have arrived, or are lost. `is_lost` tells which
    /// processes are lost: nothing is waited for from these.
    fn has_all(&mut self, is_lost: &mut dyn FnMut(Peer) -> bool) -> bool;

    /// After that: the next receive for which the device has no message, in the order of the receives.
    fn next_unmatched(&mut self) -> Option<Request>;

    /// A peer from which a receive in this communicator takes, and whose messages were lost. The loss is told once.
    fn take_loss(&mut self, comm: u32, source: u32) -> Option<Peer>;

    /// Whether the device has no message any more, and no loss is left to tell.
    fn is_drained(&mut self) -> bool;
}

/// A send that a device was not given.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Held {
    /// The engine's request.
    pub request: Request,
    /// The mode of the send.
    pub mode: Mode,
    /// The message.
    pub data: Span,
}
