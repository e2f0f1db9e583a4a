//! The operating system: the socket, batches of messages, error reports and segmentation.

pub(crate) mod batch;
pub(crate) mod reports;
pub(crate) mod segmentation;
pub(crate) mod socket;
