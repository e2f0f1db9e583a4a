//! The state of a context, and a communicator's handle to it.

pub(crate) mod handle;
pub(crate) mod state;
