//! Why a communicator was not made.

use core::fmt;

/// Why a communicator was not made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CommError {
    /// All communicators of the set-up are in use: delete some, or set up with more.
    Full,
    /// A communicator with that context exists already.
    ContextTaken,
    /// The rank is not in the group.
    RankOutside,
}

impl fmt::Display for CommError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "all communicators are taken: delete some, or set up with more",
            Self::ContextTaken => "a communicator with that context exists already",
            Self::RankOutside => "the own rank is not in the group",
        })
    }
}

impl core::error::Error for CommError {}
