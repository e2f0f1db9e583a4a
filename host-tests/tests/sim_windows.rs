//! One-sided operations of simulated jobs by seed, and tests of their checker.

use towline_core::rma::{Access, Denied};
use towline_host_tests::sim::history::one_sided::{
    AREAS, CELL, COUNTERS, Forgery, RmaKind, RmaOp, RmaOutcome, Window, bytes, own,
};
use towline_host_tests::sim::history::{History, Record, digest};
use towline_host_tests::sim::history::{RmaViolation, Violation, check};
use towline_host_tests::sim::job::run;
use towline_host_tests::sim::seeds;

/// Number of seeds of each family. Half of them have windows.
const SEEDS: u64 = 10;

#[test]
fn b18_b25_b43_each_operation_is_done_once_and_completes_once() {
    let (mut done, mut denied, mut failed) = (0, 0, 0);
    for seed in 0..SEEDS {
        for setting in [seeds::reliable(seed), seeds::faulty(seed), seeds::smallest_pools(seed, None)] {
            let report = run(setting).unwrap_or_else(|trouble| panic!("seed {seed}: {trouble}"));
            done += report.summary.one_sided;
            denied += report.summary.denied;
            failed += report.summary.failed;
        }
    }
    assert!(done > 200 && denied > 10 && failed > 10, "{done} {denied} {failed}");
}

/// A history of two nodes. One does all kinds of operations on the window of the other, which closes it at the end.
fn ideal() -> History {
    let mut history = History::default();
    let what = Window { node: 1, nodes: 2, area: 100, access: Access::ANY };
    let window = history.window(what);
    let mut memory = vec![0u8; what.len() as usize];
    let (mut sums, mut cell) = ([0u64; 2], 0);
    let put_word = |memory: &mut Vec<u8>, at: u64, word: u64| {
        memory[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
    };
    for turn in 0..40u32 {
        let (at, len) = (u64::from(turn), u64::from(turn + 1));
        let kind = match turn % 5 {
            0 => RmaKind::Put { at, len },
            1 => RmaKind::Get { at: at - 1, len: len - 1 },
            2 => RmaKind::Add(turn as usize / 5 % 2),
            3 => RmaKind::Swap,
            // Every other operation fails.
            _ => RmaKind::CompareSwap(if turn % 2 == 0 { cell } else { 0 }),
        };
        let number = history.rma_op(RmaOp { from: 0, window, kind, forgery: Forgery::None });
        let area = what.area_of(0);
        let ended = match kind {
            RmaKind::Put { at, len } => {
                let from = (area + at) as usize;
                memory[from..from + len as usize].copy_from_slice(&bytes(number, len));
                0
            }
            RmaKind::Get { at, len } => digest(&memory[(area + at) as usize..(area + at + len) as usize]),
            RmaKind::Add(which) => {
                sums[which] += 1;
                put_word(&mut memory, COUNTERS[which], sums[which]);
                sums[which] - 1
            }
            RmaKind::Swap | RmaKind::CompareSwap(_) => {
                let old = cell;
                if kind == RmaKind::Swap || kind == RmaKind::CompareSwap(old) {
                    cell = own(number);
                }
                put_word(&mut memory, CELL, cell);
                old
            }
        };
        history.note(Record::RmaEnded(number, RmaOutcome::Done(ended)));
    }
    history.note(Record::WindowClosed(window));
    history.note(Record::Memory(window, memory.clone()));
    let late = history.rma_op(RmaOp { from: 0, window, kind: RmaKind::Add(0), forgery: Forgery::None });
    history.note(Record::RmaEnded(late, RmaOutcome::Denied(Denied::NoMemory)));
    history.note(Record::Memory(window, memory));
    history
}

/// Falsifies the history at every position where `plant` can. Each falsification must be detected, with a violation for
/// which `is_named` holds.
fn falsified(plant: impl Fn(&mut History, usize) -> bool, is_named: impl Fn(&RmaViolation) -> bool) {
    let good = ideal();
    let mut planted = 0;
    for at in 0..good.records.len() {
        let mut bad = good.clone();
        if plant(&mut bad, at) {
            planted += 1;
            match check(&bad) {
                Err(Violation::OneSided(wrong)) if is_named(&wrong) => {}
                verdict => panic!("{at}: {verdict:?}"),
            }
        }
    }
    assert!(planted > 0, "it could not be planted");
}

fn kind_of(history: &History, number: u32) -> RmaKind {
    let ops = history.records.iter().filter_map(|record| match record {
        Record::RmaBegun(op) => Some(op.kind),
        _ => None,
    });
    ops.into_iter().nth(number as usize).expect("it was begun")
}

/// Changes the outcomes of operations of the given kinds.
fn ended(
    which: impl Fn(RmaKind) -> bool,
    change: impl Fn(u32, &mut RmaOutcome),
) -> impl Fn(&mut History, usize) -> bool {
    move |history, at| {
        let Record::RmaEnded(number, mut ended) = history.records[at].clone() else { return false };
        if !which(kind_of(history, number)) || !matches!(ended, RmaOutcome::Done(_)) {
            return false;
        }
        change(number, &mut ended);
        history.records[at] = Record::RmaEnded(number, ended);
        true
    }
}

/// Changes a byte of the final content of the window.
fn left(at: u64, by: u8) -> impl Fn(&mut History, usize) -> bool {
    move |history, _| {
        let windows = history.records.iter_mut().filter_map(|record| match record {
            Record::Memory(_, memory) => Some(memory),
            _ => None,
        });
        windows.for_each(|memory| memory[at as usize] = memory[at as usize].wrapping_add(by));
        true
    }
}

#[test]
fn a_correct_history_passes() {
    let summary = check(&ideal()).expect("the checker accepts the ideal history");
    assert_eq!((summary.one_sided, summary.denied), (40, 1));
}

#[test]
fn operations_done_twice_or_not_at_all_are_detected() {
    let is_add = |kind| matches!(kind, RmaKind::Add(_));
    let is_swap = |kind| matches!(kind, RmaKind::Swap);
    for which in COUNTERS {
        falsified(left(which, 1), |wrong| matches!(wrong, RmaViolation::Sum(..)));
        falsified(left(which, 255), |wrong| matches!(wrong, RmaViolation::Sum(..)));
    }
    // A value is one more or less than the true one.
    for by in [1, u64::MAX] {
        let other = ended(is_add, move |_, ended| {
            if let RmaOutcome::Done(found) = ended {
                *found = found.wrapping_add(by);
            }
        });
        falsified(other, |wrong| matches!(wrong, RmaViolation::Found(..) | RmaViolation::Sum(..)));
    }
    falsified(ended(is_swap, |number, ended| *ended = RmaOutcome::Done(own(number))), |wrong| {
        matches!(wrong, RmaViolation::Found(..))
    });
    falsified(ended(is_swap, |_, ended| *ended = RmaOutcome::Done(777)), |wrong| {
        matches!(wrong, RmaViolation::Cell(..))
    });
    falsified(left(CELL, 100), |wrong| matches!(wrong, RmaViolation::Cell(..)));
    falsified(left(CELL + 8, 1), |wrong| matches!(wrong, RmaViolation::Memory(..)));
    falsified(left(AREAS, 1), |wrong| matches!(wrong, RmaViolation::Memory(..)));
    falsified(ended(|kind| matches!(kind, RmaKind::Get { .. }), |_, ended| *ended = RmaOutcome::Done(7)), |wrong| {
        matches!(wrong, RmaViolation::Bytes(..))
    });
}

#[test]
fn outcomes_without_a_cause_are_detected() {
    let all = |_| true;
    for wrong in [RmaOutcome::Lost, RmaOutcome::Denied(Denied::NoMemory), RmaOutcome::Denied(Denied::NoRight)] {
        falsified(ended(all, move |_, ended| *ended = wrong), |wrong| matches!(wrong, RmaViolation::WrongOutcome(..)));
    }
    let is_done = |record: &Record| matches!(record, Record::RmaEnded(..));
    let twice = |history: &mut History, at: usize| {
        let done = history.records[at].clone();
        is_done(&done) && {
            history.records.insert(at, done);
            true
        }
    };
    falsified(twice, |wrong| matches!(wrong, RmaViolation::NotCompletedOnce(..)));
    let never = |history: &mut History, at: usize| {
        let last = history.records[at..].iter().filter(|record| is_done(record)).count() == 1;
        is_done(&history.records[at]) && last && {
            history.records.remove(at);
            true
        }
    };
    falsified(never, |wrong| matches!(wrong, RmaViolation::NotCompletedOnce(..)));
    // An operation on a window that was already closed is done.
    let late = |history: &mut History, at: usize| {
        let denied = matches!(history.records[at], Record::RmaEnded(_, RmaOutcome::Denied(_)));
        if denied {
            history.records[at] = Record::RmaEnded(40, RmaOutcome::Done(0));
        }
        denied
    };
    falsified(late, |wrong| matches!(wrong, RmaViolation::WrongOutcome(..)));
    // A byte changes after nothing may change it.
    let changed = |history: &mut History, at: usize| match &mut history.records[at] {
        Record::Memory(_, memory) => {
            memory[50] ^= 1;
            true
        }
        _ => false,
    };
    falsified(changed, |wrong| matches!(wrong, RmaViolation::Memory(..)));
}
