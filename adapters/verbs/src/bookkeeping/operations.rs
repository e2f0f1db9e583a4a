//! One-sided operations in flight, and their results that were not reported yet.

use std::collections::VecDeque;
use std::ptr::NonNull;

use towline_core::rail::Cookie;
use towline_core::rail::native::NativeError;

use super::resource::Buffer;

/// An operation that was given to the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// The peer whose memory it accesses.
    pub endpoint: u32,
    pub cookie: Cookie,
    pub kind: OpKind,
}

/// The kind of an operation, with the resource that it occupies, and what remains to be done at its completion.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OpKind {
    /// The device reads or writes the user's own memory: nothing is left to do.
    Direct,
    /// A put from a buffer, or with its bytes in the work request itself (`None`). Nothing is left to do.
    Put(Option<Buffer>),
    /// A get into a buffer: its bytes are copied to the user's memory.
    Get(Buffer, Sink),
    /// An atomic: a word of the buffer is the result.
    Atomic(Buffer),
}

/// Memory of the user that is written when the device has completed an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sink {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: memory of the process. The maker of the sink vouches that it is the rail's alone until the operation is complete,
// whichever thread uses the rail.
unsafe impl Send for Sink {}

impl Sink {
    /// The `len` bytes at `base`.
    ///
    /// # Safety
    /// The bytes are writable, and no other code uses them, until the operation is complete.
    pub const unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len }
    }

    /// Copies [`len`](Self::len) bytes to it.
    ///
    /// # Safety
    /// The bytes are readable, and the sink's operation is not complete yet.
    pub const unsafe fn fill(self, from: NonNull<u8>) {
        // SAFETY: the maker of the sink vouches for one side, the caller for the other.
        unsafe { self.base.copy_from_nonoverlapping(from, self.len) };
    }

    /// Its length in bytes.
    pub const fn len(self) -> usize {
        self.len
    }
}

/// All operations in flight, and the results that were not reported yet. An operation's id is its index here.
#[derive(Debug)]
pub(crate) struct Operations {
    in_flight: Vec<Option<Operation>>,
    free: Vec<u32>,
    /// Results that were not reported yet: the endpoint, the cookie, and the result.
    results: VecDeque<(u32, Cookie, Result<u64, NativeError>)>,
}

impl Operations {
    /// Room for `most` operations at a time.
    pub fn new(most: u32) -> Self {
        let results = VecDeque::with_capacity(2 * most as usize); // all operations in flight may complete at once
        Self { in_flight: vec![None; most as usize], free: (0..most).rev().collect(), results }
    }

    /// The id that the next operation would get. `None` where there are too many operations.
    pub fn next(&self) -> Option<u32> {
        // Results that were not reported take room as well.
        self.free.last().copied().filter(|_| self.results.len() < self.in_flight.len())
    }

    /// Adds an operation, which gets the [next](Self::next) id.
    pub fn begin(&mut self, operation: Operation) {
        if let Some(entry) = self.free.pop().and_then(|id| self.in_flight.get_mut(id as usize)) {
            *entry = Some(operation);
        }
    }

    /// The operation with this id, if it is in flight.
    pub fn get(&self, id: u32) -> Option<Operation> {
        self.in_flight.get(id as usize).copied().flatten()
    }

    /// Adds the result of an operation, so that it is reported to the engine.
    pub fn complete(&mut self, id: u32, result: Result<u64, NativeError>) {
        if let Some(operation) = self.get(id) {
            self.results.push_back((operation.endpoint, operation.cookie, result));
        }
    }

    /// Removes an operation that the device does not work on any more. Returns its buffer, if it had one.
    pub fn end(&mut self, id: u32) -> Option<Buffer> {
        let operation = self.in_flight.get_mut(id as usize)?.take()?;
        self.free.push(id);
        match operation.kind {
            OpKind::Direct => None,
            OpKind::Put(buffer) => buffer,
            OpKind::Get(buffer, _) | OpKind::Atomic(buffer) => Some(buffer),
        }
    }

    /// Takes the next result that is to be reported.
    #[inline]
    pub fn next_result(&mut self) -> Option<(Cookie, Result<u64, NativeError>)> {
        self.results.pop_front().map(|(_, cookie, result)| (cookie, result))
    }

    /// Whether all results were reported.
    #[inline]
    pub fn has_reported_all(&self) -> bool {
        self.results.is_empty()
    }

    /// Drops the results of operations on a peer's memory.
    pub fn drop_results(&mut self, endpoint: u32) {
        self.results.retain(|(of, ..)| *of != endpoint);
    }

    /// Whether one of these operations makes the device access the user's own memory.
    pub fn any_direct(&self, mut ids: impl Iterator<Item = u32>) -> bool {
        ids.any(|id| matches!(self.get(id), Some(Operation { kind: OpKind::Direct, .. })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(endpoint: u32, kind: OpKind) -> Operation {
        Operation { endpoint, cookie: Cookie(endpoint.into()), kind }
    }

    #[test]
    fn results_are_reported_once_in_order_and_the_buffer_is_returned() {
        let mut operations = Operations::new(2);
        for (id, kind) in [(0, OpKind::Put(Some(Buffer::Eager(7)))), (1, OpKind::Direct)] {
            assert_eq!(operations.next(), Some(id));
            operations.begin(operation(id, kind));
        }
        assert_eq!(operations.next(), None);
        assert!(operations.any_direct([0, 1].into_iter()) && !operations.any_direct([0].into_iter()));
        operations.complete(1, Err(NativeError::Refused));
        operations.complete(0, Ok(5));
        assert_eq!((operations.end(0), operations.end(1), operations.end(0)), (Some(Buffer::Eager(7)), None, None));
        assert_eq!(operations.next(), None, "two results are to be reported");
        assert_eq!(operations.next_result(), Some((Cookie(1), Err(NativeError::Refused))));
        assert!(operations.next().is_some() && !operations.has_reported_all());
        assert_eq!((operations.next_result(), operations.next_result()), (Some((Cookie(0), Ok(5))), None));
        operations.complete(0, Ok(0));
        assert!(operations.has_reported_all(), "it is not in flight any more");
    }

    #[test]
    fn no_result_is_reported_for_a_deleted_peer() {
        let mut operations = Operations::new(4);
        for endpoint in [3, 4, 3] {
            let id = operations.next().unwrap();
            operations.begin(operation(endpoint, OpKind::Put(None)));
            operations.complete(id, Ok(0));
            operations.end(id);
        }
        operations.drop_results(3);
        assert_eq!((operations.next_result(), operations.next_result()), (Some((Cookie(4), Ok(0))), None));
    }
}
