//! How time passes: who takes a turn, who sleeps and until when, and what comes next.
//!
//! A node with nothing to do sleeps as a program does ([`arm`](towline_core::pml::Pml::arm)): until something comes, or until
//! its engine wants to be called. One that slept too long would be late, or the job stuck.

use towline_core::time::Instant;

use super::state::Job;

/// How often, per mille of rounds, a node is woken though nothing has come.
const WAKE_WITHOUT_CAUSE: u32 = 20;

/// Nanoseconds for which a node whose sends find no room polls, and for which it then naps at most.
const IDLE_BEFORE_NAP: u64 = 1000;
const LONGEST_NAP: u64 = 200_000;

impl Job<'_> {
    /// Whether a node takes its turn now: it lives, neither stands still nor computes, and is awake or is to be.
    pub fn is_due(&mut self, at: usize) -> bool {
        let node = &mut self.nodes[at];
        if node.unavailable_until() > self.now {
            return false;
        }
        node.asleep &= self.net.wakes_at(at as u32) > self.now;
        !node.asleep
    }

    /// A node that did nothing in its turn goes to sleep, if its engine agrees. Where something is held back for which there is
    /// no room, or its program tries again and again, it naps for an eighth of the time in which nothing came or left.
    pub fn sleep(&mut self, at: usize, waits: bool) {
        let node = &mut self.nodes[at];
        let left = node.frames_sent();
        if std::mem::replace(&mut node.sent_before, left) != left {
            return node.idle_since = self.now;
        }
        let idle = self.now - node.idle_since;
        let engine = node.engine.pml();
        let nap = if waits && engine.arm() {
            u64::MAX
        } else if idle >= IDLE_BEFORE_NAP && engine.arm_rails() {
            (idle / 8).min(LONGEST_NAP)
        } else {
            return;
        };
        let due = engine.poll_at().map_or(u64::MAX, Instant::as_nanos);
        self.net.set_wakes_at(at as u32, due.min(self.now.saturating_add(nap)));
        node.asleep = true;
    }

    /// All nodes take their turn again: something has happened to them.
    pub fn wake_all(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.asleep = false);
    }

    /// Programs look at their engines at times when nothing has come.
    pub fn wake_one_without_cause(&mut self) {
        if self.random.chance(WAKE_WITHOUT_CAUSE) {
            let at = self.random.below(self.nodes.len() as u64) as usize;
            self.nodes[at].asleep = false;
        }
    }

    /// Moves the clock: a little after activity, else to whatever comes next, else ever faster.
    pub fn advance_clock(&mut self, active: bool, idle: u32, still: u32) {
        let step = if active {
            (1 + self.random.below(self.pace)) << (still / 600).min(3)
        } else {
            100 << (idle / 100).min(16)
        };
        let step = step.max(self.links.filter(|_| still > 600).map_or(0, |links| links.dead_after / 2000));
        // Or a look would follow the other before anything could be answered. And where the rails never run dry it is looked after
        // a thousand polls, for which no program takes as long as its time-out.
        let step = step.min(self.stall_timeout.map_or(u64::MAX, |stall| stall / 2048));
        let timed = self.links.is_some() || self.stall_timeout.is_some();
        let mut awake = false;
        let mut next = self.next_event_at().unwrap_or(u64::MAX);
        for (at, node) in (0..).zip(&mut self.nodes) {
            let waits = node.unavailable_until();
            let due = if waits > self.now {
                waits
            } else if node.asleep {
                self.net.wakes_at(at)
            } else {
                awake = true;
                node.engine.pml().poll_at().map_or(u64::MAX, Instant::as_nanos)
            };
            // One that is overdue, since a rail has no room for what is to be done, comes up a little later.
            next = next.min(if due > self.now { due } else { self.now + step });
        }
        self.now = match next {
            u64::MAX => self.now + step,
            next if !awake || (!active && (idle < 50 || timed)) => next,
            _ => self.now + step,
        };
    }
}
