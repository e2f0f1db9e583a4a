//! Finds the cause of a failure: the rank that failed by itself, and not because it had lost another rank.
//!
//! When a rank fails, others soon fail because they lost it, and their ends may be seen first. So a failure is held until
//! its cause is known. A rank tells the launcher of each rank that its operations have lost. A failure of a rank that has
//! lost nobody is its own cause, and so is a signal.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Time for which a failure is held although its cause seems to be known. In this time the news of a killed rank may
/// arrive, which may be the reason why other ranks end.
const SETTLE_TIME: Duration = Duration::from_millis(50);
/// Time for which a failure is held while its cause is not known.
pub(super) const CAUSE_LIMIT: Duration = Duration::from_secs(2);
/// Number of ranks that are listed as consequences.
const LISTED_MAX: usize = 8;

/// A rank that has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    pub(super) rank: u32,
    /// The exit status for the launcher.
    pub(super) status: u8,
    /// The rank, and how it ended.
    pub(super) what: String,
    /// How it ended, in few words.
    pub(super) brief: String,
    pub(super) kind: Kind,
    /// When the launcher learned of it.
    pub(super) at: Instant,
}

/// What is known of the cause of a failure by its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Killed by a signal, which is never the consequence of another rank's failure.
    Killed,
    /// The rank asked for the end of the job.
    Aborted,
    /// The rank has told that it fails, and still runs.
    Failing,
    /// All others.
    Ended,
}

/// What the launcher knows of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RankState {
    /// Its process has not ended, as far as the launcher knows.
    pub(super) runs: bool,
    /// It has closed its connection without finishing, so its process probably ends.
    pub(super) dying: bool,
    /// The launcher may have to read messages of it.
    pub(super) connected: bool,
}

/// Failures, and what is known of their causes.
#[derive(Default)]
pub(super) struct Failures {
    /// Failures that are held, in the order in which they were seen.
    held: Vec<Failure>,
    /// Failures that are consequences of the one that was reported, or followed it.
    others: Vec<Failure>,
    /// All ranks that have failed.
    failed: BTreeSet<u32>,
    /// For each rank, the ranks that its operations have lost.
    lost: BTreeMap<u32, BTreeSet<u32>>,
    /// The texts of errors and panics.
    texts: BTreeMap<u32, String>,
}

/// What to do with the failures that are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Wait(Instant),
    /// The failure with this index is the cause.
    Report(usize),
}

impl Failures {
    /// An operation of `rank` has failed because `peer` was lost or had finished.
    pub(super) fn note_lost(&mut self, rank: u32, peer: u32) {
        self.lost.entry(rank).or_default().insert(peer);
    }

    /// The program of a rank fails with this error or panic.
    pub(super) fn note_text(&mut self, rank: u32, panic: bool, text: &str) {
        // The text may contain anything.
        let text: String = text.trim().chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        let text = if panic { format!("it panicked: {text}") } else { text };
        self.texts.entry(rank).or_insert(text);
    }

    /// A rank is restarted: what was known of its earlier process, and of the loss of that, explains nothing any more.
    pub(super) fn forget(&mut self, rank: u32) {
        self.lost.remove(&rank);
        self.texts.remove(&rank);
        for lost in self.lost.values_mut() {
            lost.remove(&rank);
        }
    }

    /// Holds a failure until its cause is known. The first failure of a rank counts.
    pub(super) fn hold(&mut self, failure: Failure) {
        if self.failed.insert(failure.rank) {
            self.held.push(failure);
        }
    }

    /// Adds a failure that is seen while the job ends. It is listed if it is a consequence.
    pub(super) fn add_late(&mut self, failure: Failure) {
        let listed = self.lost.contains_key(&failure.rank) || failure.kind == Kind::Killed;
        if listed && self.failed.insert(failure.rank) {
            self.others.push(failure);
        }
    }

    pub(super) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    pub(super) fn holds_abort(&self) -> bool {
        self.held.iter().any(|failure| failure.kind == Kind::Aborted)
    }

    /// When to look again.
    pub(super) fn next_deadline(&self, state: impl Fn(u32) -> RankState, ranks: u32) -> Option<Instant> {
        match self.step(state, ranks)? {
            Step::Wait(until) => Some(until),
            Step::Report(_) => Some(Instant::now()),
        }
    }

    /// The failures that were held, the cause first, if the cause is known by now.
    pub(super) fn take(&mut self, now: Instant, state: impl Fn(u32) -> RankState, ranks: u32) -> Option<Vec<Failure>> {
        let index = match self.step(state, ranks)? {
            Step::Report(index) => index,
            Step::Wait(until) if until > now => return None,
            Step::Wait(_) => self.most_likely(),
        };
        let cause = self.held.remove(index);
        let rest = std::mem::take(&mut self.held);
        Some([cause].into_iter().chain(rest).collect())
    }

    /// The job ends for another reason: failures that are held are consequences, or happened at the same time.
    pub(super) fn give_up_holding(&mut self) {
        self.others.append(&mut self.held);
    }

    /// Records failures that are to be listed at the end.
    pub(super) fn list(&mut self, others: &[Failure]) {
        self.others.extend_from_slice(others);
    }

    /// What to do next. `None` if no failure is held.
    fn step(&self, state: impl Fn(u32) -> RankState, ranks: u32) -> Option<Step> {
        let first = self.held.first()?;
        if let Some(index) = self.held.iter().position(|failure| failure.kind == Kind::Killed) {
            return Some(Step::Report(index));
        }
        let informed =
            |failure: &Failure| matches!(failure.kind, Kind::Aborted | Kind::Failing) || !state(failure.rank).connected;
        let latest = first.at + CAUSE_LIMIT;
        if !self.held.iter().all(informed) {
            return Some(Step::Wait(latest));
        }
        let open = |rank: u32| state(rank).runs && !self.failed.contains(&rank);
        if !(0..ranks).any(open) {
            return Some(Step::Report(self.most_likely()));
        }
        let dying = (0..ranks).any(|rank| open(rank) && state(rank).dying);
        let own = self.held.iter().position(|failure| !self.may_follow(failure, open));
        Some(match own {
            Some(_) if dying => Step::Wait(latest),
            Some(index) => Step::Wait(self.held[index].at + SETTLE_TIME),
            None => Step::Wait(latest),
        })
    }

    /// The failure that is most likely the cause of the others: one by a signal, one of a rank that had lost no failed rank,
    /// or the first.
    fn most_likely(&self) -> usize {
        let killed = self.held.iter().position(|failure| failure.kind == Kind::Killed);
        let own = || self.held.iter().position(|failure| !self.may_follow(failure, |_| false));
        killed.or_else(own).unwrap_or(0)
    }

    /// Whether a failure may be the consequence of another one: of one that was seen, or of one of an `open` rank that has yet
    /// to be seen.
    fn may_follow(&self, failure: &Failure, open: impl Fn(u32) -> bool) -> bool {
        let lost = self.lost.get(&failure.rank).into_iter().flatten();
        failure.kind != Kind::Killed
            && lost.into_iter().any(|peer| *peer != failure.rank && (self.failed.contains(peer) || open(*peer)))
    }

    /// The report of a failure: the rank, how it ended, and why.
    pub(super) fn describe(&self, failure: &Failure) -> String {
        let text = self.texts.get(&failure.rank).map_or_else(String::new, |text| format!(": {text}"));
        let lost: Vec<u32> = self.lost.get(&failure.rank).into_iter().flatten().copied().collect();
        let after = if lost.is_empty() || failure.kind == Kind::Killed {
            String::new()
        } else {
            format!(", after operations with {} had failed", ranks(&lost))
        };
        format!("{}{text}{after}", failure.what)
    }

    /// Whether one of the failures beside the cause is of such a rank.
    pub(super) fn lists_any(&self, which: impl Fn(u32) -> bool) -> bool {
        self.others.iter().any(|failure| which(failure.rank))
    }

    /// A line about the failures beside the cause. `None` if there are none.
    pub(super) fn describe_others(&self) -> Option<String> {
        let follows = |failure: &&Failure| self.may_follow(failure, |_| false);
        let (consequences, own): (Vec<&Failure>, Vec<&Failure>) = self.others.iter().partition(follows);
        let parts = [(consequences, "as a consequence"), (own, "as well")];
        let parts = parts.into_iter().filter(|(failures, _)| !failures.is_empty());
        let parts: Vec<_> = parts.map(|(failures, how)| format!("{} failed {how}", list(&failures))).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

fn list(failures: &[&Failure]) -> String {
    let first: Vec<_> = failures.iter().take(LISTED_MAX).map(|it| format!("{} ({})", it.rank, it.brief)).collect();
    let more = failures.len() - first.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("rank{} {}{more}", if failures.len() == 1 { "" } else { "s" }, first.join(", "))
}

fn ranks(ranks: &[u32]) -> String {
    let first: Vec<_> = ranks.iter().take(LISTED_MAX).map(u32::to_string).collect();
    let more = ranks.len() - first.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("rank{} {}{more}", if ranks.len() == 1 { "" } else { "s" }, first.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: RankState = RankState { runs: true, dying: false, connected: true };
    const ENDED: RankState = RankState { runs: false, dying: false, connected: false };

    fn failure(rank: u32, kind: Kind, at: Instant) -> Failure {
        Failure { rank, status: 1, what: format!("rank {rank} ended"), brief: "status 1".into(), kind, at }
    }

    /// The ranks of the failures that are reported at `after` in milliseconds.
    fn taken(failures: &mut Failures, start: Instant, after: u64, states: &[RankState]) -> Option<Vec<u32>> {
        let state = |rank: u32| states[rank as usize];
        let taken = failures.take(start + Duration::from_millis(after), state, states.len() as u32)?;
        Some(taken.into_iter().map(|failure| failure.rank).collect())
    }

    #[test]
    fn a_rank_that_lost_another_one_is_held_until_the_end_of_that_one_is_seen() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        failures.note_lost(0, 1);
        failures.hold(failure(0, Kind::Ended, start));
        let dying = RankState { dying: true, connected: false, ..RUNS };
        assert_eq!(taken(&mut failures, start, 1500, &[ENDED, RUNS, RUNS]), None);
        assert_eq!(taken(&mut failures, start, 1500, &[ENDED, dying, RUNS]), None);
        failures.note_text(1, true, "no disk\n");
        failures.hold(failure(1, Kind::Ended, start + Duration::from_millis(1600)));
        assert_eq!(taken(&mut failures, start, 1600, &[ENDED, ENDED, RUNS]), None);
        assert_eq!(taken(&mut failures, start, 1700, &[ENDED, ENDED, RUNS]), Some(vec![1, 0]));
        let all = [1, 0].map(|rank| failure(rank, Kind::Ended, start));
        assert_eq!(failures.describe(&all[0]), "rank 1 ended: it panicked: no disk");
        assert_eq!(failures.describe(&all[1]), "rank 0 ended, after operations with rank 1 had failed");
        failures.list(&all[1..]);
        assert_eq!(failures.describe_others().unwrap(), "rank 0 (status 1) failed as a consequence");
    }

    #[test]
    fn a_signal_comes_first_and_at_once() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        failures.hold(failure(0, Kind::Ended, start));
        assert_eq!(taken(&mut failures, start, 10, &[ENDED, RUNS, RUNS]), None, "another rank may have been killed");
        failures.hold(failure(2, Kind::Killed, start));
        assert_eq!(taken(&mut failures, start, 10, &[ENDED, RUNS, ENDED]), Some(vec![2, 0]));
    }

    #[test]
    fn a_failure_without_a_cause_elsewhere_is_its_own() {
        // It had lost a rank that ended well.
        let (mut failures, start) = (Failures::default(), Instant::now());
        failures.note_lost(0, 1);
        failures.hold(failure(0, Kind::Ended, start));
        assert_eq!(taken(&mut failures, start, 60, &[ENDED, ENDED, RUNS]), Some(vec![0]));
        // It had lost a rank that still runs.
        let mut failures = Failures::default();
        failures.note_lost(0, 1);
        failures.hold(failure(0, Kind::Aborted, start));
        assert_eq!(taken(&mut failures, start, 1900, &[RUNS, RUNS]), None);
        assert_eq!(taken(&mut failures, start, 2001, &[RUNS, RUNS]), Some(vec![0]));
        // Two ranks lost each other: the first counts.
        let mut failures = Failures::default();
        failures.note_lost(0, 1);
        failures.note_lost(1, 0);
        failures.hold(failure(1, Kind::Ended, start));
        failures.hold(failure(0, Kind::Ended, start));
        assert_eq!(taken(&mut failures, start, 0, &[ENDED, ENDED]), Some(vec![1, 0]));
    }

    #[test]
    fn messages_of_a_failed_rank_are_read_before_its_failure_is_judged() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        failures.hold(failure(0, Kind::Ended, start));
        let unread = RankState { runs: false, ..RUNS };
        assert_eq!(taken(&mut failures, start, 1000, &[unread, RUNS]), None);
        failures.note_lost(0, 1);
        assert_eq!(taken(&mut failures, start, 1000, &[ENDED, RUNS]), None, "held for its cause");
        assert_eq!(failures.next_deadline(|rank| [ENDED, RUNS][rank as usize], 2), Some(start + CAUSE_LIMIT));
        // A restarted rank is no cause any more.
        failures.forget(1);
        assert_eq!(taken(&mut failures, start, 1000, &[ENDED, RUNS]), Some(vec![0]));
        assert_eq!(taken(&mut failures, start, 1000, &[ENDED, RUNS]), None);
    }

    #[test]
    fn chains_of_consequences_are_listed_in_one_line() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        for rank in 1..12 {
            failures.note_lost(rank, rank - 1);
            failures.hold(failure(rank, Kind::Ended, start));
        }
        failures.hold(failure(0, Kind::Ended, start));
        let taken = failures.take(start, |_| ENDED, 12).unwrap();
        assert_eq!(taken[0].rank, 0);
        failures.list(&taken[1..]);
        failures.add_late(failure(20, Kind::Killed, start));
        failures.add_late(failure(21, Kind::Ended, start));
        let line = failures.describe_others().unwrap();
        assert!(
            line.starts_with("ranks 1 (status 1), 2 (status 1), ") && line.contains(" and 3 more failed as a"),
            "{line}"
        );
        assert!(line.ends_with("; rank 20 (status 1) failed as well"), "{line}");
    }
}
