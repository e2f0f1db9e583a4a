//! Requests: one slot of a pool for each operation in progress.

pub(super) mod active;
pub(super) mod complete;
pub(super) mod cookie;
pub(super) mod errors;
#[cfg_attr(not(feature = "indexes"), path = "posting_scan.rs")]
pub(super) mod posting_order;
pub(super) mod request;
pub(super) mod state;
