//! Counters of engines, with names.

use towline_core::pml::Counters;

/// A count with its name.
pub(super) type Named = (&'static str, u64);

macro_rules! named {
    ($counters:ident: $($name:ident)*) => { [$((stringify!($name), $counters.$name)),*] };
}

/// The activity of an engine.
pub(super) fn transitions(counters: &Counters) -> [Named; 27] {
    named!(counters: eager_sent rendezvous_sent fragments_sent fragments_received acks_sent finishes_sent credits_sent
        notices_sent asks_sent answers_sent nothings_sent rejects_sent rejects_received expected unexpected out_of_order busy exposed
        single_copies single_copy_failures links_down links_up frames_migrated duplicates offers_sent pieces device_failures)
}

/// The counters that must stay 0.
pub(super) fn faults(counters: &Counters) -> [Named; 5] {
    named!(counters: malformed stale credit_violations unknown_tags lost)
}

/// Adds up counts by name.
pub fn add(sums: &mut Vec<(&'static str, u64)>, counts: &[(&'static str, u64)]) {
    for (name, count) in counts {
        match sums.iter_mut().find(|(other, _)| other == name) {
            Some((_, sum)) => *sum += count,
            None => sums.push((name, *count)),
        }
    }
}
