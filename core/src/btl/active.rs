//! Active messages: each tag has a consumer, which gets the frames with this tag.

use core::fmt;

use crate::arena::{Arena, OutOfMemory};
use crate::btl::descriptor::Segment;
use crate::btl::endpoint::EndpointId;
use crate::error::Blame;
use crate::rail::tags;

/// A frame that has arrived, for its consumer (`mca_btl_base_receive_descriptor_t`).
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Received<'r> {
    endpoint: Option<EndpointId>,
    tag: u8,
    data: &'r [u8],
    segment: Segment,
}

impl<'r> Received<'r> {
    pub(super) fn new(endpoint: Option<EndpointId>, tag: u8, data: &'r [u8]) -> Self {
        let segment = Segment { addr: data.as_ptr() as usize as u64, len: data.len() as u64 };
        Self { endpoint, tag, data, segment }
    }

    /// The sender. `None` if the sender is not a peer of the module, for example because it was removed.
    pub const fn endpoint(&self) -> Option<EndpointId> {
        self.endpoint
    }

    /// The tag of the frame.
    pub const fn tag(&self) -> u8 {
        self.tag
    }

    /// The bytes of the frame, header and payload, in one piece.
    pub const fn data(&self) -> &'r [u8] {
        self.data
    }

    /// The same bytes as a list of segments, for C.
    pub const fn segments(&self) -> &[Segment] {
        core::slice::from_ref(&self.segment)
    }
}

/// The consumer of each tag of a module. `C` is a reference to a consumer.
#[derive(Debug)]
pub(super) struct Consumers<'m, C> {
    table: &'m mut [Option<C>],
}

impl<'m, C: Copy> Consumers<'m, C> {
    pub(super) fn new(arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        Ok(Self { table: arena.filled(tags::MAX as usize, None)? })
    }

    pub(super) const fn cost() -> usize {
        Arena::cost::<Option<C>>(tags::MAX as usize)
    }

    pub(super) fn register(&mut self, tag: u8, consumer: C) -> Result<(), RegisterError> {
        let entry = self.table.get_mut(tag as usize).ok_or(RegisterError::InvalidTag)?;
        if entry.is_some() {
            return Err(RegisterError::Taken);
        }
        *entry = Some(consumer);
        Ok(())
    }

    pub(super) fn unregister(&mut self, tag: u8) -> bool {
        self.table.get_mut(tag as usize).and_then(Option::take).is_some()
    }

    #[inline]
    pub(super) fn get(&self, tag: u8) -> Option<C> {
        self.table.get(tag as usize).copied().flatten()
    }
}

/// Why a consumer was not registered.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum RegisterError {
    /// The tag is 255, and the highest valid tag is 254.
    InvalidTag,
    /// The tag already has a consumer.
    Taken,
}

impl RegisterError {
    /// The side that has to act.
    pub const fn blame(self) -> Blame {
        Blame::Caller
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidTag => "tag 255 is not valid: choose a tag from 0 to 254",
            Self::Taken => "the tag has a consumer already: choose another tag, or unregister the consumer first",
        })
    }
}

impl core::error::Error for RegisterError {}

crate::debug_as_display!(RegisterError);
