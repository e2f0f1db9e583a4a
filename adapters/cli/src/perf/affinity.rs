//! Chooses the processors of the two ranks.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Two processors that this process may use, on different cores if possible. `None` if there is only one processor.
pub fn two_processors() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut mine = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
    let first = mine.next()?;
    let others: Vec<usize> = mine.collect();
    let of_first = core(first);
    let apart = others.iter().find(|other| of_first.is_none() || core(**other) != of_first);
    apart.or(others.first()).map(|second| [first, *second])
}

/// Pins this process to one processor. If the system refuses, only the figures change.
pub fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    let _ = sched_setaffinity(None, &set);
}

/// The processors that share a core with this one, itself included.
fn core(processor: usize) -> Option<String> {
    fs::read_to_string(format!("/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")).ok()
}
