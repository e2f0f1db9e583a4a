//! The error of the program.

/// Why the program failed. The number is its exit status.
#[derive(Clone, Copy, Debug, defmt::Format)]
#[repr(u32)]
pub enum Failed {
    /// Static memory is too small for the tables, or the loopback rail does not have two ends.
    SetUp = 1,
    /// An operation was refused.
    Refused = 2,
    /// A request ended without success.
    Request = 3,
    /// The status of a request is not what was sent.
    Status = 4,
    /// Received bytes differ from those that were sent, or bytes outside the message were written.
    Bytes = 5,
    /// The contexts make no more progress.
    Stuck = 6,
    /// Not all transitions of the protocol occurred.
    Untested = 7,
    /// Requests, envelopes or units are still in use at the end.
    Leak = 8,
    /// The log cannot be written.
    Log = 9,
    /// The trace was not replayed to its end.
    Replay = 10,
}
