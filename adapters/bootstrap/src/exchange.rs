//! The exchange of another launcher or runtime, which carries a job's publications in place of the bootstrap's own server.

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

/// What another launcher or runtime does for the ranks of a job: it gathers bytes of all ranks. [`Job::over`](crate::Job::over)
/// needs no more, so any runtime whose processes can already exchange a few bytes can start a job: PMIx (the crate `towline-pmix`),
/// MPI's `MPI_Allgatherv`, a key-value store, or files.
///
/// The exchange is trusted: the job's key goes through it. The calls of a rank come one after the other, but not all from one
/// thread. After one of them has failed, only [`abort`](Self::abort) and [`finish`](Self::finish) follow.
pub trait Exchange: Send {
    /// Gives `own` to all ranks, and returns what all ranks have given, in the order of the ranks. All ranks call this equally often,
    /// and each call returns the bytes of the same call of the others. A rank may give up to 1 MiB, or nothing.
    ///
    /// # Errors
    /// [`ExchangeFailure::Timeout`] if not all ranks have called before the deadline.
    fn gather(&mut self, own: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>, ExchangeFailure>;

    /// Waits until all ranks have called this. It is one of the common calls, as [`gather`](Self::gather) is, which it uses unless
    /// the exchange has something quicker.
    ///
    /// # Errors
    /// As [`gather`](Self::gather).
    fn fence(&mut self, deadline: Instant) -> Result<(), ExchangeFailure> {
        self.gather(&[], deadline).map(drop)
    }

    /// Shows `message` to the user, and ends all ranks with the exit status `code`. The caller ends itself afterwards.
    ///
    /// # Errors
    /// [`ExchangeFailure::Failed`] if the other ranks go on.
    fn abort(&mut self, code: i32, message: &str) -> Result<(), ExchangeFailure>;

    /// This rank is done, and makes no further call. It waits for no other rank.
    ///
    /// # Errors
    /// [`ExchangeFailure::Failed`] if the launcher will take the end of this process for a failure.
    fn finish(&mut self) -> Result<(), ExchangeFailure> {
        Ok(())
    }

    /// As [`finish`](Self::finish), before the others have finished: they hear of it by [`next_end`](Self::next_end), where the
    /// exchange can tell them.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    fn leave(&mut self) -> Result<(), ExchangeFailure> {
        self.finish()
    }

    /// The end of another rank that was not returned before. Does not wait. Where the exchange does not know of ends, ranks learn
    /// only of the ends of those that they have a connection to.
    fn next_end(&mut self) -> Option<RankEnd> {
        None
    }

    /// How to ask the launcher to remove files of this rank when the job is gone, if it can do that.
    fn clean_up(&self) -> Option<CleanUpFn> {
        None
    }
}

/// Asks a launcher to remove these files when the job is gone. It does not wait, may be called from any thread, and does nothing
/// after the end of the exchange.
pub type CleanUpFn = Box<dyn Fn(&[PathBuf]) + Send + Sync>;

/// The end of a rank, as an [`Exchange`] knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankEnd {
    /// The rank.
    pub rank: u32,
    /// It has failed. Otherwise it has [left](Exchange::leave).
    pub died: bool,
}

/// Why an [`Exchange`] did not do what it should.
#[derive(Clone, PartialEq, Eq)]
pub enum ExchangeFailure {
    /// The deadline has passed.
    Timeout,
    /// Anything else: what happened, whose fault it is, and what to do.
    Failed(String),
}

impl fmt::Display for ExchangeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("not all ranks have taken part in time: look at the output of the others"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ExchangeFailure {}

towline_core::debug_as_display!(ExchangeFailure);
