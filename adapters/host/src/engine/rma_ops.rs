//! One-sided operations (RMA) in progress in an engine: which thread waits for an operation, which memory the operation uses, and
//! the results of detached operations, for which no thread waits.

use std::collections::HashMap;

use towline_core::rma::{Failure, Finished, Operation, Registration};

use crate::transports::memory::WindowMemory;

/// The operations of all windows of an engine.
#[derive(Default)]
pub(crate) struct RmaOps {
    ops: HashMap<Operation, RmaOp>,
    /// The detached operations on each rank's part of each window, by window and rank.
    detached: HashMap<(u64, u32), DetachedOps>,
    /// How many operations are complete so far; wraps.
    pub completed: u64,
    /// The memory of dropped windows in which something was still arriving when they were dropped.
    pub retired: Vec<(Registration, WindowMemory)>,
    windows: u64,
    /// How many operations completed immediately so far; wraps.
    immediate: u32,
}

/// So many operations that complete immediately are followed by progress: a thread that waits for a word to change serves other
/// ranks nevertheless, and finds out about failed ones. A power of two.
const IMMEDIATE_PER_PROGRESS: u32 = 32;

enum RmaOp {
    /// A thread waits for it, and keeps its memory until it is complete.
    Awaited(Option<Result<u64, Failure>>),
    /// It is one of the detached operations, and its memory is here.
    Detached { window: u64, rank: u32, _data: Box<[u8]> },
}

/// The detached operations on one rank's part of one window.
#[derive(Default)]
struct DetachedOps {
    in_progress: u64,
    /// The first failure.
    failure: Option<Failure>,
}

impl RmaOps {
    /// A number for a new window.
    pub fn next_window(&mut self) -> u64 {
        self.windows += 1;
        self.windows
    }

    /// An operation completed immediately. Returns whether progress is due.
    pub fn count_immediate(&mut self) -> bool {
        self.immediate = self.immediate.wrapping_add(1);
        self.immediate.is_multiple_of(IMMEDIATE_PER_PROGRESS)
    }

    /// A thread waits for an operation.
    pub fn add_awaited(&mut self, operation: Operation) {
        self.ops.insert(operation, RmaOp::Awaited(None));
    }

    /// The result of an awaited operation that is complete, once. From then on the operation does not use its memory.
    pub fn take(&mut self, operation: Operation) -> Option<Result<u64, Failure>> {
        let Some(RmaOp::Awaited(Some(result))) = self.ops.get(&operation) else { return None };
        let result = *result;
        self.ops.remove(&operation);
        Some(result)
    }

    /// No thread waits for an operation, whose memory is `data`.
    pub fn add_detached(&mut self, operation: Operation, window: u64, rank: u32, data: Box<[u8]>) {
        self.detached.entry((window, rank)).or_default().in_progress += 1;
        self.ops.insert(operation, RmaOp::Detached { window, rank, _data: data });
    }

    /// A window was dropped: the results of its detached operations will not be asked for.
    pub fn forget_window(&mut self, window: u64) {
        self.detached.retain(|(other, _), _| *other != window);
    }

    /// The first failure, once, of the detached operations on a rank's part of a window. `None` while some are in progress.
    pub fn take_detached(&mut self, window: u64, rank: u32) -> Option<Result<(), Failure>> {
        match self.detached.get(&(window, rank)) {
            Some(ops) if ops.in_progress != 0 => None,
            Some(_) => {
                let failure = self.detached.remove(&(window, rank)).and_then(|ops| ops.failure);
                Some(failure.map_or(Ok(()), Err))
            }
            None => Some(Ok(())),
        }
    }

    /// An operation is complete.
    pub fn complete(&mut self, finished: Finished) {
        self.completed = self.completed.wrapping_add(1);
        if let Some(RmaOp::Awaited(result)) = self.ops.get_mut(&finished.operation) {
            *result = Some(finished.result);
        } else if let Some(RmaOp::Detached { window, rank, .. }) = self.ops.remove(&finished.operation)
            && let Some(ops) = self.detached.get_mut(&(window, rank))
        {
            ops.in_progress = ops.in_progress.saturating_sub(1);
            if let Err(failure) = finished.result {
                ops.failure.get_or_insert(failure);
            }
            if ops.in_progress == 0 && ops.failure.is_none() {
                self.detached.remove(&(window, rank)); // there is nothing to report
            }
        }
    }

    /// How many operations, and how many groups of detached ones, are kept.
    #[cfg(test)]
    pub fn kept(&self) -> [usize; 2] {
        [self.ops.len(), self.detached.len()]
    }
}
