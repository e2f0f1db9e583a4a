//! Floor 1: the path to a peer. A rail carries frames to and from peers; adapters implement the trait [`Rail`].
//!
//! A frame is a tag, a short header and a body. To send, room is reserved in the rail's own memory, filled, and
//! committed; or [`Rail::send`] does all three, and may leave a long body where it is. To receive, the rail is polled:
//! it names a frame by its first bytes, and the reader then says where the rest belongs, so nothing is copied twice.
//!
//! # Contract
//! - A rail delivers each committed frame at most once, whole. A rail without `NEED_ACK` delivers it exactly once, or
//!   reports the peer lost. Frames to one peer may overtake each other.
//! - No method blocks. A full rail answers [`SendError::Busy`]; what was asked is asked again later. Room for
//!   [`Lane::Control`] is apart from the others': bulk data cannot keep control frames from leaving for ever.
//! - A frame that is not longer than [`HEAD`] is handed over whole in [`Frame::head`] and is already released.
//!   Any other stays until `deliver` or `release`; with [`Attributes::frames_kept`] of them held, `poll` yields no more
//!   frames.
//! - Bytes come from a peer that may lie. The rail checks what it needs for itself (lengths, positions); it passes
//!   on the rest unread.
//! - A rail that answers [`SendError::Unreachable`] for an endpoint that it gave out, and was not told to forget, reports
//!   [`Event::Lost`] for that peer: by polling alone, in bounded time, once, and after the frames of the peer that have
//!   arrived. The answer by itself ends nothing: whoever sends waits for the report.
//! - After [`Event::Lost`] the rail touches no memory that was given for that peer, no event of it follows, and sends to
//!   it are answered `Unreachable`.
//! - Methods are called by one thread at a time.
//!
//! # Extensions
//! [`Rail`] is what every rail has. What only some rails can do is an extension trait with defaults: [`FastPath`],
//! [`RequestCache`], [`SingleCopy`], [`DeviceMemory`], [`Failover`] and [`Liveness`]. [`FullRail`] is all of them together; users
//! of rails ask for that.

pub mod access;
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

pub use attributes::{AcceleratorLimits, Attributes, Capabilities};
pub use errors::{Lost, SendError, Unreachable};
pub use event::Event;
pub use frame::{Frame, Short, ShortBody};
pub use grant::{Grant, Ticket};
pub use migration::{Claim, LINKED_HEAD, Origin, UnackedFrame};
pub use traits::{DeviceMemory, Failover, FastPath, FullRail, Liveness, Rail, RequestCache, SingleCopy, send_by_grant};
pub use types::{COPIED, Cookie, Delivery, Endpoint, FrameId, GiveUp, Lane, Peer, Sent, Shape};

pub use crate::wire::{HEAD, REMOTE_BUFFER_BYTES, RemoteBuffer};
