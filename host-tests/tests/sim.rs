//! Random jobs of the real engine over simulated rails, by seed.
//!
//! `TOWLINE_SEEDS` is the number of seeds to run, and `TOWLINE_FIRST` the first one. `TOWLINE_SEED` runs only that
//! seed.

use std::{env, thread};

use towline_core::pml::Config;
use towline_host_tests::sim::history::Violation;
use towline_host_tests::sim::history::{Message, Mode, Receive};
use towline_host_tests::sim::job::{JobError, Setting, run};
use towline_host_tests::sim::network::faults::{Counts, FOR_EVER, Outage, Partition, PlantedBug};
use towline_host_tests::sim::plan::{Cancel, Comm, Plan, Step, Style};
use towline_host_tests::sim::seeds;
use towline_host_tests::sim::soak::{Family, Total, run_seed, soak};

/// Number of seeds, if none is given.
const SEEDS: u64 = 300;

/// Number of seeds within which each fault and each transition of a family happens.
const fn enough(family: Family) -> u64 {
    match family {
        Family::Reliable => SEEDS,
        Family::Faulty => 2000,
    }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

/// Runs the seeds that the environment asks for.
fn seeds(family: Family) -> Option<Total> {
    if let Some(seed) = number("TOWLINE_SEED") {
        let report = run_seed(family, seed).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{report:#?}");
        return None;
    }
    let (first, count) = (number("TOWLINE_FIRST").unwrap_or(0), number("TOWLINE_SEEDS").unwrap_or(SEEDS));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let total = soak(family, first..first + count, threads, |_| {});
    println!("{total}");
    let failures: Vec<_> = total.failures.iter().map(|failure| failure.1.as_str()).collect();
    assert!(failures.is_empty(), "{} of {} seeds failed\n{}", failures.len(), total.seeds, failures.join("\n\n"));
    if count >= enough(family) {
        let missing = total.missing(family);
        assert!(missing.is_empty(), "never happened: {missing:?}");
    }
    Some(total)
}

#[test]
fn p15_b14_m10_random_jobs_keep_the_order_of_mpi() {
    let Some(total) = seeds(Family::Reliable) else { return };
    let summary = total.summary;
    assert!(summary.messages >= seeds::MESSAGES as u64 * total.seeds);
    if total.seeds >= SEEDS {
        assert!(summary.cancelled > 0 && summary.truncated > 0 && summary.wildcards > 0);
        assert!(summary.modes.iter().chain(&summary.sizes).all(|count| *count > 0), "{summary:?}");
        assert!(total.large * 4 >= total.seeds, "{} of {} seeds have four nodes", total.large, total.seeds);
    }
}

#[test]
fn p14_p7_random_jobs_survive_all_faults() {
    let Some(total) = seeds(Family::Faulty) else { return };
    assert!(total.seeds < SEEDS || (total.summary.failed > 0 && total.summary.lost > 0));
}

/// Each pool is as small as possible, and then all of them. All operations complete soon after the faults have ended.
#[test]
fn b14_p15_smallest_pools_block_no_job() {
    let seeds = number("TOWLINE_SEEDS").unwrap_or(SEEDS).min(SEEDS) / 10;
    let mut counts = Counts::default();
    for seed in 0..seeds.max(1) {
        for pool in (0..seeds::POOLS.len()).map(Some).chain([None]) {
            let setting = seeds::smallest_pools(seed, pool);
            let what = pool.map_or("all", |pool| seeds::POOLS[pool]);
            assert_eq!(setting.config.check(), Ok(()));
            counts.add(
                &run(setting).unwrap_or_else(|trouble| panic!("seed {seed}, smallest pools: {what}: {trouble}")).counts,
            );
        }
    }
    let met = counts.dropped > 0 && counts.corrupted > 0 && counts.busy_for_room > 0 && counts.partitioned > 0;
    assert!(met || seeds < 10, "too few seeds meet all faults");
}

#[test]
fn p15_delayed_messages_arrive() {
    let mut counts = Counts::default();
    for seed in 0..24 {
        let mut setting = seeds::reliable(seed);
        let nodes = setting.plan.programs.len() as u32;
        let window = |at: u32| (20_000 + u64::from(at) * 35_000, 80_000 + u64::from(at) * 50_000);
        setting.faults.rail_stalls = (0..nodes).map(|node| (node, 0, window(node))).collect();
        let partition = |to| Partition { from: 0, to, both: to % 2 == 0, rail: None, window: window(to * 2) };
        setting.faults.partitions = (1..nodes).map(partition).collect();
        counts.add(&run(setting).unwrap_or_else(|trouble| panic!("seed {seed}, stalled: {trouble}")).counts);
    }
    assert!(counts.stalled_polls > 0 && counts.partitioned > 0);
}

#[test]
fn a_job_that_loses_a_node_reports_it_and_does_not_hang() {
    for seed in [4, 8, 12] {
        let mut setting = seeds::reliable(seed);
        setting.faults.outages = vec![Outage { node: 1, rail: None, window: (50_000, FOR_EVER) }];
        assert!(run(setting).is_err(), "seed {seed}: its messages cannot have arrived");
    }
}

/// Bugs are planted into real jobs. Each is reported, and at least once with its true kind.
#[test]
fn planted_bugs_are_detected() {
    type Named = fn(&JobError) -> bool;
    let bugs: [(PlantedBug, Named); 6] = [
        (PlantedBug::FrameLost, |trouble| matches!(trouble, JobError::Stuck(_))),
        (PlantedBug::FrameDuplicated, |trouble| {
            matches!(trouble, JobError::UnexpectedCount(_, "credit_violations" | "stale", _))
        }),
        (PlantedBug::BodyCorrupted, |trouble| {
            matches!(trouble, JobError::HistoryWrong(Violation::WrongBytes(_, _, None)))
        }),
        (PlantedBug::MessagesSwapped, |trouble| {
            matches!(
                trouble,
                JobError::HistoryWrong(Violation::WrongOrder { .. } | Violation::WrongBytes(_, _, Some(_)))
            )
        }),
        (PlantedBug::SinkUnwritten, |trouble| {
            matches!(trouble, JobError::HistoryWrong(Violation::WrongBytes(_, _, None)))
        }),
        (PlantedBug::RequestLeaked, |trouble| {
            matches!(trouble, JobError::HistoryWrong(Violation::Leaked(_, "requests", _, _)))
        }),
    ];
    for (bug, is_named) in bugs {
        let troubles = (0..12u64).filter_map(|seed| {
            let mut setting = seeds::reliable(seed);
            if bug == PlantedBug::MessagesSwapped {
                setting = flood(setting);
            }
            (setting.faults.planted, setting.faults.late_body) = (Some(bug), 1000);
            run(setting).err()
        });
        let troubles: Vec<_> = troubles.collect();
        assert!(troubles.len() >= 3, "{bug:?} was noticed in {} jobs", troubles.len());
        assert!(troubles.iter().any(is_named), "{bug:?}: {troubles:?}");
    }
}

/// The setting with another plan: many short messages of one kind.
fn flood(setting: Setting) -> Setting {
    let message = Message { from: 0, to: 1, comm: 0, tag: 1, len: 24, mode: Mode::Standard };
    let plan = Plan {
        messages: vec![message; 50],
        receives: vec![Receive { at: 1, comm: 0, source: Some(0), tag: Some(1), buffer: 24 }; 50],
        comms: vec![Comm { context: 1, table: None, style: Style::NamedSources }],
        permanent: 1,
        programs: vec![
            (0..50).map(|index| Step::Send(index, vec![])).collect(),
            (0..50).map(|index| Step::Recv(index, Cancel::Never)).collect(),
        ],
    };
    let config = Config { peers: 2, unexpected: 40, units: 40, unit_bytes: 64, ..setting.config };
    Setting { config, plan, ..setting }
}

/// Sends are cancelled at any moment, and begun again if that succeeded. A cancelled message never arrives, and one that could not
/// be cancelled arrives once.
#[test]
fn m14_p15_a_send_is_cancelled_or_arrives_but_never_both() {
    let mut counts = Counts::default();
    for seed in 0..60 {
        let families = [("reliable", seeds::reliable(seed)), ("faulty", seeds::faulty(seed))];
        // With few envelopes, most messages are held back.
        let least = [None, Some(1)].map(|pool| ("smallest pools", seeds::smallest_pools(seed, pool)));
        for (family, setting) in families.into_iter().chain(least) {
            let report = run(Setting { cancels_sends: true, ..setting });
            counts.add(&report.unwrap_or_else(|trouble| panic!("seed {seed}, {family}: {trouble}")).counts);
        }
    }
    assert!(counts.cancelled_sends > 100 && counts.uncancelled_sends > 100, "{counts:?}");
}
