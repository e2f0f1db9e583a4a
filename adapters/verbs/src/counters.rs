//! What happened, in numbers.

/// What happened on a rail so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Counters {
    /// Connections that came up.
    pub established: u64,
    /// Peers that were lost.
    pub lost: u64,
    /// Hellos that left.
    pub hellos_sent: u64,
    /// Hellos that were no hellos, were written without the key, or were not for this rail.
    pub hellos_refused: u64,
    /// Frames that left within their work request.
    pub inline: u64,
    /// Frames that the device tells of.
    pub signaled: u64,
    /// Frames that it does not tell of.
    pub unsignaled: u64,
    /// Signs of life that were asked for, and ends of bursts.
    pub markers: u64,
    /// One-sided operations that the device did, or was to do.
    pub one_sided: u64,
    /// Those among them whose bytes lay in memory that was registered, so that nobody copied them.
    pub direct: u64,
    /// Queue pairs that were destroyed at once, since the device did not let go of the user's memory otherwise.
    pub cut_short: u64,
    /// Frames that could not be: with a header longer than the frame, and the like.
    pub malformed: u64,
}
