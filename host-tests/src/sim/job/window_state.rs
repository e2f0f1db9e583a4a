//! The state of windows and one-sided operations.

use std::collections::BTreeMap;

use towline_core::rma::{Config, Operation, Registration, RemoteMemory};

use crate::random::Random;
use crate::sim::buffer::Buffer;
use crate::sim::history::one_sided::{AREAS, CELL, RmaKind, Window};
use crate::sim::history::{History, Record};

/// Number of operations of a job.
pub(super) const OPERATIONS: u32 = 40;
/// Windows of a node at a time, including closed ones that are still in use.
pub(super) const WINDOWS: u32 = 3;
/// Windows of a job in total. After these no window is closed, so that jobs that take long in virtual time are not
/// larger than others.
pub(super) const MAX_WINDOWS: usize = 200;

/// The parameters of windows and operations.
#[derive(Clone, Debug)]
pub struct Windows {
    /// Operations of each node.
    pub operations: u32,
    /// Bytes of an area.
    pub area: u64,
    /// Chances, per mille of turns, of an operation, and of closing a window.
    pub chances: [u32; 2],
    /// For all random choices.
    pub random: Random,
}

impl Windows {
    /// Random parameters for `nodes` nodes and rails with frames of up to `fragment` bytes.
    pub fn any(nodes: u32, fragment: u64, mut random: Random) -> Self {
        // Long areas take many round trips.
        let area = random.pick(&[8, 100, 1000, 8000]).min(fragment.saturating_sub(48) * 12);
        let chances = [random.pick(&[10, 100, 1000]), random.pick(&[0, 3, 30])];
        Self { operations: OPERATIONS.div_ceil(nodes), area, chances, random }
    }

    /// The configuration of the engine's tables, which are small.
    pub fn config(random: &mut Random) -> Config {
        Config { regions: WINDOWS, operations: random.pick(&[1, 2, 4, 16]), window: random.pick(&[1, 1, 2, 8]) }
    }
}

/// A window, as other nodes know it.
pub(super) struct KnownWindow {
    pub what: Window,
    /// The incarnation of its owner.
    pub incarnation: u32,
    pub remote: RemoteMemory,
    pub is_closed: bool,
}

/// A window at its owner.
pub(super) struct OwnWindow {
    pub number: u32,
    pub memory: Box<[u64]>,
    pub len: usize,
    /// The registration, while it is registered.
    pub registration: Option<Registration>,
    pub is_closed: bool,
}

impl OwnWindow {
    /// Records its content in the history.
    pub fn record_memory(&self, history: &mut History) {
        let words = self.memory.iter().flat_map(|word| word.to_ne_bytes());
        history.note(Record::Memory(self.number, words.take(self.len).collect()));
    }
}

/// An operation in progress.
pub(super) struct OpenOperation {
    pub number: u32,
    pub operation: Operation,
    pub target: u32,
    pub window: u32,
    pub kind: RmaKind,
    pub buffer: Option<Buffer>,
}

/// The windows and operations of a node. Must be dropped after its engine.
#[derive(Default)]
pub(super) struct NodeWindows {
    pub held: Vec<OwnWindow>,
    pub open: Vec<OpenOperation>,
    /// Buffers of completed gets, which must not be written to any more.
    pub late: Vec<Buffer>,
    /// Number of operations that have not begun.
    pub left: u32,
    /// The values that cells returned last, by window.
    pub found: BTreeMap<u32, u64>,
}

impl NodeWindows {
    pub const fn new(left: u32) -> Self {
        Self { held: vec![], open: vec![], late: vec![], left, found: BTreeMap::new() }
    }

    pub const fn is_done(&self) -> bool {
        self.left == 0 && self.open.is_empty()
    }

    /// Handles the death of the node.
    pub fn clear(&mut self) {
        self.open.clear();
    }

    /// Describes the remaining operations, for the report of a job that is stuck.
    pub fn situation(&self) -> String {
        let open =
            self.open.iter().map(|open| format!("operation {} on {}: {:?}", open.number, open.target, open.kind));
        format!("{} operations not begun, {:?}", self.left, open.collect::<Vec<_>>())
    }
}

const _: () = assert!(AREAS == CELL + 16 && WINDOWS > 1);
