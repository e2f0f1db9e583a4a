//! Floor 3: messages over rails. Requests, matching, MPI order, credit, and the schedule of fragments.
//!
//! [`Pml`] is the engine. It knows peers by number, and messages by context, source and tag. Ranks and communicators belong to
//! floor 4 ([`mtl`](crate::mtl)).
//!
//! | folder or file | content |
//! |---|---|
//! | `engine`, `setup`, `progress`, `arrival` | the engine's tables; set-up; one round of progress; handling of an arriving frame |
//! | `rails`, `counters`, `inspect` | the rails of an engine; its counters; its operations in progress, for reports |
//! | `limits` | configuration, the pools and why they suffice, memory |
//! | `peers` | the state of a peer: route, credit, asks, links; how a peer is added and lost |
//! | `requests` | the state of a request; the list of active requests; the outcome; the posting order |
//! | `matching` | posted receives and unexpected messages, found by hash |
//! | `send`, `receive`, `unexpected` | sends, held back or sent at once; receives and probes; messages kept until their receive |
//! | `flow` | credit, and asks for messages that are held back |
//! | `single_copy`, `rdma` | long messages without a copy: by the processor, and by devices |
//! | `failover`, `stall` | links that go down; peers that make no progress |
//! | `one_sided` | one-sided operations over the engine's rails |
//! | `offload` | communicators whose messages a device matches |

mod arrival;
mod counters;
mod engine;
mod failover;
mod flow;
mod inspect;
mod limits;
pub mod matching;
pub mod offload;
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
pub use inspect::{InProgress, Kind, Stage, Unreceived};
pub use limits::config::Config;
pub use limits::errors::{SetUpError, TooFew};
pub use limits::memory::SIZES;
pub use limits::params::PARAMS;
pub use limits::pools::{Pool, Share};
pub(crate) use peers::leave::RECOVERY;
pub use rails::Rails;
pub use requests::errors::{Failure, Refusal};
pub use requests::request::{Mode, Request, Sending, Status};
pub use unexpected::message::{Envelope, Message};
pub use unexpected::refused_messages::RefusedMessages;
