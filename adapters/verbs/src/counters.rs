//! Counters of a rail's events.

towline_core::counters! {
    /// How often each event has happened on a rail so far.
    #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub struct Counters {
        /// Connections that were established.
        pub established: u64,
        /// Peers that were lost.
        pub lost: u64,
        /// Hellos that were sent.
        pub hellos_sent: u64,
        /// Datagrams that were not hellos, and hellos without the job's key or for another rail.
        pub hellos_refused: u64,
        /// Frames that were sent inline, within their work request.
        pub inline: u64,
        /// Frames whose completion the device reports.
        pub signaled: u64,
        /// Frames whose completion the device does not report.
        pub unsignaled: u64,
        /// Markers that were sent: keepalives, and ends of bursts.
        pub markers: u64,
        /// One-sided operations that were given to the device.
        pub one_sided: u64,
        /// One-sided operations among these that used the user's registered memory, without a copy.
        pub direct: u64,
        /// Queue pairs that were destroyed at once, since otherwise the device did not release the user's memory.
        pub forced_destroys: u64,
        /// Impossible frames, such as one with a header longer than the frame.
        pub malformed: u64,
    }
}
