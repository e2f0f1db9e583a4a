//! What happened so far on a link.

/// Counts since set-up. They wrap after 2^64.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct Counters {
    /// Frames that were given to the link and left for the first time.
    pub sent: u64,
    /// Frames that left once more.
    pub resent: u64,
    /// Times that nothing was heard in time, so that one frame or two of them left once more to ask.
    pub timeouts: u64,
    /// Frames taken for lost that the peer had got, or got later.
    pub spurious: u64,
    /// Frames handed up, each of them once.
    pub received: u64,
    /// Frames that had come before: dropped.
    pub doubles: u64,
    /// Frames whose header fails its check, be it changed on the way or of an earlier life of either side: dropped.
    pub bad_heads: u64,
    /// Bodies that failed their check: awaited once more.
    pub bad_bodies: u64,
    /// Frames that make no sense: dropped.
    pub malformed: u64,
    /// Frames beyond the window: dropped.
    pub beyond: u64,
    /// Frames for which no room to take them in was left: dropped, awaited once more.
    pub shed: u64,
    /// Frames before the two sides have met, or of nobody known here: dropped.
    pub early: u64,
    /// Frames of the link's own that acknowledge, sent and received.
    pub acks_sent: u64,
    /// See [`acks_sent`](Self::acks_sent).
    pub acks_received: u64,
    /// Acknowledgements of what was never sent: refused.
    pub absurd_acks: u64,
    /// Probes sent.
    pub probes: u64,
    /// Greetings sent.
    pub hellos: u64,
    /// Times that the rail below had no room.
    pub busy: u64,
    /// Links to a peer that went down.
    pub downs: u64,
    /// Links to a peer that came back.
    pub ups: u64,
    /// Frames that left by another link.
    pub migrated: u64,
    /// Frames of other links that were claimed here: new ones, doubles, and those that were awaited.
    pub claims: u64,
}
