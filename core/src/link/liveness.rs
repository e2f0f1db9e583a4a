//! Whether a peer is still there: time limits, probes, and silence that is excused.

use super::checksum::Checksum;
use super::header::Kind;
use super::path::{ConnState, DownReason, Path};
use super::paths::SEVERAL;
use super::state::Link;
use crate::rail::{Endpoint, FullRail, Liveness, MULTIRAIL};

/// How many probes a probed peer must leave unanswered before it is given up.
const MAX_UNANSWERED: u8 = 32;

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// When the timer of a peer is due if nothing arrives from it.
    pub(super) fn deadline(&self, at: u32) -> Option<u64> {
        let path = self.peers.paths.get(at as usize)?;
        let probe_at = path.liveness.probe_at;
        match path.session.state {
            ConnState::Free | ConnState::Idle | ConnState::Closed => None,
            ConnState::Connecting => Some(probe_at.min(self.dead_at(at)?)),
            ConnState::Down => Some(probe_at),
            ConnState::Up => {
                let next = [self.resend_at(at), self.dead_at(at), Some(probe_at)].into_iter().flatten().min();
                next.filter(|due| *due != u64::MAX)
            }
        }
    }

    /// When the peer counts as dead.
    fn dead_at(&self, at: u32) -> Option<u64> {
        let path = self.peers.paths.get(at as usize)?;
        self.silent_at(at).map(|due| due.max(path.liveness.excused_until))
    }

    /// When the peer has been silent for too long, whether that is excused or not. A probed peer must also have left enough
    /// probes unanswered, since a caller that polls rarely sends few probes and reads few answers.
    pub(super) fn silent_at(&self, at: u32) -> Option<u64> {
        let path = self.peers.paths.get(at as usize)?;
        let within = match path.session.state {
            ConnState::Connecting => self.config.hello_within,
            _ => self.config.dead_after,
        };
        let (since, owes) = if self.is_probing(path) {
            (self.last_answer(path), path.liveness.unanswered >= MAX_UNANSWERED)
        } else {
            (self.proven_at(path).max(path.liveness.owes_since), path.liveness.owes_since != 0)
        };
        owes.then_some(since.max(self.clock.began).wrapping_add(within.as_nanos()).max(self.clock.grace))
    }

    /// Whether the link probes the peer when it is silent.
    fn is_probing(&self, path: &Path) -> bool {
        path.session.state == ConnState::Up && self.config.heartbeat.as_nanos() != 0
    }

    /// When the peer was last known to be there, as far as this side could know.
    fn last_answer(&self, path: &Path) -> u64 {
        self.proven_at(path).max(if path.send.unacked == 0 { 0 } else { path.liveness.owes_since })
    }

    /// When the peer last sent an answer. If the peer has to acknowledge something and is probed, an arrival is no answer, since
    /// the peer may receive nothing itself.
    fn proven_at(&self, path: &Path) -> u64 {
        let alive = &path.liveness;
        if self.is_probing(path) && path.send.unacked != 0 { alive.answered_at } else { alive.heard_at }
    }

    pub(super) fn set_timer(&mut self, at: u32) {
        if SEVERAL && let Some(due) = self.deadline(at) {
            self.work.timers.set(at, due);
        }
    }

    /// Runs the timers that are due.
    pub(super) fn run_timers(&mut self) {
        if !SEVERAL {
            return self.run_timer(0); // it looks what is due
        }
        for _ in 0..16 {
            let Some(at) = self.work.timers.pop(self.clock.now) else { return };
            self.run_timer(at);
            self.set_timer(at);
        }
    }

    fn run_timer(&mut self, at: u32) {
        let now = self.clock.now;
        let Some(path) = self.peers.paths.get(at as usize) else { return };
        if matches!(path.session.state, ConnState::Connecting | ConnState::Up)
            && self.dead_at(at).is_some_and(|due| due <= now)
        {
            if self.clock.is_behind(self.config.min_timeout()) {
                self.extend_deadline(at, self.config.urgent());
            } else if !self.excuse_silence(at) {
                return self.set_down(at, DownReason::TimedOut);
            }
        }
        let Some(path) = self.peers.paths.get(at as usize) else { return };
        match path.session.state {
            ConnState::Connecting if path.liveness.probe_at <= now => {
                self.send_hello(at);
                self.back_off_probe(at, self.config.most_timeout.as_nanos());
                self.report_unanswered_hello(at);
            }
            ConnState::Down if MULTIRAIL && path.liveness.probe_at <= now => self.probe_down_link(at),
            ConnState::Up => {
                if self.resend_at(at).is_some_and(|due| due <= now) {
                    self.on_loss_timer(at);
                }
                self.keep_alive(at);
            }
            _ => {}
        }
    }

    /// Doubles the time to the next probe or hello, but to no more than `most` nanoseconds.
    fn back_off_probe(&mut self, at: u32, most: u64) {
        let now = self.clock.now;
        if let Some(path) = self.peers.paths.get_mut(at as usize) {
            path.liveness.probe_interval = path.liveness.probe_interval.saturating_mul(2).min(most.max(1));
            path.liveness.probe_at = now.wrapping_add(path.liveness.probe_interval);
        }
    }

    /// A peer that answers no hello for a while may have failed. But if another link receives frames from the peer, this link
    /// has failed.
    fn report_unanswered_hello(&mut self, at: u32) {
        if !MULTIRAIL {
            return; // there is no other link to wait for
        }
        let overdue = self.is_hello_overdue(at);
        if overdue {
            self.report_silence(at);
        }
    }

    /// Queues a report that the peer is silent, or that a handshake begins, for a user that has other links to the peer.
    pub(super) fn report_silence(&mut self, at: u32) {
        if MULTIRAIL && let Some(path) = self.peers.paths.get_mut(at as usize) {
            path.report.silence = true;
            self.queue_report(at);
        }
    }

    /// Whether hellos have been unanswered for so long that a user with another link to the peer should not wait for this one.
    fn is_hello_overdue(&self, at: u32) -> bool {
        self.hello_overdue_at(at).is_some_and(|due| due <= self.clock.now)
    }

    /// When the hellos to a peer count as overdue, if none is answered.
    pub(super) fn hello_overdue_at(&self, at: u32) -> Option<u64> {
        let (silent, most) = (self.config.dead_after.as_nanos(), self.config.hello_within.as_nanos());
        // As long as an established peer may be silent, unless that is forever.
        let timeout = (most / 16).max(silent.min(most / 2));
        let connecting = |path: &&Path| path.session.state == ConnState::Connecting;
        let path = self.peers.paths.get(at as usize).filter(connecting)?;
        Some(path.liveness.heard_at.max(self.clock.began).max(self.clock.grace).wrapping_add(timeout))
    }

    /// Probes a link that is down.
    fn probe_down_link(&mut self, at: u32) {
        self.back_off_probe(at, self.config.most_probe.as_nanos());
        if self.peers.paths.get(at as usize).is_none_or(|path| !path.report.told_down) {
            return;
        }
        self.add_below(at);
        self.send_probe(at);
    }

    /// Probes a silent peer.
    fn keep_alive(&mut self, at: u32) {
        let (now, heartbeat, again) = (self.clock.now, self.config.heartbeat.as_nanos(), self.config.urgent());
        let due = |path: &&Path| path.liveness.probe_at <= now && heartbeat != 0;
        let Some(path) = self.peers.paths.get(at as usize).filter(due) else { return };
        let due = self.last_answer(path).wrapping_add(heartbeat);
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        if due > now {
            (path.liveness.probe_at, path.liveness.unanswered) = (due, 0);
            return;
        }
        path.liveness.probe_at = now.wrapping_add(again);
        if MULTIRAIL && path.liveness.unanswered != 0 {
            // Asked early, so that the answer of the host is there by the time that it counts.
            self.ask_host(Endpoint(at));
        }
        if self.send_probe(at)
            && let Some(path) = self.peers.paths.get_mut(at as usize)
        {
            path.liveness.unanswered = path.liveness.unanswered.saturating_add(1);
        }
    }

    /// Excuses the silence of a peer whose process may be stopped while its host is there. The host's answer proves nothing about
    /// the link, which may be broken. So this reports the silence to the user, which may have other links to the peer. Returns
    /// whether the silence is excused.
    fn excuse_silence(&mut self, at: u32) -> bool {
        let (now, within) = (self.clock.now, self.config.dead_after.as_nanos());
        if !MULTIRAIL {
            return false; // the user has no other link by which it could find that the peer is there
        }
        if self.peers.paths.get(at as usize).is_none_or(|path| path.session.state != ConnState::Up) {
            return false;
        }
        let again = if self.config.patient {
            // A process may compute for long, and each report makes a user with another link probe the peer by that link.
            let silent = self.silent_at(at).map_or(0, |due| now.saturating_sub(due));
            (within / 64).max(silent / 8).min(within / 4).max(1)
        } else {
            let heard = self.ask_host(Endpoint(at)).map_or(0, |heard| heard.as_nanos());
            if heard == 0 || heard.saturating_add(within) <= now {
                return false;
            }
            self.config.urgent()
        };
        self.extend_deadline(at, again);
        self.report_silence(at);
        true
    }

    /// Excuses the silence of the peer for `nanos` nanoseconds from now.
    fn extend_deadline(&mut self, at: u32, nanos: u64) {
        let until = self.clock.now.wrapping_add(nanos);
        if let Some(path) = self.peers.paths.get_mut(at as usize) {
            path.liveness.excused_until = until;
        }
    }

    /// Whether the peer has answered a probe that was sent after `since`, a time that is past. If not, the peer is probed.
    pub(super) fn peer_answered_since(&mut self, at: u32, since: Option<u64>) -> bool {
        if !MULTIRAIL {
            return false;
        }
        let Some(path) = self.peers.paths.get(at as usize) else { return false };
        match path.session.state {
            ConnState::Idle => self.connect(at),
            ConnState::Up => {
                let Some(since) = since else { return false };
                // An arrival since then is not enough: the frame may have been on its way for longer.
                let silent = self.silent_at(at).is_some_and(|due| due <= self.clock.now);
                if path.liveness.alive_after >= since && !silent {
                    return true;
                }
                self.send_probe(at);
                let now = self.clock.now.max(since); // the caller may have read the clock after the last poll
                let older = |path: &&mut Path| path.liveness.query_at < since.max(1);
                if let Some(path) = self.peers.paths.get_mut(at as usize).filter(older) {
                    (path.liveness.query, path.liveness.query_at) = (path.liveness.last_probe, now.max(1));
                }
            }
            ConnState::Free | ConnState::Connecting | ConnState::Down | ConnState::Closed => {}
        }
        false
    }

    /// Declares a silent link as failed, even if the peer's host answers. Returns whether the link went down.
    pub(super) fn give_up_silent(&mut self, at: u32) -> bool {
        if !MULTIRAIL {
            return false;
        }
        let due = self.silent_at(at).is_some_and(|due| due <= self.clock.now);
        let was_up = self.peers.paths.get(at as usize).is_some_and(|path| path.session.state == ConnState::Up);
        let silent = self.is_hello_overdue(at) || (was_up && due);
        let Some(path) = self.peers.paths.get_mut(at as usize).filter(|_| silent) else { return false };
        if (self.config.patient || !was_up) && path.liveness.doubted_at == 0 {
            // Another link has received frames from the peer. But the peer may just have begun to answer, and may answer on this
            // link next. So this link probes it once more, and the other link must receive from it once more.
            path.liveness.doubted_at = self.clock.now.max(1);
            self.send_probe(at);
            return false;
        }
        self.set_down(at, DownReason::TimedOut);
        if let Some(path) = self.peers.paths.get_mut(at as usize) {
            path.report.told_down = true;
        }
        true
    }

    /// The rail below reports that the peer may have failed.
    pub(super) fn probe_if_up(&mut self, at: u32) {
        if self.peers.paths.get(at as usize).is_some_and(|path| path.session.state == ConnState::Up) {
            self.send_probe(at);
        }
    }

    /// The peer has answered a probe.
    pub(super) fn on_probe_answer(&mut self, at: u32, probe: u16) {
        let now = self.clock.now;
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        let alive = &mut path.liveness;
        if alive.last_probe.wrapping_sub(probe) < 16 {
            alive.answered_at = now;
        }
        // An answer to a probe that was sent after the query proves the same.
        if MULTIRAIL
            && alive.query_at != 0
            && probe.wrapping_sub(alive.query) <= alive.last_probe.wrapping_sub(alive.query)
        {
            alive.alive_after = core::mem::take(&mut alive.query_at);
        }
        if MULTIRAIL && path.session.state == ConnState::Down && path.liveness.last_probe == probe {
            self.on_recovered(at);
        }
    }

    /// Sends a probe, or a hello to a peer that does not know this side. Returns whether it was sent.
    fn send_probe(&mut self, at: u32) -> bool {
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return false };
        if !path.session.known_to_peer {
            return self.send_hello(at);
        }
        path.liveness.last_probe = path.liveness.last_probe.wrapping_add(1);
        self.counters.probes = self.counters.probes.wrapping_add(1);
        self.send_ack(at, Kind::Probe)
    }
}
