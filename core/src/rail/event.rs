//! What a rail reports when it is polled.

use super::errors::Lost;
use super::frame::Frame;
use super::migration::Origin;
use super::native::NativeError;
use super::types::{Cookie, Peer};
use crate::time::Instant;

/// What a rail has to report.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A frame arrived, its body perhaps not yet.
    Frame(Frame),
    /// A body that was sent in place is no longer read.
    Sent(Cookie),
    /// A body that was pending is in its sink.
    Delivered(Cookie),
    /// A one-sided operation is over ([`DeviceMemory::perform`](crate::rail::DeviceMemory::perform)): with the old word of an atomic, else 0.
    Performed(Cookie, Result<u64, NativeError>),
    /// A peer cannot be reached by this rail any more. Reported once, unless the peer is deleted first.
    Lost(Peer, Lost),
    /// A link to a peer is out of order, and tries to come back. Sends to that peer are answered `Unreachable` until
    /// [`Event::Up`](crate::rail::Event::Up); what was not acknowledged can be moved to another link ([`Failover::next_unacked`](crate::rail::Failover::next_unacked)). Memory given for the peer
    /// stays in use: bodies until they are migrated or acknowledged, sinks until they are claimed or filled; or until
    /// `del_peer`.
    Down(Peer, Lost),
    /// A link that was down is in order again.
    Up(Peer),
    /// A link hears nothing of its peer, and would be out of order by now if the peer's host had not answered
    /// ([`Liveness::ask_host`](crate::rail::Liveness::ask_host)): either the link is dead or the peer's process stands still. Told again and again as long as that
    /// is so; who knows that another link hears the peer gives this one up ([`Liveness::give_up`](crate::rail::Liveness::give_up)). A rail that frames are lost on
    /// tells its link so when a host has said that nobody is there, which may not be true: the link asks the peer. Also told of a
    /// link that begins to greet a peer, or is greeted, so that others do the same, and when its greetings were not answered for
    /// as long as a peer that was met may be silent, or a sixteenth of the time after which it is down. The instant is by when the
    /// peer was to have answered; `None`: nothing is wrong so far, or the rail knows no more.
    Silent(Peer, Option<Instant>),
    /// A frame arrived that was given to another link of the sender first, and may have arrived by that
    /// ([`Failover::claim`](crate::rail::Failover::claim)).
    Migrated(Origin, Frame),
}
