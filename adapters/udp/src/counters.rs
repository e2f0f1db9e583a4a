//! What happened on a rail, in numbers.

/// Counts since the rail was made. They only grow.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Counters {
    /// Sessions that were agreed on, with new peers and with those that began anew.
    pub established: u64,
    /// Hellos that were sent, answers among them.
    pub hellos_sent: u64,
    /// Datagrams with frames that were handed up.
    pub frames: u64,
    /// Calls to the kernel that brought datagrams.
    pub receives: u64,
    /// Datagrams with frames that were given to the kernel.
    pub frames_sent: u64,
    /// Calls to the kernel by which they were.
    pub sends: u64,
    /// Frames that the kernel would not take: too long for the path, or forbidden by a filter.
    pub frames_refused: u64,
    /// Dropped: no towline's.
    pub dropped_foreign: u64,
    /// Dropped: another version.
    pub dropped_version: u64,
    /// Dropped: with impossible fields, or cut short by the network.
    pub dropped_malformed: u64,
    /// Dropped: of no session that there is, or without its proof; what is left of an older session looks so.
    pub dropped_unproved: u64,
    /// Dropped: sent again, or so late that nobody knows.
    pub dropped_again: u64,
    /// Peers that encrypt where this end does not, or the other way round: they are lost.
    pub refused_encryption: u64,
    /// Dropped hellos: the code is wrong; the speaker does not know the job's key.
    pub dropped_key: u64,
    /// Dropped hellos: another job, link, rank or instance is meant, or a peer that is not known or wanted now.
    pub dropped_stray: u64,
    /// Good-byes that were said once more, to who went on to send.
    pub byes_repeated: u64,
    /// Reports that a peer's port is closed.
    pub refused: u64,
    /// Peers that were lost, for any reason.
    pub lost: u64,
}

impl Counters {
    /// All datagrams that were dropped.
    pub const fn dropped(&self) -> u64 {
        self.dropped_foreign
            + self.dropped_version
            + self.dropped_malformed
            + self.dropped_unproved
            + self.dropped_again
            + self.dropped_key
            + self.dropped_stray
    }
}
