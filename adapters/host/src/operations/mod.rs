//! Operations on messages.

pub(crate) mod collective;
pub(crate) mod communicator;
pub(crate) mod matched_message;
pub(crate) mod owned;
pub(crate) mod scope;
pub(crate) mod views;
