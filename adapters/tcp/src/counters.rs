//! What happened on a rail, in numbers.

/// Counts since the rail was made. They only grow.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Counters {
    /// Connections that were taken from a listener.
    pub accepted: u64,
    /// Connections, of either direction, that carry or carried frames.
    pub established: u64,
    /// Outbound attempts that were begun.
    pub attempts: u64,
    /// Outbound attempts that failed.
    pub attempts_failed: u64,
    /// Connections that gave way to another between the same two.
    pub duplicates: u64,
    /// Inbound: closed before a hello was complete; port scans look so.
    pub refused_silent: u64,
    /// Inbound: no hello in time.
    pub refused_slow: u64,
    /// Inbound: the first bytes are no towline's.
    pub refused_foreign: u64,
    /// Inbound: another version.
    pub refused_version: u64,
    /// Inbound: a hello with impossible fields.
    pub refused_malformed: u64,
    /// Inbound: another job, link, rank or instance is meant.
    pub refused_stray: u64,
    /// Inbound: the proof is wrong; the caller does not know the job's key.
    pub refused_key: u64,
    /// Inbound: a recorded hello was said again, more often than is answered.
    pub refused_again: u64,
    /// Of either direction: the other end encrypts where this one does not, or the other way round.
    pub refused_encryption: u64,
    /// Inbound: a known peer that is not wanted any more.
    pub refused_peer: u64,
    /// Connections that ended because what came was not sealed by the peer, or was changed, left out or sent again.
    pub records_refused: u64,
    /// Connections that ended in the middle of what was sealed.
    pub records_cut: u64,
    /// Peers that were lost, for any reason.
    pub lost: u64,
    /// Calls to the kernel that brought bytes of frames.
    pub reads: u64,
    /// Bytes of bodies that left without being copied, by the pipe.
    pub uncopied_bytes: u64,
    /// Times that a body was copied because there was no pipe to be had.
    pub pipe_refused: u64,
    /// Times that the listener paused because the process ran out of descriptors.
    pub out_of_descriptors: u64,
}

impl Counters {
    /// All inbound connections that were refused.
    pub const fn refused(&self) -> u64 {
        self.refused_silent
            + self.refused_slow
            + self.refused_foreign
            + self.refused_version
            + self.refused_malformed
            + self.refused_stray
            + self.refused_key
            + self.refused_again
            + self.refused_encryption
            + self.refused_peer
    }
}
