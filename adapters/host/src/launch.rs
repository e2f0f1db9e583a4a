//! The process's tie to its launcher, shared by its contexts. No message's way leads past it.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use towline_bootstrap::{End, Error, Job};

use crate::address::{Address, Grid};

/// The time between two questions to the launcher, at least. In a larger job more: it is asked a thousand times a second at
/// most.
const QUESTIONS: Duration = Duration::from_millis(500);

/// The job as its launcher knows it: whole processes.
pub(crate) struct Launch(Mutex<Tie>);

struct Tie {
    job: Job,
    grid: Grid,
    /// Contexts of this process that have not come to their end.
    open: u32,
    /// Numbers of contexts of all ranks that have ended, and whether they died, in the order in which this process heard of
    /// it.
    ended: Vec<(u32, bool)>,
    /// The same.
    known: HashSet<u32>,
    /// When the launcher may be asked again.
    ask_at: Instant,
}

impl Launch {
    /// For the contexts of a process; `grid` as any of them sees it.
    pub fn new(job: Job, grid: Grid) -> Self {
        let (ended, known, ask_at) = (Vec::new(), HashSet::new(), Instant::now());
        Self(Mutex::new(Tie { job, grid, open: grid.contexts, ended, known, ask_at }))
    }

    /// A context came to its end in good order. The last one tells the launcher that this rank is done.
    pub fn finish(&self, own: Address) -> Result<(), Error> {
        let mut tie = self.tie();
        tie.open = tie.open.saturating_sub(1);
        if tie.open == 0 { tie.job.finish() } else { tie.part(own, false) }
    }

    /// Asks the launcher to end all ranks.
    pub fn abort(&self, code: i32, message: &str) -> Result<(), Error> {
        self.tie().job.abort(code, message)
    }

    /// A context of this process went without a word. A process with one context is looked after by the launcher.
    pub fn lose(&self, own: Address) {
        let mut tie = self.tie();
        if tie.grid.contexts > 1
            && let Err(why) = tie.part(own, true)
        {
            log::warn!("{own} is lost, and others cannot be told: {why}");
        }
    }

    /// The contexts that have ended, and whether they died, from the `heard`-th on. Does not wait: where another thread asks just now there are
    /// none, and what the launcher says to a question of now is told later.
    pub fn ended(&self, heard: usize, ask: bool) -> Vec<(u32, bool)> {
        let mut guard = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return Vec::new(),
        };
        let tie = &mut *guard;
        while let Some(End { rank, part, died, .. }) = tie.job.next_end() {
            match part {
                Some(index) => tie.note(Address { rank, index }, died),
                None => (0..tie.grid.contexts).for_each(|index| tie.note(Address { rank, index }, died)),
            }
        }
        let now = Instant::now();
        if ask && now >= tie.ask_at {
            tie.ask_at = now + QUESTIONS.max(Duration::from_millis(tie.grid.ranks.into()));
            // Without the launcher there is nobody to ask, and operations that need it tell.
            let _ = tie.job.ask_for_ends();
        }
        tie.ended.get(heard..).unwrap_or_default().to_vec()
    }

    fn tie(&self) -> MutexGuard<'_, Tie> {
        // A thread that panicked in here has said less than it wanted, no more.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tie {
    /// One of the own contexts has ended, and others go on.
    fn part(&mut self, own: Address, died: bool) -> Result<(), Error> {
        self.note(own, died);
        self.job.part_ended(own.index, died)
    }

    fn note(&mut self, address: Address, died: bool) {
        if let Some(number) = self.grid.number(address).filter(|number| self.known.insert(*number)) {
            self.ended.push((number, died));
        }
    }
}
