//! Windows and one-sided operations that a job has open.

use std::collections::BTreeMap;

use towline_core::rma::{Config, Operation, Registration, RemoteMemory};

use crate::random::Random;
use crate::sim::buffer::Buffer;
use crate::sim::history::one_sided::{AREAS, CELL, RmaKind, Window};
use crate::sim::history::{History, Record};

/// Operations of a job.
pub(super) const OPERATIONS: u32 = 40;
/// Windows of a node at a time, closed ones that are still in use among them.
pub(super) const WINDOWS: u32 = 3;
/// Windows of a job in all: after these none is closed, so that jobs which take long in virtual time are no worse than others.
pub(super) const MAX_WINDOWS: usize = 200;

/// Which windows there are, and how many operations.
#[derive(Clone, Debug)]
pub struct Windows {
    /// Operations of each node.
    pub operations: u32,
    /// Bytes of an area.
    pub area: u64,
    /// Chance, per mille of turns, of an operation, and of a window's end.
    pub chances: [u32; 2],
    /// For all choices.
    pub random: Random,
}

impl Windows {
    /// For so many nodes, with rails of which frames have up to so many bytes.
    pub fn any(nodes: u32, fragment: u64, mut random: Random) -> Self {
        // Long ones take many round trips.
        let area = random.pick(&[8, 100, 1000, 8000]).min(fragment.saturating_sub(48) * 12);
        let chances = [random.pick(&[10, 100, 1000]), random.pick(&[0, 3, 30])];
        Self { operations: OPERATIONS.div_ceil(nodes), area, chances, random }
    }

    /// The tables of an engine: small ones.
    pub fn config(random: &mut Random) -> Config {
        Config { regions: WINDOWS, operations: random.pick(&[1, 2, 4, 16]), window: random.pick(&[1, 1, 2, 8]) }
    }
}

/// A window, as others know it.
pub(super) struct KnownWindow {
    pub what: Window,
    /// In which of the node's lives.
    pub incarnation: u32,
    pub remote: RemoteMemory,
    pub is_closed: bool,
}

/// A window at its node.
pub(super) struct OwnWindow {
    pub number: u32,
    pub memory: Box<[u64]>,
    pub len: usize,
    /// As long as it is registered.
    pub registration: Option<Registration>,
    pub is_closed: bool,
}

impl OwnWindow {
    pub fn look(&self, history: &mut History) {
        let words = self.memory.iter().flat_map(|word| word.to_ne_bytes());
        history.note(Record::Memory(self.number, words.take(self.len).collect()));
    }
}

/// An operation under way.
pub(super) struct OpenOperation {
    pub number: u32,
    pub operation: Operation,
    pub target: u32,
    pub window: u32,
    pub deed: RmaKind,
    pub room: Option<Buffer>,
}

/// What a node has to do with windows. Goes after its engine.
#[derive(Default)]
pub(super) struct NodeWindows {
    pub held: Vec<OwnWindow>,
    pub open: Vec<OpenOperation>,
    /// Rooms of gets that are over, which nobody may write to any more.
    pub late: Vec<Buffer>,
    /// Operations that are still to be begun.
    pub left: u32,
    /// What was found in cells last, by window.
    pub found: BTreeMap<u32, u64>,
}

impl NodeWindows {
    pub const fn new(left: u32) -> Self {
        Self { held: vec![], open: vec![], late: vec![], left, found: BTreeMap::new() }
    }

    pub const fn is_done(&self) -> bool {
        self.left == 0 && self.open.is_empty()
    }

    /// Its node died.
    pub fn clear(&mut self) {
        self.open.clear();
    }

    /// For people.
    pub fn situation(&self) -> String {
        let open =
            self.open.iter().map(|open| format!("operation {} on {}: {:?}", open.number, open.target, open.deed));
        format!("{} operations to come, {:?}", self.left, open.collect::<Vec<_>>())
    }
}

const _: () = assert!(AREAS == CELL + 16 && WINDOWS > 1);
