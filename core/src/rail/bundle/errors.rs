//! Why a bundle was not made.

use core::fmt;

use crate::arena::OutOfMemory;
use crate::error::Blame;

/// Why a bundle was not made.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum BundleError {
    /// A bundle has from 1 to 64 links, and this is another number.
    Count(usize),
    /// The rail of this index is no link: its frames cannot migrate to another rail.
    NoLink(usize),
    /// The card of the link of this index is too long for the card of a bundle.
    LongCard(usize),
    /// The arena is too small. [`Config::bytes`](super::Config::bytes) returns how much is needed.
    Memory(OutOfMemory),
}

impl BundleError {
    /// The side that has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Count(_) | Self::NoLink(_) | Self::LongCard(_) => Blame::Caller,
            Self::Memory(_) => Blame::Resource,
        }
    }
}

impl fmt::Display for BundleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "a bundle of {count} links: bundle from 1 to 64 links"),
            Self::NoLink(index) => {
                write!(f, "rail {index} of the bundle is no link, so its frames cannot migrate: wrap it in a link")
            }
            Self::LongCard(index) => {
                write!(f, "link {index} of the bundle has a card of more than 65535 bytes: configure shorter cards")
            }
            Self::Memory(why) => why.fmt(f),
        }
    }
}

impl core::error::Error for BundleError {}

crate::debug_as_display!(BundleError);
