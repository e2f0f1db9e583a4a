//! The source and the tag of a receive or probe.

use crate::pml::matching::ANY;

/// The sender from which a receive or probe takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Source {
    /// A rank of the communicator.
    Rank(u32),
    /// Any rank.
    Any,
}

/// The tags that a receive or probe takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Tag {
    /// This tag. The tag `u32::MAX` is refused as invalid.
    Is(u32),
    /// Any tag below `0x8000_0000`. The tags above are for the user's own protocols, such as collectives.
    Any,
}

impl Tag {
    /// The tag as it is in a [`Pattern`](crate::pml::matching::Pattern). `None` for the tag that no pattern can name.
    #[inline(always)]
    pub(super) const fn word(self) -> Option<u32> {
        match self {
            Self::Is(ANY) => None,
            Self::Is(tag) => Some(tag),
            Self::Any => Some(ANY),
        }
    }
}
