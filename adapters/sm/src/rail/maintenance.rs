//! Maintenance: work that is due from time to time and is not worth doing in each poll.

use towline_core::rail::Event;
use towline_core::time::{Duration, Instant};

use super::incoming::Incoming;
use super::state::{NO_RING, Rail};
use crate::doorbell;

/// Rings that are always polled, however quiet.
const ALWAYS_ACTIVE: usize = 4;
/// Rounds of maintenance after which quiet rings are no longer polled each time.
const SORTING_ROUNDS: u32 = 64;

impl Rail {
    /// One round of maintenance.
    #[cold]
    #[inline(never)]
    pub(super) fn maintain(&mut self, now: Instant) -> Option<Event> {
        let woken = self.waiting.armed;
        if woken {
            self.end_sleep();
        }
        if doorbell::has_rung(self.control.doorbell(), self.doorbell.seen) {
            self.map_announced();
        }
        let due = now >= self.next_liveness_check;
        if due {
            let interval = u64::try_from(self.config.liveness_interval.as_nanos()).unwrap_or(u64::MAX);
            self.next_liveness_check = now + Duration::from_nanos(interval);
        }
        if due || woken {
            self.check_peers(due);
        }
        if due {
            self.unmap_withdrawn_regions();
        }
        if self.waiting.owes_wakes {
            self.wake_again();
        }
        if self.ring_locks.held != 0 {
            self.unlock_rings();
        }
        self.sort_rings();
        if self.to_report == 0 {
            return None;
        }
        self.schedule.turns_left = 0;
        self.report()
    }

    /// Moves rings that have frames to the active list, and quiet ones off it.
    fn sort_rings(&mut self) {
        let mut at = 0;
        while let Some(&ring) = self.schedule.quiet.get(at) {
            if self.rings.get(ring as usize).map(|ring| &ring.incoming).is_some_and(Incoming::has_frame) {
                self.schedule.quiet.swap_remove(at);
                self.schedule.active.push(ring);
            } else {
                at += 1;
            }
        }
        self.schedule.maintenance_rounds = self.schedule.maintenance_rounds.wrapping_add(1);
        if !self.schedule.maintenance_rounds.is_multiple_of(SORTING_ROUNDS) {
            return;
        }
        let mut at = 0;
        while let Some(&ring) = self.schedule.active.get(at) {
            let Some(incoming) = self.rings.get_mut(ring as usize).map(|ring| &mut ring.incoming) else { break };
            let quiet = incoming.position_when_sorted == incoming.receiver.position();
            incoming.position_when_sorted = incoming.receiver.position();
            if quiet && self.schedule.active.len() > ALWAYS_ACTIVE {
                self.schedule.active.swap_remove(at);
                self.schedule.fast_ring = NO_RING;
                self.schedule.quiet.push(ring);
            } else {
                at += 1;
            }
        }
    }
}
