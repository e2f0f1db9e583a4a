//! Contexts that have ended, well or not. Rails report the loss of those that they are connected to; of others an engine hears
//! through the launcher, as soon as it has nothing else to do and every few seconds anyhow: from them no message can come any
//! more.

use std::sync::Arc;

use towline_core::rail::{Lost, Peer};
use towline_core::time::{Duration, Instant};

use crate::address::Grid;
use crate::launch::{Ended, Launch};

/// How often an engine looks what came from the launcher.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long nothing must have come before the launcher is asked.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often it is asked though something comes all the time.
const ANYHOW: Duration = Duration::from_millis(3000);
/// How long a rail is given to report the loss itself: not before all is read that was sent before it.
const GRACE: Duration = Duration::from_millis(2000);

/// What one engine has heard.
pub(crate) struct Absent {
    launch: Arc<Launch>,
    grid: Grid,
    next: Instant,
    /// When the launcher is asked at the latest.
    ask_by: Option<Instant>,
    /// How many it knows of.
    heard: usize,
    /// Those that the engine has yet to give up, and when.
    due: Vec<(Instant, Ended)>,
    /// Of each rank, the incarnation that the engine knows.
    incarnations: Vec<u32>,
}

impl Absent {
    pub fn new(launch: Arc<Launch>, grid: Grid, incarnations: Vec<u32>) -> Self {
        Self { launch, grid, next: Instant::ZERO, ask_by: None, heard: 0, due: Vec::new(), incarnations }
    }

    /// The incarnation of a rank that the engine knows.
    pub fn incarnation(&self, rank: u32) -> u32 {
        self.incarnations.get(rank as usize).copied().unwrap_or(0)
    }

    /// The engine has taken a rank back.
    pub fn is_back(&mut self, rank: u32, incarnation: u32) {
        if let Some(place) = self.incarnations.get_mut(rank as usize) {
            *place = incarnation;
        }
    }

    /// A peer that is to be given up now, and why. To be asked while nothing comes, with how long that has been so, and now
    /// and then while something does.
    pub fn next(&mut self, now: Instant, idle: Duration) -> Option<(Peer, Lost)> {
        if now >= self.next {
            self.next = now + INTERVAL;
            let ask = idle >= PATIENCE || now >= *self.ask_by.get_or_insert(now + ANYHOW);
            if ask {
                self.ask_by = Some(now + ANYHOW);
            }
            let ended = self.launch.ended(self.heard, ask);
            self.heard += ended.len();
            let own = self.grid.own_number();
            let others = ended.into_iter().filter(|ended| ended.number != own);
            self.due.extend(others.map(|ended| (now + GRACE, ended)));
        }
        while let Some(at) = self.due.iter().position(|(due, _)| *due <= now) {
            let (_, ended) = self.due.swap_remove(at);
            // What ended may be back by now.
            if ended.incarnation >= self.incarnation(self.grid.address(ended.number).rank) {
                let why = if ended.died { Lost::Broken } else { Lost::Closed };
                return Some((self.grid.peer(ended.number), why));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use towline_bootstrap::server::{Config, Server};
    use towline_bootstrap::{Environment, Job};

    fn soon() -> std::time::Instant {
        std::time::Instant::now() + std::time::Duration::from_secs(300)
    }

    /// Looks until there is somebody to give up; each look is long after the one before.
    fn first(absent: &mut Absent, now: &mut Instant) -> (Peer, Lost) {
        let until = soon();
        loop {
            *now = *now + GRACE;
            if let Some(lost) = absent.next(*now, PATIENCE) {
                return lost;
            }
            assert!(std::time::Instant::now() < until, "nobody");
            std::thread::yield_now();
        }
    }

    #[test]
    fn p7_who_was_taken_back_is_not_given_up_for_the_death_of_an_earlier_process() {
        let mut base = Environment::singleton();
        let (name, job, key) = (Some(format!("towline-absent-{:016x}", base.job)), base.job, base.key.clone());
        let config = Config { size: 2, job, key, name, listen: None, left_is_gone: false };
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
        let launch = Arc::new(Launch::new(zero, grid));
        let (mut absent, mut now) = (Absent::new(Arc::clone(&launch), grid, vec![1, 1]), Instant::from_nanos(1));
        server.restarts(1);
        assert_eq!(first(&mut absent, &mut now), (Peer(1), Lost::Broken));

        // The next process is there before its death has been looked at, and so is the one after it.
        let publish = |incarnation| {
            let mut one = join(1);
            one.exchange(soon()).unwrap();
            let until = soon();
            while launch.returned() != [(1, incarnation)] {
                assert!(std::time::Instant::now() < until, "not told");
                std::thread::yield_now();
            }
            one
        };
        let two = publish(2);
        absent.is_back(1, 2);
        server.restarts(1);
        drop(two);
        let _three = publish(3);
        // The death of the second one is heard of, and waits for its time.
        now = now + INTERVAL;
        assert_eq!(absent.next(now, PATIENCE), None);
        assert_eq!(absent.due.iter().filter(|(_, ended)| ended.incarnation == 2).count(), 1);
        absent.is_back(1, 3);
        now = now + GRACE + GRACE;
        assert_eq!((absent.next(now, PATIENCE), absent.due.len()), (None, 0));
    }
}
