//! What the host learns of refusals and failures of the transport.

use towline_core::mtl::CommError;
use towline_core::pml::{Failure as Ended, Refusal, Status};
use towline_core::rail::Unreachable;
use towline_core::rma::{self, BeginError, Denied};
use towline_window::command::ANY;
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

/// The failure of a communicator that was not made.
pub const fn of_communicator(why: CommError) -> Failure {
    match why {
        CommError::Full => Failure::Full,
        _ => Failure::Malformed,
    }
}

/// The result of an operation. `rank` tells the rank of a peer, or `None` if the communicator was deleted meanwhile. A message that was longer than its memory is a success that has
/// delivered fewer bytes than it received.
pub fn result_of(outcome: Result<Status, Ended>, rank: impl FnOnce(&Status) -> Option<u32>) -> Result<Done, Failure> {
    match outcome {
        Ok(status) | Err(Ended::Truncated(status)) => Ok(Done {
            rank: rank(&status).unwrap_or(ANY),
            tag: status.tag,
            received: status.received,
            delivered: status.delivered,
            ..Done::default()
        }),
        Err(Ended::Cancelled) => Err(Failure::Cancelled),
        Err(Ended::PeerFailed(_) | Ended::Restarted(_)) => Err(Failure::PeerFailed),
        Err(Ended::PeerClosed { .. }) => Err(Failure::PeerFinished),
        Err(Ended::NotReady(_)) => Err(Failure::NotReady),
        Err(Ended::NoCommunicator(_)) => Err(Failure::Refused),
        Err(_) => Err(Failure::NoSuchThing),
    }
}

/// The failure of a one-sided operation that was not begun. `closed`: whether the peer has ended by itself.
pub const fn of_begin(why: BeginError, closed: bool) -> Failure {
    match why {
        BeginError::Full => Failure::Full,
        BeginError::Unreachable => of_lost(closed),
        BeginError::OutOfBounds => Failure::OutOfMemory,
        _ => Failure::NotAvailable,
    }
}

/// The failure of a one-sided operation. `closed`: whether the peer has ended by itself.
pub const fn of_one_sided(why: rma::Failure, closed: bool) -> Failure {
    match why {
        rma::Failure::Denied(Denied::NoMemory) => Failure::StaleKey,
        rma::Failure::Denied(Denied::NoRight) => Failure::NoRight,
        rma::Failure::Denied(Denied::OutOfBounds) => Failure::OutOfMemory,
        rma::Failure::Denied(_) => Failure::NotAvailable,
        _ => of_lost(closed),
    }
}

const fn of_lost(closed: bool) -> Failure {
    if closed { Failure::PeerFinished } else { Failure::PeerFailed }
}
