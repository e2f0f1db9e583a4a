//! The requests of scopes: one list for each scope, over a table by request slot, so that no operation allocates.

use towline_core::mtl::Request;
use zerocopy::FromZeros;

/// The lists of all scopes. A list is named by its head: a request slot plus one, 0 for an empty list.
pub(crate) struct ScopeLists(Box<[Entry]>);

/// What the lists have for a request slot.
#[derive(Clone, Copy, FromZeros)]
struct Entry {
    /// The request in the slot, 0 for none.
    bits: u64,
    /// The neighbours in the scope's list, as slot plus one.
    before: u32,
    after: u32,
}

impl ScopeLists {
    /// A table for this many request slots. Pages of the table are touched only when their slots are used.
    pub fn new(requests: u32) -> Self {
        Self(<[Entry]>::new_box_zeroed_with_elems(requests as usize).expect("memory for the table"))
    }

    /// Puts a request at the front of the list that begins at `head`.
    #[inline]
    pub fn push(&mut self, head: &mut u32, request: Request) {
        let bits = request.to_bits();
        let slot = bits as u32;
        self.0[slot as usize] = Entry { bits, before: 0, after: *head };
        if let Some(next) = head.checked_sub(1) {
            self.0[next as usize].before = slot + 1;
        }
        *head = slot + 1;
    }

    /// Takes a request out of the list that begins at `head`. Returns whether it was in the list.
    #[inline]
    pub fn remove(&mut self, head: &mut u32, request: Request) -> bool {
        let bits = request.to_bits();
        let Some(entry) = self.0.get_mut(bits as u32 as usize).filter(|entry| entry.bits == bits) else { return false };
        entry.bits = 0;
        let Entry { before, after, .. } = *entry;
        match before.checked_sub(1) {
            Some(before) => self.0[before as usize].after = after,
            None => *head = after,
        }
        if let Some(after) = after.checked_sub(1) {
            self.0[after as usize].before = before;
        }
        true
    }

    /// The request at `place` in a list, and the place after it.
    pub fn at(&self, place: u32) -> Option<(Request, u32)> {
        // A forked child has a place of its parent's list, and no table.
        let entry = self.0.get(place.checked_sub(1)? as usize)?;
        Some((Request::from_bits(entry.bits), entry.after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_leave_their_list_in_any_order() {
        let mut lists = ScopeLists::new(8);
        let requests: Vec<Request> = [3u64, 5, 1, 7].map(|slot| Request::from_bits(1 << 32 | slot)).into();
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
            let mut head = 0;
            requests.iter().for_each(|request| lists.push(&mut head, *request));
            for (removed, index) in order.into_iter().enumerate() {
                assert!(lists.remove(&mut head, requests[index]));
                assert!(!lists.remove(&mut head, requests[index]), "twice");
                let (mut place, mut left) = (head, 0);
                while let Some((request, next)) = lists.at(place) {
                    assert!(order[removed + 1..].iter().any(|index| requests[*index] == request));
                    (place, left) = (next, left + 1);
                }
                assert_eq!(left, 3 - removed);
            }
            assert_eq!(head, 0);
        }
    }
}
