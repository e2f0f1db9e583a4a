//! The error of the program.

use runtime::Unwritten;
use towline_core::pml::Refusal;

/// Why the program failed. The number is its exit status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Failed {
    /// Static memory is too small for the tables, or there is no serial line.
    SetUp = 1,
    /// An operation was refused.
    Refused = 2,
    /// A request ended without success.
    Request = 3,
    /// The status of a request is not what was sent.
    Status = 4,
    /// Received bytes differ from those that were sent.
    Bytes = 5,
    /// The exchange takes too long.
    Stuck = 6,
    /// Requests, envelopes or units are still in use at the end.
    Leak = 7,
    /// The report cannot be written.
    Report = 8,
}

impl From<Refusal> for Failed {
    fn from(_: Refusal) -> Self {
        Self::Refused
    }
}

impl From<Unwritten> for Failed {
    fn from(_: Unwritten) -> Self {
        Self::Report
    }
}
