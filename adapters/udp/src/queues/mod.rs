pub(crate) mod inbox;
pub(crate) mod outbox;
pub(crate) mod pacing;
