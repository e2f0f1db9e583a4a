//! A summary of the messages that were refused at the end.

use crate::rail::Peer;

/// The messages of users that an engine has refused because it [takes no further ones](crate::pml::Pml::refuse_unexpected).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RefusedMessages {
    /// How many there were; saturates.
    pub count: u64,
    /// Bytes of all of them; saturates.
    pub bytes: u64,
    /// Bytes of the largest of them.
    pub largest: u64,
    /// The sender of the largest.
    pub peer: Peer,
    /// The tag of the largest.
    pub tag: u32,
    /// The context of the largest.
    pub context: u32,
}
