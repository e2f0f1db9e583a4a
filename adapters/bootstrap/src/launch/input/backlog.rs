//! The bytes of the input that some receivers have not got yet.

use std::collections::{BTreeMap, VecDeque};

/// Who gets the input.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Receiver {
    /// A rank on this host.
    Rank(u32),
    /// The agent on another host, by the index of the host.
    Host(usize),
}

/// The input from the first byte that a receiver still needs. Each receiver has a position of its own.
#[derive(Debug)]
pub(super) struct Backlog {
    /// Maximum number of bytes that are held.
    limit: usize,
    bytes: VecDeque<u8>,
    /// Position of the first byte that is held.
    start: u64,
    ended: bool,
    positions: BTreeMap<Receiver, u64>,
}

impl Backlog {
    pub(super) fn new(limit: usize, receivers: impl IntoIterator<Item = Receiver>) -> Self {
        let positions = receivers.into_iter().map(|receiver| (receiver, 0)).collect();
        Self { limit, bytes: VecDeque::new(), start: 0, ended: false, positions }
    }

    /// Number of bytes that may be added.
    pub(super) fn room(&self) -> usize {
        if self.ended { 0 } else { self.limit.saturating_sub(self.bytes.len()) }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// No further byte will be added.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Adds a receiver, which begins with the oldest byte that is still held.
    pub(super) fn join(&mut self, receiver: Receiver) {
        self.positions.entry(receiver).or_insert(self.start);
    }

    /// Removes a receiver, which needs nothing any more. Returns the number of bytes that no receiver needs now.
    pub(super) fn leave(&mut self, receiver: Receiver) -> usize {
        self.positions.remove(&receiver);
        if self.positions.is_empty() { 0 } else { self.release() }
    }

    pub(super) fn has_receivers(&self) -> bool {
        !self.positions.is_empty()
    }

    /// Up to `most` next bytes for a receiver.
    pub(super) fn next(&self, receiver: Receiver, most: usize) -> &[u8] {
        let Some(position) = self.positions.get(&receiver) else { return &[] };
        let mut at = (position - self.start) as usize;
        let (first, second) = self.bytes.as_slices();
        let mut part = first;
        if at >= first.len() {
            (at, part) = (at - first.len(), second);
        }
        &part[at..part.len().min(at + most)]
    }

    /// Whether a receiver has got everything, and nothing will follow.
    pub(super) fn is_done(&self, receiver: Receiver) -> bool {
        self.ended && self.positions.get(&receiver).is_none_or(|at| *at == self.start + self.bytes.len() as u64)
    }

    /// A receiver has got its next `count` bytes. Returns the number of bytes that no receiver needs any more.
    pub(super) fn advance(&mut self, receiver: Receiver, count: usize) -> usize {
        if let Some(position) = self.positions.get_mut(&receiver) {
            *position += count as u64;
        }
        self.release()
    }

    /// Drops everything that is held.
    pub(super) fn discard(&mut self) -> usize {
        let count = self.bytes.len();
        self.start += count as u64;
        self.bytes.clear();
        count
    }

    fn release(&mut self) -> usize {
        let needed = self.positions.values().min().copied().unwrap_or(self.start);
        let count = (needed - self.start) as usize;
        self.bytes.drain(..count);
        self.start = needed;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Receiver = Receiver::Rank(0);
    const B: Receiver = Receiver::Host(0);

    #[test]
    fn bytes_are_held_until_the_slowest_receiver_has_them() {
        let mut backlog = Backlog::new(10, [A, B]);
        backlog.add(b"abcdefgh");
        assert_eq!(backlog.room(), 2);
        assert_eq!(backlog.next(A, 5), b"abcde");
        assert_eq!(backlog.advance(A, 5), 0);
        assert_eq!((backlog.next(A, 5), backlog.next(B, 2)), (&b"fgh"[..], &b"ab"[..]));
        assert_eq!(backlog.advance(B, 2), 2);
        assert_eq!(backlog.room(), 4);
        backlog.add(b"ijkl");
        let mut rest = Vec::new();
        while !backlog.next(B, 3).is_empty() {
            let next = backlog.next(B, 3).to_vec();
            backlog.advance(B, next.len());
            rest.extend(next);
        }
        assert_eq!(rest, b"cdefghijkl");
        assert_eq!(backlog.room(), 3, "the other receiver has got five");
        assert_eq!(backlog.leave(A), 7);
        assert!(!backlog.is_done(B));
        backlog.end();
        assert!(backlog.is_done(B) && backlog.room() == 0);
    }

    #[test]
    fn a_receiver_that_joins_later_begins_with_what_is_held() {
        let mut backlog = Backlog::new(10, [A]);
        backlog.add(b"abcdef");
        assert_eq!(backlog.advance(A, 2), 2);
        backlog.join(B);
        assert_eq!(backlog.next(B, 9), b"cdef");
        assert_eq!(backlog.leave(A), 0);
        assert_eq!(backlog.leave(B), 0);
        assert!(!backlog.has_receivers() && backlog.next(B, 9).is_empty());
        assert_eq!(backlog.discard(), 4);
        assert_eq!(backlog.room(), 10);
    }
}
