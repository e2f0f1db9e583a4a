//! The sending side of a rail, and the user's memory that the device may access.

use std::collections::HashMap;

use towline_core::rail::Ticket;
use towline_core::rail::native::Region;

use crate::bookkeeping::resource::Buffer;
use crate::bookkeeping::send_resources::SendResources;
use crate::device::UserRegion;

/// The sending side of a rail.
#[derive(Debug)]
pub struct SendState {
    pub resources: SendResources,
    /// The grant that was given last, and its buffer, until it is committed.
    pub granted: Option<(Ticket, Buffer)>,
}

/// The user's memory that is registered, by the regions that the engine was given.
#[derive(Debug, Default)]
pub struct UserMemory {
    regions: HashMap<u64, UserRegion>,
    next: u64,
}

impl UserMemory {
    /// Adds memory that was registered.
    pub fn insert(&mut self, registered: UserRegion) -> Region {
        let region = self.next;
        self.next += 1;
        self.regions.insert(region, registered);
        Region(region)
    }

    /// Deregisters memory.
    pub fn remove(&mut self, region: Region) {
        self.regions.remove(&region.0);
    }

    /// The registered memory of a region.
    pub fn get(&self, region: Region) -> Option<&UserRegion> {
        self.regions.get(&region.0)
    }
}
