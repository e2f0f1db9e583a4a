//! Who looks after the engine that several threads share, while they wait: at most one of them polls it, at most one sleeps on
//! its wait handle, all others are parked until their own request is over.
//!
//! What holds whenever the lock is free: if a thread is parked, then one polls, or one sleeps for all with the rails
//! armed or the bell rung, or a wake-up is on its way to a thread which will see to it. Each thread that lets the lock go asks
//! [`charge`](Duty::charge) for what that takes. Nobody is woken but for what he waits for, or to look after the engine.

use std::sync::Arc;

use super::parker::Parker;

/// The state, under the engine's lock. `At` is a moment.
#[derive(Debug)]
pub(crate) struct Duty<At> {
    /// Threads that let the lock go in the middle of a turn, and will go on with it.
    polled: u32,
    /// Until when the one sleeps who sleeps for all.
    asleep: Option<At>,
    /// Whether the bell was rung for that one.
    rung: bool,
    /// Who waits for a turn of others, first to last.
    parked: Vec<Arc<Parker>>,
    /// The progress thread, where there is one.
    thread: Option<Arc<Parker>>,
    /// Whether that waits for a while, since callers poll.
    thread_waits: bool,
    /// Whether a caller polled since the progress thread last asked.
    was_polled: bool,
}

/// What is to be done by who lets the lock go.
#[derive(Debug)]
pub(crate) enum Charge<At> {
    /// Nothing.
    Nothing,
    /// Someone sleeps: arm the rails again, and if there is work, or something is due earlier than this, ring the bell.
    Arm(At),
    /// Nobody looks after the engine: wake this one.
    Wake(Arc<Parker>),
}

impl<At: Copy> Duty<At> {
    pub fn new() -> Self {
        Self {
            polled: 0,
            asleep: None,
            rung: false,
            parked: Vec::new(),
            thread: None,
            thread_waits: false,
            was_polled: false,
        }
    }

    /// Whether another thread is in the middle of a turn.
    pub fn is_polled(&self) -> bool {
        self.polled != 0
    }

    /// A caller polls.
    pub fn note_poll(&mut self) {
        self.was_polled = true;
    }

    /// Whether the progress thread leaves the engine to callers: one polls, or did so since this was last asked and nobody
    /// waits; they come and go quickly. Or one lay down while the progress thread ran code of users.
    pub fn is_left_to_callers(&mut self) -> bool {
        let was_polled = std::mem::take(&mut self.was_polled);
        self.is_polled() || self.asleep.is_some() || (was_polled && self.parked.is_empty())
    }

    /// This thread lets the lock go for a moment, in the middle of a turn.
    pub fn step_aside(&mut self) {
        self.polled += 1;
    }

    /// It has the lock again.
    pub fn step_back(&mut self) {
        self.polled -= 1;
    }

    /// Whether nobody sleeps on the wait handle, and nobody else is there to do it.
    pub fn bed_is_free(&self) -> bool {
        self.asleep.is_none() && self.thread.is_none()
    }

    /// This thread sleeps on the wait handle, until then at most; the rails are armed.
    pub fn lie_down(&mut self, until: At) {
        (self.asleep, self.rung) = (Some(until), false);
    }

    /// It woke. Whether the bell was rung.
    pub fn get_up(&mut self) -> bool {
        self.asleep = None;
        std::mem::take(&mut self.rung)
    }

    /// The bell is about to be rung for the one who sleeps.
    pub fn ring(&mut self) {
        self.rung = true;
    }

    /// This thread waits for others.
    pub fn park(&mut self, parker: &Arc<Parker>) {
        self.parked.push(Arc::clone(parker));
    }

    /// It woke.
    pub fn unpark(&mut self, parker: &Arc<Parker>) {
        self.parked.retain(|other| !Arc::ptr_eq(other, parker));
    }

    /// There is a progress thread from now on, or there is none.
    pub fn set_thread(&mut self, parker: Option<Arc<Parker>>) {
        (self.thread, self.thread_waits) = (parker, false);
    }

    /// The progress thread.
    pub fn thread(&self) -> Option<&Arc<Parker>> {
        self.thread.as_ref()
    }

    /// The progress thread waits for a while, or does not any more. It is woken earlier where someone is parked.
    pub fn set_thread_waits(&mut self, waits: bool) {
        self.thread_waits = waits;
    }

    /// What is to be done before the lock is let go.
    pub fn charge(&self) -> Charge<At> {
        if self.polled != 0 {
            return Charge::Nothing; // that one sees to it
        }
        if let Some(until) = self.asleep {
            return if self.rung { Charge::Nothing } else { Charge::Arm(until) };
        }
        match &self.thread {
            Some(thread) if self.thread_waits && !self.parked.is_empty() => Charge::Wake(Arc::clone(thread)),
            Some(_) => Charge::Nothing, // it comes by itself
            None => self.parked.first().map_or(Charge::Nothing, |first| Charge::Wake(Arc::clone(first))),
        }
    }
}
