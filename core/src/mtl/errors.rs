//! Why a communicator was not made.

use core::fmt;

/// Why a communicator was not made.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CommError {
    /// All communicators of the set-up are in use: delete some, or set up with more.
    Full,
    /// A communicator with this context exists already.
    ContextTaken,
    /// This process's rank is not below the number of members of the group.
    RankOutside,
    /// The device that is to match its messages has failed.
    DeviceFailed,
}

impl fmt::Display for CommError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "all communicators are in use: delete some, or set up with more",
            Self::ContextTaken => "a communicator with this context exists: pass another context, or delete it first",
            Self::RankOutside => "this process's rank is outside the group: pass a rank below the number of members",
            Self::DeviceFailed => {
                "the device that matches the messages of this process has failed: reset it, and start again"
            }
        })
    }
}

impl core::error::Error for CommError {}

crate::debug_as_display!(CommError);
