//! Counters of a link.

crate::counters! {
    /// Counters of the events on a link since it was made. Each counter wraps after 2^64.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    #[cfg_attr(feature = "defmt", derive(defmt::Format))]
    #[non_exhaustive]
    pub struct Counters {
        /// Frames of the user that were sent for the first time.
        pub sent: u64,
        /// Frames that were sent again.
        pub resent: u64,
        /// How many times nothing was acknowledged in time, so that one or two frames were sent again as tail loss probes.
        pub timeouts: u64,
        /// Frames that the link took for lost although they had arrived, or arrived later.
        pub spurious: u64,
        /// Frames that were delivered, each of them once.
        pub received: u64,
        /// Frames that arrived again: dropped.
        pub duplicates: u64,
        /// Frames whose head fails its check, since they were changed on the way, or belong to an earlier session of either
        /// side: dropped.
        pub bad_headers: u64,
        /// Bodies whose checksum was wrong: the frame has to arrive once more.
        pub bad_bodies: u64,
        /// Frames that violate the protocol: dropped.
        pub malformed: u64,
        /// Frames beyond the receive window: dropped.
        pub beyond_window: u64,
        /// Frames for which there was no room: dropped; they have to arrive once more.
        pub no_room: u64,
        /// Frames that arrived before the handshake, or from a peer that is not known here: dropped.
        pub before_handshake: u64,
        /// Acknowledgements that were sent.
        pub acks_sent: u64,
        /// Acknowledgements that arrived.
        pub acks_received: u64,
        /// Acknowledgements of frames that were never sent: refused.
        pub invalid_acks: u64,
        /// Probes sent.
        pub probes: u64,
        /// Hellos sent.
        pub hellos: u64,
        /// How many times the rail below had no room.
        pub busy: u64,
        /// How many times a link to a peer went down.
        pub downs: u64,
        /// How many times a link to a peer came up again.
        pub ups: u64,
        /// Frames that migrated to another link.
        pub migrated: u64,
        /// Frames of this link that other links brought, and that were claimed here: new ones, duplicates, and awaited ones.
        pub claims: u64,
    }
}
