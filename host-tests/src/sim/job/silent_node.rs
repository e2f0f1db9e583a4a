//! Nodes that stand still, and who waits for them.

/// A node that stands still, or is lost with its host, and who waits for it.
pub(super) struct SilentNode {
    pub node: u32,
    pub lost: bool,
    pub since: u64,
    /// When nobody may wait any more, or it is over; `None` once that has been looked at.
    pub due: Option<u64>,
    /// Nodes that wait for it, and the sends and receives with which they do.
    pub waiting: Vec<(u32, Vec<(bool, u32)>)>,
}

impl SilentNode {
    pub const fn due(&self) -> Option<u64> {
        self.due
    }

    /// How long who waits may go on, by the stall time-out. It is looked four times in that time, and patience may begin anew
    /// where something was on its way out.
    pub const fn patience(stall_timeout: u64) -> u64 {
        stall_timeout * 5 / 2
    }
}
