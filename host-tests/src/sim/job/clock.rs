//! The clock: which nodes take a turn, which sleep and until when, and which event is next.
//!
//! A node with nothing to do sleeps as a program does ([`arm`](towline_core::pml::Pml::arm)): until something arrives,
//! or until its engine must be called. A node that sleeps too long makes the job late or stuck.

use towline_core::time::Instant;

use super::standstill::Standstill;
use super::state::Job;

/// How often, per mille of rounds, a node is woken although nothing has arrived.
const WAKE_WITHOUT_CAUSE: u32 = 20;

/// A node whose sends find no room polls for this many nanoseconds, and then naps.
const IDLE_BEFORE_NAP: u64 = 1000;

/// The longest nap in nanoseconds.
const LONGEST_NAP: u64 = 200_000;

impl Job<'_> {
    /// Whether a node takes its turn now: it is alive, neither stalled nor computing, and awake.
    pub fn is_due(&mut self, at: usize) -> bool {
        let node = &mut self.nodes[at];
        if node.unavailable_until() > self.now {
            return false;
        }
        node.asleep &= self.net.wakes_at(at as u32) > self.now;
        !node.asleep
    }

    /// A node that did nothing in its turn goes to sleep, if its engine agrees. If something is held back because there
    /// is no room, or if its program must retry, it naps for an eighth of the time since
    /// something last arrived or was sent.
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

    /// Wakes all nodes, since something has happened to them.
    pub fn wake_all(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.asleep = false);
    }

    /// Sometimes wakes a node without a cause, since programs also call their engines when nothing has arrived.
    pub fn wake_one_without_cause(&mut self) {
        if self.random.chance(WAKE_WITHOUT_CAUSE) {
            let at = self.random.below(self.nodes.len() as u64) as usize;
            self.nodes[at].asleep = false;
        }
    }

    /// Advances the clock: by a little after activity, otherwise to the next event. Without an event the steps grow.
    pub fn advance_clock(&mut self, active: bool, standstill: &Standstill) {
        let Standstill { idle_rounds, still_rounds, .. } = *standstill;
        let step = if active {
            (1 + self.random.below(self.pace)) << (still_rounds / 600).min(3)
        } else {
            100 << (idle_rounds / 100).min(16)
        };
        let step = step.max(self.links.filter(|_| still_rounds > 600).map_or(0, |links| links.dead_after / 2000));
        // The stall time-out is checked several times within its duration. With longer steps, one check would follow the
        // other before any peer could answer. While events keep arriving, the check comes after a thousand polls; a real
        // program makes that many in far less than its time-out.
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
            // A node that is overdue because a rail has no room is called a little later.
            next = next.min(if due > self.now { due } else { self.now + step });
        }
        self.now = match next {
            u64::MAX => self.now + step,
            next if !awake || (!active && (idle_rounds < 50 || timed)) => next,
            _ => self.now + step,
        };
    }
}
