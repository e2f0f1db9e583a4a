//! The identity of a host and of a process: which processes may share segments, and whether they still run.

mod forks;
mod host_id;
mod process;
mod random;

pub use forks::keep_from_children;
pub use host_id::HostId;
pub use process::Process;
pub use random::nonce;
