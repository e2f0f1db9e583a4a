//! Frames that wait to be sent, received datagrams, and pacing.

pub(crate) mod inbox;
pub(crate) mod outbox;
pub(crate) mod pacing;
