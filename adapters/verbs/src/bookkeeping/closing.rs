//! Queue pairs of connections that have ended, until the device has let go of all that they had. Pure.
//!
//! Each is in its error state, so nothing moves by it any more; but the device may still hold a shared receive buffer that a frame
//! was about to fill, and gives it back only while the queue pair is there. It says when there is nothing left, or, as Soft-RoCE
//! in older kernels, says nothing and does it soon.

use towline_core::time::{Duration, Instant};

use crate::bookkeeping::send_queue::{Outstanding, Slots};

/// After so long the device is looked at first; then less and less often ...
const SOON: Duration = Duration::from_millis(1);
/// ... and after so long there is nothing left, whatever it says.
const PATIENCE: Duration = Duration::from_secs(1);

/// Queue pairs on their way out.
#[derive(Debug)]
pub(crate) struct Leaving<P> {
    pairs: Vec<Pair<P>>,
    look_at: Option<Instant>,
}

#[derive(Debug)]
struct Pair<P> {
    pair: P,
    number: u32,
    /// What it had to send.
    out: Outstanding,
    since: Instant,
    /// The device has said that it holds no receive buffer of it.
    is_empty: bool,
}

impl<P> Leaving<P> {
    pub const fn new() -> Self {
        Self { pairs: Vec::new(), look_at: None }
    }

    /// When to [let go](Self::let_go).
    #[inline]
    pub const fn look_at(&self) -> Option<Instant> {
        self.look_at
    }

    /// A queue pair, of this number, was put in its error state.
    pub fn add(&mut self, pair: P, number: u32, out: Outstanding, now: Instant) {
        self.pairs.push(Pair { pair, number, out, since: now, is_empty: false });
        let look_at = now + SOON;
        self.look_at = Some(self.look_at.map_or(look_at, |at| at.min(look_at)));
    }

    /// The device has told that it does not read what was sent as `work` any more.
    pub fn flushed(&mut self, number: u32, work: u32, slots: &mut Slots) {
        if let Some(pair) = self.pairs.iter_mut().find(|pair| pair.number == number) {
            pair.out.done(work, slots);
        }
    }

    /// Takes one out of these, with what it had to send.
    pub fn take(&mut self, number: u32) -> Option<(P, Outstanding)> {
        let at = self.pairs.iter().position(|pair| pair.number == number)?;
        let Pair { pair, out, .. } = self.pairs.swap_remove(at);
        Some((pair, out))
    }

    /// What a queue pair has to send.
    pub fn out(&self, number: u32) -> Option<&Outstanding> {
        self.pairs.iter().find(|pair| pair.number == number).map(|pair| &pair.out)
    }

    /// The device says that it holds no receive buffer of a queue pair any more.
    pub fn is_empty(&mut self, number: u32) {
        if let Some(pair) = self.pairs.iter_mut().find(|pair| pair.number == number) {
            pair.is_empty = true;
        }
    }

    /// Has those destroyed that the device has let go of. `destroy` answers whether it is: if not, the device may go on reading what
    /// was to be sent.
    pub fn let_go(&mut self, now: Instant, slots: &mut Slots, mut destroy: impl FnMut(P) -> bool) {
        let over = |pair: &mut Pair<P>| pair.is_empty || now.since(pair.since) >= PATIENCE;
        for mut pair in self.pairs.extract_if(.., over) {
            if destroy(pair.pair) {
                pair.out.abandon(slots);
            }
        }
        let next = |pair: &Pair<P>| now + now.since(pair.since).max(SOON);
        self.look_at = self.pairs.iter().map(next).min();
    }
}

#[cfg(test)]
mod tests {
    use towline_core::rail::Lane;

    use super::*;
    use crate::bookkeeping::send_queue::Slot;

    const START: Instant = Instant::from_nanos(1 << 40);

    /// Buffers, all of which two queue pairs are to send.
    fn two() -> (Slots, Leaving<u32>) {
        let (mut slots, mut leaving) = (Slots::new(8, 4, 0, 0), Leaving::new());
        for number in [70, 80] {
            let mut out = Outstanding::new(8);
            for _ in 0..2 {
                let slot = slots.next(Lane::Bulk).unwrap();
                assert!(slots.take(slot));
                out.posted(slot, false);
            }
            leaving.add(number, number, out, START);
        }
        (slots, leaving)
    }

    /// Bulk buffers that are free.
    fn free(slots: &mut Slots) -> usize {
        let taken: Vec<Slot> = std::iter::from_fn(|| slots.next(Lane::Bulk).filter(|slot| slots.take(*slot))).collect();
        taken.iter().for_each(|slot| slots.give_back(*slot));
        taken.len()
    }

    #[test]
    fn a_queue_pair_is_destroyed_when_the_device_says_that_it_is_empty() {
        let (mut slots, mut leaving) = two();
        let at = leaving.look_at().unwrap();
        let mut gone = vec![];
        leaving.let_go(at, &mut slots, |number| {
            gone.push(number);
            true
        });
        assert_eq!((&gone[..], free(&mut slots)), (&[][..], 0), "not before");
        leaving.is_empty(80);
        leaving.is_empty(90);
        leaving.let_go(at, &mut slots, |number| {
            gone.push(number);
            true
        });
        assert_eq!((&gone[..], free(&mut slots)), (&[80][..], 2));
    }

    #[test]
    fn where_the_device_says_nothing_patience_ends() {
        let (mut slots, mut leaving) = two();
        let (mut gone, mut looks) = (vec![], 0);
        while let Some(at) = leaving.look_at() {
            assert!(gone.is_empty());
            leaving.let_go(at, &mut slots, |number| {
                gone.push((number, at));
                true
            });
            looks += 1;
        }
        let numbers: Vec<u32> = gone.iter().map(|(number, _)| *number).collect();
        assert_eq!((numbers, free(&mut slots)), (vec![70, 80], 4));
        assert!(gone.iter().all(|(_, at)| at.since(START) >= PATIENCE), "too early: {gone:?}");
        assert!(looks < 15, "{looks} looks");
    }

    #[test]
    fn what_is_flushed_is_free_at_once() {
        let (mut slots, mut leaving) = two();
        leaving.flushed(70, 0, &mut slots);
        assert_eq!(free(&mut slots), 1);
        leaving.flushed(75, 0, &mut slots);
        assert_eq!(free(&mut slots), 1, "of another queue pair");
        leaving.is_empty(70);
        leaving.let_go(START, &mut slots, |_| true);
        assert_eq!(free(&mut slots), 2, "the other one, and none twice");
    }

    #[test]
    fn one_that_is_taken_out_is_not_destroyed_later() {
        let (mut slots, mut leaving) = two();
        assert_eq!(leaving.out(80).map(Outstanding::len), Some(2));
        let (number, mut out) = leaving.take(80).unwrap();
        assert_eq!((number, out.len(), leaving.out(80).is_none(), leaving.take(80).is_none()), (80, 2, true, true));
        leaving.is_empty(80);
        leaving.let_go(START, &mut slots, |_| panic!("the other one is not empty"));
        out.abandon(&mut slots);
        assert_eq!(free(&mut slots), 2);
    }

    #[test]
    fn what_the_device_may_still_read_is_not_free() {
        let (mut slots, mut leaving) = two();
        leaving.is_empty(70);
        leaving.let_go(START, &mut slots, |_| false);
        assert_eq!(free(&mut slots), 0);
    }
}
