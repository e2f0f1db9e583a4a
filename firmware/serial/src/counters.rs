//! Counts of a line.

/// Counts since set-up. Each wraps after 2^32.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Datagrams that were taken for sending.
    pub sent: u32,
    /// Datagrams that arrived for this end.
    pub received: u32,
    /// Frames that arrived for other ends.
    pub others: u32,
    /// Frames that were dropped because they were damaged, too short or too long.
    pub bad_frames: u32,
    /// The bytes of these frames, and other bytes that belong to no frame.
    pub bad_bytes: u32,
    /// Datagrams that were not sent: there was no room, they are too long, or the receiver is no end of a line.
    pub refused: u32,
    /// Errors of the driver when it received, for example overruns. They cost the bytes that the driver lost, and their frame.
    pub read_errors: u32,
    /// Errors of the driver when it sent. Each costs the frame that was being written.
    pub write_errors: u32,
}

/// Counts one more.
pub(crate) const fn count(counter: &mut u32) {
    *counter = counter.wrapping_add(1);
}
