//! The events that a rail reports when it is polled.

use super::errors::Lost;
use super::frame::Frame;
use super::migration::Origin;
use super::native::NativeError;
use super::types::{Cookie, Peer};
use crate::time::Instant;

/// An event of a rail.
#[derive(Clone, Copy, Debug)]
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
    /// The rail does not reach a peer any more. It is reported once, unless the peer is deleted first.
    Lost(Peer, Lost),
    /// A link to a peer is out of order, and tries to come up again. Sends to that peer are answered `Unreachable` until
    /// [`Event::Up`](crate::rail::Event::Up). Frames that were not acknowledged can migrate to another link
    /// ([`Failover::next_unacked`](crate::rail::Failover::next_unacked)). Memory given for the peer stays in use: bodies until
    /// their frames have migrated or are acknowledged, sinks until their deliveries are claimed or done; or until `del_peer`.
    Down(Peer, Lost),
    /// A link that was down is in order again.
    Up(Peer),
    /// A link receives nothing from its peer. It would be out of order by now if the peer's host had not answered
    /// ([`Liveness::ask_host`](crate::rail::Liveness::ask_host)): either the link is dead, or the peer's process makes no progress.
    /// The event is repeated as long as that is so. A user that receives from the peer by another link gives this one up
    /// ([`Liveness::give_up`](crate::rail::Liveness::give_up)).
    ///
    /// A lossy rail reports this to its link when a host reports that no process is there. That may be false, so the link probes
    /// the peer.
    ///
    /// A link also reports the begin of a handshake, so that the user's other links to the peer connect, too; and hellos that
    /// were not answered for as long as an established peer may be silent, or for a sixteenth of the time after which the peer is
    /// down.
    ///
    /// The instant is when the peer was to have answered at the latest. `None`: nothing is wrong so far, or the rail does not
    /// know more.
    Silent(Peer, Option<Instant>),
    /// A frame arrived that was given to another link of the sender first, and may have arrived by that link
    /// ([`Failover::claim`](crate::rail::Failover::claim)).
    Migrated(Origin, Frame),
}
