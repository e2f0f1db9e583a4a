//! The process's tie to its launcher, shared by its contexts. No message's way leads past it.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use towline_bootstrap::{End, Error, Job};

use crate::address::{Address, Grid};
use crate::cards;

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
    /// In the order in which this process heard of it.
    ended: Vec<Ended>,
    /// Numbers and incarnations of the same.
    known: HashSet<(u32, u32)>,
    /// Ranks that were started again since this process came up, and in which incarnation they are now.
    returned: BTreeMap<u32, u32>,
    /// Ranks that contexts of this process have taken back: in which incarnation, and how many contexts have.
    taken_back: BTreeMap<u32, (u32, u32)>,
    /// When the launcher may be asked again.
    ask_at: Instant,
}

/// A context that has ended.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    /// Its number.
    pub number: u32,
    /// Of which incarnation of its rank it was.
    pub incarnation: u32,
    /// It did not come to its end in good order.
    pub died: bool,
}

impl Launch {
    /// For the contexts of a process; `grid` as any of them sees it.
    pub fn new(job: Job, grid: Grid) -> Self {
        let (ended, known, ask_at) = (Vec::new(), HashSet::new(), Instant::now());
        let (returned, taken_back) = (BTreeMap::new(), BTreeMap::new());
        Self(Mutex::new(Tie { job, grid, open: grid.contexts, ended, known, returned, taken_back, ask_at }))
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

    /// The incarnation of this process.
    pub fn incarnation(&self) -> u32 {
        self.tie().job.incarnation()
    }

    /// Ranks that were started again since this process came up, with their incarnations, as far as the launcher has said so
    /// by now.
    pub fn returned(&self) -> Vec<(u32, u32)> {
        let mut tie = self.tie();
        tie.hear();
        tie.returned.iter().map(|(rank, incarnation)| (*rank, *incarnation)).collect()
    }

    /// Reads what ranks have published.
    pub fn read<T>(&self, read: impl FnOnce(&Job) -> T) -> T {
        read(&self.tie().job)
    }

    /// A context of this process has taken a rank back: once all have, the rank is told.
    pub fn took_back(&self, rank: u32, incarnation: u32) -> Result<(), Error> {
        let mut tie = self.tie();
        let place = tie.taken_back.entry(rank).or_default();
        let contexts = if place.0 == incarnation { place.1 + 1 } else { 1 };
        *place = (incarnation, contexts);
        tie.tell_taken_back()
    }

    /// All contexts of this process have come up with ranks that were started again, in these incarnations.
    pub fn came_up_with(&self, ranks: impl Iterator<Item = (u32, u32)>) -> Result<(), Error> {
        let mut tie = self.tie();
        let contexts = tie.grid.contexts;
        tie.taken_back.extend(ranks.map(|(rank, incarnation)| (rank, (incarnation, contexts))));
        if tie.taken_back.is_empty() { Ok(()) } else { tie.tell_taken_back() }
    }

    /// Ranks that go on and have not taken this one back, where it was started again.
    pub fn not_taken_back_by(&self) -> Vec<u32> {
        let mut tie = self.tie();
        tie.hear();
        let (job, own) = (&tie.job, (tie.job.rank(), tie.job.incarnation()));
        let others = (0..job.size()).filter(|rank| *rank != own.0 && !job.has_ended(*rank));
        others.filter(|rank| !cards::has_taken_back(job, *rank, own)).collect()
    }

    /// The contexts that have ended, from the `heard`-th on. Does not wait: where another thread asks just now there are
    /// none, and what the launcher says to a question of now is told later.
    pub fn ended(&self, heard: usize, ask: bool) -> Vec<Ended> {
        let mut guard = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return Vec::new(),
        };
        let tie = &mut *guard;
        tie.hear();
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
        self.note(own, self.job.incarnation(), died);
        self.job.part_ended(own.index, died)
    }

    /// Takes in what the launcher has said.
    fn hear(&mut self) {
        while let Some(End { rank, part, incarnation, died }) = self.job.next_end() {
            match part {
                Some(index) => self.note(Address { rank, index }, incarnation, died),
                None => self.note_all(rank, incarnation, died),
            }
        }
        while let Some((rank, incarnation)) = self.job.next_restart() {
            // Who is there once more has died before, whether that was told or not.
            self.note_all(rank, incarnation.saturating_sub(1), true);
            self.returned.insert(rank, incarnation);
        }
    }

    fn note_all(&mut self, rank: u32, incarnation: u32, died: bool) {
        (0..self.grid.contexts).for_each(|index| self.note(Address { rank, index }, incarnation, died));
    }

    fn note(&mut self, address: Address, incarnation: u32, died: bool) {
        let number = self.grid.number(address);
        if let Some(number) = number.filter(|number| self.known.insert((*number, incarnation))) {
            self.ended.push(Ended { number, incarnation, died });
        }
    }

    fn tell_taken_back(&mut self) -> Result<(), Error> {
        let all = self.taken_back.iter().filter(|(_, (_, contexts))| *contexts >= self.grid.contexts);
        let all = all.map(|(rank, (incarnation, _))| (*rank, *incarnation));
        cards::publish_taken_back(&mut self.job, all)
    }
}
