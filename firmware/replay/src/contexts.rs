//! What a trace needs: contexts that execute its operations.

use towline_window::command::Mode;
use towline_window::completion::{Done, Failure};

/// Memory of a message: a part of the memory that the contexts have for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Where it begins.
    pub at: usize,
    /// Its length.
    pub bytes: usize,
}

/// Contexts that are peers of each other and of themselves: context c is peer c.
///
/// `at` is the number of a context, `name` that of an operation, and `context` names a communicator. An operation that was refused
/// has the refusal as its outcome. An operation has begun when its method returns: a message of another context that is sent
/// later finds a receive.
pub trait Contexts {
    /// Most calls of [`progress`](Self::progress) before an operation counts as stuck.
    const PATIENCE: u32;

    /// All contexts make progress.
    fn progress(&mut self);

    /// One context makes progress.
    fn poll(&mut self, at: u32);

    /// Makes a communicator of these peers. Without peers, it has all contexts, and rank r is peer r.
    ///
    /// # Errors
    /// [`Failure`].
    fn join(&mut self, at: u32, context: u32, peers: &[u32]) -> Result<(), Failure>;

    /// Deletes a communicator.
    ///
    /// # Errors
    /// [`Failure`] if there is none.
    fn leave(&mut self, at: u32, context: u32) -> Result<(), Failure>;

    /// Begins to send what is in a place.
    #[expect(clippy::too_many_arguments, reason = "the fields of a step")]
    fn send(&mut self, name: u32, at: u32, context: u32, dest: u32, tag: u32, mode: Mode, place: Place);

    /// Begins to receive into a place.
    fn receive(&mut self, name: u32, at: u32, context: u32, source: u32, tag: u32, place: Place);

    /// Looks for a message.
    ///
    /// # Errors
    /// [`Failure::NotFound`] if there is none now.
    fn probe(&mut self, at: u32, context: u32, source: u32, tag: u32) -> Result<Done, Failure>;

    /// Takes a message out, and keeps it under a name. The value of the result is not used.
    ///
    /// # Errors
    /// [`Failure::NotFound`] if there is none now.
    fn take(&mut self, name: u32, at: u32, context: u32, source: u32, tag: u32) -> Result<Done, Failure>;

    /// Begins to receive a message that was taken out.
    fn receive_taken(&mut self, name: u32, taken: u32, place: Place);

    /// Cancels an operation. Returns whether that was possible.
    fn cancel(&mut self, name: u32) -> bool;

    /// Takes the outcome of an operation, if it is over. Of a send, the fields of [`Done`] are 0.
    fn outcome(&mut self, name: u32) -> Option<Result<Done, Failure>>;

    /// Writes to the memory for messages of a context. No operation in progress uses these bytes.
    fn write(&mut self, at: u32, begin: usize, bytes: &[u8]);

    /// Reads the memory for messages of a context. No operation in progress writes these bytes.
    fn read(&mut self, at: u32, begin: usize, into: &mut [u8]);
}
