//! Floor 2: the fragments of one message on one rail.
//!
//! Towards the rail this floor writes frames: first fragments, later fragments, control frames. Towards floor 3 it turns each frame
//! into one of the [`Upcalls`], with a checked header; the contract's `ptl_match`, `ptl_send_progress` and `ptl_recv_progress` are
//! among them. The state of a message is in its request; the data of a rail for each request is in its [`Cache`].

mod cache;
mod receive;
mod send;
mod tag;

pub use cache::Cache;
pub(crate) use receive::short_message;
pub use receive::{First, Upcalls, receive};
pub use send::{control, eager, first, fragment};
pub use tag::TAG;
