//! The identity of a host and of a process: which processes may share segments, and whether they still run.

mod host_id;
mod process;
mod random;

pub use host_id::HostId;
pub use process::Process;
pub use random::nonce;
