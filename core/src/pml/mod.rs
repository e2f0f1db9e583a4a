//! Floor 3: messages over rails. Requests, matching, MPI order, credit, and the schedule of fragments.
//!
//! [`Pml`] is the engine. It knows peers by number and messages by context, source and tag; ranks and communicators
//! are floor 4's affair.

mod arrival;
mod counters;
mod engine;
mod failover;
mod flow;
mod limits;
pub mod matching;
mod one_sided;
mod peers;
mod progress;
mod rails;
pub mod rdma;
mod receive;
mod requests;
mod send;
mod setup;
mod single_copy;
mod stall;
#[cfg(test)]
mod tests;
mod unexpected;

pub use counters::Counters;
pub use engine::Pml;
pub use failover::errors::EnableError;
pub use limits::config::Config;
pub use limits::errors::{SetUpError, TooFew};
pub use limits::memory::SIZES;
pub use limits::params::PARAMS;
pub use limits::pools::{Pool, Share};
pub use rails::Rails;
pub use requests::errors::{Failure, Refusal};
pub use requests::request::{Mode, Request, Sending, Status};
pub use unexpected::message::{Envelope, Message};
