//! Single faults of rails, nodes and hosts, each without any other but what links put up with: jobs bear them, and bugs in
//! what bears them are noticed.

use towline_host_tests::sim::history::Violation;
use towline_host_tests::sim::job::{JobError, Setting, run};
use towline_host_tests::sim::network::faults::{Counts, Faults, Planted};
use towline_host_tests::sim::seeds::{self, Single};

const SEEDS: u64 = 16;

/// Runs jobs with this fault alone; what happened in them.
fn bear(fault: Single) -> Counts {
    let mut counts = Counts::default();
    for seed in 0..SEEDS {
        let report =
            run(seeds::only(seed, fault)).unwrap_or_else(|trouble| panic!("{fault:?}, seed {seed}: {trouble}"));
        counts.add(&report.counts);
    }
    counts
}

/// Runs them with a bug: some of them come to grief, one at least as it has to.
fn notice(fault: Single, bug: Planted, is_named: fn(&JobError) -> bool) {
    notice_among(fault, bug, |_| true, is_named);
}

/// Runs those of them that are such.
fn notice_among(fault: Single, bug: Planted, such: fn(&Setting) -> bool, is_named: fn(&JobError) -> bool) {
    let mut others = vec![];
    for setting in (0..SEEDS).map(|seed| seeds::only(seed, fault)).filter(such) {
        let faults = Faults { planted: Some(bug), ..setting.faults };
        match run(Setting { faults, ..setting }) {
            Err(trouble) if is_named(&trouble) => return,
            other => others.extend(other.err()),
        }
    }
    panic!("{bug:?} was noticed as {others:?}");
}

/// Somebody is lost who was there.
fn is_given_up_in_vain(trouble: &JobError) -> bool {
    matches!(
        trouble,
        JobError::Wrong(Violation::SendFailed(..) | Violation::FailedInVain(..)) | JobError::Miscounted(..)
    )
}

#[test]
fn p9_rails_are_disabled_and_enabled_in_the_middle_of_everything() {
    let counts = bear(Single::Toggles);
    assert!(counts.disabled > SEEDS && counts.enabled > SEEDS / 2, "{counts:?}");
    notice(Single::Toggles, Planted::StaysOff, |trouble| matches!(trouble, JobError::Stuck(_)));
    let trespassed = |trouble: &JobError| matches!(trouble, JobError::Trespassed(_));
    notice_among(Single::Toggles, Planted::TakesAll, |setting| setting.links.is_none(), trespassed);
    notice_among(Single::Toggles, Planted::TakesAll, |setting| setting.links.is_some(), trespassed);
}

#[test]
fn p14_a_rail_that_loses_half_its_frames_holds_up_nobody() {
    let counts = bear(Single::Half);
    assert!(counts.halved > SEEDS, "{counts:?}");
    notice(Single::Half, Planted::Slandered, is_given_up_in_vain);
}

#[test]
fn p15_a_stall_time_out_gives_up_who_stands_still_for_longer_and_nobody_else() {
    let counts = bear(Single::Stall);
    assert!(counts.stalled_out > SEEDS / 4 && counts.spared > SEEDS / 4, "{counts:?}");
    notice(Single::Stall, Planted::Patient, |trouble| matches!(trouble, JobError::NotGivenUp(..)));
    notice(Single::Stall, Planted::Hasty, is_given_up_in_vain);
}

#[test]
fn p15_who_stands_still_at_a_living_host_is_kept_and_a_lost_host_is_noticed() {
    let counts = bear(Single::Hosts);
    assert!(counts.outlasted > SEEDS / 4 && counts.hosts_lost > SEEDS / 8 && counts.rumours > SEEDS, "{counts:?}");
    assert!(counts.hosts_asked > 0 && counts.hosts_unheard > 0 && counts.refused > 0, "{counts:?}");
    notice(Single::Hosts, Planted::Deaf, is_given_up_in_vain);
    notice(Single::Hosts, Planted::Undead, |trouble| matches!(trouble, JobError::NotMissed(..)));
}

#[test]
fn p15_nodes_without_a_common_rail_are_told_so() {
    let counts = bear(Single::Missing);
    assert!(counts.unlinked > SEEDS / 4 && counts.fewer_rails > counts.unlinked, "{counts:?}");
    notice(Single::Missing, Planted::Joined, |trouble| matches!(trouble, JobError::NotUnlinked(..)));
}

#[test]
#[ignore = "one job, by TOWLINE_SEED and TOWLINE_FAULT (the place of the fault in the list), to be looked into"]
fn one_job() {
    let seed = std::env::var("TOWLINE_SEED").unwrap().parse().unwrap();
    let faults = [Single::Toggles, Single::Half, Single::Stall, Single::Hosts, Single::Missing];
    let fault = faults[std::env::var("TOWLINE_FAULT").unwrap().parse::<usize>().unwrap()];
    println!("{}", seeds::describe(&seeds::only(seed, fault)));
    println!("{:?}", run(seeds::only(seed, fault)).map(|report| report.counts));
}
