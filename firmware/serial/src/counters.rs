//! Counts of a line.

/// Counts since set-up.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Datagrams that were taken for sending.
    pub sent: u64,
    /// Datagrams that arrived for this end.
    pub received: u64,
    /// Frames that arrived for other ends.
    pub others: u64,
    /// Frames that were dropped because they were damaged, too short or too long.
    pub bad_frames: u64,
    /// The bytes of these frames, and other bytes that belong to no frame.
    pub bad_bytes: u64,
    /// Datagrams that were not sent: there was no room, they are too long, or the receiver is no end of a line.
    pub refused: u64,
    /// Errors of the driver when it received, for example overruns. They cost the bytes that the driver lost, and their frame.
    pub read_errors: u64,
    /// Errors of the driver when it sent. Each costs the frame that was being written.
    pub write_errors: u64,
}

/// Counts one more.
pub(crate) const fn count(counter: &mut u64) {
    *counter = counter.wrapping_add(1);
}
