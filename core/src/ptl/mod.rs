//! Floor 2: the frames of one message on one rail.
//!
//! It writes frames to the rail: first fragments, later fragments, control frames. It checks the header of each frame that
//! arrives, and makes one of the [`Upcalls`] of floor 3; the contract's `ptl_match`, `ptl_send_progress` and
//! `ptl_recv_progress` are among them. This floor keeps no state of a message: that is in its request. The [`Cache`] keeps the
//! data of a rail for each request.

mod cache;
mod receive;
mod send;
mod tag;

pub use cache::Cache;
pub(crate) use receive::short_message;
pub use receive::{First, Upcalls, receive};
pub use send::{Unsent, control, eager, first, fragment};
pub use tag::TAG;
