//! The life of a link to a peer: how it goes down, comes up again and ends, and how that is reported to the user.

use zerocopy::FromZeros;

use super::checksum::Checksum;
use super::header::Kind;
use super::path::{ConnState, DownReason, Path};
use super::paths::start;
use super::state::Link;
use crate::rail::{Endpoint, Event, FullRail, Lost, MULTIRAIL, Peer};
use crate::time::Instant;

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// The link works: the handshake is over, or the peer has answered while the link was down.
    pub(super) fn set_up(&mut self, at: u32) {
        let heartbeat = self.config.heartbeat.as_nanos();
        let now = self.clock.now;
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        path.session.state = ConnState::Up;
        (path.liveness.probe_interval, path.liveness.unanswered) = (heartbeat, 0);
        path.liveness.probe_at = if heartbeat == 0 { u64::MAX } else { now.wrapping_add(heartbeat) };
        (path.due.gaps, path.due.repeated_at) = (false, 0);
        self.set_timer(at);
        self.check_gaps(at);
    }

    /// The peer has answered while the link was down.
    pub(super) fn on_recovered(&mut self, at: u32) {
        let told = |path: &&Path| MULTIRAIL && path.report.told_down;
        let Some(path) = self.peers.paths.get(at as usize).filter(told) else { return };
        if path.session.state != ConnState::Down || !path.session.known_to_peer {
            return;
        }
        self.counters.ups = self.counters.ups.wrapping_add(1);
        self.set_up(at);
        if let Some(path) = self.peers.paths.get_mut(at as usize) {
            path.report.up = true;
        }
        self.queue_report(at);
        self.resume(at);
    }

    /// The link has failed, or the peer has ended it.
    pub(super) fn set_down(&mut self, at: u32, reason: DownReason) {
        let (now, gap) = (self.clock.now, self.config.probe.as_nanos());
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        match path.session.state {
            ConnState::Free | ConnState::Closed => return,
            ConnState::Down if MULTIRAIL && !reason.is_final() => return,
            _ => {}
        }
        let before = path.session.state;
        // The user of the only link to a peer deletes the peer when the link is down.
        path.session.state = if reason.is_final() || !MULTIRAIL { ConnState::Closed } else { ConnState::Down };
        path.liveness.owes_since = 0;
        (path.liveness.probe_interval, path.liveness.probe_at) = (gap, now.wrapping_add(gap));
        if MULTIRAIL && before == ConnState::Down {
            return;
        }
        path.report.reason = reason;
        self.counters.downs = self.counters.downs.wrapping_add(1);
        // After this the rail below accesses no memory that was given for the peer. The user may use that memory for something
        // else.
        self.delete_below(at);
        self.halt(at);
        self.queue_report(at);
        self.set_timer(at);
    }

    /// Deletes the peer from the rail below.
    pub(super) fn delete_below(&mut self, at: u32) {
        let Some(path) = self.peers.paths.get_mut(at as usize).filter(|path| path.below.known) else { return };
        path.below.known = false;
        let endpoint = path.below.endpoint;
        self.below.del_peer(endpoint);
        self.end_reads(at);
        self.lose_pending(at);
    }

    /// Adds the peer to the rail below once more.
    pub(super) fn add_below(&mut self, at: u32) {
        let Some(path) = self.peers.paths.get(at as usize).filter(|path| !path.below.known) else { return };
        let start = start(at, self.config.card_bytes as usize);
        let card = self.peers.cards.get(start..start.wrapping_add(path.below.card_len.into()));
        let Some(card) = card else { return };
        if let Ok(endpoint) = self.below.add_peer(Peer(at), card)
            && let Some(path) = self.peers.paths.get_mut(at as usize)
        {
            (path.below.endpoint, path.below.known) = (endpoint, true);
        }
    }

    /// Makes the rail below stop accessing the memory that it was given for this peer. The link goes on. But if the rail below
    /// has a device whose operations take time, its operations for the peer end without a report. Then the link goes down
    /// instead, since only that tells the user that they have ended.
    pub(super) fn restart_below(&mut self, at: u32) {
        let can = &self.attributes.one_sided;
        let up = self.peers.paths.get(at as usize).is_some_and(|path| path.session.state == ConnState::Up);
        if up && can.any() && !can.at_once {
            return self.set_down(at, DownReason::Broken);
        }
        self.delete_below(at);
        self.add_below(at);
        if self.peers.paths.get(at as usize).is_some_and(|path| !path.below.known) {
            self.set_down(at, DownReason::Broken);
        }
    }

    /// The rail below has lost the peer.
    pub(super) fn on_below_lost(&mut self, at: u32, reason: Lost) {
        let lost = |path: &Path| !path.below.known || path.session.state == ConnState::Free;
        if self.peers.paths.get(at as usize).is_none_or(lost) {
            return;
        }
        // The rail below has to delete the peer before it can add the peer again.
        self.delete_below(at);
        let reason = match DownReason::from(reason) {
            DownReason::Closed => DownReason::Broken, // the peer's rail has ended, but its link has sent no goodbye
            other => other,
        };
        self.set_down(at, reason);
    }

    /// Queues a report about the peer to the user.
    pub(super) fn queue_report(&mut self, at: u32) {
        if let Some(path) = self.peers.paths.get_mut(at as usize)
            && !path.listed.reports
        {
            path.listed.reports = true;
            self.work.reports.push(at);
        }
    }

    /// The next event about the state of a link to a peer.
    pub(super) fn next_report(&mut self) -> Option<Event> {
        while let Some(at) = self.work.reports.pop() {
            let Some(path) = self.peers.paths.get_mut(at as usize) else { continue };
            path.listed.reports = false;
            let peer = Peer(path.session.peer);
            match (path.session.state, path.report.told_down) {
                (ConnState::Down | ConnState::Closed, false) => {
                    path.report.told_down = true;
                    return Some(Event::Down(peer, path.report.reason.into()));
                }
                (ConnState::Up, true) if MULTIRAIL => {
                    (path.report.told_down, path.report.up) = (false, false);
                    return Some(Event::Up(peer));
                }
                // The link was up for a while. The frames that were sent in that time have to migrate as well. Without this
                // event the user would not look for them.
                (ConnState::Down | ConnState::Closed, true) if MULTIRAIL && path.report.up => {
                    (path.report.told_down, path.report.up) = (false, false);
                    path.listed.reports = true;
                    self.work.reports.push(at);
                    return Some(Event::Up(peer));
                }
                (ConnState::Up | ConnState::Connecting, false)
                    if MULTIRAIL && core::mem::take(&mut path.report.silence) =>
                {
                    let doubted = path.liveness.doubted_at;
                    let due = match path.session.state {
                        ConnState::Connecting => self.hello_overdue_at(at),
                        _ => self.silent_at(at),
                    };
                    let due = due.filter(|due| *due <= self.clock.now);
                    return Some(Event::Silent(peer, due.map(|due| Instant::from_nanos(due.max(doubted)))));
                }
                _ => {}
            }
        }
        None
    }

    /// Sends the last frame to a peer, and deletes the peer.
    pub(super) fn delete_peer(&mut self, endpoint: Endpoint, last: Kind) {
        let at = endpoint.0;
        let used = |path: &&Path| path.session.state != ConnState::Free;
        let Some(path) = self.peers.paths.get(at as usize).filter(used) else { return };
        if path.session.is_established() && path.session.state != ConnState::Closed {
            self.send_ack(at, last); // a peer that does not know this side yet ignores the frame
        }
        if let Some(path) = self.peers.paths.get_mut(at as usize)
            && path.below.known
        {
            path.below.known = false;
            let endpoint = path.below.endpoint;
            self.below.del_peer(endpoint); // the rail may send a goodbye of its own, which links ignore
        }
        self.drop_frames(at);
        self.drop_pending(at);
        self.acked_bits(at).0.fill(0);
        self.work.timers.remove(at);
        self.work.acks.remove(at);
        for queue in [&mut self.work.refused, &mut self.work.reports, &mut self.receive.refused] {
            queue.retain(|other| other != at);
        }
        if let Some(path) = self.peers.paths.get_mut(at as usize) {
            *path = FromZeros::new_zeroed();
        }
        self.peers.free.push(at);
    }
}
