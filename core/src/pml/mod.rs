//! Floor 3: messages over rails. Requests, matching, MPI order, credit, and the schedule of fragments.
//!
//! [`Pml`] is the engine. It knows peers by number and messages by context, source and tag; ranks and communicators
//! are floor 4's affair.

#[cfg(test)]
mod churn_tests;
mod counters;
#[cfg(test)]
mod device_tests;
mod engine;
mod failed;
mod failover;
#[cfg(test)]
mod failover_link_tests;
#[cfg(test)]
mod failover_tests;
#[cfg(test)]
mod fairness_tests;
mod flow;
#[cfg(test)]
mod flow_tests;
#[cfg(test)]
mod hostile_tests;
mod lent;
#[cfg(test)]
mod lent_tests;
#[cfg(test)]
mod loss_tests;
pub mod matching;
mod onesided;
#[cfg(test)]
mod onesided_tests;
mod peer;
mod pools;
#[cfg(test)]
mod pools_tests;
mod posted;
mod progress;
#[cfg(test)]
mod rails_tests;
pub mod rdma;
mod receive;
mod request;
mod send;
mod stall;
#[cfg(test)]
mod stall_rail_tests;
#[cfg(test)]
mod stall_tests;
#[cfg(test)]
mod stalled_tests;
#[cfg(test)]
mod tests;
mod unexpected;

pub use counters::Counters;
pub use engine::{Config, PARAMS, Pml, Rails};
pub use failover::EnableError;
pub use pools::{Pool, SetUpError, Share, TooFew};
pub use request::{Failure, Mode, Request, Status};
pub use send::{Refusal, Sending};
pub use unexpected::{Envelope, Message};

/// Sizes of what the engine keeps, for budgets: bytes per peer, per link, per request and per unexpected message
/// (payload units aside).
pub const SIZES: [(&str, usize); 4] = [
    ("peer", size_of::<peer::PeerState>()),
    ("link", size_of::<peer::Link>()),
    ("request", size_of::<crate::pool::Slot<request::State>>()),
    ("unexpected message", size_of::<crate::pool::Slot<unexpected::Unexpected>>()),
];
