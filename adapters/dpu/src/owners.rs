//! What the engine waits for, for each operation of the device.

use towline_core::pml::Request as EngineRequest;

use crate::takeover::Posted;
use crate::transport::Request;

/// What the engine waits for.
#[derive(Clone, Copy, Debug)]
pub enum Owner {
    /// A send that was complete for its caller when it was copied.
    Nobody {
        /// The receiver.
        peer: u32,
    },
    /// A message that is too long for this device. It is received into no memory, so that its sender learns of the receive.
    Dropped,
    /// A send.
    Send {
        /// The engine's request.
        request: EngineRequest,
        /// The receiver.
        peer: u32,
    },
    /// A receive.
    Receive(Posted),
    /// A receive of a message that was taken out.
    ReceiveTaken(Posted),
}

/// The owners of operations, by the places of the operations, of which the lowest free one is taken first.
#[derive(Debug, Default)]
pub struct Owners {
    places: Vec<Option<(Request, Owner)>>,
    count: usize,
}

impl Owners {
    /// Adds the owner of an operation, which has none.
    pub fn add(&mut self, request: Request, owner: Owner) {
        if self.places.len() <= request.place() {
            self.places.resize(request.place() + 1, None);
        }
        if let Some(place) = self.places.get_mut(request.place()) {
            self.count += usize::from(place.is_none());
            *place = Some((request, owner));
        }
    }

    /// Removes the owner of an operation.
    pub fn remove(&mut self, request: Request) -> Option<Owner> {
        let place = self.places.get_mut(request.place())?;
        let (_, owner) = place.take_if(|(other, _)| *other == request)?;
        self.count -= 1;
        Some(owner)
    }

    /// All operations with their owners.
    pub fn iter(&self) -> impl Iterator<Item = (Request, &Owner)> {
        self.places.iter().flatten().map(|(request, owner)| (*request, owner))
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}
