//! Which of several threads makes progress on a shared engine while they wait. At most one of them polls the engine, at most one
//! sleeps on its wait set, and all others are parked until their own request is complete.
//!
//! The invariant holds whenever the lock is free: if a thread is parked, or a task of another executor waits, then one thread
//! polls; or one thread sleeps on the wait set with the rails armed or its wake-up signalled; or a wake-up is on its way to a
//! thread that will restore the invariant. Where only tasks wait, the reactor may sleep instead of a thread.
//! Each thread that releases the lock asks [`handoff`](WaitCoordinator::handoff) which step it must take for that. A thread is
//! woken only by the event that it waits for, or to make progress.

use std::sync::Arc;

use super::parker::Parker;

/// The state of the waiting threads, under the engine's lock. `At` is a moment.
#[derive(Debug)]
pub(crate) struct WaitCoordinator<At> {
    /// Threads that released the lock in the middle of a turn and will go on with the turn.
    polling: u32,
    /// Until when a thread sleeps on the wait set, if one does.
    asleep_until: Option<At>,
    /// Whether the wake-up of that thread was signalled.
    signalled: bool,
    /// Threads that wait while another one makes progress, in the order in which they came.
    parked: Vec<Arc<Parker>>,
    /// The parker of the progress thread, if there is one.
    progress_thread: Option<Arc<Parker>>,
    /// Whether the progress thread pauses, because callers poll.
    progress_thread_pauses: bool,
    /// Whether a caller polled since the progress thread last asked.
    caller_polled: bool,
    /// Whether the reactor has been asked to wake a task, and no thread has polled since.
    handed_over: bool,
}

/// The step that a thread must take before it releases the lock.
#[derive(Debug)]
pub(crate) enum Handoff<At> {
    /// Nothing.
    Nothing,
    /// A thread sleeps on the wait set until this moment: arm the rails again. If there is work, or something is due earlier,
    /// signal the wake-up.
    Arm(At),
    /// No thread makes progress: wake this one.
    Wake(Arc<Parker>),
    /// No thread makes progress, and tasks of other executors wait: arm the rails, and have the reactor wake a task when there is
    /// something to do.
    Reactor,
}

impl<At: Copy> WaitCoordinator<At> {
    pub fn new() -> Self {
        Self {
            polling: 0,
            asleep_until: None,
            signalled: false,
            parked: Vec::new(),
            progress_thread: None,
            progress_thread_pauses: false,
            caller_polled: false,
            handed_over: false,
        }
    }

    /// Whether another thread is in the middle of a turn.
    pub fn is_polling(&self) -> bool {
        self.polling != 0
    }

    /// A caller polls. Returns whether the reactor must be told that no task has to be woken for now.
    #[must_use]
    pub fn note_poll(&mut self) -> bool {
        self.caller_polled = true;
        std::mem::take(&mut self.handed_over)
    }

    /// Whether the progress thread leaves the engine to callers. It does while a caller polls; while a caller sleeps on the wait
    /// set, which began while the progress thread ran code of users; and where a caller polled since this was last asked and no
    /// thread is parked, since such callers come and go quickly.
    pub fn is_left_to_callers(&mut self) -> bool {
        let caller_polled = std::mem::take(&mut self.caller_polled);
        self.is_polling() || self.asleep_until.is_some() || (caller_polled && self.parked.is_empty())
    }

    /// The calling thread releases the lock for a moment, in the middle of a turn.
    pub fn begin_pause(&mut self) {
        self.polling += 1;
    }

    /// The thread has the lock again.
    pub fn end_pause(&mut self) {
        self.polling -= 1;
    }

    /// Whether the calling thread may sleep on the wait set: no thread does, and no progress thread is there to do it.
    pub fn may_sleep(&self) -> bool {
        self.asleep_until.is_none() && self.progress_thread.is_none()
    }

    /// The calling thread sleeps on the wait set, at most until that moment. The rails are armed.
    pub fn begin_sleep(&mut self, until: At) {
        (self.asleep_until, self.signalled) = (Some(until), false);
    }

    /// The thread woke. Returns whether its wake-up was signalled.
    pub fn end_sleep(&mut self) -> bool {
        self.asleep_until = None;
        std::mem::take(&mut self.signalled)
    }

    /// The wake-up of the thread on the wait set is about to be signalled.
    pub fn note_signal(&mut self) {
        self.signalled = true;
    }

    /// The thread of that parker waits while others make progress.
    pub fn park(&mut self, parker: &Arc<Parker>) {
        self.parked.push(Arc::clone(parker));
    }

    /// The thread woke.
    pub fn unpark(&mut self, parker: &Arc<Parker>) {
        self.parked.retain(|other| !Arc::ptr_eq(other, parker));
    }

    /// Sets the progress thread, or says that there is none.
    pub fn set_progress_thread(&mut self, parker: Option<Arc<Parker>>) {
        (self.progress_thread, self.progress_thread_pauses) = (parker, false);
    }

    /// The parker of the progress thread.
    pub fn progress_thread(&self) -> Option<&Arc<Parker>> {
        self.progress_thread.as_ref()
    }

    /// The progress thread begins or ends a pause. It is woken from the pause if a thread is parked.
    pub fn set_progress_thread_pauses(&mut self, pauses: bool) {
        self.progress_thread_pauses = pauses;
    }

    /// The step that the calling thread must take before it releases the lock. `tasks_wait`: tasks of other executors wait.
    pub fn handoff(&mut self, tasks_wait: bool) -> Handoff<At> {
        if self.polling != 0 {
            return Handoff::Nothing; // the polling thread makes progress
        }
        if let Some(until) = self.asleep_until {
            return if self.signalled { Handoff::Nothing } else { Handoff::Arm(until) };
        }
        match &self.progress_thread {
            Some(thread) if self.progress_thread_pauses && !self.parked.is_empty() => Handoff::Wake(Arc::clone(thread)),
            Some(_) => Handoff::Nothing, // the progress thread looks by itself
            None => match self.parked.first() {
                Some(first) => Handoff::Wake(Arc::clone(first)),
                None if tasks_wait => {
                    self.handed_over = true;
                    Handoff::Reactor
                }
                None => Handoff::Nothing,
            },
        }
    }
}
