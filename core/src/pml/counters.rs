//! Counts of an engine's events, for tests and users.

crate::counters! {
    /// Counts of an engine's events since set-up. They wrap after 2^64.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    #[cfg_attr(feature = "defmt", derive(defmt::Format))]
    #[allow(missing_docs)]
    #[non_exhaustive]
    pub struct Counters {
        /// Whole messages sent in one frame.
        pub eager_sent: u64,
        /// First fragments of longer messages sent.
        pub rendezvous_sent: u64,
        /// Later fragments sent.
        pub fragments_sent: u64,
        /// Later fragments that arrived.
        pub fragments_received: u64,
        /// Messages whose memory a rail of this side exposed for single copy.
        pub exposed: u64,
        /// Exposed messages of peers that a rail read from the sender's memory.
        pub single_copies: u64,
        /// Exposed messages of peers that the rail could not read: they came in fragments.
        pub single_copy_failures: u64,
        /// Bytes that were copied once more because their message came before its receive. All other bytes are written to the
        /// memory of the receive directly.
        pub copied: u64,
        /// Offers sent: memory of this side that a peer's device may reach.
        pub offers_sent: u64,
        /// Offers of peers without effect: frames had brought the other bytes already, or the offer was forged.
        pub offers_unused: u64,
        /// Pieces of messages that a device has moved, counted on both sides.
        pub pieces: u64,
        /// Bytes of these pieces.
        pub bytes_by_device: u64,
        /// Pieces that a device could not begin or finish: the rest of their message came in frames.
        pub device_failures: u64,
        /// Registrations made for messages.
        pub pins_made: u64,
        /// Registrations of earlier messages that were used again.
        pub pins_found: u64,
        /// Acks sent: the receive of a rendezvous message wants more bytes.
        pub acks_sent: u64,
        /// Finishes sent: the receive of a rendezvous message wants no more bytes.
        pub finishes_sent: u64,
        /// Rejects sent: a message was refused, or an answer was sent back.
        pub rejects_sent: u64,
        /// Rejects of peers that named a waiting send.
        pub rejects_received: u64,
        /// Credit frames sent: credit that no other frame carried in time.
        pub credits_sent: u64,
        /// Notices sent: this side holds messages back.
        pub notices_sent: u64,
        /// Asks sent: a receive or a probe of this side wants a message that a peer holds back.
        pub asks_sent: u64,
        /// Posted receives that were looked at in the search for the next ask.
        pub ask_steps: u64,
        /// Held-back messages that were looked at in the search for the answer to an ask.
        pub answer_steps: u64,
        /// Answers sent: held-back messages for which a peer asked.
        pub answers_sent: u64,
        /// Replies sent to an ask that no held-back message satisfies.
        pub nothings_sent: u64,
        /// Messages that found a posted receive.
        pub expected: u64,
        /// Messages that arrived before their receive.
        pub unexpected: u64,
        /// Messages that arrived before an earlier one of the same peer.
        pub out_of_order: u64,
        /// Attempts to send for which a rail had no room.
        pub busy: u64,
        /// Frames whose header or length is wrong. They are dropped.
        pub malformed: u64,
        /// Frames whose handle names no operation with their peer, or an operation in another phase (for example a reject that
        /// sends a message back that is no answer). They are dropped.
        pub stale: u64,
        /// Messages beyond a peer's credit, and further messages with a number that was used. They are dropped.
        pub credit_violations: u64,
        /// Frames for tags that the engine does not serve. They are dropped.
        pub unknown_tags: u64,
        /// Peers that were lost.
        pub lost: u64,
        /// Links that went down while another link to the same peer was in use.
        pub links_down: u64,
        /// Links that came back.
        pub links_up: u64,
        /// Frames that a link could not deliver and another link carried.
        pub frames_migrated: u64,
        /// Such frames that had arrived by their first link already. They are dropped.
        pub duplicates: u64,
    }
}
