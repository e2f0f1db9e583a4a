//! The completions of operations that nobody waits for one by one.

use std::collections::VecDeque;

use towline_core::mtl::{Comm, Failure, Request, Status};

/// Which requests are in the queue's care, over a table by request slot, and the completions that were not taken yet.
#[derive(Default)]
pub(crate) struct CompletionQueue {
    /// Blocks of the table, which exist once a slot of theirs was used.
    blocks: Vec<Option<Box<[Option<Entry>; BLOCK]>>>,
    ready: VecDeque<Completed>,
    /// The last poll of the queue has taken completions.
    pub was_taken_from: bool,
}

/// Slots of a block.
const BLOCK: usize = 256;

/// A request in the queue's care.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub request: Request,
    pub comm: Comm,
    /// The word that the caller has given.
    pub user: u64,
    pub is_receive: bool,
}

/// An operation that has ended.
pub(crate) struct Completed {
    pub entry: Entry,
    pub outcome: Result<Status, Failure>,
}

impl CompletionQueue {
    /// Takes a request into its care.
    #[inline]
    // The parts go to their places one by one: a whole entry would be copied from the stack, where it was just put together.
    pub fn add(&mut self, request: Request, comm: Comm, user: u64, is_receive: bool) {
        let slot = slot_of(request);
        match self.blocks.get_mut(slot / BLOCK) {
            Some(Some(block)) => block[slot % BLOCK] = Some(Entry { request, comm, user, is_receive }),
            _ => self.add_to_new_block(Entry { request, comm, user, is_receive }),
        }
    }

    #[cold]
    fn add_to_new_block(&mut self, entry: Entry) {
        let slot = slot_of(entry.request);
        if self.blocks.len() <= slot / BLOCK {
            self.blocks.resize_with(slot / BLOCK + 1, || None);
        }
        self.blocks[slot / BLOCK].get_or_insert_with(|| Box::new([None; BLOCK]))[slot % BLOCK] = Some(entry);
    }

    /// Takes a request out of its care, if it is there.
    #[inline]
    pub fn remove(&mut self, request: Request) -> Option<Entry> {
        let slot = slot_of(request);
        let entry = &mut self.blocks.get_mut(slot / BLOCK)?.as_mut()?[slot % BLOCK];
        entry.take_if(|entry| entry.request == request)
    }

    /// The requests in its care that have this word.
    pub fn requests_of(&self, user: u64) -> impl Iterator<Item = Request> {
        let entries = self.blocks.iter().flatten().flat_map(|block| block.iter()).flatten();
        entries.filter(move |entry| entry.user == user).map(|entry| entry.request)
    }

    /// Keeps a completion until it is taken.
    pub fn push(&mut self, completed: Completed) {
        self.ready.push_back(completed);
    }

    /// Whether a completion is kept.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The oldest completion.
    #[inline]
    pub fn pop(&mut self) -> Option<Completed> {
        self.ready.pop_front()
    }
}

/// The slot of a request: the lower half of its bits.
#[inline]
const fn slot_of(request: Request) -> usize {
    request.to_bits() as u32 as usize
}
