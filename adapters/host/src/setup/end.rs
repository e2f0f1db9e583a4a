//! The end of a context: it finishes together with the others, or leaves early.

use std::io::Write as _;

use towline_bootstrap::report::UnmatchedPolicy;
use towline_core::time::{Duration, Instant};

use crate::collectives::finish::FinishBarrier;
use crate::context::state::ContextState;
use crate::engine::pending::Pending;
use crate::errors::setup::SetupError;
use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::threads::lock::{Awaited, EngineGuard, EngineLock};
use crate::values::tags::FINISH_TAGS;
use crate::waiting::idle::Idle;

/// How long a context that leaves waits until others receive what it sent last. After that, all others learn that it leaves.
const LEAVE_LIMIT: Duration = Duration::from_millis(500);

impl<L: Threads> ContextState<L> {
    /// Waits until all other contexts of this index finish, too, and until the messages of this one have been sent.
    pub(crate) fn finish(&self, all: &Communicator<L>) -> Result<(), SetupError> {
        let (started, deadline) = self.end_period();
        // The program receives nothing any more. A rank that waits for a receive of its message must not wait for this one.
        let failed_before = {
            let mut engine = self.engine.lock();
            engine.refuse_unexpected(FINISH_TAGS);
            engine.pending.failed_sends
        };
        all.send_last_messages(deadline);
        let FinishBarrier { timed_out, lost } = all.finish_barrier(deadline);
        let sent = self.drain_detached(deadline) & self.drain_frames(deadline);
        let (waited_ms, failed) = {
            let mut engine = self.engine.lock();
            (engine.clock.renew().since(started).as_nanos() / 1_000_000, engine.pending.failed_sends != failed_before)
        };
        // Where ranks were lost, some messages have no receive for that reason.
        let unmatched = if lost.is_empty() && !timed_out { self.report_unmatched() } else { Ok(()) };
        // Communicators of the program may live longer. Their operations report that the world was finished.
        self.engine.lock().mtl.del_comms();
        lost.iter().for_each(|rank| self.launcher.note_lost_peer(*rank));
        if !lost.is_empty() {
            Err(SetupError::LostRanks { ranks: lost, waited_ms })
        } else if timed_out {
            Err(SetupError::Finish { waited_ms })
        } else if failed || !sent {
            Err(SetupError::Unsent { waited_ms })
        } else {
            unmatched
        }
    }

    /// Reports the messages that this context has not received: to the launcher, which prints them for all ranks, or to the user
    /// where there is none.
    fn report_unmatched(&self) -> Result<(), SetupError> {
        let (unmatched, policy) = (self.engine.lock().unmatched(self.grid), self.config.unmatched);
        if unmatched.count == 0 || policy == UnmatchedPolicy::Ignore {
            return Ok(());
        }
        if self.launcher.is_supervised() {
            self.launcher.send_unmatched(&unmatched, policy);
        } else if policy == UnmatchedPolicy::Warn {
            // Standard error may be closed.
            let _ = writeln!(std::io::stderr(), "towline: warning: {unmatched} (TOWLINE_UNMATCHED)");
        }
        if policy == UnmatchedPolicy::Error { Err(SetupError::Unmatched(unmatched)) } else { Ok(()) }
    }

    /// Leaves without waiting for the programs of other ranks: sends what was sent before, and tells the other ranks. `failed`: for
    /// these this is a failure, and the launcher waits for the end of the process.
    pub(crate) fn leave(&self, failed: bool) -> Result<(), SetupError> {
        let (started, deadline) = self.end_period();
        self.engine.lock().refuse_unexpected(0..0);
        let soon = started + LEAVE_LIMIT;
        let mut sent = self.drain_detached(soon);
        if !self.drain_all_frames(soon) {
            // Some rank takes no messages now. The others must not wait for it.
            self.launcher.announce_leave(self.grid.own, failed)?;
            sent &= self.drain_all_frames(deadline);
        }
        // A program that fails has not received all messages for that reason.
        let unmatched = if failed { Ok(()) } else { self.report_unmatched() };
        self.engine.end_progress_thread();
        {
            let mut engine = self.engine.lock();
            engine.mtl.del_comms();
            if failed {
                engine.mtl.pml().rails_mut().end_as_failure();
            }
        }
        self.engine.lock().end_world(self.grid.total());
        self.launcher.leave(self.grid.own, failed)?;
        let waited_ms = self.engine.lock().clock.renew().since(started).as_nanos() / 1_000_000;
        if sent { unmatched } else { Err(SetupError::Unsent { waited_ms }) }
    }

    /// The time now, and the time at which the end must be over.
    fn end_period(&self) -> (Instant, Instant) {
        let mut engine = self.engine.lock();
        let now = engine.clock.renew();
        engine.note_finish(now);
        (now, engine.deadline(self.config.finish_timeout_ms))
    }

    /// Waits until all frames have been sent, also to contexts of another index, which go on. Returns whether that was so before
    /// `deadline`.
    fn drain_frames(&self, deadline: Instant) -> bool {
        // The barrier has done this for all peers of a context that is the only one of its process.
        self.grid.contexts == 1 || self.drain_all_frames(deadline)
    }

    /// Waits until all frames have been sent. Returns whether that was so before `deadline`.
    fn drain_all_frames(&self, deadline: Instant) -> bool {
        let mut idle = Idle::default();
        let mut engine = self.engine.lock();
        while !engine.mtl.pml().is_drained() {
            if engine.clock.renew() >= deadline {
                return false;
            }
            engine.progress_or_wait(&mut idle, &Awaited::Anything, Some(deadline));
        }
        true
    }

    /// Waits until the sends of dropped operations are complete. Returns whether that was so before `deadline`.
    fn drain_detached(&self, deadline: Instant) -> bool {
        let mut idle = Idle::default();
        loop {
            self.run_callbacks();
            let mut engine = self.engine.lock();
            let detached = engine.pending.entries.values().any(|entry| matches!(entry, Pending::Buffer(_)));
            if !detached {
                return true;
            }
            if engine.clock.renew() >= deadline {
                return false;
            }
            engine.progress_or_wait(&mut idle, &Awaited::Anything, Some(deadline));
        }
    }
}
