//! Whether a peer is still there: time limits, probes, and silence that is excused.

use super::checksum::Checksum;
use super::header::Kind;
use super::path::{Path, State, Why};
use super::state::Link;
use crate::rail::{Endpoint, FullRail, Liveness};

/// A peer that is probed is not given up before it has missed so many.
const TRIES: u8 = 32;

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// When something is to be done for a peer, if nothing comes from it.
    pub(super) fn deadline(&self, at: u32) -> Option<u64> {
        let path = self.paths.get(at as usize)?;
        match path.state {
            State::Free | State::Quiet | State::Closed => None,
            State::Greeting => Some(path.probe_at.min(self.dead_at(at)?)),
            State::Down => Some(path.probe_at),
            State::Up => {
                let next = [self.resend_at(at), self.dead_at(at), Some(path.probe_at)].into_iter().flatten().min();
                next.filter(|due| *due != u64::MAX)
            }
        }
    }

    /// When the peer counts as dead, unless its host excuses it until later.
    pub(super) fn dead_at(&self, at: u32) -> Option<u64> {
        let path = self.paths.get(at as usize)?;
        self.silent_at(at).map(|due| due.max(path.excused_until))
    }

    /// When the peer has been silent for too long. One that is probed has to have missed enough of that: who polls seldom hears seldom.
    pub(super) fn silent_at(&self, at: u32) -> Option<u64> {
        let path = self.paths.get(at as usize)?;
        let within = match path.state {
            State::Greeting => self.config.hello_within,
            _ => self.config.dead_after,
        };
        let (since, owes) = if self.probes(path) {
            (self.sign_of_life(path), path.tries >= TRIES)
        } else {
            (self.proven_at(path).max(path.owes_since), path.owes_since != 0)
        };
        owes.then_some(since.max(self.began).saturating_add(within.as_nanos()).max(self.grace))
    }

    /// Whether silence is answered by probes.
    pub(super) fn probes(&self, path: &Path) -> bool {
        path.state == State::Up && self.config.heartbeat.as_nanos() != 0
    }

    /// When the peer was last known to be there, as far as anybody could know.
    pub(super) fn sign_of_life(&self, path: &Path) -> u64 {
        self.proven_at(path).max(if path.kept == 0 { 0 } else { path.owes_since })
    }

    /// When the peer last gave a sign of life. Of one that is to acknowledge something, and is probed, to be heard is not
    /// enough: it may be that it hears nothing itself.
    pub(super) fn proven_at(&self, path: &Path) -> u64 {
        if self.probes(path) && path.kept != 0 { path.answered_at } else { path.heard_at }
    }

    pub(super) fn set_timer(&mut self, at: u32) {
        if let Some(due) = self.deadline(at) {
            self.timers.set(at, due);
        }
    }

    /// Does what is due.
    pub(super) fn run_timers(&mut self) {
        for _ in 0..16 {
            let Some(at) = self.timers.pop(self.now) else { return };
            self.run_timer(at);
            self.set_timer(at);
        }
    }

    pub(super) fn run_timer(&mut self, at: u32) {
        let now = self.now;
        let Some(path) = self.paths.get(at as usize) else { return };
        if matches!(path.state, State::Greeting | State::Up) && self.dead_at(at).is_some_and(|due| due <= now) {
            if self.is_behind() {
                self.wait_for_sign(at, self.config.urgent());
            } else if !self.excuse(at) {
                return self.down(at, Why::TimedOut);
            }
        }
        let Some(path) = self.paths.get(at as usize) else { return };
        match path.state {
            State::Greeting if path.probe_at <= now => {
                self.hello(at);
                self.put_off(at, self.config.most_timeout.as_nanos());
                self.tell_unmet(at);
            }
            State::Down if path.probe_at <= now => self.try_again(at),
            State::Up => {
                if self.resend_at(at).is_some_and(|due| due <= now) {
                    self.look_for_lost(at);
                }
                self.keep_up(at);
            }
            _ => {}
        }
    }

    /// The next attempt comes after twice the time.
    pub(super) fn put_off(&mut self, at: u32, most: u64) {
        let now = self.now;
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.probe_gap = path.probe_gap.saturating_mul(2).min(most.max(1));
            path.probe_at = now.saturating_add(path.probe_gap);
        }
    }

    /// A peer that answers no greeting for a while may not be there. Where another link hears it, it is this link that is out of
    /// order.
    pub(super) fn tell_unmet(&mut self, at: u32) {
        let unmet = self.is_unmet(at);
        if let Some(path) = self.paths.get_mut(at as usize).filter(|_| unmet) {
            path.silent = true;
            self.report(at);
        }
    }

    /// Whether a peer was greeted in vain for so long that nobody would wait for this link if there is another one.
    pub(super) fn is_unmet(&self, at: u32) -> bool {
        self.unmet_at(at).is_some_and(|due| due <= self.now)
    }

    /// When a peer that is greeted will have been so in vain for so long.
    pub(super) fn unmet_at(&self, at: u32) -> Option<u64> {
        let (silent, most) = (self.config.dead_after.as_nanos(), self.config.hello_within.as_nanos());
        // As long as a peer that was met may be silent, unless that is for ever.
        let patience = (most / 16).max(silent.min(most / 2));
        let path = self.paths.get(at as usize).filter(|path| path.state == State::Greeting)?;
        Some(path.heard_at.max(self.began).max(self.grace).saturating_add(patience))
    }

    /// Probes a link that is down.
    pub(super) fn try_again(&mut self, at: u32) {
        self.put_off(at, self.config.most_probe.as_nanos());
        if self.paths.get(at as usize).is_none_or(|path| !path.told_down) {
            return;
        }
        self.add_below(at);
        self.probe(at);
    }

    /// Asks a silent peer for a sign of life.
    pub(super) fn keep_up(&mut self, at: u32) {
        let (now, heartbeat, again) = (self.now, self.config.heartbeat.as_nanos(), self.config.urgent());
        let Some(path) = self.paths.get(at as usize).filter(|path| path.probe_at <= now && heartbeat != 0) else {
            return;
        };
        let due = self.sign_of_life(path).saturating_add(heartbeat);
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        if due > now {
            (path.probe_at, path.tries) = (due, 0);
            return;
        }
        path.probe_at = now.saturating_add(again);
        if path.tries != 0 {
            // So that there is an answer by the time that it counts.
            self.ask_host(Endpoint(at));
        }
        if self.probe(at)
            && let Some(path) = self.paths.get_mut(at as usize)
        {
            path.tries = path.tries.saturating_add(1);
        }
    }

    /// The process of a silent peer may be stopped, while its host is there. That is no proof of a link, of which nobody knows
    /// then whether it is in order: who has others decides. Whether it is so.
    pub(super) fn excuse(&mut self, at: u32) -> bool {
        let (now, within) = (self.now, self.config.dead_after.as_nanos());
        if self.paths.get(at as usize).is_none_or(|path| path.state != State::Up) {
            return false;
        }
        let again = if self.config.patient {
            // One that computes does so for long, and whoever has another link asks by that each time.
            let silent = self.silent_at(at).map_or(0, |due| now.saturating_sub(due));
            (within / 64).max(silent / 8).min(within / 4).max(1)
        } else {
            let heard = self.ask_host(Endpoint(at)).map_or(0, |heard| heard.as_nanos());
            if heard == 0 || heard.saturating_add(within) <= now {
                return false;
            }
            self.config.urgent()
        };
        self.wait_for_sign(at, again);
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.silent = true;
        }
        self.report(at);
        true
    }

    /// Whether signs of life may have come that nobody has heard yet: there was no time for all that the rail below has. If it has
    /// more however long it is listened to, somebody floods this side, for which no other peer's end waits.
    pub(super) fn is_behind(&self) -> bool {
        self.now != self.heard_all && self.listened <= self.config.patience() / 2
    }

    /// Silence is not the end of a peer before so many nanoseconds more.
    pub(super) fn wait_for_sign(&mut self, at: u32, nanos: u64) {
        let until = self.now.saturating_add(nanos);
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.excused_until = until;
        }
    }

    /// Whether the peer has answered what it was asked since a time that is past; if not, it is asked.
    pub(super) fn hears_peer(&mut self, at: u32, since: Option<u64>) -> bool {
        let Some(path) = self.paths.get(at as usize) else { return false };
        match path.state {
            State::Quiet => self.greet(at),
            State::Up => {
                let Some(since) = since else { return false };
                // That it was heard since is not enough: a frame may have been on its way for longer.
                if path.there_after >= since && self.silent_at(at).is_none_or(|due| due > self.now) {
                    return true;
                }
                self.probe(at);
                let now = self.now.max(since); // who asks may have looked at the clock later
                if let Some(path) = self.paths.get_mut(at as usize).filter(|path| path.question_at < since.max(1)) {
                    (path.question, path.question_at) = (path.probe, now.max(1));
                }
            }
            State::Free | State::Greeting | State::Down | State::Closed => {}
        }
        false
    }

    /// Takes a silent link for dead whatever its peer's host says.
    pub(super) fn give_up_silent(&mut self, at: u32) -> bool {
        let due = self.silent_at(at).is_some_and(|due| due <= self.now);
        let was_up = self.paths.get(at as usize).is_some_and(|path| path.state == State::Up);
        let silent = self.is_unmet(at) || (was_up && due);
        let Some(path) = self.paths.get_mut(at as usize).filter(|_| silent) else { return false };
        if (self.config.patient || !was_up) && path.doubted_at == 0 {
            // The peer was heard by another link, but perhaps it has just begun to answer, and comes to this one next. So it
            // is to be heard there once more.
            path.doubted_at = self.now.max(1);
            self.probe(at);
            return false;
        }
        self.down(at, Why::TimedOut);
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.told_down = true;
        }
        true
    }

    /// The rail below doubts that a peer is there.
    pub(super) fn ask_at_once(&mut self, at: u32) {
        if self.paths.get(at as usize).is_some_and(|path| path.state == State::Up) {
            self.probe(at);
        }
    }

    pub(super) fn on_answer(&mut self, at: u32, probe: u16) {
        let now = self.now;
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        if path.probe.wrapping_sub(probe) < 16 {
            path.answered_at = now;
        }
        // An answer to a later one will do.
        if path.question_at != 0 && probe.wrapping_sub(path.question) <= path.probe.wrapping_sub(path.question) {
            path.there_after = core::mem::take(&mut path.question_at);
        }
        if path.state == State::Down && path.probe == probe {
            self.answered(at);
        }
    }

    /// Whether a probe has left.
    pub(super) fn probe(&mut self, at: u32) -> bool {
        let Some(path) = self.paths.get_mut(at as usize) else { return false };
        if !path.known {
            return self.hello(at);
        }
        path.probe = path.probe.wrapping_add(1);
        self.counters.probes = self.counters.probes.wrapping_add(1);
        self.send_ack(at, Kind::Probe)
    }
}
