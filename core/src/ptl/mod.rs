//! Floor 2: the fragments of one message on one rail.
//!
//! Towards the rail this floor writes frames: a first fragment, later fragments, control. Towards floor 3 it turns a
//! frame into one of the [`Upcalls`], the contract's `ptl_match`, `ptl_send_progress` and `ptl_recv_progress` among
//! them, each with a checked header. What a message needs lives in its request; what a rail wants with each request, in its [`Cache`].

mod cache;
mod receive;
mod send;
mod tag;

pub use cache::Cache;
pub(crate) use receive::short_message;
pub use receive::{First, Upcalls, receive};
pub use send::{control, eager, first, fragment};
pub use tag::TAG;
