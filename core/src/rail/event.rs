//! The events that a rail reports when it is polled.

use super::errors::Lost;
use super::frame::Frame;
use super::migration::Origin;
use super::native::NativeError;
use super::types::{Cookie, Peer};
use crate::time::Instant;

/// An event of a rail.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Event {
    /// A frame arrived. Its body may still be arriving.
    Frame(Frame),
    /// A body that was sent in place is no longer read.
    Sent(Cookie),
    /// A body whose delivery was pending is in its sink.
    Delivered(Cookie),
    /// A one-sided operation is over ([`DeviceMemory::perform`](crate::rail::DeviceMemory::perform)). The value is the old word
    /// of an atomic, else 0.
    Performed(Cookie, Result<u64, NativeError>),
    /// The rail does not reach a peer any more. This is reported once, unless the peer is deleted first.
    Lost(Peer, Lost),
    /// A link to a peer has failed, and tries to come up again. Sends to that peer are answered `Unreachable` until
    /// [`Event::Up`](crate::rail::Event::Up). Frames that were not acknowledged can migrate to another link
    /// ([`Failover::next_unacked`](crate::rail::Failover::next_unacked)). Memory given for the peer stays in use: bodies until
    /// their frames have migrated or are acknowledged, sinks until their deliveries are claimed or done; or until `del_peer`.
    ///
    /// A rail that is no link reports this with [`Lost::NoRoom`] only: it takes no more frames to the peer, because it has no room
    /// for them, such as memory for a ring. It delivers the frames that it accepted before, and goes on to report the frames of the
    /// peer. Both ends report it, each when it knows. A rail that has reported it does not report the end of the peer by itself,
    /// since the last frames of the peer come by another rail ([`Liveness::end_after_frames`](crate::rail::Liveness)).
    Down(Peer, Lost),
    /// A link that was down works again.
    Up(Peer),
    /// A link receives nothing from its peer. It would be down by now if the peer's host had not answered
    /// ([`Liveness::ask_host`](crate::rail::Liveness::ask_host)), or if it did not excuse silence. Either the link has failed,
    /// or the peer's process makes no progress. The event is repeated while the silence lasts. A user that receives from the
    /// peer by another link gives this one up ([`Liveness::give_up`](crate::rail::Liveness::give_up)).
    ///
    /// A lossy rail reports this to its link when the peer's host reports that the peer's port is closed. That report may be
    /// false, so the link probes the peer.
    ///
    /// A link also reports the begin of a handshake, so that the user's other links to the peer connect, too. And it reports
    /// hellos that were not answered for as long as a connected peer may be silent (but at least a sixteenth, and at most half,
    /// of the time to connect).
    ///
    /// The instant is the deadline by which the peer should have answered. `None`: no deadline has passed so far, or the rail
    /// knows none.
    Silent(Peer, Option<Instant>),
    /// A frame arrived that was given to another link of the sender first, and may have arrived by that link
    /// ([`Failover::claim`](crate::rail::Failover::claim)).
    Migrated(Origin, Frame),
}
