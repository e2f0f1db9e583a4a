//! The engine of one context, with the parts that the host adds to it: memory, time, the wait set, and tables beside the
//! requests. The modules below contain these parts and do not know the engine.

pub(crate) mod loopback_hub;
pub(crate) mod pending;
pub(crate) mod rank_table;
pub(crate) mod rma_ops;
pub(crate) mod scope_lists;

use towline_core::error::Blame;
use towline_core::mtl::{Comm, CommError, Group, Mtl};
use towline_core::rma::Registration;
use towline_core::time::{Duration, Instant};

use crate::job::ended_contexts::EndedContexts;
use crate::transports::memory::{Mapping, WindowMemory};
use crate::transports::rails::RailSet;
use crate::waiting::clock::Clock;
use crate::waiting::idle::{Idle, IdlePolicy, Step, blocked_sleep};
use crate::waiting::wait_set::WaitSet;
use loopback_hub::LoopbackHub;
use pending::{Completed, DetachedBuffer, Pending, PendingTable};
use rank_table::RankTable;
use rma_ops::{RetiredWindow, RmaOps};
use scope_lists::ScopeLists;

/// Everything that a context holds. The order of the fields is that in which they must be dropped: the rails stop using memory of
/// users before buffers are freed, and the memory of the engine is freed last.
pub(crate) struct Engine {
    pub mtl: Mtl<'static, RailSet>,
    pub pending: PendingTable,
    pub rma_ops: RmaOps,
    pub scope_lists: ScopeLists,
    /// The tables of communicators that are not the world.
    pub rank_tables: Vec<(Comm, RankTable)>,
    pub clock: Clock,
    pub idle_policy: IdlePolicy,
    pub wait_set: WaitSet,
    /// Some rail delays frames to send several at once, so the engine must be flushed.
    pub needs_flush: bool,
    /// `None` where the job has no other context.
    pub ended_contexts: Option<EndedContexts>,
    /// Turns in which something came; wraps.
    pub busy_turns: u32,
    /// The lowest context id that the next communicator may get.
    pub next_context_id: u32,
    /// Communicators that are being made, for which a place is kept.
    pub reserved_comms: u32,
    pub _loopback_hub: LoopbackHub,
    pub _memory: Mapping,
}

/// After this many turns in which something came, the engine looks for contexts that have ended. A power of two.
const BUSY_TURNS_PER_LOOK: u32 = 4096;

impl Engine {
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

    /// Makes progress once, and waits for a while if nothing came. Returns whether something came.
    #[inline]
    pub fn progress_or_idle(&mut self, idle: &mut Idle) -> bool {
        if self.mtl.progress(self.clock.now()) != 0 {
            idle.reset();
            self.note_busy();
            return true;
        }
        if idle.count() {
            self.idle(idle, || true);
        }
        false
    }

    /// A poll had an event. Ended contexts are still checked from time to time, since a thread may wait for one of them.
    #[inline]
    pub fn note_busy(&mut self) {
        self.busy_turns = self.busy_turns.wrapping_add(1);
        if self.busy_turns.is_multiple_of(BUSY_TURNS_PER_LOOK) {
            self.housekeeping();
        }
    }

    #[cold]
    fn housekeeping(&mut self) {
        self.release_retired_windows();
        let now = self.clock.renew();
        self.lose_ended_peer(now, Duration::from_nanos(0));
    }

    /// Gives up one peer whose context has ended, if there is one, and returns true. `idle`: for how long nothing has come.
    pub fn lose_ended_peer(&mut self, now: Instant, idle: Duration) -> bool {
        let Some((peer, why)) = self.ended_contexts.as_mut().and_then(|ended| ended.next(now, idle)) else {
            return false;
        };
        self.mtl.pml().lose_peer(peer, why);
        true
    }

    /// Nothing came for a while: yields, or sleeps if `may_sleep` agrees once all rails are armed.
    #[cold]
    pub fn idle(&mut self, idle: &mut Idle, may_sleep: impl FnOnce() -> bool) {
        self.release_retired_windows();
        let now = self.clock.renew();
        if idle.restart_if_sent(self.frames_sent()) {
            return;
        }
        if idle.step(&self.idle_policy, now) != Step::Sleep || self.lose_ended_peer(now, idle.elapsed(now)) {
            return;
        }
        if let Some(most) = self.arm(idle.elapsed(now))
            && may_sleep()
        {
            self.wait_set.sleep(self.mtl.pml().rails_mut(), most, now);
            self.clock.renew();
        }
    }

    /// Arms the rails, after nothing came for `idle`. Returns how long to sleep at most, in nanoseconds; `None` where there is
    /// work.
    pub fn arm(&mut self, idle: Duration) -> Option<u64> {
        if self.mtl.pml().arm() {
            Some(self.idle_policy.max_sleep())
        } else {
            blocked_sleep(idle).filter(|_| self.mtl.pml().arm_rails())
        }
    }

    /// When the first timer of a rail is due.
    pub fn poll_at(&self) -> Option<Instant> {
        self.mtl.rails().0.iter().filter_map(towline_core::rail::Rail::poll_at).min()
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

    /// The next completed request whose action must be taken outside of the engine, since it runs code of users.
    pub fn next_completed(&mut self) -> Option<Completed> {
        if let Some(buffer) = self.pending.next_to_free() {
            return Some(Completed::Free(buffer));
        }
        while let Some(request) = self.mtl.pml().next_completed() {
            match self.pending.entries.remove(&request.to_bits()) {
                Some(Pending::Waker(waker)) => return Some(Completed::Wake(waker)),
                Some(Pending::Thread(notifier)) => return Some(Completed::Notify(notifier)),
                Some(Pending::Buffer(buffer)) => {
                    let _ = self.mtl.test(request); // it is complete, and its slot is free now
                    return Some(Completed::Free(buffer));
                }
                Some(Pending::Windows(_)) | None => {}
            }
        }
        None
    }

    /// The moment that is `millis` milliseconds from now.
    pub fn deadline(&mut self, millis: u32) -> Instant {
        self.clock.renew() + Duration::from_millis(millis.into())
    }

    /// Records which one-sided operations are complete.
    pub fn note_completed_rma_ops(&mut self) {
        while let Some(finished) = self.mtl.pml().next_finished() {
            self.rma_ops.complete(finished);
        }
    }

    /// Ends the registration of a dropped window's memory. The memory is freed as soon as nothing is arriving in it. `buffer`: the
    /// owner of memory that is not the library's.
    pub fn retire_window(&mut self, registration: Registration, memory: WindowMemory, buffer: Option<DetachedBuffer>) {
        self.rma_ops.retired.push(RetiredWindow { registration, _memory: memory, buffer });
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
            } else if let Some(buffer) = window.buffer.take() {
                self.pending.free_later(buffer);
            }
        }
    }
}
