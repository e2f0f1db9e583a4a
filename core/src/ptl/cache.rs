//! A rail's cache of prepared requests (contract: `ptl_cache_size`, `ptl_cache_bytes`, P16-P19).
//!
//! A rail may want memory of its own with each send request, which is prepared once and used again: for example, a work request
//! for a queue pair. Its [`Attributes::cache_size`](crate::rail::Attributes) and `cache_bytes` say how much. The cache starts
//! empty and grows by one entry at a time. If all entries are in use, a send gets none: it is *uncached* (`req_cached =
//! false`).
//!
//! ```
//! use towline_core::arena::Arena;
//! use towline_core::ptl::Cache;
//!
//! let mut block = [0u8; 256];
//! let mut cache = Cache::new(&mut Arena::new(&mut block), 0, 1, 20).unwrap();
//! let mut prepared = 0;
//! let entry = cache.take(|extra| { prepared += 1; assert_eq!(extra.len(), 20) }).unwrap();
//! assert_eq!(cache.take(|_| panic!("full")), None); // goes uncached
//! cache.put(entry);
//! assert_eq!(cache.take(|_| panic!("prepared already")), Some(entry));
//! assert_eq!(prepared, 1);
//! ```

use zerocopy::{FromZeros, IntoBytes};

use crate::arena::{Arena, OutOfMemory};

/// Prepared requests of one rail. Entries are numbered from 0.
#[derive(Debug)]
pub struct Cache<'m> {
    rail: usize,
    /// The memory of all entries. Each begins at a multiple of 8 bytes.
    memory: &'m mut [u64],
    entries: &'m mut [Entry],
    bytes: usize,
    /// The first idle entry, and the first unprepared entry: index plus one, 0 for none.
    idle: u32,
    unprepared: u32,
    /// Entries below this were prepared at least once.
    touched: u32,
}

/// The list that an entry is in, and the next entry there.
#[derive(FromZeros, Debug, Clone, Copy)]
#[repr(C)]
struct Entry {
    next: u32,
    idle: bool,
}

impl<'m> Cache<'m> {
    /// Makes a cache of at most `size` entries of `bytes` bytes each, for the rail with index `rail`. The memory comes from
    /// `arena`.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the arena has less than [`cost`](Self::cost) left.
    pub fn new(arena: &mut Arena<'m>, rail: usize, size: u32, bytes: u32) -> Result<Self, OutOfMemory> {
        let size = if size == u32::MAX { size - 1 } else { size } as usize;
        let words = (bytes as usize).div_ceil(8);
        let (memory, entries) = (arena.table(size.saturating_mul(words))?, arena.table(size)?);
        Ok(Self { rail, memory, entries, bytes: bytes as usize, idle: 0, unprepared: 0, touched: 0 })
    }

    /// The most bytes that a cache takes from an arena, including its entry in the engine's table of caches.
    pub const fn cost(size: u32, bytes: u32) -> usize {
        let words = (bytes as usize).div_ceil(8);
        Arena::cost::<Self>(1).saturating_add(
            Arena::cost::<u64>(words.saturating_mul(size as usize)).saturating_add(Arena::cost::<Entry>(size as usize)),
        )
    }

    /// The index of the rail that the cache is for.
    pub const fn rail(&self) -> usize {
        self.rail
    }

    /// Takes a prepared entry. If none is idle and there is room, it prepares another with `init`. `None`: all entries are in
    /// use, and the send is uncached.
    pub fn take(&mut self, init: impl FnOnce(&mut [u8])) -> Option<u32> {
        if let Some(index) = self.idle.checked_sub(1) {
            let entry = self.entries.get_mut(index as usize)?;
            self.idle = entry.next;
            entry.idle = false;
            return Some(index);
        }
        let index = match self.unprepared.checked_sub(1) {
            Some(index) => index,
            None => self.touched,
        };
        let entry = self.entries.get_mut(index as usize)?;
        entry.idle = false;
        if self.unprepared == 0 {
            self.touched = index.wrapping_add(1);
        } else {
            self.unprepared = entry.next;
        }
        init(self.extra(index)?);
        Some(index)
    }

    /// The bytes of an entry, which belong to the rail.
    pub fn extra(&mut self, entry: u32) -> Option<&mut [u8]> {
        let words = self.bytes.div_ceil(8);
        let start = (entry as usize).checked_mul(words)?;
        self.memory.get_mut(start..start.checked_add(words)?)?.as_mut_bytes().get_mut(..self.bytes)
    }

    /// Returns an entry to the cache. It stays prepared.
    pub fn put(&mut self, entry: u32) {
        let idle = self.idle;
        let Some(place) = self.entries.get_mut(entry as usize) else { return };
        if !place.idle && entry < self.touched {
            *place = Entry { next: idle, idle: true };
            self.idle = entry.wrapping_add(1);
        }
    }

    /// Undoes the preparation of all entries that are not in use, with `fini`. It is called when memory is short, or at the
    /// end.
    pub fn drain(&mut self, mut fini: impl FnMut(&mut [u8])) {
        while let Some(index) = self.idle.checked_sub(1) {
            if let Some(extra) = self.extra(index) {
                fini(extra);
            }
            let unprepared = self.unprepared;
            let Some(entry) = self.entries.get_mut(index as usize) else { return };
            self.idle = entry.next;
            *entry = Entry { next: unprepared, idle: false };
            self.unprepared = index.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn p16_p17_p18_p19_grows_to_its_size_prepares_once_and_balances() {
        let mut block = [0u8; 512];
        let mut cache = Cache::new(&mut Arena::new(&mut block), 0, 3, 12).unwrap();
        let (mut inits, mut finis) = (0u8, 0u8);
        let mut seen = Vec::new();
        for _ in 0..2 {
            let entries: Vec<u32> = core::iter::from_fn(|| {
                cache.take(|extra| {
                    inits += 1;
                    extra.fill(inits);
                })
            })
            .collect();
            assert_eq!((entries.len(), inits), (3, 3)); // a fourth goes uncached; the second time nothing is prepared
            for entry in &entries {
                let extra = cache.extra(*entry).unwrap();
                assert_eq!((extra.len(), extra.as_ptr() as usize % 8), (12, 0));
                assert!(extra.iter().all(|byte| *byte == extra[0]) && extra[0] != 0);
                seen.push(extra.as_ptr() as usize);
            }
            entries.iter().for_each(|entry| cache.put(*entry));
            cache.put(entries[0]); // twice: ignored
        }
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() == 3 && seen.windows(2).all(|pair| pair[1] - pair[0] >= 12));
        let kept = cache.take(|_| panic!("prepared already")).unwrap();
        cache.drain(|extra| {
            assert_ne!(extra[0], 0);
            finis += 1;
        });
        assert_eq!(finis, 2); // one is in use
        cache.put(kept);
        cache.drain(|_| finis += 1);
        assert_eq!((inits, finis), (3, 3));
        assert!(cache.take(|_| inits += 1).is_some());
        assert_eq!(inits, 4); // drained entries are prepared anew
    }
}
