//! Operations on messages.

pub(crate) mod buffer;
pub(crate) mod communicator;
pub(crate) mod completion;
pub(crate) mod device_buffer;
pub(crate) mod failures;
mod free_requests;
pub(crate) mod last_messages;
pub(crate) mod matched_message;
pub(crate) mod persistent;
pub(crate) mod probe;
pub(crate) mod requests;
pub(crate) mod scope;
pub(crate) mod views;
