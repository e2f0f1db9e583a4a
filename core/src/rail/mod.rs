//! The path to a peer. A rail carries frames to and from peers; adapters implement the trait [`Rail`].
//!
//! A frame is a tag, a short header and a body. To send one, the caller reserves room in the rail's own memory, fills it, and
//! commits it; or [`Rail::send`] does all three, and may leave a long body in the caller's memory. To receive, the caller polls
//! the rail. The rail names a frame by its first bytes, and the reader tells where the rest belongs. So nothing is copied twice.
//!
//! # Contract
//! - A rail delivers each committed frame at most once, complete. A rail without `NEED_ACK` delivers it exactly once, or reports
//!   the peer lost. Frames to one peer may overtake each other.
//! - No method blocks. A full rail answers [`SendError::Busy`], and the caller tries again later. Room for [`Lane::Control`] is
//!   apart from the others': bulk data cannot hold up control frames forever.
//! - A frame that is not longer than [`HEAD`] is handed over completely in [`Frame::head`], and is released already. Any other
//!   frame is held until `deliver` or `release`. While the caller holds [`Attributes::frames_kept`] frames, `poll` yields no more
//!   frames.
//! - The bytes come from a peer that may be hostile. The rail checks the fields that it uses (lengths, positions), and passes on
//!   the rest unread.
//! - A rail that answers [`SendError::Unreachable`] for an endpoint that it gave out, and that was not deleted, reports
//!   [`Event::Lost`] for that peer: by polls alone, in bounded time, once, and after the frames of the peer that have arrived.
//!   The answer itself ends nothing; the sender waits for the report.
//! - After [`Event::Lost`] the rail accesses no memory that was given for that peer, reports no event of it, and answers sends to
//!   it with `Unreachable`.
//! - Methods are called by one thread at a time.
//!
//! # Extensions
//! Every rail implements [`Rail`]. Features that only some rails have are extension traits with defaults: [`FastPath`],
//! [`RequestCache`], [`SingleCopy`], [`DeviceMemory`], [`Failover`] and [`Liveness`]. [`FullRail`] is all of them together; users
//! of rails ask for that.

pub mod access;
mod apply;
pub mod atomics;
pub mod attributes;
pub mod component;
mod errors;
mod event;
mod forward;
mod frame;
mod grant;
pub mod loopback;
mod migration;
pub mod native;
pub mod stack;
pub mod tags;
#[cfg(test)]
pub(crate) mod testing;
mod traits;
mod types;

pub use apply::apply_atomic;
pub use attributes::{AcceleratorLimits, Attributes, Capabilities};
pub use errors::{Lost, SendError, Unreachable};
pub use event::Event;
pub use frame::{Frame, Short, ShortBody};
pub use grant::{Grant, Ticket};
pub use migration::{Claim, LINKED_HEAD, Origin, UnackedFrame};
pub use traits::{DeviceMemory, Failover, FastPath, FullRail, Liveness, Rail, RequestCache, SingleCopy, send_by_grant};
pub use types::{COPIED, Cookie, Delivery, Endpoint, FrameId, GiveUp, Lane, Peer, Sent, Shape};

pub use crate::wire::{HEAD, REMOTE_BUFFER_BYTES, RemoteBuffer};
