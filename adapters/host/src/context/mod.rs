//! A context, and the place of a communicator in it.

pub(crate) mod state;
