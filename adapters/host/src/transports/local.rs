//! The contexts on this host.

use towline_bootstrap::Job;

use crate::values::address::Grid;

/// How many contexts of the job are on this host. If the launcher has not said, only those of this process count.
pub(crate) fn local_contexts(job: &Job, grid: Grid) -> usize {
    job.local_ranks().map_or(1, <[u32]>::len) * grid.contexts as usize
}

/// Whether this host has more contexts than processors.
pub(crate) fn is_oversubscribed(local_contexts: usize) -> bool {
    local_contexts > std::thread::available_parallelism().map_or(1, usize::from)
}
