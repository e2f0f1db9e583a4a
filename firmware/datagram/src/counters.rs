//! Counts of a rail.

towline_core::counters! {
    /// Counts of datagrams since set-up, if the core has its counters.
    #[derive(Clone, Copy, Default, Debug)]
    pub struct Counters {
        /// Datagrams that were given to the interface.
        pub sent: u64,
        /// Datagrams that had a frame of a peer.
        pub received: u64,
        /// Datagrams of senders that are no peers.
        pub strangers: u64,
        /// Datagrams that are too short, or of another version.
        pub malformed: u64,
    }
}
