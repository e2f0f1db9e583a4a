//! Forks: a child that was forked has copies of its parent's worlds, and may not use them.
//!
//! At each fork, a handler marks all worlds in the child. A marked world has an engine of the child's own in place of the parent's
//! engine. It has no rails and no communicators, so it refuses all operations. The parent's engine stays as it was: another thread
//! may have been changing it, and its rails share memory, connections and the launcher with other processes.

pub(crate) mod handlers;
pub(crate) mod owned;
