//! The tasks that await operations of an engine, beside the table of pending requests.

use std::sync::Arc;
use std::task::Waker;

use towline_core::time::{Duration, Instant};

use crate::waiting::idle::MAX_BLOCKED_SLEEP;
use crate::waiting::reactor::{OwnReactor, Reactor};

/// Which tasks run in our own executor, and the reactor for all others.
#[derive(Default)]
pub(crate) struct Tasks {
    /// The wakers of the threads that are in `block_on`.
    own: Vec<Waker>,
    reactor: Option<OwnReactor>,
    /// Since when polls of callers that do not wait in the library have found nothing.
    quiet_since: Option<Instant>,
    /// How often in a row the rails could not be armed, while nothing came.
    refusals: u32,
}

impl Tasks {
    /// A thread enters `block_on`.
    pub fn enter(&mut self, waker: &Waker) {
        self.own.push(waker.clone());
    }

    /// A thread leaves `block_on`.
    pub fn leave(&mut self, waker: &Waker) {
        if let Some(at) = self.own.iter().position(|own| own.will_wake(waker)) {
            self.own.swap_remove(at);
        }
    }

    /// Whether this is the waker of a thread in `block_on`, which makes progress. A future that combines others may have made a
    /// waker of its own.
    pub fn is_own(&self, waker: &Waker) -> bool {
        self.own.iter().any(|own| own.will_wake(waker))
    }

    /// Whether tasks of other executors wait.
    pub fn are_waiting(&self) -> bool {
        self.reactor.as_ref().is_some_and(|reactor| reactor.0.has_tasks())
    }

    /// The reactor, if there is one.
    pub fn reactor(&self) -> Option<&Arc<Reactor>> {
        self.reactor.as_ref().map(|reactor| &reactor.0)
    }

    /// The reactor, which is made at the first call.
    pub fn make_reactor(&mut self) -> std::io::Result<&Arc<Reactor>> {
        let reactor = match self.reactor.take() {
            Some(reactor) => reactor,
            None => OwnReactor(Reactor::new()?),
        };
        Ok(&self.reactor.insert(reactor).0)
    }

    /// A thread uses the engine, and hands over later.
    pub fn disarm(&self) {
        if let Some(reactor) = &self.reactor {
            reactor.0.disarm();
        }
    }

    /// Something came.
    #[inline]
    pub fn note_events(&mut self) {
        (self.quiet_since, self.refusals) = (None, 0);
    }

    /// Nothing came. Returns for how long.
    pub fn note_quiet(&mut self, now: Instant) -> Duration {
        now.since(*self.quiet_since.get_or_insert(now))
    }

    /// The rails were armed.
    pub fn note_armed(&mut self) {
        self.refusals = 0;
    }

    /// The rails could not be armed: there is work, or a frame waits for room. Returns when to try again: at once, or ever later
    /// while that changes nothing.
    pub fn retry_at(&mut self, now: Instant) -> Instant {
        let pause = if self.refusals == 0 { 0 } else { 50_000 << self.refusals.min(5) };
        self.refusals = self.refusals.saturating_add(1);
        now + Duration::from_nanos(pause).min(MAX_BLOCKED_SLEEP)
    }
}
