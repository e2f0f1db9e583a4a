//! Which host and which processes may share segments, how segments are named, and which of them are stale.

mod host_id;
mod names;
mod process;
mod random;
mod stale;

pub use host_id::HostId;
pub use names::SegmentNames;
pub use process::Process;
pub use random::nonce;
pub use stale::remove_stale;
