//! Numbers of events on a rail.

towline_core::counters! {
    /// Numbers of events since the rail was opened. They never decrease.
    #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub struct Counters {
        /// Sessions that were established, with new peers and with those that have forgotten their session.
        pub established: u64,
        /// Hellos that were sent, with the answers among them.
        pub hellos_sent: u64,
        /// Received datagrams with frames that were delivered to the layer above.
        pub frames: u64,
        /// System calls that received datagrams.
        pub receives: u64,
        /// Datagrams with frames that the kernel accepted.
        pub frames_sent: u64,
        /// System calls that sent them.
        pub sends: u64,
        /// Frames that the kernel refused: they are too long for the path, or a packet filter forbids them.
        pub frames_refused: u64,
        /// Dropped datagrams whose first bytes are not those of this protocol.
        pub dropped_foreign: u64,
        /// Dropped datagrams of another version.
        pub dropped_version: u64,
        /// Dropped datagrams with impossible fields, or truncated by the network.
        pub dropped_malformed: u64,
        /// Dropped datagrams of no known session, or with a wrong proof. Late datagrams of an older session are among them.
        pub dropped_unauthenticated: u64,
        /// Dropped datagrams that were replayed, or are so late that this cannot be excluded.
        pub dropped_replayed: u64,
        /// Peers that were lost because one end encrypts and the other does not.
        pub refused_encryption: u64,
        /// Dropped hellos with a wrong code: the sender does not know the job's key.
        pub dropped_key: u64,
        /// Dropped hellos that name another job, link, rank or instance, or a peer that is not known or not wanted now.
        pub dropped_misdirected: u64,
        /// Goodbyes that were repeated, to senders at the address of a peer that was removed.
        pub goodbyes_repeated: u64,
        /// Reports that a peer's port is closed (ICMP).
        pub closed_port_reports: u64,
        /// Peers that were lost, for any reason.
        pub lost: u64,
    }
}

impl Counters {
    /// All datagrams that were dropped.
    pub const fn dropped(&self) -> u64 {
        self.dropped_foreign
            + self.dropped_version
            + self.dropped_malformed
            + self.dropped_unauthenticated
            + self.dropped_replayed
            + self.dropped_key
            + self.dropped_misdirected
    }
}
