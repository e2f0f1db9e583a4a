//! Contexts that have ended, normally or not. A rail reports the loss of peers that it is connected to. The engine learns from
//! the launcher that other peers have ended: it asks when it has nothing else to do, and every few seconds anyway. No message can
//! come from such a peer any more.

use std::sync::Arc;

use towline_core::rail::{Lost, Peer};
use towline_core::time::{Duration, Instant};

use crate::job::launcher::{EndedContext, Launcher};
use crate::values::address::Grid;

/// How often an engine reads the launcher's messages.
const INTERVAL: Duration = Duration::from_millis(100);
/// For how long nothing must have come before the engine asks the launcher for ended contexts.
const QUIET: Duration = Duration::from_millis(500);
/// How often the engine asks the launcher while something comes all the time.
const BUSY_INTERVAL: Duration = Duration::from_millis(3000);
/// How long the engine waits for a rail to report the loss itself. A rail does that only after it has read all frames that were
/// sent before.
const GRACE: Duration = Duration::from_millis(2000);
/// The same for a context of this host that has left early, once nothing has come for that long: its last frames were in the
/// kernel, or in shared memory, before the launcher was told.
const LEFT_GRACE: Duration = Duration::from_millis(200);
/// How often the engine must have looked at its rails in that time. A process may have no processor for most of the time.
const LOOKS: u32 = 4;

/// An ended context that the engine has not given up yet.
struct Due {
    /// When the engine learned of the end.
    since: Instant,
    /// How often the engine has found nothing on its rails since then.
    looks: u32,
    ended: EndedContext,
}

/// The ended contexts that one engine knows of.
pub(crate) struct EndedContexts {
    launcher: Arc<Launcher>,
    grid: Grid,
    /// When to read the launcher's messages next.
    look_at: Instant,
    /// The latest time to ask the launcher.
    ask_by: Option<Instant>,
    /// How many entries of the launcher's list of ended contexts were read.
    seen: usize,
    /// Ended contexts that the engine has not given up yet.
    due: Vec<Due>,
    /// The ranks of this host, as far as they are known.
    local: Vec<u32>,
    /// The incarnation of each rank that the engine knows.
    incarnations: Vec<u32>,
}

impl EndedContexts {
    pub fn new(launcher: Arc<Launcher>, grid: Grid, incarnations: Vec<u32>) -> Self {
        let local = launcher.read(|job| job.local_ranks().map(<[u32]>::to_vec)).unwrap_or_default();
        Self { launcher, grid, look_at: Instant::ZERO, ask_by: None, seen: 0, due: Vec::new(), local, incarnations }
    }

    /// How long a waiting engine may sleep, in nanoseconds: it must look again soon if it has learned of an end.
    pub fn max_sleep(&self) -> u64 {
        if self.due.is_empty() { u64::MAX } else { LEFT_GRACE.as_nanos() / u64::from(LOOKS) }
    }

    /// Whether an engine gives up an ended context, if nothing has come for `idle`.
    fn is_due(&self, due: &Due, now: Instant, idle: Duration) -> bool {
        let local = || self.local.contains(&self.grid.address(due.ended.number).rank);
        let soon = due.ended.left && idle >= LEFT_GRACE && due.looks >= LOOKS && local();
        now >= due.since + if soon { LEFT_GRACE } else { GRACE }
    }

    /// Passes a warning of the engine's rails on to the launcher.
    pub fn warn(&self, text: &str) {
        self.launcher.warn(text);
    }

    /// The incarnation of a rank that the engine knows.
    pub fn incarnation(&self, rank: u32) -> u32 {
        self.incarnations.get(rank as usize).copied().unwrap_or(0)
    }

    /// Records that the engine has accepted a restarted rank.
    pub fn set_incarnation(&mut self, rank: u32, incarnation: u32) {
        if let Some(known) = self.incarnations.get_mut(rank as usize) {
            *known = incarnation;
        }
    }

    /// A peer that the engine must give up now, and why. The engine calls this while nothing comes, and now and then while
    /// something comes. `idle`: for how long nothing has come.
    pub fn next(&mut self, now: Instant, idle: Duration) -> Option<(Peer, Lost)> {
        if now >= self.look_at {
            self.look_at = now + INTERVAL;
            let ask = idle >= QUIET || now >= *self.ask_by.get_or_insert(now + BUSY_INTERVAL);
            if ask {
                self.ask_by = Some(now + BUSY_INTERVAL);
            }
            let ended = self.launcher.ended(self.seen, ask);
            self.seen += ended.len();
            let own = self.grid.own_number();
            let others = ended.into_iter().filter(|ended| ended.number != own);
            self.due.extend(others.map(|ended| Due { since: now, looks: 0, ended }));
        }
        while let Some(at) = self.due.iter().position(|due| self.is_due(due, now, idle)) {
            let Due { ended, .. } = self.due.swap_remove(at);
            // The rank may have been restarted and accepted meanwhile.
            if ended.incarnation >= self.incarnation(self.grid.address(ended.number).rank) {
                let why = if ended.died { Lost::Broken } else { Lost::Closed };
                return Some((self.grid.peer(ended.number), why));
            }
        }
        self.due.iter_mut().for_each(|due| due.looks = due.looks.saturating_add(1));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::address::Address;
    use towline_bootstrap::server::{Config, Server};
    use towline_bootstrap::{Environment, Job};

    fn soon() -> std::time::Instant {
        std::time::Instant::now() + std::time::Duration::from_secs(300)
    }

    /// Looks until there is a peer to give up; each look is long after the one before.
    fn first(ended: &mut EndedContexts, now: &mut Instant) -> (Peer, Lost) {
        let until = soon();
        loop {
            *now = *now + GRACE;
            if let Some(lost) = ended.next(*now, QUIET) {
                return lost;
            }
            assert!(std::time::Instant::now() < until, "no peer was given up");
            std::thread::yield_now();
        }
    }

    #[test]
    fn p7_a_rejoined_rank_is_not_given_up_for_the_death_of_an_earlier_process() {
        let mut base = Environment::singleton();
        let (name, job, key) = (Some(format!("towline-ended-{:016x}", base.job)), base.job, base.key.clone());
        let config = Config { size: 2, job, key, name, listen: None, disconnect_ends_rank: false };
        let server = Server::start(config, |_| {}).unwrap();
        (base.size, base.root) = (2, server.addresses().to_vec());
        let join = |rank| {
            let mut environment = base.clone();
            environment.rank = rank;
            Job::join(environment, soon()).unwrap()
        };
        let mut zero = join(0);
        let mut one = join(1);
        std::thread::scope(|threads| {
            threads.spawn(|| one.exchange(soon()).unwrap());
            zero.exchange(soon()).unwrap();
        });
        let grid = Grid { own: Address { rank: 0, index: 0 }, ranks: 2, contexts: 1 };
        let launcher = Arc::new(Launcher::new(zero, grid, false));
        let mut ended = EndedContexts::new(Arc::clone(&launcher), grid, vec![1, 1]);
        let mut now = Instant::from_nanos(1);
        server.rank_restarts(1);
        assert_eq!(first(&mut ended, &mut now), (Peer(1), Lost::Broken));

        // The next process is there before the engine has looked at the death of its predecessor, and so is the one after it.
        let publish = |incarnation| {
            let mut one = join(1);
            one.exchange(soon()).unwrap();
            let until = soon();
            while launcher.restarted() != [(1, incarnation)] {
                assert!(std::time::Instant::now() < until, "the launcher did not report the restart");
                std::thread::yield_now();
            }
            one
        };
        let two = publish(2);
        ended.set_incarnation(1, 2);
        server.rank_restarts(1);
        drop(two);
        let _three = publish(3);
        // The engine learns of the death of the second process, and gives the rail its time to report it.
        now = now + INTERVAL;
        assert_eq!(ended.next(now, QUIET), None);
        assert_eq!(ended.due.iter().filter(|due| due.ended.incarnation == 2).count(), 1);
        ended.set_incarnation(1, 3);
        now = now + GRACE + GRACE;
        assert_eq!((ended.next(now, QUIET), ended.due.len()), (None, 0));
    }
}
