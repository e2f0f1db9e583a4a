//! Floor 1: what a path to peers is, and what stands directly on it.
//!
//! [`Rail`] is what adapters implement. [`module::Btl`] is the BTL contract on top of one rail, for consumers other than
//! the engine; [`selection`] chooses the rails for a peer, [`component`] is how rails come to be.

pub mod access;
pub mod active;
pub mod atomics;
pub mod attributes;
pub mod component;
pub mod descriptor;
pub mod endpoint;
pub mod errors;
mod forward;
pub mod link;
pub mod loopback;
pub mod module;
pub mod moved;
pub mod native;
mod queue;
pub mod rail;
mod receives;
pub mod rma;
pub mod selection;
mod sends;
pub mod stack;
pub mod tags;
#[cfg(test)]
pub(crate) mod testing;

pub use attributes::{AcceleratorLimits, Attributes, Capabilities};
pub use moved::{Claim, LINKED_HEAD, Origin, Orphan};
pub use rail::{
    Cookie, Delivery, Endpoint, Event, Frame, FrameId, GiveUp, Grant, HEAD, LOAN, Lane, Loan, Lost, Peer, Rail,
    SendError, Sent, Shape, Short, ShortBody, Ticket, Unreachable, send_by_grant,
};
