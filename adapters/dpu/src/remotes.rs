//! The keys of memory of peers. The device reads them in the buffers.

use slab::Slab;

use crate::heap::Part;

/// A key.
#[derive(Debug)]
struct Key {
    part: Part,
    /// Operations in progress that name it.
    uses: u32,
    /// Its user needs it no more.
    closed: bool,
}

/// The keys of memory of peers, by their places.
#[derive(Debug, Default)]
pub struct Remotes(Slab<Key>);

impl Remotes {
    /// Adds the key in a part of the buffers, and returns its place.
    pub fn add(&mut self, part: Part) -> usize {
        self.0.insert(Key { part, uses: 0, closed: false })
    }

    /// The part with a key. An operation names it from now on, until it is [released](Self::release).
    pub fn hold(&mut self, place: usize) -> Option<Part> {
        let key = self.0.get_mut(place)?;
        key.uses += 1;
        Some(key.part)
    }

    /// An operation does not name a key any more. Returns the part if nobody needs it.
    pub fn release(&mut self, place: usize) -> Option<Part> {
        let key = self.0.get_mut(place)?;
        key.uses -= 1;
        self.unused(place)
    }

    /// The user of a key needs it no more. Returns the part if no operation names it.
    pub fn close(&mut self, place: usize) -> Option<Part> {
        self.0.get_mut(place)?.closed = true;
        self.unused(place)
    }

    fn unused(&mut self, place: usize) -> Option<Part> {
        let is_unused = self.0.get(place).is_some_and(|key| key.closed && key.uses == 0);
        is_unused.then(|| self.0.remove(place).part)
    }
}
