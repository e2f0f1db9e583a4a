//! The launcher's questions for reports, as a rank knows them.

/// The questions that a rank was asked.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// The number of the last question; 0 before the first one.
    pub(super) asked: u32,
    /// The last question that this rank has answered while it starts.
    pub(super) answered: u32,
}
