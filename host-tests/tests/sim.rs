//! Random jobs of the real engine over simulated rails, by seed.
//!
//! `TOWLINE_SEEDS` is how many seeds are run, `TOWLINE_FIRST` the first of them; `TOWLINE_SEED` runs that one alone.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{env, panic, thread};

use towline_host_tests::sim::checker::Summary;
use towline_host_tests::sim::faults::{Counts, FOR_EVER, Outage, Partition};
use towline_host_tests::sim::job::{Report, add, run};
use towline_host_tests::sim::swarm;

/// Seeds of a run that asks for no number.
const SEEDS: u64 = 300;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

/// Runs one seed; a panic is a failure of that seed like any other.
fn one(seed: u64) -> Result<Report, String> {
    panic::catch_unwind(|| swarm::seed(seed)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or(panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
        Err(format!(
            "seed {seed}: panic: {text}\nagain: TOWLINE_SEED={seed} cargo test -p towline-host-tests --test sim"
        ))
    })
}

#[derive(Default)]
struct Total {
    seeds: u64,
    /// Seeds with at least four nodes.
    large: u64,
    summary: Summary,
    counts: Counts,
    transitions: Vec<(&'static str, u64)>,
    took: u64,
    failures: Vec<(u64, String)>,
}

impl Total {
    fn take(&mut self, seed: u64, result: Result<Report, String>) {
        self.seeds += 1;
        match result {
            Err(failure) => self.failures.push((seed, failure)),
            Ok(report) => {
                assert!(report.summary.messages >= swarm::MESSAGES as u64);
                self.large += u64::from(report.nodes >= 4);
                self.summary.add(&report.summary);
                self.counts.add(&report.counts);
                add(&mut self.transitions, &report.transitions);
                self.took += report.took;
            }
        }
    }
}

#[test]
fn p15_b14_m10_random_jobs_keep_the_order_of_mpi() {
    if let Some(seed) = number("TOWLINE_SEED") {
        let report = swarm::seed(seed).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{report:#?}");
        return;
    }
    let (first, count) = (number("TOWLINE_FIRST").unwrap_or(0), number("TOWLINE_SEEDS").unwrap_or(SEEDS));
    let (next, total) = (AtomicU64::new(first), Mutex::new(Total::default()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= first + count || total.lock().expect("no panic while held").failures.len() >= 10 {
                return;
            }
            let result = one(seed);
            total.lock().expect("no panic while held").take(seed, result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut total = total.into_inner().expect("all threads are done");
    println!("{} seeds, {} ms of virtual time", total.seeds, total.took / 1_000_000);
    println!("checked: {:?}", total.summary);
    println!("network: {:?}", total.counts);
    println!("engines: {:?}", total.transitions);
    total.failures.sort();
    let failures: Vec<_> = total.failures.iter().map(|failure| failure.1.as_str()).collect();
    assert!(failures.is_empty(), "{} of {} seeds failed\n{}", failures.len(), total.seeds, failures.join("\n\n"));
    if count >= SEEDS {
        all_happened(&total);
    }
}

#[test]
fn p15_what_is_only_delayed_still_arrives() {
    let mut counts = Counts::default();
    for seed in 0..24 {
        let mut setting = swarm::setting(seed);
        let nodes = setting.plan.programs.len() as u32;
        let window = |at: u32| (20_000 + u64::from(at) * 35_000, 80_000 + u64::from(at) * 50_000);
        setting.faults.stalls = (0..nodes).map(|node| (node, 0, window(node))).collect();
        let partition = |to| Partition { from: 0, to, both: to % 2 == 0, rail: None, window: window(to * 2) };
        setting.faults.partitions = (1..nodes).map(partition).collect();
        counts.add(&run(setting).unwrap_or_else(|trouble| panic!("seed {seed}, stalled: {trouble}")).counts);
    }
    assert!(counts.stalled > 0 && counts.partitioned > 0);
}

#[test]
fn a_job_that_loses_a_node_is_told_of_and_does_not_hang() {
    for seed in [4, 8, 12] {
        let mut setting = swarm::setting(seed);
        setting.faults.outages = vec![Outage { node: 1, rail: None, window: (50_000, FOR_EVER) }];
        assert!(run(setting).is_err(), "seed {seed}: its messages cannot have arrived");
    }
}

/// A run that meets no fault of some kind, or never takes some way of the protocol, proves nothing about it.
fn all_happened(total: &Total) {
    // Loss and death come with the link floor: off until then.
    let later = ["dropped", "duplicated", "corrupted", "partitioned", "stalled", "cut"];
    let later = [&later[..], &["one_way", "unheard", "outages", "returned", "killed", "revived", "ghosts"]].concat();
    let missing: Vec<_> = total
        .counts
        .list()
        .into_iter()
        .chain(total.transitions.iter().copied())
        .filter(|(name, count)| *count == 0 && !later.contains(name))
        .map(|(name, _)| name)
        .collect();
    assert!(missing.is_empty(), "never happened: {missing:?}");
    let summary = total.summary;
    assert!(summary.cancelled > 0 && summary.truncated > 0 && summary.wildcards > 0);
    assert!(summary.modes.iter().chain(&summary.sizes).all(|count| *count > 0), "{summary:?}");
    assert!(total.large * 4 >= total.seeds, "{} of {} seeds have four nodes", total.large, total.seeds);
}
