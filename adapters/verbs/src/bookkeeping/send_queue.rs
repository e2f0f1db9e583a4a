//! Which send buffers are free, and which ones the device may still touch. Pure.

use std::collections::VecDeque;

use towline_core::rail::Lane;

use crate::bookkeeping::operations::Works;

/// What a piece of work has of the rail's, until the device is through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    Eager(u32),
    Bulk(u32),
    /// No buffer: a marker.
    Marker,
    /// A one-sided operation, with what it has.
    Work(u32),
    /// The same operation's, which more work follows of.
    Lead(u32),
}

/// Buffers that are free.
#[derive(Debug)]
pub(crate) struct Slots {
    eager: Vec<u32>,
    bulk: Vec<u32>,
    /// Eager ones that only control frames may take.
    kept: usize,
    /// Markers that may leave.
    markers: u32,
    /// One-sided operations.
    pub works: Works,
}

impl Slots {
    pub fn new(eager: u32, bulk: u32, markers: u32, works: u32) -> Self {
        let (works, kept) = (Works::new(works), eager.div_ceil(8) as usize);
        Self { eager: (0..eager).collect(), bulk: (0..bulk).collect(), kept, markers, works }
    }

    /// The buffer that a frame of this lane would take.
    #[inline]
    pub fn next(&self, lane: Lane) -> Option<Slot> {
        let eager =
            |kept| if self.eager.len() > kept { self.eager.last().map(|slot| Slot::Eager(*slot)) } else { None };
        match lane {
            Lane::Control => eager(0),
            Lane::Eager => eager(self.kept),
            Lane::Bulk => self.bulk.last().map(|slot| Slot::Bulk(*slot)),
        }
    }

    /// Takes the buffer that [`next`](Self::next) has named last. `false`: somebody else did.
    #[inline]
    pub fn take(&mut self, slot: Slot) -> bool {
        match slot {
            Slot::Eager(index) => self.eager.pop_if(|free| *free == index).is_some(),
            Slot::Bulk(index) => self.bulk.pop_if(|free| *free == index).is_some(),
            Slot::Marker => {
                let there = self.markers > 0;
                self.markers -= u32::from(there);
                there
            }
            Slot::Work(_) | Slot::Lead(_) => false, // they are begun
        }
    }

    /// The device does not read it any more.
    #[inline]
    pub fn give_back(&mut self, slot: Slot) {
        match slot {
            Slot::Eager(index) => self.eager.push(index),
            Slot::Bulk(index) => self.bulk.push(index),
            Slot::Marker => self.markers += 1,
            Slot::Work(at) => {
                if let Some(slot) = self.works.end(at) {
                    self.give_back(slot);
                }
            }
            Slot::Lead(_) => {}
        }
    }

    /// Few are left: it is time to hear of those that left silently.
    #[inline]
    pub const fn are_few(&self) -> bool {
        self.eager.len() <= 2 * self.kept || self.bulk.is_empty()
    }
}

/// What one queue pair has to send, oldest first. Work of a queue pair is done in order, so the end of one is the end of all
/// before it.
#[derive(Debug)]
pub(crate) struct Outstanding {
    slots: VecDeque<Slot>,
    /// Number of the oldest.
    first: u32,
    /// Posted behind the last of which the device will tell.
    silent: u32,
    /// Of which the device will tell.
    signaled: u32,
    /// One-sided operations among them.
    works: u32,
}

impl Outstanding {
    pub fn new(most: u32) -> Self {
        Self { slots: VecDeque::with_capacity(most as usize), first: 0, silent: 0, signaled: 0, works: 0 }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Number of the next.
    #[inline]
    pub fn next(&self) -> u32 {
        self.first.wrapping_add(self.slots.len() as u32)
    }

    /// How many were posted silently since the last of which the device will tell.
    #[inline]
    pub const fn silent(&self) -> u32 {
        self.silent
    }

    /// The device will tell of some.
    pub const fn will_tell(&self) -> bool {
        self.signaled > 0
    }

    /// What the work of this number has.
    #[inline]
    pub fn at(&self, number: u32) -> Option<Slot> {
        self.slots.get(number.wrapping_sub(self.first) as usize).copied()
    }

    /// How many one-sided operations are among it.
    #[inline]
    pub const fn count_works(&self) -> u32 {
        self.works
    }

    /// Those.
    pub fn works(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().filter_map(|slot| if let Slot::Work(at) = slot { Some(*at) } else { None })
    }

    /// The device got the next.
    #[inline]
    pub fn posted(&mut self, slot: Slot, signaled: bool) {
        self.slots.push_back(slot);
        self.works += u32::from(matches!(slot, Slot::Work(_)));
        self.signaled += u32::from(signaled);
        self.silent = if signaled { 0 } else { self.silent + 1 };
    }

    /// The device has told that `number` is done: gives back the buffers of it and of all before.
    #[inline]
    pub fn done(&mut self, number: u32, slots: &mut Slots) {
        let count = number.wrapping_sub(self.first).wrapping_add(1) as usize;
        if count == 0 || count > self.slots.len() {
            return; // of no work of ours
        }
        for slot in self.slots.drain(..count) {
            self.works -= u32::from(matches!(slot, Slot::Work(_)));
            slots.give_back(slot);
        }
        self.first = number.wrapping_add(1);
        self.signaled = self.signaled.saturating_sub(1);
    }

    /// The queue pair is gone, and the device reads nothing of this any more.
    pub fn abandon(&mut self, slots: &mut Slots) {
        self.first = self.next();
        self.slots.drain(..).for_each(|slot| slots.give_back(slot));
        (self.silent, self.signaled, self.works) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use towline_core::rail::Cookie;

    use super::*;
    use crate::bookkeeping::operations::{What, Work};

    #[test]
    fn control_frames_find_room_when_nobody_else_does() {
        let mut slots = Slots::new(16, 1, 1, 0);
        let mut taken = vec![];
        while let Some(slot) = slots.next(Lane::Eager) {
            assert!(slots.take(slot) && !slots.take(slot), "twice");
            taken.push(slot);
        }
        assert_eq!(taken.len(), 14);
        assert!(slots.are_few());
        assert!(slots.next(Lane::Control).is_some_and(|slot| slots.take(slot)));
        assert!(slots.next(Lane::Bulk).is_some_and(|slot| slots.take(slot)));
        assert_eq!(slots.next(Lane::Bulk), None);
        assert!(
            slots.take(Slot::Marker) && !slots.take(Slot::Marker),
            "as many markers as the completion queue has room for"
        );
    }

    #[test]
    fn what_is_done_gives_back_all_before_it_and_nothing_else() {
        let (mut slots, mut out) = (Slots::new(64, 1, 1, 0), Outstanding::new(64));
        out.first = u32::MAX - 3; // numbers wrap
        for at in 0..10 {
            let slot = slots.next(Lane::Eager).unwrap();
            assert!(slots.take(slot));
            out.posted(slot, at % 4 == 3);
        }
        assert_eq!((out.len(), out.silent(), out.will_tell()), (10, 2, true));
        let free = slots.eager.len();
        out.done(u32::MAX, &mut slots);
        assert_eq!((out.len(), slots.eager.len()), (6, free + 4));
        out.done(u32::MAX, &mut slots);
        out.done(77, &mut slots);
        assert_eq!((out.len(), slots.eager.len()), (6, free + 4), "an answer that fits nothing changes nothing");
        out.done(3, &mut slots);
        assert_eq!((out.len(), out.will_tell(), out.silent()), (2, false, 2));
        out.abandon(&mut slots);
        assert_eq!((out.len(), slots.eager.len(), out.next()), (0, 64, 6));
    }

    #[test]
    fn an_operation_has_its_buffer_until_its_last_work_is_done() {
        let (mut slots, mut out) = (Slots::new(16, 1, 1, 2), Outstanding::new(8));
        for what in [What::Put(slots.next(Lane::Bulk)), What::Direct] {
            if let What::Put(Some(slot)) = what {
                assert!(slots.take(slot));
            }
            let at = slots.works.next().unwrap();
            slots.works.begin(Work { endpoint: 1, cookie: Cookie(0), what });
            out.posted(Slot::Lead(at), false);
            out.posted(Slot::Work(at), true);
        }
        assert_eq!((out.at(0), out.at(3), out.at(4)), (Some(Slot::Lead(0)), Some(Slot::Work(1)), None));
        assert!(out.works().eq([0, 1]) && out.count_works() == 2 && slots.works.any_direct(out.works()));
        out.done(0, &mut slots);
        assert_eq!(slots.next(Lane::Bulk), None, "more of it is to come");
        out.done(1, &mut slots);
        assert_eq!(slots.next(Lane::Bulk), Some(Slot::Bulk(0)));
        out.done(3, &mut slots);
        assert_eq!((out.count_works(), out.len()), (0, 0));
        out.abandon(&mut slots);
        assert!(!slots.works.any_direct([0, 1].into_iter()));
    }
}
