//! What the host learns of refusals and failures of the transport.

use towline_core::mtl::CommError;
use towline_core::pml::{Failure as Ended, Refusal, Status};
use towline_core::rail::{Lost, Peer, Unreachable};
use towline_core::rma::{self, BeginError, Denied};
use towline_window::command::{ANNOUNCED, ANY};
use towline_window::completion::{Done, Failure};

/// The failure of a command that was refused.
pub const fn of_refusal(refusal: &Refusal) -> Failure {
    match refusal {
        Refusal::Busy => Failure::Full,
        Refusal::PeerFailed(_) | Refusal::Restarted(_) => Failure::PeerFailed,
        Refusal::PeerClosed(_) => Failure::PeerFinished,
        Refusal::NoPeer(_) | Refusal::Invalid => Failure::NoSuchThing,
        _ => Failure::Refused,
    }
}

/// The failure of a peer that was not added.
pub const fn of_unreachable(why: Unreachable) -> Failure {
    match why {
        Unreachable::Full => Failure::Full,
        _ => Failure::Unreachable,
    }
}

/// The failure of an operation whose peer is lost. A peer that has ended or failed was reported by its device. If its device does not
/// answer, nothing is known of the peer.
pub const fn of_lost(why: Option<Lost>) -> Failure {
    match why {
        Some(Lost::Closed) => Failure::PeerFinished,
        Some(Lost::Broken) | None => Failure::PeerFailed,
        Some(_) => Failure::Unreachable,
    }
}

/// The failure of a communicator that was not made.
pub const fn of_communicator(why: CommError) -> Failure {
    match why {
        CommError::Full => Failure::Full,
        _ => Failure::Malformed,
    }
}

/// The outcome of an operation whose message may have been an announcement: it has no bytes, so the engine takes it for one that its sender
/// cannot read. `has_announced`: the operation is the send of one.
pub const fn of_announcement(outcome: Result<Status, Ended>, has_announced: bool) -> Result<Status, Ended> {
    match outcome {
        Err(Ended::BadMemory) if has_announced => Ok(Status { peer: Peer(0), tag: 0, received: 0, delivered: 0 }),
        Err(Ended::Aborted(status)) if status.received >= ANNOUNCED => Ok(Status { delivered: 0, ..status }),
        outcome => outcome,
    }
}

/// The sender of an announcement that a receive has got.
pub const fn announcer_of(outcome: &Result<Status, Ended>) -> Option<Peer> {
    match outcome {
        Ok(status) | Err(Ended::Truncated(status)) if status.received >= ANNOUNCED => Some(status.peer),
        _ => None,
    }
}

/// The result of an operation. `lost`: why its peer was lost. `rank` tells the rank of a peer, or `None` if the communicator was deleted meanwhile. A message that was longer than its memory is a success that has
/// delivered fewer bytes than it received.
pub fn result_of(
    outcome: Result<Status, Ended>,
    lost: Option<Lost>,
    rank: impl FnOnce(&Status) -> Option<u32>,
) -> Result<Done, Failure> {
    match outcome {
        Ok(status) | Err(Ended::Truncated(status)) => Ok(Done {
            rank: rank(&status).unwrap_or(ANY),
            tag: status.tag,
            received: status.received,
            delivered: status.delivered,
            ..Done::default()
        }),
        Err(Ended::Cancelled) => Err(Failure::Cancelled),
        Err(Ended::PeerFailed(_)) => Err(of_lost(lost)),
        Err(Ended::Restarted(_)) => Err(Failure::PeerFailed),
        Err(Ended::PeerClosed { .. }) => Err(Failure::PeerFinished),
        Err(Ended::NotReady(_)) => Err(Failure::NotReady),
        Err(Ended::NoCommunicator(_)) => Err(Failure::Refused),
        Err(Ended::BadMemory) => Err(Failure::BadMemory),
        Err(Ended::Aborted(_)) => Err(Failure::Aborted),
        Err(_) => Err(Failure::NoSuchThing),
    }
}

/// The failure of a one-sided operation that was not begun. `lost`: why its peer was lost.
pub const fn of_begin(why: BeginError, lost: Option<Lost>) -> Failure {
    match why {
        BeginError::Full => Failure::Full,
        BeginError::Unreachable => of_lost(lost),
        BeginError::OutOfBounds => Failure::OutOfMemory,
        _ => Failure::NotAvailable,
    }
}

/// The failure of a one-sided operation. `lost`: why its peer was lost.
pub const fn of_one_sided(why: rma::Failure, lost: Option<Lost>) -> Failure {
    match why {
        rma::Failure::Denied(Denied::NoMemory) => Failure::StaleKey,
        rma::Failure::Denied(Denied::NoRight) => Failure::NoRight,
        rma::Failure::Denied(Denied::OutOfBounds) => Failure::OutOfMemory,
        rma::Failure::Denied(_) => Failure::NotAvailable,
        _ => of_lost(lost),
    }
}

/// The peer whose loss or end is the reason of a failure, or that has cut its message short.
pub const fn peer_of_failure<T>(outcome: &Result<T, Ended>) -> Option<Peer> {
    match outcome {
        Err(
            Ended::PeerFailed(peer)
            | Ended::Restarted(peer)
            | Ended::Aborted(Status { peer, .. })
            | Ended::PeerClosed { peer, .. },
        ) => Some(*peer),
        _ => None,
    }
}
