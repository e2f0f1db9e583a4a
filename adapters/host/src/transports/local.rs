//! The contexts on this host.

use towline_bootstrap::Job;

use crate::values::address::Grid;

/// How many contexts this host has, as far as that is known; at least the process's own.
pub(crate) fn local_contexts(job: &Job, grid: Grid) -> usize {
    job.local_ranks().map_or(1, <[u32]>::len) * grid.contexts as usize
}

/// Whether this host has more contexts than processors.
pub(crate) fn is_oversubscribed(local_contexts: usize) -> bool {
    local_contexts > std::thread::available_parallelism().map_or(1, usize::from)
}
