//! The engine of one context, with the parts that the host adds to it: memory, time, the wait set, and tables beside the
//! requests. The modules below contain these parts and do not know the engine.

pub(crate) mod caller_wait;
pub(crate) mod completion_queue;
pub(crate) mod kept_requests;
pub(crate) mod loopback_hub;
pub(crate) mod of_child;
pub(crate) mod pending;
pub(crate) mod rank_table;
pub(crate) mod reporter;
pub(crate) mod reporting;
pub(crate) mod rma_ops;
pub(crate) mod scope_lists;
pub(crate) mod tasks;
pub(crate) mod unmatched;
pub(crate) mod waits;

use std::task::Waker;

use towline_bootstrap::report::{ALL_CONTEXTS, Unmatched};
use towline_core::error::Blame;
use towline_core::mtl::{Comm, CommError, Failure, Group, Mtl, Request};
use towline_core::pml::Rails as _;
use towline_core::rail::{Lost, Peer};
use towline_core::rma::Registration;
use towline_core::time::{Duration, Instant};

use crate::job::ended_contexts::EndedContexts;
use crate::transports::memory::{Mapping, WindowMemory};
use crate::transports::rails::{AnyRail, RailSet};
use crate::waiting::clock::Clock;
use crate::waiting::idle::{Idle, IdlePolicy, MAX_BLOCKED_SLEEP, Step, blocked_sleep};
use crate::waiting::reactor::AwaitedByTask;
use crate::waiting::wait_set::WaitSet;
use caller_wait::CallerWait;
use completion_queue::CompletionQueue;
use kept_requests::KeptRequests;
use loopback_hub::LoopbackHub;
use pending::{Completed, DetachedBuffer, FormerEntry, Pending, PendingTable};
use rank_table::RankTable;
use reporter::{Reporter, Reporting};
use rma_ops::{OpFailure, OpId, RetiredWindow, RmaOps};
use scope_lists::ScopeLists;
use tasks::Tasks;
use waits::{Wait, WaitFor, Waits};

/// Everything that a context holds. The order of the fields is that in which they must be dropped: the rails stop using memory of
/// users before buffers are freed, and the memory of the engine is freed last.
pub(crate) struct Engine {
    pub mtl: Mtl<'static, RailSet>,
    pub pending: PendingTable,
    pub tasks: Tasks,
    pub caller_wait: CallerWait,
    pub rma_ops: RmaOps,
    pub scope_lists: ScopeLists,
    pub completion_queue: CompletionQueue,
    /// The tables of communicators that are not the world.
    pub rank_tables: Vec<(Comm, RankTable)>,
    pub clock: Clock,
    /// When [`poll_and_look`](Self::poll_and_look) last did what depends on the time.
    pub looked_at: Instant,
    pub idle_policy: IdlePolicy,
    pub wait_set: WaitSet,
    /// Some rail delays frames to send several at once, so the engine must be flushed.
    pub needs_flush: bool,
    /// Requests for whose outcome other threads wait in a blocking call. Counted only where several threads use the engine.
    pub awaited_requests: u32,
    /// `None` where the job has no other context.
    pub ended_contexts: Option<EndedContexts>,
    /// `None` where there is no launcher that may ask for reports.
    pub reporter: Option<Reporter>,
    /// The waits of threads that sleep, if several threads share the engine.
    pub waits: Waits,
    /// Messages of communicators that were dropped, which no receive has taken.
    pub dropped_messages: Unmatched,
    /// Once the world has ended: when all peers are given up, and how many there are.
    pub end_of_world: Option<(Instant, u32)>,
    /// Turns in which something came; wraps.
    pub busy_turns: u32,
    /// Operations that a call of this process has ended, so that no event tells of it; wraps.
    pub ended_by_calls: u32,
    /// Links that went down, and peers that were lost, when warnings of the rails were last passed on; wraps.
    pub losses_seen: u64,
    /// The lowest context id that the next communicator may get.
    pub next_context_id: u32,
    /// Communicators that are being made, for which a place is kept.
    pub reserved_comms: u32,
    /// The requests for collective operations.
    pub kept_requests: KeptRequests,
    /// It is the engine of a forked child, and refuses everything.
    pub is_of_child: bool,
    pub loopback_hub: LoopbackHub,
    pub _memory: Mapping,
}

/// After this many turns in which something came, the engine looks for contexts that have ended. A power of two.
const BUSY_TURNS_PER_LOOK: u32 = 4096;

/// How long messages may take that were sent before the world ended at all ranks.
const LAST_MESSAGES: Duration = Duration::from_millis(1000);

impl Engine {
    /// An engine of these parts, without an operation and without a connection to a launcher. `memory` is that of the other parts.
    pub fn new(
        mtl: Mtl<'static, RailSet>,
        idle_policy: IdlePolicy,
        wait_set: WaitSet,
        loopback_hub: LoopbackHub,
        memory: Mapping,
    ) -> Self {
        Self {
            mtl,
            pending: PendingTable::default(),
            tasks: Tasks::default(),
            caller_wait: CallerWait::default(),
            rma_ops: RmaOps::default(),
            scope_lists: ScopeLists::new(0),
            completion_queue: CompletionQueue::default(),
            rank_tables: Vec::new(),
            clock: Clock::new(),
            looked_at: Instant::ZERO,
            idle_policy,
            wait_set,
            needs_flush: false,
            awaited_requests: 0,
            ended_contexts: None,
            reporter: None,
            waits: Waits::default(),
            dropped_messages: Unmatched::default(),
            end_of_world: None,
            busy_turns: 0,
            ended_by_calls: 0,
            losses_seen: 0,
            next_context_id: ALL_CONTEXTS + 1,
            reserved_comms: 0,
            kept_requests: KeptRequests::default(),
            is_of_child: false,
            loopback_hub,
            _memory: memory,
        }
    }

    /// Adds a communicator of these peers, in which this context is rank `rank`. A lasting communicator also includes the new
    /// process of a rank that is restarted.
    pub fn add_table_comm(
        &mut self,
        context_id: u32,
        peers: Box<[u32]>,
        rank: u32,
        lasting: bool,
    ) -> Result<Comm, CommError> {
        let table = RankTable::new(peers);
        // SAFETY: the table is kept in `rank_tables` until the communicator was deleted. Where no communicator was made, nothing
        // refers to the table.
        let group = Group::Table(unsafe { table.get() });
        let made = match lasting {
            true => self.mtl.add_lasting_comm(context_id, group, rank),
            false => self.mtl.add_comm(context_id, group, rank),
        };
        made.inspect(|comm| self.rank_tables.push((*comm, table)))
    }

    /// Makes progress once, and waits for a while if nothing came. Returns whether something came. `what`: the awaited event.
    #[inline]
    pub fn progress_or_idle(&mut self, idle: &mut Idle, what: impl FnOnce() -> WaitFor) -> bool {
        if self.mtl.progress(self.clock.now()) != 0 {
            idle.reset();
            self.note_busy(|now| Reporting::Waits(Wait { what: what(), since: idle.began(now) }));
            return true;
        }
        idle.count(&self.idle_policy) && self.idle(idle, what(), || true)
    }

    /// A poll had an event. Ended contexts are still checked from time to time, since a thread may wait for one of them, and the
    /// launcher may ask for a report. `by`: the calling thread.
    #[inline]
    pub fn note_busy(&mut self, by: impl FnOnce(Instant) -> Reporting) {
        self.busy_turns = self.busy_turns.wrapping_add(1);
        if self.busy_turns.is_multiple_of(BUSY_TURNS_PER_LOOK) {
            let now = self.clock.renew();
            self.housekeeping(now, by(now));
        }
    }

    #[cold]
    fn housekeeping(&mut self, now: Instant, by: Reporting) {
        self.release_retired_windows();
        self.lose_ended_peer(now, Duration::from_nanos(0));
        self.report_if_asked(now, by);
    }

    /// Waits for spare rails as well once some peer uses one. To be called before each sleep: a wait set may be replaced.
    fn wait_for_spares(&mut self) {
        let rails = self.mtl.pml().rails_mut();
        if !rails.uses_spares() {
            return;
        }
        self.needs_flush |= rails.0.iter().any(|rail| matches!(rail, AnyRail::Udp(_)));
        if let WaitSet::Futex(_) = self.wait_set {
            let (rails, bell) = rails.watched_mut();
            let wait_set = WaitSet::new(rails, rails.len(), bell);
            self.wait_set = wait_set.unwrap_or_else(|why| {
                log::warn!("waiting ranks sleep for short times only, since there is no wait handle: {why}");
                WaitSet::Timer
            });
        } else {
            self.wait_set.watch_spares(&rails.0);
        }
    }

    /// Passes a warning of the rails on to the launcher, if a link went down or a peer was lost since the last time.
    fn pass_warning_on(&mut self) {
        let counters = self.mtl.counters();
        let losses = counters.links_down.wrapping_add(counters.lost);
        if losses != self.losses_seen {
            self.losses_seen = losses;
            self.warn();
        }
    }

    /// Passes the warning of the rails on to the launcher, if there is one. The launcher prints it once.
    pub fn warn(&self) {
        if let Some((warning, ended)) = self.mtl.rails().warning().zip(self.ended_contexts.as_ref()) {
            ended.warn(warning);
        }
    }

    /// The world has ended, in which this context has `peers` peers. Operations that outlive it end with an error, unless their
    /// messages are on the way.
    pub fn end_world(&mut self, peers: u32) {
        self.pass_warning_on(); // a short program may never have been idle
        self.end_of_world = Some((self.clock.renew() + LAST_MESSAGES, peers));
    }

    /// Gives up one peer whose context has ended, if there is one, and returns true. `idle`: for how long nothing has come.
    pub fn lose_ended_peer(&mut self, now: Instant, idle: Duration) -> bool {
        self.pass_warning_on();
        if let Some((_, peers)) = self.end_of_world.take_if(|(at, _)| now >= *at) {
            (0..peers).for_each(|peer| self.mtl.pml().lose_peer(Peer(peer), Lost::Closed));
            return true;
        }
        let Some((peer, why)) = self.ended_contexts.as_mut().and_then(|ended| ended.next(now, idle)) else {
            return false;
        };
        self.mtl.pml().lose_peer(peer, why);
        true
    }

    /// Nothing came for a while: yields, or sleeps if `may_sleep` agrees once all rails are armed. `what`: the awaited event.
    /// Returns whether something came.
    #[cold]
    pub fn idle(&mut self, idle: &mut Idle, what: WaitFor, may_sleep: impl FnOnce() -> bool) -> bool {
        self.release_retired_windows();
        let now = self.clock.renew();
        if idle.restart_if_sent(self.frames_sent()) {
            return false;
        }
        match idle.step(&self.idle_policy, now) {
            Step::Poll => return false,
            Step::Yield => {
                rustix::thread::sched_yield();
                let after = self.clock.renew();
                let came = self.mtl.progress(after) != 0;
                self.idle_policy.note_yield(now, after, came);
                if came {
                    idle.reset();
                }
                return came;
            }
            Step::Sleep if self.lose_ended_peer(now, idle.elapsed(now)) => return false,
            Step::Sleep => {}
        }
        self.report_if_asked(now, Reporting::Waits(Wait { what, since: idle.began(now) }));
        self.wait_for_spares();
        if let Some(most) = self.arm(idle.elapsed(now))
            && may_sleep()
        {
            self.wait_set.sleep(self.mtl.pml().rails_mut(), most, now);
            self.clock.renew();
        }
        false
    }

    /// Arms the rails, after nothing came for `idle`. Returns how long to sleep at most, in nanoseconds; `None` where there is
    /// work.
    pub fn arm(&mut self, idle: Duration) -> Option<u64> {
        let completed = self.rma_ops.completed;
        self.note_completed_rma_ops();
        if self.rma_ops.completed != completed {
            return None; // this thread may wait for one of them
        }
        if self.mtl.pml().arm() {
            let look = self.ended_contexts.as_ref().map_or(u64::MAX, EndedContexts::max_sleep);
            Some(self.idle_policy.max_sleep().min(look))
        } else {
            blocked_sleep(idle).filter(|_| self.mtl.pml().arm_rails())
        }
    }

    /// When the first timer of a rail is due.
    pub fn poll_at(&self) -> Option<Instant> {
        let rails = self.mtl.rails();
        rails.0.iter().take(rails.polled()).filter_map(towline_core::rail::Rail::poll_at).min()
    }

    /// Frames that were sent so far; wraps.
    pub fn frames_sent(&self) -> u64 {
        let counters = self.mtl.counters();
        let messages = counters.eager_sent.wrapping_add(counters.rendezvous_sent);
        messages.wrapping_add(counters.fragments_sent).wrapping_add(counters.frames_migrated)
    }

    /// Makes progress once, at the present time. Returns how many events there were.
    pub fn poll(&mut self) -> u32 {
        self.clock.renew_coarsely();
        self.release_retired_windows();
        self.mtl.progress(self.clock.now())
    }

    /// As [`poll`](Self::poll), for a caller that does not wait in the library, and comes again later. Looks for ended contexts,
    /// too, if nothing came, and answers the launcher.
    pub fn poll_and_look(&mut self) -> u32 {
        self.clock.renew_coarsely();
        self.release_retired_windows();
        let events = self.poll_more();
        // The rest depends on the time, which goes in ticks.
        if self.clock.now() == self.looked_at { events } else { self.look(events) }
    }

    /// Polls once more, directly after [`poll_and_look`](Self::poll_and_look).
    #[inline]
    pub fn poll_more(&mut self) -> u32 {
        let events = self.mtl.progress(self.clock.now());
        if events != 0 {
            self.tasks.note_events();
            self.note_busy(|_| Reporting::Polls);
        }
        events
    }

    /// Answers the launcher, and looks for ended contexts if a poll has found no `events`. Returns how many events there were.
    #[cold]
    #[inline(never)]
    fn look(&mut self, events: u32) -> u32 {
        let now = self.clock.now();
        self.looked_at = now;
        self.report_if_asked(now, Reporting::Polls);
        if events == 0 {
            let quiet = self.tasks.note_quiet(now);
            return self.lose_ended_peer(now, quiet).into();
        }
        events
    }

    /// Registers a task of another executor that awaits a request. An error: the system gives no descriptor or no thread.
    pub fn watch_task(&mut self, request: Request, waker: Waker) -> std::io::Result<FormerEntry> {
        let reactor = self.tasks.make_reactor()?;
        reactor.ensure_runner()?;
        let operation = request.to_bits();
        let former = reactor.add(operation, waker);
        let entries = &mut self.pending.entries;
        let entry = match entries.get(&operation) {
            Some(Pending::Task(_)) => None,
            _ => entries.insert(operation, Pending::Task(AwaitedByTask::new(reactor, operation))),
        };
        Ok(FormerEntry { _waker: former, _entry: entry })
    }

    /// Has a task in the current runtime of tokio wake tasks, in place of a thread.
    #[cfg(feature = "tokio")]
    pub fn attach_tokio(&mut self) -> std::io::Result<()> {
        crate::waiting::tokio::attach(self.tasks.make_reactor()?)
    }

    /// The thread that holds the engine leaves it. If tasks of other executors wait, the reactor wakes one of them when there is
    /// something to do.
    #[cold]
    pub fn hand_over(&mut self) {
        if !self.tasks.are_waiting() {
            return;
        }
        self.note_completed_rma_ops();
        let now = self.clock.renew();
        let mut due = now + Duration::from_nanos(self.idle_policy.max_sleep());
        if self.mtl.pml().arm() {
            self.tasks.note_armed();
        } else {
            // A rail that gets room may wake a task earlier.
            let _ = self.mtl.pml().arm_rails();
            due = self.tasks.retry_at(now);
        }
        let Self { mtl, tasks, .. } = self;
        let (rails, bell) = mtl.pml().rails_mut().watched_mut();
        let timers = rails.iter().filter_map(towline_core::rail::Rail::poll_at);
        let due = timers.fold(due, Instant::min);
        if let Some(reactor) = tasks.reactor() {
            reactor.arm((rails, bell), due);
        }
    }

    /// A number that differs whenever an operation may have ended since.
    fn changes(&self) -> u64 {
        let events = u64::from(self.busy_turns).wrapping_add(self.rma_ops.completed);
        events.wrapping_add(self.ended_by_calls.into()).wrapping_add(self.mtl.counters().lost)
    }

    /// Prepares for a sleep of a caller on its wait handle. `false`: the caller must look at its operations again first.
    pub fn arm_caller(&mut self) -> std::io::Result<bool> {
        self.note_completed_rma_ops();
        let changes = self.changes();
        if self.caller_wait.begin(changes)? {
            return Ok(false);
        }
        if self.needs_flush {
            self.mtl.pml().flush(); // it may set timers
        }
        let now = self.clock.renew();
        let look = self.ended_contexts.as_ref().map_or(u64::MAX, EndedContexts::max_sleep);
        let due = now + Duration::from_nanos(self.idle_policy.max_sleep().min(look));
        // Before the rails are armed: shared memory has peers wake this process by the descriptor only once there is one.
        let mut due = self.caller_wait.watch(self.mtl.pml().rails_mut().watched_mut(), now, due);
        if self.mtl.pml().arm() {
            self.tasks.note_armed();
        } else {
            let retry = self.tasks.retry_at(now);
            if retry <= now || !self.mtl.pml().arm_rails() {
                return Ok(false);
            }
            due = due.min(retry); // a frame waits for room
        }
        let due = self.poll_at().map_or(due, |timer| due.min(timer));
        self.caller_wait.sleep(due);
        Ok(true)
    }

    /// Another thread has used the engine while a caller sleeps, and leaves it: ends that sleep if there is something to do, and
    /// arms the rails again otherwise.
    #[cold]
    pub fn hand_over_to_caller(&mut self) {
        if self.caller_wait.has_missed(self.changes()) {
            return self.caller_wait.wake();
        }
        // Such a short sleep waits for room on a rail. Then it is enough to arm the rails, although frames wait to be sent.
        let is_short = self.caller_wait.is_short(self.clock.now(), MAX_BLOCKED_SLEEP);
        let is_armed = self.mtl.pml().arm() || (is_short && self.mtl.pml().arm_rails());
        match self.poll_at() {
            _ if !is_armed => self.caller_wait.wake(),
            Some(timer) => self.caller_wait.wake_by(timer),
            None => {}
        }
    }

    /// Ends the sleep of a caller if something came.
    #[cold]
    pub fn notify_caller(&mut self) {
        if self.caller_wait.has_missed(self.changes()) {
            self.caller_wait.wake();
        }
    }

    /// The next completed request whose action must be taken outside of the engine, since it runs code of users.
    pub fn next_completed(&mut self) -> Option<Completed> {
        if let Some(buffer) = self.pending.next_to_free() {
            return Some(Completed::Free(buffer));
        }
        while let Some(request) = self.mtl.pml().next_completed() {
            match self.pending.entries.remove(&request.to_bits()) {
                Some(Pending::Waker(waker)) => return Some(Completed::Wake(waker)),
                Some(Pending::Task(task)) => {
                    if let Some(waker) = task.take() {
                        return Some(Completed::Wake(waker));
                    }
                }
                Some(Pending::Thread(notifier)) => return Some(Completed::Notify(notifier)),
                Some(Pending::Buffer(buffer)) => {
                    self.pending.dropped -= u32::from(buffer.ends_by_itself);
                    // It is complete, and its slot is free now. A receive that was dropped ends as cancelled.
                    let outcome = self.mtl.test(request);
                    let failed = matches!(outcome, Some(Err(why)) if why != Failure::Cancelled);
                    self.pending.failed_sends = self.pending.failed_sends.wrapping_add(failed.into());
                    return Some(Completed::Free(buffer));
                }
                Some(Pending::Windows(_)) => {}
                None => {
                    if let Some(completed) = self.take_queued(request) {
                        self.completion_queue.push(completed);
                    }
                }
            }
        }
        None
    }

    /// Takes the outcome of a completed request, if it is in the care of the completion queue.
    #[inline]
    fn take_queued(&mut self, request: Request) -> Option<completion_queue::Completed> {
        let entry = self.completion_queue.remove(request)?;
        self.mtl.test(request).map(|outcome| completion_queue::Completed { entry, outcome })
    }

    /// Whether [`next_queued`](Self::next_queued) may have a completion.
    #[inline]
    pub fn may_have_queued(&mut self) -> bool {
        self.completion_queue.has_ready() || self.mtl.pml().has_completed()
    }

    /// The next completion of the queue. The completed requests that need code of users stay, for
    /// [`next_completed`](Self::next_completed).
    #[inline]
    pub fn next_queued(&mut self) -> Option<completion_queue::Completed> {
        if self.completion_queue.has_ready() {
            return self.completion_queue.pop();
        }
        if !self.pending.entries.is_empty() {
            return None;
        }
        let request = self.mtl.pml().next_completed()?;
        self.take_queued(request)
    }

    /// Keeps free requests for collective operations, as far as some are missing.
    #[inline]
    pub fn keep_requests(&mut self) {
        self.kept_requests.fill(&mut self.mtl);
    }

    /// Frees one of the requests that are kept for collective operations. Returns `false` if there is none.
    pub fn free_kept_request(&mut self) -> bool {
        self.kept_requests.free_one(&mut self.mtl)
    }

    /// Whether a request may become free without a further call by the calling thread.
    pub fn may_free_requests(&mut self) -> bool {
        self.pending.dropped != 0 || self.awaited_requests != 0 || self.mtl.pml().detached() != 0
    }

    /// The moment that is `millis` milliseconds from now.
    pub fn deadline(&mut self, millis: u32) -> Instant {
        self.clock.renew() + Duration::from_millis(millis.into())
    }

    /// Records which one-sided operations are complete.
    pub fn note_completed_rma_ops(&mut self) {
        while let Some(finished) = self.mtl.pml().next_finished() {
            self.rma_ops.complete(OpId::Engine(finished.operation), finished.result.map_err(OpFailure::Engine));
        }
        if let Some(dpu) = self.mtl.pml().rails_mut().dpu_mut() {
            while let Some((access, result)) = dpu.next_access() {
                self.rma_ops.complete(OpId::Dpu(access), result.map_err(OpFailure::Dpu));
            }
        }
    }

    /// Frees the memory of a window, whose registration has ended.
    pub fn free_window_memory(&mut self, memory: WindowMemory) {
        if let WindowMemory::Dpu(part) = memory
            && let Some(dpu) = self.mtl.pml().rails_mut().dpu_mut()
        {
            dpu.close_window(*part);
        }
    }

    /// Ends the registration of a dropped window's memory. The memory is freed as soon as nothing is arriving in it. `buffer`:
    /// the owner of memory that is not the library's.
    pub fn retire_window(&mut self, registration: Registration, memory: WindowMemory, buffer: Option<DetachedBuffer>) {
        if self.is_of_child {
            // The mapping may not exist in the child, and other memory may have its address.
            return std::mem::forget((memory, buffer));
        }
        self.rma_ops.retired.push(RetiredWindow { registration, memory, buffer });
        self.release_retired_windows();
    }

    /// Ends the registration of memory. Returns false while something is arriving in it; nothing begins to arrive any more.
    pub fn end_registration(&mut self, registration: Registration) -> bool {
        !self.mtl.pml().deregister(registration).is_err_and(|why| why.blame() == Blame::Resource)
    }

    /// Frees the memory of dropped windows in which nothing is arriving any more.
    #[inline]
    pub fn release_retired_windows(&mut self) {
        if !self.rma_ops.retired.is_empty() {
            self.try_release_retired_windows();
        }
    }

    #[cold]
    fn try_release_retired_windows(&mut self) {
        for mut window in std::mem::take(&mut self.rma_ops.retired) {
            if !self.end_registration(window.registration) {
                self.rma_ops.retired.push(window);
                continue;
            }
            if let Some(buffer) = window.buffer.take() {
                self.pending.free_later(buffer);
            }
            self.free_window_memory(window.memory);
        }
    }
}
