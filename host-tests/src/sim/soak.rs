//! Runs many seeds and sums up the results, for tests and for `towline soak --sim`.

use std::fmt;
use std::ops::Range;
use std::panic;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use super::history::Summary;
use super::job::{Report, add, run};
use super::network::faults::Counts;
use super::seeds;

/// Number of failures after which a run ends.
const MAX_FAILURES: usize = 10;

/// A family of jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Jobs over reliable rails, which refuse, reorder and delay frames.
    Reliable,
    /// Jobs with faults of every kind.
    Faulty,
}

impl Family {
    /// The options of `towline soak --sim` that choose it.
    const fn options(self) -> &'static str {
        match self {
            Self::Reliable => " --reliable",
            Self::Faulty => "",
        }
    }
}

/// Runs the job of a seed. A panic counts as a failure.
///
/// # Errors
/// A description of the failure, with the command that repeats it.
pub fn run_seed(family: Family, seed: u64) -> Result<Report, String> {
    let setting = match family {
        Family::Reliable => seeds::reliable(seed),
        Family::Faulty => seeds::faulty(seed),
    };
    let description = seeds::describe(&setting);
    let result = panic::catch_unwind(|| run(setting).map_err(|trouble| trouble.to_string()));
    let result = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(format!("panic: {}", text.or(panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()))
    });
    result.map_err(|trouble| {
        let options = family.options();
        format!("seed {seed}: {trouble}\n{description}\nrun it again with: towline soak --sim{options} --seed {seed}")
    })
}

/// The result of a run.
#[derive(Default, Debug)]
pub struct Total {
    /// Jobs.
    pub seeds: u64,
    /// Jobs of at least four nodes.
    pub large: u64,
    /// Counts of checked events.
    pub summary: Summary,
    /// Counts of the networks.
    pub counts: Counts,
    /// Counters of the engines and links.
    pub transitions: Vec<(&'static str, u64)>,
    /// Virtual nanoseconds.
    pub took: u64,
    /// Seeds that failed, with descriptions.
    pub failures: Vec<(u64, String)>,
}

impl Total {
    fn take(&mut self, seed: u64, result: Result<Report, String>) {
        self.seeds += 1;
        match result {
            Err(failure) => self.failures.push((seed, failure)),
            Ok(report) => {
                self.large += u64::from(report.nodes >= 4);
                self.summary.add(&report.summary);
                self.counts.add(&report.counts);
                add(&mut self.transitions, &report.transitions);
                self.took += report.took;
            }
        }
    }

    /// The kinds of faults and transitions that never happened. A run without them does not test them.
    pub fn missing(&self, family: Family) -> Vec<&'static str> {
        let counts = self.counts.list().into_iter().chain(self.transitions.iter().copied());
        counts.filter(|(name, count)| *count == 0 && !cannot_happen(family, name)).map(|(name, _)| name).collect()
    }
}

/// Whether this cannot happen in such jobs.
fn cannot_happen(family: Family, name: &str) -> bool {
    let mishaps = [
        "dropped",
        "duplicated",
        "corrupted",
        "partitioned",
        "one_way",
        "stalled_polls",
        "cut",
        "outage_losses",
        "outages",
        "reconnected",
        "killed",
        "revived",
        "stale_frames",
        "recoveries",
        "lossy_rail_losses",
        "nodes_stalled",
        "kept_by_host",
        "given_up_stalled",
        "kept_below_timeout",
        "hosts_asked",
        "hosts_silent",
        "hosts_lost",
        "refused",
        "false_refusals",
        "unlinked",
        "fewer_rails",
        "late_writes",
        "links_down",
        "links_up",
        "frames_migrated",
        "duplicates",
    ];
    // The first one needs two rare events at once, so a run may well be without it. The jobs of a soak cancel no sends.
    let rare = ["not_reached", "cancelled_sends", "uncancelled_sends"];
    rare.contains(&name) || family == Family::Reliable && mishaps.contains(&name)
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, summary, counts, transitions, took, failures, .. } = self;
        let (failures, millis) = (failures.len(), took / 1_000_000);
        writeln!(f, "seeds {seeds}, failures {failures}, virtual time {millis} ms")?;
        writeln!(f, "checked: {summary:?}")?;
        let line = |f: &mut fmt::Formatter<'_>, what: &str, counts: &[(&str, u64)]| {
            write!(f, "{what}:")?;
            counts.iter().try_for_each(|(name, count)| write!(f, " {name} {count}"))
        };
        line(f, "faults", &counts.list())?;
        writeln!(f)?;
        line(f, "transitions", transitions)
    }
}

/// Runs all seeds of a range, or until some have failed. `progress` is called after each seed with the results so far.
pub fn soak(family: Family, seeds: Range<u64>, threads: usize, progress: impl Fn(&Total) + Sync) -> Total {
    let (next, total) = (AtomicU64::new(seeds.start), Mutex::new(Total::default()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= seeds.end || total.lock().expect("no panic while held").failures.len() >= MAX_FAILURES {
                return;
            }
            let result = run_seed(family, seed);
            if result.is_err() {
                eprintln!("seed {seed} fails"); // the description is printed at the end, which may be hours later
            }
            let mut total = total.lock().expect("no panic while held");
            total.take(seed, result);
            progress(&total);
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    let mut total = total.into_inner().expect("all threads are done");
    total.failures.sort();
    total
}
