//! Why a rail was neither enabled nor disabled.

use core::fmt;

use crate::error::Blame;

/// Why a rail was neither enabled nor disabled.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum EnableError {
    /// There is no rail of this index.
    NoRail(usize),
}

impl EnableError {
    /// The party that has to act.
    pub const fn blame(self) -> Blame {
        Blame::Caller
    }
}

impl fmt::Display for EnableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRail(index) => {
                write!(f, "there is no rail {index}: pass an index from 0 on, in the order of the engine's rails")
            }
        }
    }
}

impl core::error::Error for EnableError {}

crate::debug_as_display!(EnableError);
