//! Taking back a rank whose process was started again: the new process counts as another peer in the old one's place.

use std::fmt;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use towline_core::btl::selection::{Candidate, Report, Verdict};
use towline_core::error::Blame;
use towline_core::rail::{Lost, Peer, Rail as _, Unreachable};

use crate::context::state::State;
use crate::engine::Engine;
use crate::errors::setup::SetupError;
use crate::job::cards;
use crate::job::launcher::Launch;
use crate::setup::context::Made;
use crate::threads::levels::{Lock, Sharing, Threads};
use crate::values::address::{Address, Grid};

/// Between two looks at what the launcher has said.
const LOOK: Duration = Duration::from_millis(1);

/// A rank was not taken back.
///
/// ```
/// use std::time::Duration;
/// use towline::ReadmitError;
///
/// let world = towline::init()?;
/// let error = world.readmit(7, Duration::ZERO).unwrap_err();
/// assert_eq!(error, ReadmitError::NoSuchRank { rank: 7, size: 1 });
/// # Ok::<(), towline::SetupError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReadmitError {
    /// The world has no such rank.
    NoSuchRank {
        /// The rank that was asked for.
        rank: u32,
        /// How many ranks there are.
        size: u32,
    },
    /// The rank was not started again, or was taken back already.
    NotBack {
        /// Which one.
        rank: u32,
        /// How long it was waited for.
        waited_ms: u64,
    },
    /// No transport leads to the new process: it may have died, too, and be started once more.
    Unreachable {
        /// Which rank.
        rank: u32,
        /// What each transport says.
        report: String,
    },
    /// The new process was built with another number of contexts.
    Contexts {
        /// Which rank.
        rank: u32,
    },
}

impl ReadmitError {
    /// Who has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NoSuchRank { .. } => Blame::Caller,
            _ => Blame::Peer,
        }
    }
}

impl fmt::Display for ReadmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchRank { rank, size } => write!(f, "there is no rank {rank}: the world has {size}"),
            Self::NotBack { rank, waited_ms } => write!(
                f,
                "rank {rank} was not started again within {waited_ms} ms: see what the launcher says (`towline run --restart`)"
            ),
            Self::Unreachable { rank, report } => {
                write!(f, "no transport leads to the new process of rank {rank} ({report}): try again when it is back")
            }
            Self::Contexts { rank } => write!(
                f,
                "the new process of rank {rank} has another number of contexts: build all ranks with the same number"
            ),
        }
    }
}

impl std::error::Error for ReadmitError {}

impl<L: Sharing> State<L> {
    /// Ranks that were started again, and that this context has not taken back.
    pub fn returned(&self) -> Vec<u32> {
        let returned = self.launch.returned();
        if returned.is_empty() {
            return Vec::new();
        }
        let engine = self.engine.hold();
        let known = |rank: u32| engine.absent.as_ref().map_or(u32::MAX, |absent| absent.incarnation(rank));
        returned.into_iter().filter(|(rank, incarnation)| *incarnation > known(*rank)).map(|(rank, _)| rank).collect()
    }

    /// Waits until a rank is back, and takes it back.
    pub fn readmit(&self, rank: u32, timeout: Duration) -> Result<u32, ReadmitError> {
        if rank >= self.grid.ranks {
            return Err(ReadmitError::NoSuchRank { rank, size: self.grid.ranks });
        }
        let started = Instant::now();
        loop {
            if self.returned().contains(&rank) {
                return self.take_back(rank);
            }
            let waited = started.elapsed();
            if waited >= timeout {
                return Err(ReadmitError::NotBack { rank, waited_ms: waited.as_millis() as u64 });
            }
            self.progress();
            std::thread::sleep(LOOK.min(timeout - waited));
        }
    }

    /// Takes back a rank that has returned.
    fn take_back(&self, rank: u32) -> Result<u32, ReadmitError> {
        let mut engine = self.engine.hold();
        let numbers = (0..self.grid.contexts).filter_map(|index| self.grid.number(Address { rank, index }));
        let numbers: Vec<u32> = numbers.collect();
        for number in &numbers {
            engine.mtl.pml().lose_peer(self.grid.peer(*number), Lost::Broken);
        }
        // Receives from any source are told of it, before there is nothing to tell any more.
        engine.poll();
        // Read under one lock, so that all is of one incarnation.
        let taken = self.launch.read(|job| {
            let incarnation = job.incarnation_of(rank).unwrap_or(0);
            if !cards::has_contexts(job, rank, self.grid.contexts) {
                return Err(ReadmitError::Contexts { rank });
            }
            let choices = numbers.iter().map(|number| {
                let params = cards::params(job, rank).unwrap_or_default();
                engine.add(self.grid, *number, params, |rails| {
                    cards::choose_one(job, self.grid, *number, &self.names, rails)
                })
            });
            Ok((incarnation, choices.collect::<Result<Vec<_>, _>>()?))
        });
        let outcome = taken.map(|(incarnation, choices)| {
            if let Some(absent) = &mut engine.absent {
                absent.is_back(rank, incarnation);
            }
            let mut all = self.choices.lock().unwrap_or_else(PoisonError::into_inner);
            for (number, choice) in numbers.iter().zip(choices) {
                if let Some(place) = all.get_mut(*number as usize) {
                    *place = choice;
                }
            }
            incarnation
        });
        if outcome.is_err() {
            // All of its contexts, or none.
            numbers.iter().for_each(|number| engine.mtl.pml().lose_peer(self.grid.peer(*number), Lost::Broken));
        }
        drop(engine);
        self.settle();
        if let Ok(incarnation) = outcome
            && let Err(why) = self.launch.took_back(rank, incarnation)
        {
            log::warn!("rank {rank} was taken back, and cannot be told: {why}");
        }
        outcome
    }
}

impl Engine {
    /// Adds a peer that was lost by the rails that are chosen now.
    fn add(
        &mut self,
        grid: Grid,
        number: u32,
        params: &[u8],
        choose: impl FnOnce(&mut [crate::transports::rails::AnyRail]) -> Vec<Candidate>,
    ) -> Result<Vec<Candidate>, ReadmitError> {
        let chosen = choose(&mut self.mtl.pml().rails_mut().0);
        let reach =
            |rail: usize, _: &mut _| chosen.get(rail).and_then(Candidate::for_messages).ok_or(Unreachable::NoCard);
        if let Err(why) = self.mtl.add_peer(grid.peer(number), params, reach) {
            for (rail, candidate) in self.mtl.pml().rails_mut().0.iter_mut().zip(&chosen) {
                if let Verdict::Taken(endpoint) | Verdict::OneSided(endpoint) = candidate.verdict {
                    rail.del_peer(endpoint);
                }
            }
            let report = format!("{why}; {}", Report { peer: Peer(number), rails: &chosen });
            return Err(ReadmitError::Unreachable { rank: grid.address(number).rank, report });
        }
        Ok(chosen)
    }
}

/// Waits until all ranks that go on have taken this one back, which was started again: so nobody hears from it who takes it for
/// the old one. Those that are started again meanwhile it takes back itself.
pub(crate) fn wait_to_be_taken_back<L: Threads>(
    contexts: &[Made<L>],
    launch: &Launch,
    deadline: Instant,
) -> Result<(), SetupError> {
    let started = Instant::now();
    loop {
        for made in contexts {
            for rank in made.state.returned() {
                // One that is gone again will be back, or have come to its end.
                if let Err(why) = made.state.take_back(rank) {
                    log::warn!("{why}");
                }
            }
            // Those who have taken it back may connect already.
            made.state.progress();
        }
        let ranks = launch.not_taken_back_by();
        if ranks.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(SetupError::NotTakenBack { ranks, waited_ms: started.elapsed().as_millis() as u64 });
        }
        std::thread::sleep(LOOK);
    }
}
