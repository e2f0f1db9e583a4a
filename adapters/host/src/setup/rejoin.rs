//! The rejoin of a restarted rank: its new process counts as another peer in the place of the former one.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use towline_core::rail::Lost;
use towline_dpu::Matching;

use crate::context::state::ContextState;
use crate::engine::Engine;
use crate::errors::rejoin::RejoinError;
use crate::errors::setup::SetupError;
use crate::job::cards;
use crate::job::launcher::Launcher;
use crate::setup::peers::add_chosen_peer;
use crate::threads::levels::Sharing;
use crate::threads::lock::EngineLock;
use crate::values::address::{Address, Grid};

/// The time between two readings of the launcher's messages.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

impl<L: Sharing> ContextState<L> {
    /// Restarted ranks that this context has not accepted yet.
    pub fn restarted(&self) -> Vec<u32> {
        if self.is_copy() {
            return Vec::new();
        }
        let restarted = self.launcher.restarted();
        if restarted.is_empty() {
            return Vec::new();
        }
        let engine = self.engine.lock();
        let known = |rank: u32| engine.ended_contexts.as_ref().map_or(u32::MAX, |ended| ended.incarnation(rank));
        restarted.into_iter().filter(|(rank, incarnation)| *incarnation > known(*rank)).map(|(rank, _)| rank).collect()
    }

    /// Waits until a rank was restarted, and accepts its new process.
    pub fn rejoin(&self, rank: u32, timeout: Duration) -> Result<u32, RejoinError> {
        self.check_process().map_err(RejoinError::Forked)?;
        if rank >= self.grid.ranks {
            return Err(RejoinError::NoSuchRank { rank, size: self.grid.ranks });
        }
        if rank == self.grid.own.rank {
            return Err(RejoinError::Itself { rank });
        }
        let started = Instant::now();
        loop {
            if self.restarted().contains(&rank) {
                return self.accept_restarted(rank);
            }
            let waited = started.elapsed();
            if waited >= timeout {
                return Err(RejoinError::NotRestarted { rank, waited_ms: waited.as_millis() as u64 });
            }
            self.progress();
            std::thread::sleep(LOOK_INTERVAL.min(timeout - waited));
        }
    }

    /// Accepts the new process of a rank that was restarted. Returns its incarnation.
    fn accept_restarted(&self, rank: u32) -> Result<u32, RejoinError> {
        let mut engine = self.engine.lock();
        let numbers = (0..self.grid.contexts).filter_map(|index| self.grid.number(Address { rank, index }));
        let numbers: Vec<u32> = numbers.collect();
        let lose_all = |engine: &mut Engine| {
            numbers.iter().for_each(|number| engine.mtl.pml().lose_peer(self.grid.peer(*number), Lost::Broken));
        };
        lose_all(&mut engine);
        // Receives from any source learn of the loss now: afterwards the peer counts as connected again.
        engine.poll();
        let outcome = self.add_restarted(&mut engine, rank, &numbers);
        if outcome.is_err() {
            lose_all(&mut engine); // either all contexts of the rank are accepted, or none
        }
        drop(engine);
        self.run_callbacks();
        if let Ok(incarnation) = outcome
            && let Err(why) = self.launcher.note_rejoined(rank, incarnation)
        {
            log::warn!(
                "rank {rank} was accepted again, but the launcher cannot be reached to publish that, so the rank may wait until its \
                 time-out: {why}"
            );
        }
        outcome
    }

    /// Adds all contexts of a restarted rank as peers, by the rails that its new cards lead to.
    fn add_restarted(&self, engine: &mut Engine, rank: u32, numbers: &[u32]) -> Result<u32, RejoinError> {
        if let Some(why) = engine.mtl.pml().rails_mut().dpu_mut().and_then(|dpu| why_not_again(dpu, self.grid)) {
            return Err(RejoinError::Unreachable { rank, report: why.into() });
        }
        // Everything is read under one lock, so that all of it belongs to one incarnation.
        let (incarnation, choices) = self.launcher.read(|job| {
            let incarnation = job.incarnation_of(rank).unwrap_or(0);
            if !cards::has_contexts(job, rank, self.grid.contexts) {
                return Err(RejoinError::Contexts { rank });
            }
            let limits = cards::engine_limits(job, rank).unwrap_or_default();
            let choices = numbers.iter().map(|number| {
                let rails = &mut engine.mtl.pml().rails_mut().0;
                let chosen = cards::choose_one(job, self.grid, *number, &self.rail_names, rails);
                let card = cards::dpu_card(job, rank, self.grid.address(*number).index);
                let added = add_chosen_peer(engine, self.grid.peer(*number), limits, card, chosen);
                added.map_err(|report| RejoinError::Unreachable { rank, report })
            });
            Ok((incarnation, choices.collect::<Result<Vec<_>, _>>()?))
        })?;
        if let Some(ended) = &mut engine.ended_contexts {
            ended.set_incarnation(rank, incarnation);
        }
        let mut all = self.rail_choices.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, choice) in numbers.iter().zip(choices) {
            if let Some(former) = all.get_mut(*number as usize) {
                *former = choice;
            }
        }
        Ok(incarnation)
    }
}

/// Why this process cannot accept a restarted rank that uses a DPU.
fn why_not_again(dpu: &Matching, grid: Grid) -> Option<&'static str> {
    if dpu.has_left_device() {
        return Some(
            "a DPU of the job has failed, so all messages go by other transports, which a new process does not know: start the job again",
        );
    }
    (grid.contexts != 1)
        .then_some("a DPU cannot accept a restarted rank of several contexts: use other transports, or one context")
}

/// Waits until all running ranks have accepted this rank, which was restarted. So the program sends nothing to a rank that takes
/// this process for the earlier one. Meanwhile this rank accepts other ranks that are restarted.
pub(crate) fn wait_until_accepted<L: Sharing>(
    contexts: &[&ContextState<L>],
    launcher: &Launcher,
    deadline: Instant,
) -> Result<(), SetupError> {
    let started = Instant::now();
    loop {
        for state in contexts {
            for rank in state.restarted() {
                // If that rank ended meanwhile, it will be restarted again, or it has finished.
                if let Err(why) = state.accept_restarted(rank) {
                    log::warn!("{why}");
                }
            }
            // Ranks that have accepted this one may connect already.
            state.progress();
        }
        let ranks = launcher.ranks_not_rejoined();
        if ranks.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(SetupError::NotRejoined { ranks, waited_ms: started.elapsed().as_millis() as u64 });
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}
