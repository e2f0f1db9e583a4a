//! A ring of 64-byte slots between one sender and one receiver: index arithmetic, header words and credit.
//!
//! A frame takes one or more consecutive slots. The first slot begins with a *header word* of 64 bits: a sequence number of 32
//! bits that follows from the position, the frame's length and its tag. The frame's bytes come right behind the header word and
//! continue through the following slots. So the header word that the receiver polls and the first 56 bytes of the frame share
//! one cache line, and one load takes sequence number, length and tag together.
//!
//! # Why a stale byte is never taken for a header word
//! The receiver looks at one place only: the first word of the slot where the next frame will begin. That word is
//! - zero, in the first lap; or
//! - the header word of a frame that began in this slot one lap ago, which has another sequence number, since sequence numbers
//!   follow from positions; or
//! - payload, where a longer frame or padding covered the slot in the lap before, or where a grant was written and dropped.
//!   Only payload could look like the expected header word. The sender knows when it wrote such frames. For one lap after each
//!   of them, it looks at the next frame's header word *before* it publishes a frame, and clears a word with the sequence number
//!   that is expected there. It publishes with a release store, and the receiver loads with acquire, so a receiver that has seen
//!   the frame also sees the next word cleared or newer.
//!
//! For this the next frame's slot must be free, so a ring is never filled to the last slot.
//!
//! # Credit
//! The receiver stores its position in the ring once per quarter of the ring. Sender and receiver share only this word and the
//! slots. A sender reads the word only when the credit that it knows of does not suffice.
//!
//! # What a hostile peer can do
//! The other side can write any byte of the ring at any time. Each side keeps its own position in private memory. The receiver
//! takes only a length from the ring, and checks it against the ring's end and the longest frame. The sender takes only the
//! credit from the ring, and checks it against its own position. It also looks at the next header word, but only to clear it.
//!
//! Positions count slots, wrap at 2^32, and start near the wrap ([`START`]) so that each run crosses it.

mod format;
mod receiver;
mod sender;

pub use format::{MAX_LEN, MAX_SLOTS, MIN_SHORT, PREFIX, ProtocolViolation, RingMemory, SLOT, START, meta, slots_for};
pub use receiver::{PendingFrame, ReceivedFrame, Receiver};
pub use sender::Sender;
