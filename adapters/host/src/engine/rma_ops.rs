//! One-sided operations (RMA) in progress in an engine: which thread waits for an operation, which memory the operation uses, and
//! the results of detached operations, for which no thread waits.

use std::collections::HashMap;

use towline_core::rma::{Failure, Operation, Registration};
use towline_dpu::one_sided::Accessing;
use towline_dpu::windows::AccessFailure;

use crate::engine::pending::DetachedBuffer;
use crate::transports::memory::WindowMemory;

/// An operation in progress.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum OpId {
    /// One of the engine.
    Engine(Operation),
    /// One of the DPU.
    Dpu(Accessing),
}

/// Why an operation has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpFailure {
    /// One of the engine.
    Engine(Failure),
    /// One of the DPU.
    Dpu(AccessFailure),
}

/// The operations of all windows of an engine.
#[derive(Default)]
pub(crate) struct RmaOps {
    ops: HashMap<OpId, RmaOp>,
    /// The detached operations on each rank's part of each window, by window and rank.
    detached: HashMap<(u64, u32), DetachedOps>,
    /// How many operations are complete so far; wraps.
    pub completed: u64,
    /// The memory of dropped windows in which something was still arriving when they were dropped.
    pub retired: Vec<RetiredWindow>,
    windows: u64,
    /// How many operations completed immediately so far; wraps.
    immediate: u32,
}

/// The memory of a dropped window.
pub(crate) struct RetiredWindow {
    pub registration: Registration,
    pub memory: WindowMemory,
    /// The owner of memory that is not the library's.
    pub buffer: Option<DetachedBuffer>,
}

/// After this many operations that complete immediately, progress is due. So a thread that only polls a word in a window still
/// serves other ranks, and learns of failed ones. A power of two.
const IMMEDIATE_PER_PROGRESS: u32 = 32;

enum RmaOp {
    /// A thread waits for the operation, and keeps the operation's memory until it is complete.
    Awaited(Option<Result<u64, OpFailure>>),
    /// No thread waits for the operation, so its memory is kept here.
    Detached { window: u64, rank: u32, _data: Box<[u8]> },
}

/// The detached operations on one rank's part of one window.
#[derive(Default)]
struct DetachedOps {
    in_progress: u64,
    /// The first failure.
    failure: Option<OpFailure>,
}

impl RmaOps {
    /// A number for a new window.
    pub fn next_window(&mut self) -> u64 {
        self.windows += 1;
        self.windows
    }

    /// Counts an operation that completed immediately. Returns whether progress is due.
    pub fn count_immediate(&mut self) -> bool {
        self.immediate = self.immediate.wrapping_add(1);
        self.immediate.is_multiple_of(IMMEDIATE_PER_PROGRESS)
    }

    /// Adds an operation that a thread waits for.
    pub fn add_awaited(&mut self, operation: OpId) {
        self.ops.insert(operation, RmaOp::Awaited(None));
    }

    /// The result of an awaited operation that is complete, once. From then on the operation does not use its memory.
    pub fn take(&mut self, operation: OpId) -> Option<Result<u64, OpFailure>> {
        let Some(RmaOp::Awaited(Some(result))) = self.ops.get(&operation) else { return None };
        let result = *result;
        self.ops.remove(&operation);
        Some(result)
    }

    /// Adds an operation that no thread waits for. `data` is its memory.
    pub fn add_detached(&mut self, operation: OpId, window: u64, rank: u32, data: Box<[u8]>) {
        self.detached.entry((window, rank)).or_default().in_progress += 1;
        self.ops.insert(operation, RmaOp::Detached { window, rank, _data: data });
    }

    /// Forgets the results of a dropped window's detached operations.
    pub fn forget_window(&mut self, window: u64) {
        self.detached.retain(|(other, _), _| *other != window);
    }

    /// The first failure, once, of the detached operations on a rank's part of a window. `None` while some are in progress.
    pub fn take_detached(&mut self, window: u64, rank: u32) -> Option<Result<(), OpFailure>> {
        match self.detached.get(&(window, rank)) {
            Some(ops) if ops.in_progress != 0 => None,
            Some(_) => {
                let failure = self.detached.remove(&(window, rank)).and_then(|ops| ops.failure);
                Some(failure.map_or(Ok(()), Err))
            }
            None => Some(Ok(())),
        }
    }

    /// Records the result of an operation that is complete.
    pub fn complete(&mut self, operation: OpId, outcome: Result<u64, OpFailure>) {
        self.completed = self.completed.wrapping_add(1);
        if let Some(RmaOp::Awaited(result)) = self.ops.get_mut(&operation) {
            *result = Some(outcome);
        } else if let Some(RmaOp::Detached { window, rank, .. }) = self.ops.remove(&operation)
            && let Some(ops) = self.detached.get_mut(&(window, rank))
        {
            ops.in_progress = ops.in_progress.saturating_sub(1);
            if let Err(failure) = outcome {
                ops.failure.get_or_insert(failure);
            }
            if ops.in_progress == 0 && ops.failure.is_none() {
                self.detached.remove(&(window, rank)); // there is nothing to report
            }
        }
    }

    /// How many operations are kept, and how many groups of detached operations.
    #[cfg(test)]
    pub fn kept(&self) -> [usize; 2] {
        [self.ops.len(), self.detached.len()]
    }
}
