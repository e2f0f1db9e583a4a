//! One-sided operations that are under way. Pure.

use std::collections::VecDeque;
use std::ptr::NonNull;

use towline_core::rail::Cookie;
use towline_core::rail::native::NativeError;

use crate::bookkeeping::send_queue::Slot;

/// An operation that the device has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// On whose memory.
    pub endpoint: u32,
    pub cookie: Cookie,
    pub what: What,
}

/// What is to be done when the device is through.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// Nothing: it read, or wrote, the user's own memory.
    Direct,
    /// Nothing, but for the buffer that was read, if there was one.
    Put(Option<Slot>),
    /// These bytes of the buffer are the user's.
    Get(Slot, Sink),
    /// A word of the buffer is the result.
    Atomic(Slot),
}

/// Memory of the user that is written when the device is through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sink {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: memory of the process. Who made the sink vouches that it is the rail's alone until the operation is over, whichever
// thread the rail is used by.
unsafe impl Send for Sink {}

impl Sink {
    /// # Safety
    /// The bytes are writable, and nobody else's, until the operation is over.
    pub const unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len }
    }

    /// Copies so many bytes as it takes to it.
    ///
    /// # Safety
    /// They are readable, and its operation is not over yet.
    pub const unsafe fn fill(self, from: NonNull<u8>) {
        // SAFETY: who made this vouches for one side, the caller for the other.
        unsafe { self.base.copy_from_nonoverlapping(from, self.len) };
    }

    pub const fn len(self) -> usize {
        self.len
    }
}

/// All of them, and those that are over.
#[derive(Debug)]
pub(crate) struct Works {
    under_way: Vec<Option<Work>>,
    free: Vec<u32>,
    /// Of the rest, those that nobody was told of: on whose memory, the cookie, and how it ended.
    over: VecDeque<(u32, Cookie, Result<u64, NativeError>)>,
}

impl Works {
    /// Room for `most` at a time.
    pub fn new(most: u32) -> Self {
        let over = VecDeque::with_capacity(2 * most as usize); // all that there are may end at once
        Self { under_way: vec![None; most as usize], free: (0..most).rev().collect(), over }
    }

    /// Where the next one would be. `None`: there are too many.
    pub fn next(&self) -> Option<u32> {
        // What nobody was told of takes room as well.
        self.free.last().copied().filter(|_| self.over.len() < self.under_way.len())
    }

    /// The [next](Self::next) is under way.
    pub fn begin(&mut self, work: Work) {
        if let Some(place) = self.free.pop().and_then(|at| self.under_way.get_mut(at as usize)) {
            *place = Some(work);
        }
    }

    pub fn get(&self, at: u32) -> Option<Work> {
        self.under_way.get(at as usize).copied().flatten()
    }

    /// One is over, as is to be told.
    pub fn over(&mut self, at: u32, how: Result<u64, NativeError>) {
        if let Some(work) = self.get(at) {
            self.over.push_back((work.endpoint, work.cookie, how));
        }
    }

    /// The device is done with it, and nothing more is told. Gives back the buffer that it had.
    pub fn end(&mut self, at: u32) -> Option<Slot> {
        let work = self.under_way.get_mut(at as usize)?.take()?;
        self.free.push(at);
        match work.what {
            What::Direct => None,
            What::Put(slot) => slot,
            What::Get(slot, _) | What::Atomic(slot) => Some(slot),
        }
    }

    /// The next that is to be told.
    #[inline]
    pub fn told(&mut self) -> Option<(Cookie, Result<u64, NativeError>)> {
        self.over.pop_front().map(|(_, cookie, how)| (cookie, how))
    }

    #[inline]
    pub fn has_told_all(&self) -> bool {
        self.over.is_empty()
    }

    /// Nothing more is told of operations on a peer's memory.
    pub fn forget(&mut self, endpoint: u32) {
        self.over.retain(|(of, ..)| *of != endpoint);
    }

    /// Whether one of these has the device touch the user's own memory.
    pub fn any_direct(&self, mut these: impl Iterator<Item = u32>) -> bool {
        these.any(|at| matches!(self.get(at), Some(Work { what: What::Direct, .. })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(endpoint: u32, what: What) -> Work {
        Work { endpoint, cookie: Cookie(endpoint.into()), what }
    }

    #[test]
    fn what_is_over_is_told_once_in_order_and_gives_back_its_buffer() {
        let mut works = Works::new(2);
        for (at, what) in [(0, What::Put(Some(Slot::Eager(7)))), (1, What::Direct)] {
            assert_eq!(works.next(), Some(at));
            works.begin(work(at, what));
        }
        assert_eq!(works.next(), None);
        assert!(works.any_direct([0, 1].into_iter()) && !works.any_direct([0].into_iter()));
        works.over(1, Err(NativeError::Refused));
        works.over(0, Ok(5));
        assert_eq!((works.end(0), works.end(1), works.end(0)), (Some(Slot::Eager(7)), None, None));
        assert_eq!(works.next(), None, "two are to be told");
        assert_eq!(works.told(), Some((Cookie(1), Err(NativeError::Refused))));
        assert!(works.next().is_some() && !works.has_told_all());
        assert_eq!((works.told(), works.told()), (Some((Cookie(0), Ok(5))), None));
        works.over(0, Ok(0));
        assert!(works.has_told_all(), "it is under way no more");
    }

    #[test]
    fn nothing_is_told_of_a_peer_that_is_forgotten() {
        let mut works = Works::new(4);
        for endpoint in [3, 4, 3] {
            let at = works.next().unwrap();
            works.begin(work(endpoint, What::Put(None)));
            works.over(at, Ok(0));
            works.end(at);
        }
        works.forget(3);
        assert_eq!((works.told(), works.told()), (Some((Cookie(4), Ok(0))), None));
    }
}
