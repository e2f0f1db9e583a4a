//! What a thread does while nothing comes, and how it is woken. Nothing here knows the engine.

pub(crate) mod clock;
pub(crate) mod futex;
pub(crate) mod parker;
pub(crate) mod wait_coordinator;
pub(crate) mod wait_set;
