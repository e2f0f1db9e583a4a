//! The cores of this host, and which ranks run on which of them.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// In which order ranks are placed on the hosts. The names are those of Open MPI's `--map-by`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Mapping {
    /// Each host gets as many ranks as it has slots, then comes the next one.
    #[default]
    Slot,
    /// As [`Slot`](Self::Slot), and no host gets more ranks than it has cores.
    Core,
    /// One rank for each host in turn, until all slots are used.
    Node,
}

/// What ranks are bound to. The names are those of Open MPI's `--bind-to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Binding {
    /// The system moves ranks between all processors that the launcher may use.
    #[default]
    None,
    /// Each rank has a core of its own, with all hardware threads of it.
    Core,
}

/// The cores that this process may use.
pub(super) struct Cores(Vec<CpuSet>);

impl Cores {
    /// The cores in the order of their packages. Processors that this process may not use are left out.
    pub(super) fn of_this_host() -> Self {
        let Ok(allowed) = sched_getaffinity(None) else { return Self(Vec::new()) };
        let processors = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
        Self::grouped(processors.map(|processor| (processor, place(processor))))
    }

    /// Groups processors, each with its package and a name of its core.
    fn grouped(processors: impl Iterator<Item = (usize, (u32, String))>) -> Self {
        let mut cores: Vec<((u32, String), CpuSet)> = Vec::new();
        for (processor, place) in processors {
            match cores.iter_mut().find(|(known, _)| *known == place) {
                Some((_, set)) => set.set(processor),
                None => {
                    let mut set = CpuSet::new();
                    set.set(processor);
                    cores.push((place, set));
                }
            }
        }
        // The sort is stable, so cores of a package stay in the order of their first processors.
        cores.sort_by_key(|((package, _), _)| *package);
        Self(cores.into_iter().map(|(_, set)| set).collect())
    }

    /// The set of processors for each of the ranks on this host, in their order; empty if ranks are not bound.
    ///
    /// # Errors
    /// The number of cores, if it is too low.
    pub(super) fn assign(self, ranks: usize, mapping: Mapping, binding: Binding) -> Result<Vec<CpuSet>, usize> {
        if mapping != Mapping::Core && binding != Binding::Core {
            return Ok(Vec::new());
        }
        if ranks > self.0.len() {
            return Err(self.0.len());
        }
        Ok(if binding == Binding::Core { self.0 } else { Vec::new() })
    }
}

/// Binds the calling thread. Async-signal-safe.
pub(super) fn bind(to: &CpuSet) -> std::io::Result<()> {
    Ok(sched_setaffinity(None, to)?)
}

/// The package of a processor, and a name of its core. If the system does not say it, each processor is a core.
fn place(processor: usize) -> (u32, String) {
    let read = |name: &str| {
        fs::read_to_string(format!("/sys/devices/system/cpu/cpu{processor}/topology/{name}"))
            .map(|text| text.trim().to_string())
    };
    let package = read("physical_package_id").ok().and_then(|text| text.parse::<i32>().ok());
    // The second is the name that older systems use.
    let core = read("core_cpus_list").or_else(|_| read("thread_siblings_list"));
    // Without a known package, systems say -1.
    (package.map_or(0, |package| package.max(0) as u32), core.unwrap_or_else(|_| format!("processor {processor}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(set: &CpuSet) -> Vec<usize> {
        (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
    }

    /// Two packages with two cores of two hardware threads, numbered as many servers do.
    fn cores() -> Cores {
        let processor = |number: usize| (number, (number as u32 % 2, format!("core {}", number % 4)));
        Cores::grouped((0..8).map(processor))
    }

    #[test]
    fn hardware_threads_of_a_core_stay_together_and_packages_are_filled_in_order() {
        let all: Vec<_> = cores().0.iter().map(numbers).collect();
        assert_eq!(all, [[0, 4], [2, 6], [1, 5], [3, 7]]);
    }

    #[test]
    fn there_is_a_core_for_each_rank_or_an_error() {
        assert_eq!(cores().assign(4, Mapping::Slot, Binding::Core).unwrap().len(), 4);
        assert_eq!(cores().assign(5, Mapping::Slot, Binding::Core).unwrap_err(), 4);
        assert_eq!(cores().assign(5, Mapping::Core, Binding::None).unwrap_err(), 4);
        assert!(cores().assign(4, Mapping::Core, Binding::None).unwrap().is_empty());
        assert!(cores().assign(99, Mapping::Node, Binding::None).unwrap().is_empty());
    }

    #[test]
    fn this_host_has_a_core() {
        assert!(!Cores::of_this_host().0.is_empty());
    }
}
