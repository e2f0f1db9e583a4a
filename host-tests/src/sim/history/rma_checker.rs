//! Checks one-sided operations and the final content of windows. See [`one_sided`](super::one_sided) for the rules.

use std::collections::{BTreeMap, BTreeSet};

use towline_core::rma::Denied;

use super::digest::digest;
use super::one_sided::{CELL, COUNTERS, Forgery, RmaKind, RmaOp, RmaOutcome, Window, bytes, own};
use super::violation::RmaViolation;

/// The operations and windows of a job so far.
#[derive(Default)]
pub(super) struct RmaChecker {
    windows: Vec<WindowState>,
    ops: Vec<Pending>,
    /// Number of operations that were done, and of denied ones.
    pub counts: [u64; 2],
}

struct Pending {
    op: RmaOp,
    is_over: bool,
    /// Its window was already closed when it began.
    is_late: bool,
    /// Values below this had been returned when it began.
    floor: u64,
}

/// The expected state of a window.
struct WindowState {
    what: Window,
    is_closed: bool,
    counters: [CounterState; 2],
    cell: CellState,
    areas: BTreeMap<u32, AreaState>,
    memory: Option<Vec<u8>>,
}

#[derive(Default)]
struct CounterState {
    found: BTreeSet<u64>,
    uncertain: u64,
}

#[derive(Default)]
struct CellState {
    /// Values that were written, and those that may have been.
    put: BTreeSet<u64>,
    uncertain: BTreeSet<u64>,
    /// Values that were replaced.
    gone: BTreeSet<u64>,
}

struct AreaState {
    bytes: Vec<u8>,
    is_sure: bool,
}

impl RmaChecker {
    pub fn open(&mut self, what: Window) {
        let (counters, cell, areas) = (Default::default(), CellState::default(), BTreeMap::new());
        self.windows.push(WindowState { what, is_closed: false, counters, cell, areas, memory: None });
    }

    pub fn close(&mut self, window: u32) {
        self.windows[window as usize].is_closed = true;
    }

    pub fn begin(&mut self, op: RmaOp) {
        let window_state = &self.windows[op.window as usize];
        let floor = match op.kind {
            RmaKind::Add(which) => window_state.counters[which].found.last().map_or(0, |last| last.saturating_add(1)),
            _ => 0,
        };
        self.ops.push(Pending { op, is_over: false, is_late: window_state.is_closed, floor });
    }

    /// The initiator and the target of an operation.
    pub fn target(&self, number: u32) -> Option<[u32; 2]> {
        let op = self.ops.get(number as usize)?.op;
        Some([op.from, self.windows[op.window as usize].what.node])
    }

    /// The violation that an operation was lost although its target was alive.
    pub fn false_loss(&self, number: u32) -> RmaViolation {
        RmaViolation::WrongOutcome(number, self.ops[number as usize].op, RmaOutcome::Lost)
    }

    /// Ends an operation. The caller has checked whether the target may be lost.
    pub fn end(&mut self, number: u32, ended: RmaOutcome) -> Result<(), RmaViolation> {
        let open = &mut self.ops[number as usize];
        let op = open.op;
        if std::mem::replace(&mut open.is_over, true) {
            return Err(RmaViolation::NotCompletedOnce(number, op));
        }
        let (floor, is_late) = (open.floor, open.is_late);
        let window_state = &mut self.windows[op.window as usize];
        let may = window_state.what.access.contains(op.needs());
        let is_right = match ended {
            RmaOutcome::Lost => true,
            RmaOutcome::Done(_) => may && !is_late && op.forgery == Forgery::None,
            RmaOutcome::Denied(Denied::NoMemory) => window_state.is_closed || op.forgery == Forgery::Handle,
            RmaOutcome::Denied(Denied::NoRight) => !may,
            RmaOutcome::Denied(Denied::OutOfBounds) => op.forgery == Forgery::Length,
            RmaOutcome::Denied(Denied::NotAvailable) => op.forgery == Forgery::Base,
            RmaOutcome::Denied(_) => false,
        };
        if !is_right {
            return Err(RmaViolation::WrongOutcome(number, op, ended));
        }
        match ended {
            RmaOutcome::Done(found) => {
                self.counts[0] += 1;
                window_state.done(number, &op, found, floor)
            }
            RmaOutcome::Denied(why) => {
                self.counts[1] += 1;
                // A part of it may have been done before its window was closed.
                if matches!(op.kind, RmaKind::Put { .. }) && why == Denied::NoMemory {
                    window_state.mark_uncertain(number, &op);
                }
                Ok(())
            }
            RmaOutcome::Lost => {
                window_state.mark_uncertain(number, &op);
                Ok(())
            }
        }
    }

    /// A node died. It is unknown whether its operations were done.
    pub fn node_died(&mut self, node: u32) {
        for (number, open) in (0..).zip(&mut self.ops) {
            if open.op.from == node && !std::mem::replace(&mut open.is_over, true) {
                self.windows[open.op.window as usize].mark_uncertain(number, &open.op);
            }
        }
    }

    /// Records the content of a closed window, or of a window at the end of the job. Once recorded, it must not change.
    pub fn check_memory(&mut self, window: u32, memory: &[u8]) -> Result<(), RmaViolation> {
        let window_state = &mut self.windows[window as usize];
        match &window_state.memory {
            None => window_state.memory = Some(memory.to_vec()),
            Some(before) => {
                let differs = before.iter().zip(memory).position(|(before, now)| before != now);
                return differs.map_or(Ok(()), |at| Err(RmaViolation::Memory(window, at as u64)));
            }
        }
        Ok(())
    }

    /// Checks everything at the end of the job.
    pub fn check(&self) -> Result<(), RmaViolation> {
        if let Some((number, open)) = (0..).zip(&self.ops).find(|(_, open)| !open.is_over) {
            return Err(RmaViolation::NotCompletedOnce(number, open.op));
        }
        (0..).zip(&self.windows).try_for_each(|(number, window_state)| window_state.check(number))
    }
}

impl WindowState {
    fn area(&mut self, node: u32) -> &mut AreaState {
        let len = self.what.area as usize;
        self.areas.entry(node).or_insert_with(|| AreaState { bytes: vec![0; len], is_sure: true })
    }

    fn done(&mut self, number: u32, op: &RmaOp, found: u64, floor: u64) -> Result<(), RmaViolation> {
        let wrong = Err(RmaViolation::Found(number, *op, found));
        match op.kind {
            RmaKind::Put { at, len } => {
                let put = bytes(number, len);
                self.area(op.from).bytes[at as usize..(at + len) as usize].copy_from_slice(&put);
            }
            RmaKind::Get { at, len } => {
                let area = self.area(op.from);
                if area.is_sure && digest(&area.bytes[at as usize..(at + len) as usize]) != found {
                    return Err(RmaViolation::Bytes(number, *op));
                }
            }
            RmaKind::Add(which) => {
                if found < floor || !self.counters[which].found.insert(found) {
                    return wrong;
                }
            }
            RmaKind::Swap | RmaKind::CompareSwap(_) => {
                let own = own(number);
                let swapped = op.kind == RmaKind::Swap || op.kind == RmaKind::CompareSwap(found);
                if found == own || (swapped && !self.cell.gone.insert(found)) {
                    return wrong;
                }
                if swapped {
                    self.cell.put.insert(own);
                }
            }
        }
        Ok(())
    }

    /// Marks an operation as uncertain: it may have been done or not.
    fn mark_uncertain(&mut self, number: u32, op: &RmaOp) {
        if op.forgery != Forgery::None {
            return;
        }
        match op.kind {
            RmaKind::Put { .. } => self.area(op.from).is_sure = false,
            RmaKind::Get { .. } => {}
            RmaKind::Add(which) => self.counters[which].uncertain += 1,
            RmaKind::Swap | RmaKind::CompareSwap(_) => drop(self.cell.uncertain.insert(own(number))),
        }
    }

    fn check(&self, number: u32) -> Result<(), RmaViolation> {
        self.cell.check(number)?;
        let Some(memory) = &self.memory else { return Ok(()) }; // the window died with its node
        let word = |at: u64| u64::from_le_bytes(memory[at as usize..at as usize + 8].try_into().expect("eight bytes"));
        for (count, sum) in self.counters.iter().zip([word(COUNTERS[0]), word(COUNTERS[1])]) {
            let done = count.found.len();
            let beyond = count.found.last().is_some_and(|last| *last >= sum);
            if beyond || !(done as u64..=done as u64 + count.uncertain).contains(&sum) {
                return Err(RmaViolation::Sum(number, sum, done, count.uncertain));
            }
        }
        self.cell.check_last(number, word(CELL))?;
        if word(CELL + 8) != 0 {
            return Err(RmaViolation::Memory(number, CELL + 8));
        }
        for node in 0..self.what.nodes {
            let at = self.what.area_of(node) as usize;
            let there = &memory[at..at + self.what.area as usize];
            let area = self.areas.get(&node);
            let differs = match area {
                Some(area) if !area.is_sure => None,
                Some(area) => area.bytes.iter().zip(there).position(|(is, there)| is != there),
                None => there.iter().position(|there| *there != 0),
            };
            if let Some(differs) = differs {
                return Err(RmaViolation::Memory(number, (at + differs) as u64));
            }
        }
        Ok(())
    }
}

impl CellState {
    /// Every returned value was the initial one, or was written by an operation.
    fn check(&self, window: u32) -> Result<(), RmaViolation> {
        let known = |value: &u64| *value == 0 || self.put.contains(value) || self.uncertain.contains(value);
        match self.gone.iter().find(|value| !known(value)) {
            Some(value) => Err(RmaViolation::Cell(window, *value)),
            None => Ok(()),
        }
    }

    /// The final value was not replaced. All other values were replaced, perhaps by uncertain operations.
    fn check_last(&self, window: u32, last: u64) -> Result<(), RmaViolation> {
        let was_put =
            if last == 0 { self.put.is_empty() } else { self.put.contains(&last) || self.uncertain.contains(&last) };
        let left = self.put.iter().filter(|value| **value != last && !self.gone.contains(value)).count();
        if self.gone.contains(&last) || !was_put || left > self.uncertain.len() {
            return Err(RmaViolation::Cell(window, last));
        }
        Ok(())
    }
}
