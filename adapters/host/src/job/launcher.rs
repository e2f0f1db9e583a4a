//! The connection of a process to its launcher. The contexts of the process share it. It is not on the path of messages.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use towline_bootstrap::report::{Report, Unmatched, UnmatchedPolicy};
use towline_bootstrap::{End, Error, Job};

use crate::job::cards;
use crate::values::address::{Address, Grid};

/// The shortest time between two questions to the launcher. It is longer in large jobs, so that all ranks together ask at most a
/// thousand times a second.
const QUESTION_INTERVAL: Duration = Duration::from_millis(500);

/// The connection to the launcher, behind a lock. For the launcher a rank is done when all contexts of its process are.
pub(crate) struct Launcher {
    /// The incarnation of this process.
    pub incarnation: u32,
    state: Mutex<LauncherState>,
    lost_peers: Mutex<LostPeers>,
}

/// Ranks that were lost to operations of this process.
#[derive(Default)]
struct LostPeers {
    /// All of them. The launcher is told of each once.
    known: HashSet<u32>,
    /// Those of which the launcher was not told yet.
    untold: Vec<u32>,
}

struct LauncherState {
    job: Job,
    grid: Grid,
    /// Contexts of this process that have not finished.
    running_contexts: u32,
    /// Contexts that have ended, in the order in which this process learned of their ends.
    ended: Vec<EndedContext>,
    /// Numbers and incarnations of the contexts in `ended`.
    ended_known: HashSet<(u32, u32)>,
    /// Ranks that were restarted since this process came up, and their present incarnation.
    restarted: BTreeMap<u32, u32>,
    /// Restarted ranks that contexts of this process have accepted: the incarnation, and how many contexts have accepted it.
    rejoined: BTreeMap<u32, (u32, u32)>,
    /// When the launcher may be asked again.
    ask_at: Instant,
    /// Whether a warning was passed on to the launcher.
    warned: bool,
}

/// A context that has ended.
#[derive(Clone, Copy)]
pub(crate) struct EndedContext {
    /// Its number.
    pub number: u32,
    /// The incarnation of its rank that it belonged to.
    pub incarnation: u32,
    /// It did not finish normally.
    pub died: bool,
    /// It left early, when all of its messages had been sent.
    pub left: bool,
}

impl Launcher {
    /// For the contexts of a process. `grid` may be that of any of them. `warned`: users know that shared memory lacks room.
    pub fn new(job: Job, grid: Grid, warned: bool) -> Self {
        let incarnation = job.incarnation();
        let state = Mutex::new(LauncherState {
            job,
            grid,
            running_contexts: grid.contexts,
            ended: Vec::new(),
            ended_known: HashSet::new(),
            restarted: BTreeMap::new(),
            rejoined: BTreeMap::new(),
            ask_at: Instant::now(),
            warned,
        });
        Self { incarnation, state, lost_peers: Mutex::default() }
    }

    /// Records that a context finished normally. The last context of the process reports to the launcher that this rank is done.
    pub fn finish(&self, own: Address) -> Result<(), Error> {
        let mut state = self.lock();
        state.running_contexts = state.running_contexts.saturating_sub(1);
        if state.running_contexts == 0 { state.job.finish() } else { state.report_ended(own, false) }
    }

    /// Records that a context has left early, all of its messages having been sent. Other ranks learn of it at once. The last
    /// context of the process reports to the launcher that this rank is done, unless it has `failed`.
    pub fn leave(&self, own: Address, failed: bool) -> Result<(), Error> {
        let mut state = self.lock();
        state.running_contexts = state.running_contexts.saturating_sub(1);
        let last = state.running_contexts == 0;
        if last && !failed {
            return state.job.leave();
        }
        let incarnation = state.job.incarnation();
        state.note_ended(own, incarnation, failed, true);
        state.job.announce_leave((!last).then_some(own.index), failed, true)?;
        if last { Ok(()) } else { state.job.part_ended(own.index, failed) }
    }

    /// Tells other ranks that a context leaves, although some of its messages have yet to be sent. [`leave`](Self::leave) follows.
    pub fn announce_leave(&self, own: Address, failed: bool) -> Result<(), Error> {
        let mut state = self.lock();
        let last = state.running_contexts == 1;
        state.job.announce_leave((!last).then_some(own.index), failed, false)
    }

    /// Records that an operation has failed because a rank was lost or had finished, and tells the launcher, once for each rank.
    /// If this process fails later, the launcher looks for the cause at that rank. Does not wait for other threads that use the
    /// connection: the next call tells the launcher then.
    pub fn note_lost_peer(&self, rank: u32) {
        let mut lost = self.lost_peers.lock().unwrap_or_else(PoisonError::into_inner);
        if lost.known.insert(rank) {
            lost.untold.push(rank);
        }
        drop(lost);
        if let Ok(mut state) = self.state.try_lock() {
            self.tell_lost_peers(&mut state);
        }
    }

    fn tell_lost_peers(&self, state: &mut LauncherState) {
        let mut lost = self.lost_peers.lock().unwrap_or_else(PoisonError::into_inner);
        for rank in lost.untold.drain(..) {
            // The launcher then misses a hint only.
            let _ = state.job.lost_peer(rank);
        }
    }

    /// Tells the launcher that the program of this rank fails, with the text of its error or panic.
    pub fn report_failing(&self, panic: bool, text: &str) {
        let mut state = self.lock();
        self.tell_lost_peers(&mut state);
        // The launcher also sees the end of the process.
        let _ = state.job.failing(panic, text);
    }

    /// Asks the launcher to end all ranks.
    pub fn abort(&self, code: i32, message: &str) -> Result<(), Error> {
        let mut state = self.lock();
        self.tell_lost_peers(&mut state);
        state.job.abort(code, message)
    }

    /// Has the launcher print a warning that shared memory lacks room, unless it has printed one for this job before.
    pub fn warn(&self, text: &str) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.warned, true) {
            let _ = state.job.warn(text); // without a launcher that can be reached, only the log has the warning
        }
    }

    /// Reports that a context of this process was lost. If it is the only one, the launcher notices the end of the process
    /// anyway.
    pub fn report_lost(&self, own: Address) {
        let mut state = self.lock();
        self.tell_lost_peers(&mut state);
        if state.grid.contexts > 1
            && let Err(why) = state.report_ended(own, true)
        {
            log::warn!("{own} is lost, and the launcher cannot be told, so other ranks may wait for it: {why}");
        }
    }

    /// Ranks that were restarted since this process came up, with their incarnations, as far as the launcher has said so.
    pub fn restarted(&self) -> Vec<(u32, u32)> {
        let mut state = self.lock();
        state.read_messages();
        state.restarted.iter().map(|(rank, incarnation)| (*rank, *incarnation)).collect()
    }

    /// Reads the publications of ranks.
    pub fn read<T>(&self, read: impl FnOnce(&Job) -> T) -> T {
        read(&self.lock().job)
    }

    /// Changes what a caller that carries publications itself has given.
    pub fn change<T>(&self, change: impl FnOnce(&mut Job) -> T) -> T {
        change(&mut self.lock().job)
    }

    /// Records that a context of this process has accepted a restarted rank. The rank is notified once all contexts have.
    pub fn note_rejoined(&self, rank: u32, incarnation: u32) -> Result<(), Error> {
        let mut state = self.lock();
        let entry = state.rejoined.entry(rank).or_default();
        let contexts = if entry.0 == incarnation { entry.1 + 1 } else { 1 };
        *entry = (incarnation, contexts);
        state.publish_rejoined()
    }

    /// Records ranks that had been restarted before this process came up, and their incarnations. All contexts of this process
    /// have accepted them.
    pub fn note_restarted_before(&self, ranks: impl Iterator<Item = (u32, u32)>) -> Result<(), Error> {
        let mut state = self.lock();
        let contexts = state.grid.contexts;
        state.rejoined.extend(ranks.map(|(rank, incarnation)| (rank, (incarnation, contexts))));
        if state.rejoined.is_empty() { Ok(()) } else { state.publish_rejoined() }
    }

    /// Running ranks that have not yet accepted this rank, which was restarted.
    pub fn ranks_not_rejoined(&self) -> Vec<u32> {
        let mut state = self.lock();
        state.read_messages();
        let (job, own) = (&state.job, (state.job.rank(), state.job.incarnation()));
        let others = (0..job.size()).filter(|rank| *rank != own.0 && !job.has_ended(*rank));
        others.filter(|rank| !cards::has_rejoined(job, *rank, own)).collect()
    }

    /// The contexts that have ended, without the first `seen` of them. `ask`: ask the launcher for more. Does not wait: the
    /// result is empty while another thread uses the connection, and the launcher's answer comes with a later call.
    pub fn ended(&self, seen: usize, ask: bool) -> Vec<EndedContext> {
        let mut guard = match self.state.try_lock() {
            Ok(guard) => guard,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return Vec::new(),
        };
        let state = &mut *guard;
        state.read_messages();
        let now = Instant::now();
        if ask && now >= state.ask_at {
            state.ask_at = now + QUESTION_INTERVAL.max(Duration::from_millis(state.grid.ranks.into()));
            // If the launcher cannot be reached, operations that need it report that.
            let _ = state.job.ask_for_ends();
        }
        state.ended.get(seen..).unwrap_or_default().to_vec()
    }

    /// Whether a launcher supervises this process, and prints its reports.
    pub fn is_supervised(&self) -> bool {
        self.lock().job.has_launcher()
    }

    /// The number of the launcher's last question for a report; 0 if there is none. Does not wait: the result is 0 while another
    /// thread uses the connection.
    pub fn report_question(&self) -> u32 {
        self.state.try_lock().map_or(0, |mut state| state.job.report_asked())
    }

    /// Sends the report of a context to the launcher: see [`Job::send_report`].
    pub fn send_report(&self, question: u32, report: &Report) {
        // If the launcher cannot be reached, operations that need it report that.
        let _ = self.lock().job.send_report(question, report);
    }

    /// Tells the launcher which messages a context has not received.
    pub fn send_unmatched(&self, unmatched: &Unmatched, policy: UnmatchedPolicy) {
        // If the launcher cannot be reached, the end of the context reports that.
        let _ = self.lock().job.send_unmatched(unmatched, policy);
    }

    fn lock(&self) -> MutexGuard<'_, LauncherState> {
        // A thread that panicked while it held the lock left the state consistent: at most it has not sent everything.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LauncherState {
    /// Reports to the launcher that a context of this process has ended while others go on.
    fn report_ended(&mut self, own: Address, died: bool) -> Result<(), Error> {
        self.note_ended(own, self.job.incarnation(), died, false);
        self.job.part_ended(own.index, died)
    }

    /// Reads the launcher's messages.
    fn read_messages(&mut self) {
        while let Some(End { rank, part, incarnation, died, left }) = self.job.next_end() {
            match part {
                Some(index) => self.note_ended(Address { rank, index }, incarnation, died, left),
                None => self.note_rank_ended(rank, incarnation, died, left),
            }
        }
        while let Some((rank, incarnation)) = self.job.next_restart() {
            // The former process of a restarted rank has died, whether the launcher said so or not.
            self.note_rank_ended(rank, incarnation.saturating_sub(1), true, false);
            self.restarted.insert(rank, incarnation);
        }
    }

    fn note_rank_ended(&mut self, rank: u32, incarnation: u32, died: bool, left: bool) {
        (0..self.grid.contexts).for_each(|index| self.note_ended(Address { rank, index }, incarnation, died, left));
    }

    fn note_ended(&mut self, address: Address, incarnation: u32, died: bool, left: bool) {
        let number = self.grid.number(address);
        if let Some(number) = number.filter(|number| self.ended_known.insert((*number, incarnation))) {
            self.ended.push(EndedContext { number, incarnation, died, left });
        }
    }

    /// Publishes the restarted ranks that all contexts of this process have accepted.
    fn publish_rejoined(&mut self) -> Result<(), Error> {
        let all = self.rejoined.iter().filter(|(_, (_, contexts))| *contexts >= self.grid.contexts);
        let all = all.map(|(rank, (incarnation, _))| (*rank, *incarnation));
        cards::publish_rejoined(&mut self.job, all)
    }
}
