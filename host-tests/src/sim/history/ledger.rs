//! Judges one-sided operations and what is left in windows: see [`one_sided`](super::one_sided) for the rules.

use std::collections::{BTreeMap, BTreeSet};

use towline_core::rma::Denied;

use super::digest::digest;
use super::one_sided::{Ask, CELL, COUNTERS, Deed, Ended, Forgery, Window, bytes, own};
use super::violation::Wrong;

/// All operations of a job so far.
#[derive(Default)]
pub(super) struct Ledger {
    windows: Vec<Account>,
    asks: Vec<Open>,
    /// Operations that ended well, and those that were denied.
    pub counts: [u64; 2],
}

struct Open {
    what: Ask,
    is_over: bool,
    /// Its window was closed when it began.
    is_late: bool,
    /// Sums below this had been found when it began.
    floor: u64,
}

/// What is known of a window.
struct Account {
    what: Window,
    is_closed: bool,
    counters: [Count; 2],
    cell: Cell,
    areas: BTreeMap<u32, Area>,
    memory: Option<Vec<u8>>,
}

#[derive(Default)]
struct Count {
    found: BTreeSet<u64>,
    unsure: u64,
}

#[derive(Default)]
struct Cell {
    /// Values that were put there, and those of which nobody knows.
    put: BTreeSet<u64>,
    unsure: BTreeSet<u64>,
    /// Values that were replaced.
    gone: BTreeSet<u64>,
}

struct Area {
    bytes: Vec<u8>,
    is_sure: bool,
}

impl Ledger {
    pub fn open(&mut self, what: Window) {
        let (counters, cell, areas) = (Default::default(), Cell::default(), BTreeMap::new());
        self.windows.push(Account { what, is_closed: false, counters, cell, areas, memory: None });
    }

    pub fn close(&mut self, window: u32) {
        self.windows[window as usize].is_closed = true;
    }

    pub fn ask(&mut self, what: Ask) {
        let account = &self.windows[what.window as usize];
        let floor = match what.deed {
            Deed::Add(which) => account.counters[which].found.last().map_or(0, |last| last.saturating_add(1)),
            _ => 0,
        };
        self.asks.push(Open { what, is_over: false, is_late: account.is_closed, floor });
    }

    /// Whom an operation was for.
    pub fn target(&self, number: u32) -> Option<[u32; 2]> {
        let what = self.asks.get(number as usize)?.what;
        Some([what.from, self.windows[what.window as usize].what.node])
    }

    /// It was lost with a target that was there.
    pub fn in_vain(&self, number: u32) -> Wrong {
        Wrong::Ending(number, self.asks[number as usize].what, Ended::Lost)
    }

    /// An operation is over. That the target may be lost was looked at.
    pub fn end(&mut self, number: u32, ended: Ended) -> Result<(), Wrong> {
        let open = &mut self.asks[number as usize];
        let what = open.what;
        if std::mem::replace(&mut open.is_over, true) {
            return Err(Wrong::NotOnce(number, what));
        }
        let (floor, is_late) = (open.floor, open.is_late);
        let account = &mut self.windows[what.window as usize];
        let may = account.what.access.contains(what.needs());
        let is_right = match ended {
            Ended::Lost => true,
            Ended::Well(_) => may && !is_late && what.forgery == Forgery::None,
            Ended::Denied(Denied::NoMemory) => account.is_closed || what.forgery == Forgery::Handle,
            Ended::Denied(Denied::NoRight) => !may,
            Ended::Denied(Denied::OutOfBounds) => what.forgery == Forgery::Length,
            Ended::Denied(Denied::NotAvailable) => what.forgery == Forgery::Base,
            Ended::Denied(_) => false,
        };
        if !is_right {
            return Err(Wrong::Ending(number, what, ended));
        }
        match ended {
            Ended::Well(found) => {
                self.counts[0] += 1;
                account.done(number, &what, found, floor)
            }
            Ended::Denied(why) => {
                self.counts[1] += 1;
                // Parts of it may have been done before its window was closed.
                if matches!(what.deed, Deed::Put { .. }) && why == Denied::NoMemory {
                    account.doubt(number, &what);
                }
                Ok(())
            }
            Ended::Lost => {
                account.doubt(number, &what);
                Ok(())
            }
        }
    }

    /// A node died: of what it had begun nobody knows.
    pub fn forget(&mut self, node: u32) {
        for (number, open) in (0..).zip(&mut self.asks) {
            if open.what.from == node && !std::mem::replace(&mut open.is_over, true) {
                self.windows[open.what.window as usize].doubt(number, &open.what);
            }
        }
    }

    /// What is in a window that is closed, or at the end of the job.
    pub fn look(&mut self, window: u32, memory: &[u8]) -> Result<(), Wrong> {
        let account = &mut self.windows[window as usize];
        match &account.memory {
            None => account.memory = Some(memory.to_vec()),
            Some(before) => {
                let differs = before.iter().zip(memory).position(|(before, now)| before != now);
                return differs.map_or(Ok(()), |at| Err(Wrong::Memory(window, at as u64)));
            }
        }
        Ok(())
    }

    /// All operations have ended.
    pub fn judge(&self) -> Result<(), Wrong> {
        if let Some((number, open)) = (0..).zip(&self.asks).find(|(_, open)| !open.is_over) {
            return Err(Wrong::NotOnce(number, open.what));
        }
        (0..).zip(&self.windows).try_for_each(|(number, account)| account.judge(number))
    }
}

impl Account {
    fn area(&mut self, node: u32) -> &mut Area {
        let len = self.what.area as usize;
        self.areas.entry(node).or_insert_with(|| Area { bytes: vec![0; len], is_sure: true })
    }

    fn done(&mut self, number: u32, ask: &Ask, found: u64, floor: u64) -> Result<(), Wrong> {
        let wrong = Err(Wrong::Found(number, *ask, found));
        match ask.deed {
            Deed::Put { at, len } => {
                let put = bytes(number, len);
                self.area(ask.from).bytes[at as usize..(at + len) as usize].copy_from_slice(&put);
            }
            Deed::Get { at, len } => {
                let area = self.area(ask.from);
                if area.is_sure && digest(&area.bytes[at as usize..(at + len) as usize]) != found {
                    return Err(Wrong::Bytes(number, *ask));
                }
            }
            Deed::Add(which) => {
                if found < floor || !self.counters[which].found.insert(found) {
                    return wrong;
                }
            }
            Deed::Swap | Deed::CompareSwap(_) => {
                let own = own(number);
                let swapped = ask.deed == Deed::Swap || ask.deed == Deed::CompareSwap(found);
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

    /// Nobody knows whether an operation was done.
    fn doubt(&mut self, number: u32, ask: &Ask) {
        if ask.forgery != Forgery::None {
            return;
        }
        match ask.deed {
            Deed::Put { .. } => self.area(ask.from).is_sure = false,
            Deed::Get { .. } => {}
            Deed::Add(which) => self.counters[which].unsure += 1,
            Deed::Swap | Deed::CompareSwap(_) => drop(self.cell.unsure.insert(own(number))),
        }
    }

    fn judge(&self, number: u32) -> Result<(), Wrong> {
        self.cell.judge(number)?;
        let Some(memory) = &self.memory else { return Ok(()) }; // it died with its node
        let word = |at: u64| u64::from_le_bytes(memory[at as usize..at as usize + 8].try_into().expect("eight bytes"));
        for (count, sum) in self.counters.iter().zip([word(COUNTERS[0]), word(COUNTERS[1])]) {
            let done = count.found.len();
            let beyond = count.found.last().is_some_and(|last| *last >= sum);
            if beyond || !(done as u64..=done as u64 + count.unsure).contains(&sum) {
                return Err(Wrong::Sum(number, sum, done, count.unsure));
            }
        }
        self.cell.judge_last(number, word(CELL))?;
        if word(CELL + 8) != 0 {
            return Err(Wrong::Memory(number, CELL + 8));
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
                return Err(Wrong::Memory(number, (at + differs) as u64));
            }
        }
        Ok(())
    }
}

impl Cell {
    /// What was found there was there from the beginning, or was put there.
    fn judge(&self, window: u32) -> Result<(), Wrong> {
        let known = |value: &u64| *value == 0 || self.put.contains(value) || self.unsure.contains(value);
        match self.gone.iter().find(|value| !known(value)) {
            Some(value) => Err(Wrong::Cell(window, *value)),
            None => Ok(()),
        }
    }

    /// What is there was not replaced; and all else was, if not by operations of which nobody knows.
    fn judge_last(&self, window: u32, last: u64) -> Result<(), Wrong> {
        let was_put =
            if last == 0 { self.put.is_empty() } else { self.put.contains(&last) || self.unsure.contains(&last) };
        let left = self.put.iter().filter(|value| **value != last && !self.gone.contains(value)).count();
        if self.gone.contains(&last) || !was_put || left > self.unsure.len() {
            return Err(Wrong::Cell(window, last));
        }
        Ok(())
    }
}
