//! Counts of events, for tests, `towline info` and users.

/// Counts since set-up. They wrap after 2^64.
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
    /// Longer messages whose memory a rail exposed for single copy.
    pub exposed: u64,
    /// Exposed messages that a rail read from the sender's memory.
    pub single_copies: u64,
    /// Exposed messages that no rail could read: they came in fragments.
    pub single_copy_failures: u64,
    /// Bytes of messages that came before their receive and were therefore copied once more. All other bytes are written once, to
    /// their place.
    pub copied: u64,
    /// Offers of memory that a peer's device may reach.
    pub offers_sent: u64,
    /// Offers without effect: frames had brought the other bytes already, or the offer was forged.
    pub offers_unused: u64,
    /// Pieces of messages that a device has moved, counted on both sides, and their bytes.
    pub pieces: u64,
    pub bytes_by_device: u64,
    /// Messages for which a device could not begin, or not go on.
    pub device_failures: u64,
    /// Registrations made for messages, and registrations found that an earlier message had left.
    pub pins_made: u64,
    pub pins_found: u64,
    pub acks_sent: u64,
    pub finishes_sent: u64,
    pub rejects_sent: u64,
    pub rejects_received: u64,
    pub credits_sent: u64,
    /// Notices that messages are held back.
    pub notices_sent: u64,
    pub asks_sent: u64,
    /// Posted receives that were looked at in the search for the next ask.
    pub ask_steps: u64,
    pub answers_sent: u64,
    pub nothings_sent: u64,
    /// Messages that found a posted receive.
    pub expected: u64,
    /// Messages that arrived before their receive.
    pub unexpected: u64,
    /// Messages that arrived before an earlier one of the same peer.
    pub out_of_order: u64,
    /// Frames and sends for which a rail had no room.
    pub busy: u64,
    /// Frames whose header or length is wrong. They are dropped.
    pub malformed: u64,
    /// Frames with a handle that names no operation of their peer, or one in another phase (a rejected answer that was none, for
    /// one). They are dropped.
    pub stale: u64,
    /// Messages beyond a peer's credit, and second messages of one number. They are dropped.
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
