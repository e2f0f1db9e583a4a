//! Why an engine was not set up.

use core::fmt;

use crate::arena::OutOfMemory;
use crate::error::Blame;

/// A limit is below the least value with which an engine works. Raise the limit.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct TooFew {
    /// The limit: the name of its field in [`Config`](crate::pml::Config).
    pub what: &'static str,
    /// Its value.
    pub has: u32,
    /// The least value that works.
    pub least: u32,
}

impl fmt::Display for TooFew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the limit `{}` is {}, but an engine needs at least {}: raise it", self.what, self.has, self.least)
    }
}

impl core::error::Error for TooFew {}

crate::debug_as_display!(TooFew);

/// Why an engine was not set up.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum SetUpError {
    /// The arena has too little memory.
    Memory(OutOfMemory),
    /// A limit of the configuration is too small.
    Limits(TooFew),
}

impl SetUpError {
    /// The party that has to act: the caller, who chose the limits and the arena.
    pub const fn blame(self) -> Blame {
        Blame::Caller
    }
}

impl fmt::Display for SetUpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(why) => why.fmt(f),
            Self::Limits(why) => why.fmt(f),
        }
    }
}

impl core::error::Error for SetUpError {}

crate::debug_as_display!(SetUpError);

impl From<OutOfMemory> for SetUpError {
    fn from(why: OutOfMemory) -> Self {
        Self::Memory(why)
    }
}

impl From<TooFew> for SetUpError {
    fn from(why: TooFew) -> Self {
        Self::Limits(why)
    }
}
