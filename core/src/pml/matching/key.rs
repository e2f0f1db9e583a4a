//! The keys of messages and the patterns of receives, by which they match.

use zerocopy::FromZeros;

/// In a pattern: any source, or any tag that is not internal.
pub const ANY: u32 = u32::MAX;

/// Tags from here on are internal (collectives and the like): [`ANY`] does not accept them. No pattern can name the last tag,
/// which has the value of `ANY`.
pub const INTERNAL_TAGS: u32 = 0x8000_0000;

/// The triple by which an arrived message is matched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, FromZeros)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(C)]
pub struct Key {
    /// Context of the communicator.
    pub context: u32,
    /// Number of the sender. For the engine it is the peer number, not the rank in the communicator.
    pub source: u32,
    /// Tag of the message.
    pub tag: u32,
}

/// The messages that a receive accepts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Pattern {
    /// Context of the communicator; there is no wildcard for it.
    pub context: u32,
    /// Number of the sender as in [`Key::source`], or [`ANY`].
    pub source: u32,
    /// Tag of the message, or [`ANY`] for all tags below [`INTERNAL_TAGS`].
    pub tag: u32,
}

impl Pattern {
    /// Whether a receive with this pattern may take the message.
    #[inline]
    pub const fn accepts(&self, key: &Key) -> bool {
        let tag = if self.tag == ANY { key.tag < INTERNAL_TAGS } else { key.tag == self.tag };
        key.context == self.context && (self.source == ANY || key.source == self.source) && tag
    }
}
