//! The path to a peer. A rail carries frames to and from peers; adapters implement the trait [`Rail`].
//!
//! A frame is a tag, a short header and a body. To send one, the caller reserves room in the rail's own memory, fills it, and
//! commits it; or [`Rail::send`] does all three, and may leave a long body in the caller's memory. To receive, the caller polls
//! the rail. The rail reports a frame with its first bytes, and the reader says where the rest belongs. So nothing is copied
//! twice.
//!
//! # Contract
//! - A rail delivers each committed frame at most once, complete. A rail without `NEED_ACK` delivers it exactly once, or reports
//!   the peer lost. Frames to one peer may overtake each other.
//! - No method blocks. A full rail answers [`SendError::Busy`], and the caller tries again later. [`Lane::Control`] has room of
//!   its own, so bulk data cannot hold up control frames forever.
//! - A frame of up to [`HEAD`] bytes is handed over completely in [`Frame::head`], and the rail holds nothing of it. The rail
//!   holds any other frame until `deliver` or `release`. While the caller holds [`Attributes::frames_kept`] frames, `poll`
//!   yields no further frame.
//! - The bytes come from a peer that may be hostile. The rail checks the fields that it uses (lengths, positions), and does not
//!   interpret the rest.
//! - A rail that answers [`SendError::Unreachable`] for an endpoint that it gave out, and that was not deleted, reports
//!   [`Event::Lost`] for that peer once: in bounded time, as long as it is polled, and after the frames of the peer that have
//!   arrived. The answer itself does not end the peer; the sender waits for the report.
//! - After [`Event::Lost`] the rail accesses no memory that was given for that peer, reports no event of it, and answers sends to
//!   it with `Unreachable`.
//! - Methods are called by one thread at a time.
//!
//! # Extensions
//! Every rail implements [`Rail`]. Features that only some rails have are extension traits with defaults: [`FastPath`],
//! [`RequestCache`], [`SingleCopy`], [`DeviceMemory`], [`Failover`] and [`Liveness`]. [`FullRail`] is all of them together, and
//! users of rails require it.

/// Whether there may be several rails to a peer: the feature `multirail`. Code behind this constant is for several.
pub(crate) const MULTIRAIL: bool = cfg!(feature = "multirail");

/// Whether the most common messages take shorter ways: the feature `shortcuts`.
pub(crate) const SHORTCUTS: bool = cfg!(feature = "shortcuts");

/// Whether rails may read or write the memory of a message after the call: the feature `in-place`. Code behind this constant is for such
/// rails.
pub(crate) const LATER: bool = cfg!(feature = "in-place");

/// Whether a rail may read a message from the memory of its sender: with the feature `devices`. Code behind this constant is for such
/// rails.
pub(crate) const SINGLE_COPY: bool = cfg!(feature = "devices");

pub mod access;
mod apply;
pub mod atomics;
pub mod attributes;
pub mod bundle;
pub mod component;
mod errors;
mod event;
pub(crate) mod failover;
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
pub use frame::{Copied, Frame, Short, ShortBody};
pub use grant::{Grant, Ticket};
pub use migration::{Claim, LINKED_HEAD, Origin, UnackedFrame};
pub use traits::{
    DeviceMemory, Failover, FastPath, FullRail, Liveness, Rail, RequestCache, SingleCopy, send_by_grant,
    send_now_by_grant,
};
pub use types::{COPIED, Cookie, Delivery, Endpoint, FrameId, GiveUp, Lane, Peer, Sent, Shape};

pub use crate::wire::{HEAD, REMOTE_BUFFER_BYTES, RemoteBuffer};
