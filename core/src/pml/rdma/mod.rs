//! Long messages that a rail's device moves, from the sender's memory to the receiver's, without a copy.
//!
//! The receiver chooses when the message has matched: its ack says how many bytes are to come in frames, as those of any message
//! do, and the rest is moved in pieces, one at a time. Whose memory a device reaches is the *target*: it registers the memory for a
//! piece and offers it. The other side is the *initiator*: its device moves the piece, and it tells when that is done. Then comes the
//! next offer. Where devices put, the receiver is the target; where they only get, or are to ([`Pipeline::gets`](crate::rail::native::Pipeline::gets)), the sender is.
//!
//! - **Pipelined**: while the first memory is registered, frames bring [`Pipeline::by_frames`](crate::rail::native::Pipeline::by_frames) bytes; while a piece is moved, both
//!   sides register what comes next.
//! - **Shared**: frames bring as many bytes as the other links can carry meanwhile, by their bandwidth. The device of one rail moves
//!   pieces of a message, those of others do not.
//! - **Nobody has to**: whoever cannot (no slot, memory that is not contiguous, a device that refuses, a link that breaks) says so or
//!   simply does not, and all that is left comes in frames. Frames need no word of it, so nothing waits for a device that is gone.
//! - **The initiator knows.** It alone says what its device has moved. A sender whose device was interrupted sends the piece once more,
//!   in frames; it is the same bytes for the same place, and the receiver counts what it is told and no more. A receiver whose device
//!   was, says so, and the sender's memory stays until then.
//! - **Memory ends with the request**: before a request is over its memory is registered no longer, so a write that comes late
//!   finds nothing. What is [kept](Config::kept_pins) was moved and told of in good order.
//!
//! Neither side waits for a slot here: a message that finds none goes in frames. A hostile peer can have its messages hold all slots,
//! and then those of others are slower; it can do no more.

pub(super) mod config;
pub(super) mod events;
pub(super) mod memory;
pub(super) mod piece;
pub(super) mod pins;
pub(super) mod plan;
pub(super) mod steps;

pub use config::Config;
