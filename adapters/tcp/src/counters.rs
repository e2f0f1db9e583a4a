//! Numbers of events on a rail.

towline_core::counters! {
    /// Numbers of events since the rail was opened. They never decrease.
    #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub struct Counters {
        /// Connections that were accepted from a listener.
        pub accepted: u64,
        /// Connections of either direction that were established.
        pub established: u64,
        /// Outbound attempts that were begun.
        pub attempts: u64,
        /// Outbound attempts that failed.
        pub attempts_failed: u64,
        /// Connections that were given up for another connection between the same two ranks.
        pub duplicates: u64,
        /// Inbound connections that ended before the hello was complete, as those of port scans do.
        pub refused_silent: u64,
        /// Inbound connections without a hello in time.
        pub refused_slow: u64,
        /// Inbound connections whose first bytes are not those of a hello.
        pub refused_foreign: u64,
        /// Inbound connections whose hello has another version.
        pub refused_version: u64,
        /// Inbound connections whose hello has impossible fields.
        pub refused_malformed: u64,
        /// Inbound connections whose hello names another job, link, rank or instance.
        pub refused_misdirected: u64,
        /// Inbound connections whose proof is wrong: the caller does not know the job's key.
        pub refused_key: u64,
        /// Inbound connections that replayed a recorded hello, beyond the number that is answered.
        pub refused_replayed: u64,
        /// Connections of either direction between two ranks of which one encrypts and the other does not.
        pub refused_encryption: u64,
        /// Inbound connections of a known peer that is not wanted any more.
        pub refused_peer: u64,
        /// Connections that ended because a record is forged, or was changed, left out or sent again on the way.
        pub records_forged: u64,
        /// Connections that ended in the middle of a record.
        pub records_truncated: u64,
        /// Peers that were lost, for any reason.
        pub lost: u64,
        /// System calls that received bytes of frames.
        pub reads: u64,
        /// Bytes of bodies that were sent without a copy, through the pipe.
        pub spliced_bytes: u64,
        /// Bodies that were copied because the system refused the pipe.
        pub pipe_refused: u64,
        /// Times that the process had no descriptor left for a connection.
        pub out_of_descriptors: u64,
    }
}

impl Counters {
    /// All inbound connections that were refused.
    pub const fn refused(&self) -> u64 {
        self.refused_silent
            + self.refused_slow
            + self.refused_foreign
            + self.refused_version
            + self.refused_malformed
            + self.refused_misdirected
            + self.refused_key
            + self.refused_replayed
            + self.refused_encryption
            + self.refused_peer
    }
}
