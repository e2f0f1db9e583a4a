//! Nodes that are stalled or lost, and the nodes that wait for them.

/// A node that is stalled or lost with its host, and the nodes that wait for it.
pub(super) struct SilentNode {
    pub node: u32,
    pub lost: bool,
    pub since: u64,
    /// When no node may wait any more, or when the stall ends. `None` once this has been checked.
    pub due: Option<u64>,
    /// Nodes that wait for it, with the sends and receives for which they do.
    pub waiting: Vec<(u32, Vec<(bool, u32)>)>,
}

impl SilentNode {
    pub const fn due(&self) -> Option<u64> {
        self.due
    }

    /// How long a node may go on waiting, by the stall time-out. The engine checks four times within that time, and the
    /// time-out may start again when something was sent.
    pub const fn time_limit(stall_timeout: u64) -> u64 {
        stall_timeout * 5 / 2
    }
}
