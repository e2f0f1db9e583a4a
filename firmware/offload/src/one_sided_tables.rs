//! What a server keeps of the one-sided operations of a session.

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::rail::Peer;
use towline_core::rma::{Operation, Registration};

use crate::numbers;

/// Registered memory.
#[derive(Clone, Copy, Debug)]
struct Place {
    registration: Option<Registration>,
    /// Counts the uses of this place.
    uses: u16,
    /// The cookie of the command that ends the registration, while it waits for accesses of peers to end.
    closing: Option<u64>,
}

/// The registrations.
#[derive(Debug)]
pub struct Registrations<'m> {
    places: &'m mut [Place],
    /// How many commands wait for accesses of peers to end.
    closing: u32,
}

/// The most registrations, since a number has 16 bits for the place.
const MOST: u32 = 1 << 16;

impl<'m> Registrations<'m> {
    /// The bytes of a table for `count` registrations.
    pub const fn bytes(count: u32) -> usize {
        Arena::cost::<Place>(if count > MOST { MOST } else { count } as usize)
    }

    /// No registrations, with room for `count` of them.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(arena: &mut Arena<'m>, count: u32) -> Result<Self, OutOfMemory> {
        let free = Place { registration: None, uses: 0, closing: None };
        Ok(Self { places: arena.filled(count.min(MOST) as usize, free)?, closing: 0 })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.places.iter().filter(|place| place.registration.is_some()).count()
    }

    /// Whether a place is free.
    pub fn has_room(&self) -> bool {
        self.places.iter().any(|place| place.registration.is_none())
    }

    /// Adds a registration, and returns its number. `None`: no place is free.
    pub fn add(&mut self, registration: Registration) -> Option<u32> {
        let (at, place) = (0_u32..).zip(self.places.iter_mut()).find(|(_, place)| place.registration.is_none())?;
        place.registration = Some(registration);
        place.uses = place.uses.wrapping_add(1);
        Some(numbers::join(at, place.uses))
    }

    fn place(&mut self, number: u32) -> Option<&mut Place> {
        let (at, uses) = numbers::split(number);
        self.places.get_mut(at).filter(|place| place.uses == uses && place.registration.is_some())
    }

    /// The registration of a number that no command ends yet.
    pub fn get(&mut self, number: u32) -> Option<Registration> {
        self.place(number).filter(|place| place.closing.is_none())?.registration
    }

    /// Removes a registration that has ended.
    pub fn remove(&mut self, number: u32) {
        if let Some(place) = self.place(number) {
            place.registration = None;
        }
    }

    /// A command ends a registration as soon as no peer accesses its memory any more.
    pub fn close(&mut self, number: u32, cookie: u64) {
        if let Some(place) = self.place(number).filter(|place| place.closing.is_none()) {
            place.closing = Some(cookie);
            self.closing = self.closing.saturating_add(1);
        }
    }

    /// Ends one of the registrations that are to end, if `end` can. Returns the cookie of its command.
    pub fn finish(&mut self, mut end: impl FnMut(Registration) -> bool) -> Option<u64> {
        if self.closing == 0 {
            return None;
        }
        for place in self.places.iter_mut() {
            if let (Some(cookie), Some(registration)) = (place.closing, place.registration)
                && end(registration)
            {
                (place.registration, place.closing) = (None, None);
                self.closing = self.closing.saturating_sub(1);
                return Some(cookie);
            }
        }
        None
    }

    /// Ends all registrations, since their session has ended. No peer is left that could access the memory.
    pub fn clear(&mut self, mut end: impl FnMut(Registration)) {
        for place in self.places.iter_mut() {
            if let Some(registration) = place.registration.take() {
                end(registration);
            }
            place.closing = None;
        }
        self.closing = 0;
    }
}

/// A put, get or atomic in progress.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The engine's operation.
    pub operation: Operation,
    /// The cookie of the command.
    pub cookie: u64,
    /// The peer.
    pub peer: Peer,
}

/// The puts, gets and atomics in progress, by the slot of their operation.
#[derive(Debug)]
pub struct Accesses<'m>(&'m mut [Option<Access>]);

/// The slot of an operation in the engine's pool.
const fn slot_of(operation: Operation) -> usize {
    (operation.to_bits() & u32::MAX as u64) as usize
}

impl<'m> Accesses<'m> {
    /// The bytes of a table for `count` operations.
    pub const fn bytes(count: u32) -> usize {
        Arena::cost::<Option<Access>>(count as usize)
    }

    /// No operations, with room for `count` of them.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(arena: &mut Arena<'m>, count: u32) -> Result<Self, OutOfMemory> {
        Ok(Self(arena.filled(count as usize, None)?))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Adds an operation.
    pub fn add(&mut self, access: Access) {
        if let Some(entry) = self.0.get_mut(slot_of(access.operation)) {
            *entry = Some(access);
        }
    }

    /// Removes an operation.
    pub fn remove(&mut self, operation: Operation) -> Option<Access> {
        let entry = self.0.get_mut(slot_of(operation))?;
        if entry.is_some_and(|access| access.operation == operation) { entry.take() } else { None }
    }

    /// Removes all operations, whose session has ended.
    pub fn clear(&mut self) {
        self.0.iter_mut().for_each(|entry| *entry = None);
    }
}
