//! What happened so far: for tests, `info` and people.

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
    /// Longer messages of which a rail exposed the memory.
    pub exposed: u64,
    /// Lent messages that a rail single_copies from where they lay.
    pub single_copies: u64,
    /// Lent messages that no rail could fetch: they came in fragments.
    pub single_copy_failures: u64,
    /// Bytes of messages that came before their receive, and were copied once more for that: all else is written where it belongs.
    pub copied: u64,
    /// Offers of memory that a peer's device may reach.
    pub offers_sent: u64,
    /// Offers that came for nothing: too late, since frames had brought the rest; or forged.
    pub offers_unused: u64,
    /// Pieces of messages that a device has moved, as either side counts them, and their bytes.
    pub pieces: u64,
    pub bytes_by_device: u64,
    /// Messages with which a device could not begin, or go on.
    pub device_failures: u64,
    /// Registrations for messages that were made, and that were still there from another message.
    pub pins_made: u64,
    pub pins_found: u64,
    pub acks_sent: u64,
    pub finishes_sent: u64,
    pub rejects_sent: u64,
    pub rejects_received: u64,
    pub credits_sent: u64,
    /// Notices of held-back messages.
    pub notices_sent: u64,
    pub asks_sent: u64,
    /// Posted receives that were looked at to find what to ask for.
    pub ask_steps: u64,
    pub answers_sent: u64,
    pub nothings_sent: u64,
    /// Messages that found their receive waiting.
    pub expected: u64,
    /// Messages that had to wait for their receive.
    pub unexpected: u64,
    /// Messages that arrived before one that goes first.
    pub out_of_order: u64,
    /// Frames or sends that a rail had no room for.
    pub busy: u64,
    /// Frames that made no sense: dropped.
    pub malformed: u64,
    /// Handles of peers that named nothing of theirs, or nothing that what they say of it is true of (an answer sent back
    /// that was none): dropped.
    pub stale: u64,
    /// Messages beyond a peer's credit, or twice the same number: dropped.
    pub credit_violations: u64,
    /// Frames for tags that the engine does not serve: dropped.
    pub unknown_tags: u64,
    /// Peers lost.
    pub lost: u64,
    /// Links that went down while others to the same peer went on.
    pub links_down: u64,
    /// Links that came back.
    pub links_up: u64,
    /// Frames that a link could not deliver, and another was given.
    pub frames_migrated: u64,
    /// Such frames that arrived, and had arrived before by the link that they were given to first: dropped.
    pub duplicates: u64,
}
