//! RDMA: long messages that the device of a rail moves between the memories of both sides, without a copy.
//!
//! When a message has matched, the receiver makes the plan. Its ack says how many bytes are to come in frames, as for any
//! message. The other bytes are moved in pieces, one at a time. The side whose memory the device reaches is the *target*: it
//! registers the memory of a piece and offers it. The other side is the *initiator*: its device moves the piece, and then it
//! reports that. The next offer follows. If devices put, the receiver is the target. If they can only get, or get is better
//! ([`Pipeline::gets`](crate::rail::native::Pipeline::gets)), the sender is the target.
//!
//! - **Pipelined**: while the first memory is registered, frames bring
//!   [`Pipeline::by_frames`](crate::rail::native::Pipeline::by_frames) bytes. While a piece is moved, both sides register the
//!   next one.
//! - **Shared**: frames bring as many bytes as the other links can carry meanwhile, by their bandwidth. The device of one rail
//!   moves the pieces of a message; devices of other rails do not.
//! - **Optional**: a side may be unable to go on (no slot, memory that is not contiguous, a device that refuses, a link that goes
//!   down). It reports that if it has to, and all other bytes come in frames. The receiver takes frames without such a report, so
//!   nothing waits for a device that is gone.
//! - **Only the initiator knows**: it alone reports which bytes its device has moved. A sender whose device was interrupted sends
//!   the piece once more, in frames: the same bytes to the same place, and the receiver counts only reported bytes. A receiver
//!   whose device was interrupted reports that, and the sender's memory stays valid until then.
//! - **Registrations end with the request**: when a request is over, its memory is not registered any more, so a late write
//!   reaches no memory. [Kept](Config::kept_pins) registrations were used only by pieces that were moved and reported.
//!
//! Neither side waits for a slot: a message without a slot goes in frames. A hostile peer can make its messages hold all slots,
//! which makes other messages slower. It can do no other harm.

/// Whether devices may move messages: the feature `devices`. Code behind this constant is not linked otherwise.
pub(in crate::pml) const ENABLED: bool = cfg!(feature = "devices");

pub(super) mod config;
pub(super) mod events;
pub(super) mod memory;
pub(super) mod piece;
pub(super) mod pins;
pub(super) mod plan;
pub(super) mod steps;

pub use config::Config;
