//! What commands in progress are for, by their cookies.

use crate::operations::place;

/// A value for each command in progress. The places of commands are small numbers, of which a free one is taken again, so a table needs
/// no hashes.
#[derive(Debug)]
pub struct Owners<T> {
    /// By place: the cookie of the command, and its value.
    places: Vec<Option<(u64, T)>>,
    count: usize,
}

impl<T> Default for Owners<T> {
    fn default() -> Self {
        Self { places: Vec::new(), count: 0 }
    }
}

impl<T> Owners<T> {
    /// Adds the value of a command, which has none.
    pub fn add(&mut self, cookie: u64, owner: T) {
        let at = place(cookie);
        if self.places.len() <= at {
            self.grow(at + 1);
        }
        if let Some(place) = self.places.get_mut(at) {
            self.count += usize::from(place.is_none());
            *place = Some((cookie, owner));
        }
    }

    #[cold]
    fn grow(&mut self, len: usize) {
        self.places.resize_with(len, || None);
    }

    /// The value of a command.
    pub fn get(&self, cookie: u64) -> Option<&T> {
        let (other, owner) = self.places.get(place(cookie))?.as_ref()?;
        (*other == cookie).then_some(owner)
    }

    /// Removes the value of a command.
    pub fn remove(&mut self, cookie: u64) -> Option<T> {
        let place = self.places.get_mut(place(cookie))?;
        let (_, owner) = place.take_if(|(other, _)| *other == cookie)?;
        self.count -= 1;
        Some(owner)
    }

    /// Drops the value of a command.
    pub fn forget(&mut self, cookie: u64) {
        if let Some(place) = self.places.get_mut(place(cookie))
            && place.as_ref().is_some_and(|(other, _)| *other == cookie)
        {
            *place = None;
            self.count -= 1;
        }
    }

    /// All cookies with their values.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.places.iter().flatten().map(|(cookie, owner)| (*cookie, owner))
    }

    /// All values.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten().map(|(_, owner)| owner)
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}
