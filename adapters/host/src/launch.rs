//! The process's tie to its launcher, shared by its contexts. No message's way leads past it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use towline_bootstrap::{Error, Job};
use towline_core::modex::Modex;

use crate::address::{Address, Grid};
use crate::cards::component;

/// The component under which a rank publishes which of its contexts went without a word.
const LOST: &str = "lost";

/// The job as its launcher knows it: whole processes.
pub(crate) struct Launch(Mutex<Tie>);

struct Tie {
    job: Job,
    grid: Grid,
    /// Contexts of this process that have not come to their end.
    open: u32,
    /// Numbers of contexts of all ranks that went without a word, in the order in which this process heard of it.
    lost: Vec<u32>,
}

impl Launch {
    /// For the contexts of a process; `grid` as any of them sees it.
    pub fn new(mut job: Job, grid: Grid) -> Self {
        // A process with one context is looked after by the launcher.
        for rank in (0..grid.ranks).filter(|rank| grid.contexts > 1 && *rank != grid.own.rank) {
            if let Err(why) = job.recv_nb(&component(LOST), rank) {
                log::warn!("contexts that rank {rank} loses may go unnoticed: {why}");
            }
        }
        Self(Mutex::new(Tie { job, grid, open: grid.contexts, lost: Vec::new() }))
    }

    /// A context came to its end in good order. The last one tells the launcher that this rank is done.
    pub fn finish(&self) -> Result<(), Error> {
        let mut tie = self.tie();
        tie.open = tie.open.saturating_sub(1);
        if tie.open == 0 { tie.job.finish() } else { Ok(()) }
    }

    /// Asks the launcher to end all ranks.
    pub fn abort(&self, code: i32, message: &str) -> Result<(), Error> {
        self.tie().job.abort(code, message)
    }

    /// Tells everyone that a context of this process went without a word.
    pub fn lose(&self, address: Address) {
        let mut tie = self.tie();
        let Some(number) = tie.grid.number(address).filter(|_| tie.grid.contexts > 1) else { return };
        tie.lost.push(number);
        let own = tie.lost.iter().map(|number| tie.grid.address(*number)).filter(|lost| lost.rank == address.rank);
        let indices: Vec<u8> = own.flat_map(|lost| lost.index.to_le_bytes()).collect();
        if let Err(why) = tie.job.publish(&component(LOST), &indices) {
            log::warn!("{address} is lost, and others cannot be told: {why}");
        }
    }

    /// The contexts that were lost, from the `heard`-th on. Does not wait: where another thread asks just now there are none.
    pub fn lost(&self, heard: usize) -> Vec<u32> {
        let mut guard = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return Vec::new(),
        };
        let tie = &mut *guard;
        while let Some(change) = tie.job.next_change() {
            let Ok(indices) = tie.job.card(&component(LOST), change.peer) else { continue };
            for index in indices.chunks_exact(4).filter_map(|index| index.try_into().ok()).map(u32::from_le_bytes) {
                let number = tie.grid.number(Address { rank: change.peer, index });
                tie.lost.extend(number.filter(|number| !tie.lost.contains(number)));
            }
        }
        tie.lost.get(heard..).unwrap_or_default().to_vec()
    }

    fn tie(&self) -> MutexGuard<'_, Tie> {
        // A thread that panicked in here has said less than it wanted, no more.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
