//! Single faults of rails, nodes and hosts, each without other faults except those that links tolerate. Jobs survive
//! them, and bugs in their handling are detected.

use towline_host_tests::sim::history::Violation;
use towline_host_tests::sim::job::{JobError, Setting, run};
use towline_host_tests::sim::network::faults::{Counts, Faults, PlantedBug};
use towline_host_tests::sim::seeds::{self, SingleFault};

const SEEDS: u64 = 16;

/// Runs jobs with this fault only, which must pass. Returns the counts.
fn run_all(fault: SingleFault) -> Counts {
    let mut counts = Counts::default();
    for seed in 0..SEEDS {
        let report =
            run(seeds::only(seed, fault)).unwrap_or_else(|trouble| panic!("{fault:?}, seed {seed}: {trouble}"));
        counts.add(&report.counts);
    }
    counts
}

/// Runs the same jobs with a planted bug. At least one must fail with the expected error.
fn expect_noticed(fault: SingleFault, bug: PlantedBug, is_named: fn(&JobError) -> bool) {
    expect_noticed_among(fault, bug, |_| true, is_named);
}

/// The same, with only those settings for which `such` holds.
fn expect_noticed_among(
    fault: SingleFault,
    bug: PlantedBug,
    such: fn(&Setting) -> bool,
    is_named: fn(&JobError) -> bool,
) {
    let mut others = vec![];
    for setting in (0..SEEDS).map(|seed| seeds::only(seed, fault)).filter(such) {
        let faults = Faults { planted: Some(bug), ..setting.faults };
        match run(Setting { faults, ..setting }) {
            Err(trouble) if is_named(&trouble) => return,
            other => others.extend(other.err()),
        }
    }
    panic!("{bug:?} was not noticed with the expected error, but as {others:?}");
}

/// A node was lost although it was alive.
fn is_false_loss(trouble: &JobError) -> bool {
    matches!(
        trouble,
        JobError::HistoryWrong(Violation::SendFailed(..) | Violation::FalseFailure(..)) | JobError::UnexpectedCount(..)
    )
}

#[test]
fn p9_rails_are_disabled_and_enabled_during_traffic() {
    let counts = run_all(SingleFault::Toggles);
    assert!(counts.disabled > SEEDS && counts.enabled > SEEDS / 2, "{counts:?}");
    expect_noticed(SingleFault::Toggles, PlantedBug::RailStaysDisabled, |trouble| {
        matches!(trouble, JobError::Stuck(_))
    });
    let trespassed = |trouble: &JobError| matches!(trouble, JobError::DisabledRailUsed(_));
    expect_noticed_among(
        SingleFault::Toggles,
        PlantedBug::DisabledRailUsed,
        |setting| setting.links.is_none(),
        trespassed,
    );
    expect_noticed_among(
        SingleFault::Toggles,
        PlantedBug::DisabledRailUsed,
        |setting| setting.links.is_some(),
        trespassed,
    );
}

#[test]
fn p14_a_rail_that_loses_half_its_frames_blocks_no_node() {
    let counts = run_all(SingleFault::LossyRail);
    assert!(counts.lossy_rail_losses > SEEDS, "{counts:?}");
    expect_noticed(SingleFault::LossyRail, PlantedBug::FalseLoss, is_false_loss);
}

#[test]
fn p15_a_stall_time_out_gives_up_only_nodes_that_are_stalled_for_longer() {
    let counts = run_all(SingleFault::NodeStalls);
    assert!(counts.given_up_stalled > SEEDS / 4 && counts.kept_below_timeout > SEEDS / 4, "{counts:?}");
    expect_noticed(SingleFault::NodeStalls, PlantedBug::NoStallTimeout, |trouble| {
        matches!(trouble, JobError::NotGivenUp(..))
    });
    expect_noticed(SingleFault::NodeStalls, PlantedBug::ShortStallTimeout, is_false_loss);
}

#[test]
fn p15_a_stalled_node_at_a_live_host_is_kept_and_a_lost_host_is_noticed() {
    let counts = run_all(SingleFault::Hosts);
    assert!(
        counts.kept_by_host > SEEDS / 4 && counts.hosts_lost > SEEDS / 8 && counts.false_refusals > SEEDS,
        "{counts:?}"
    );
    assert!(counts.hosts_asked > 0 && counts.hosts_silent > 0 && counts.refused > 0, "{counts:?}");
    expect_noticed(SingleFault::Hosts, PlantedBug::HostsSilent, is_false_loss);
    expect_noticed(SingleFault::Hosts, PlantedBug::LostHostsAnswer, |trouble| {
        matches!(trouble, JobError::LossNotNoticed(..))
    });
}

#[test]
fn p15_nodes_without_a_common_rail_are_reported_as_unreachable() {
    let counts = run_all(SingleFault::MissingRails);
    assert!(counts.unlinked > SEEDS / 4 && counts.fewer_rails > counts.unlinked, "{counts:?}");
    expect_noticed(SingleFault::MissingRails, PlantedBug::MissingRailUsed, |trouble| {
        matches!(trouble, JobError::NotUnreachable(..))
    });
}

#[test]
#[ignore = "runs one job, to examine a failure: TOWLINE_SEED, and TOWLINE_FAULT as an index into the list of faults"]
fn one_job() {
    let seed = std::env::var("TOWLINE_SEED").unwrap().parse().unwrap();
    let faults = [
        SingleFault::Toggles,
        SingleFault::LossyRail,
        SingleFault::NodeStalls,
        SingleFault::Hosts,
        SingleFault::MissingRails,
    ];
    let fault = faults[std::env::var("TOWLINE_FAULT").unwrap().parse::<usize>().unwrap()];
    println!("{}", seeds::describe(&seeds::only(seed, fault)));
    println!("{:?}", run(seeds::only(seed, fault)).map(|report| report.counts));
}
