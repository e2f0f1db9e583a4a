//! Jobs of hosts and devices by seed. `TOWLINE_SEEDS` is the number of seeds, and `TOWLINE_FIRST` the first one. `TOWLINE_SEED` runs
//! only that seed; with `TOWLINE_TRACE=1` it prints what happens.

use std::env;

use crate::job::{self, Counts, Family};

/// Number of seeds, if none is given.
const SEEDS: u64 = 80;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

/// Runs the seeds that the environment asks for.
fn run(family: Family) -> (Counts, u64) {
    let mut counts = Counts::default();
    let (first, count) = match number("TOWLINE_SEED") {
        Some(seed) => (seed, 1),
        None => (number("TOWLINE_FIRST").unwrap_or(0), number("TOWLINE_SEEDS").unwrap_or(SEEDS)),
    };
    for seed in first..first + count {
        match job::run(family, seed) {
            Ok(of_job) => counts.add(&of_job),
            Err(why) => panic!("{why}\nTOWLINE_SEED={seed} repeats it"),
        }
    }
    println!("{counts:?}");
    (counts, count)
}

#[test]
fn hosts_and_devices_die_between_any_two_steps() {
    let (counts, seeds) = run(Family::All);
    let Counts { failed, unreachable, finished, unknown, lost_datagrams, .. } = counts;
    let Counts { sessions_ended, stalls, early, cancelled, .. } = counts;
    let met = [failed, unreachable, finished, unknown, lost_datagrams, sessions_ended, stalls, early, cancelled];
    assert!(seeds < SEEDS || met.iter().all(|count| *count > 0), "not everything happened: {counts:?}");
}

/// A device whose host died tells the others, so they need not wait until a link is silent for too long.
#[test]
fn the_death_of_a_host_is_told_to_the_others() {
    let (counts, seeds) = run(Family::Hosts);
    assert!(seeds < SEEDS || counts.failed > 0, "nobody was told: {counts:?}");
    assert!(counts.longest_notice < 2_000_000_000, "an operation ended late: {counts:?}");
}

/// A host that ends its session has not failed.
#[test]
fn the_end_of_a_host_is_no_failure() {
    let (counts, seeds) = run(Family::Leaves);
    assert!(seeds < SEEDS || counts.finished > 0, "nobody was told: {counts:?}");
}
