//! How a link to a peer goes down, comes back and ends, and what its user is told of that.

use zerocopy::FromZeros;

use super::checksum::Checksum;
use super::header::Kind;
use super::path::{State, Why};
use super::state::Link;
use crate::rail::{Endpoint, Event, FullRail, Lost, Peer};
use crate::time::Instant;

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// A peer that was down has answered.
    pub(super) fn answered(&mut self, at: u32) {
        let Some(path) = self.paths.get(at as usize).filter(|path| path.told_down) else { return };
        if path.state != State::Down || !path.known {
            return;
        }
        self.counters.ups = self.counters.ups.wrapping_add(1);
        self.up(at);
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.up_untold = true;
        }
        self.report(at);
        self.resume(at);
    }

    pub(super) fn up(&mut self, at: u32) {
        let heartbeat = self.config.heartbeat.as_nanos();
        let now = self.now;
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        path.state = State::Up;
        (path.probe_gap, path.tries) = (heartbeat, 0);
        path.probe_at = if heartbeat == 0 { u64::MAX } else { now.saturating_add(heartbeat) };
        (path.voids, path.repeated_at) = (false, 0);
        self.set_timer(at);
        self.see_voids(at);
    }

    /// The link to a peer is out of order.
    pub(super) fn down(&mut self, at: u32, why: Why) {
        let (now, gap) = (self.now, self.config.probe.as_nanos());
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        match path.state {
            State::Free | State::Closed => return,
            State::Down if !why.is_final() => return,
            _ => {}
        }
        let before = path.state;
        path.state = if why.is_final() { State::Closed } else { State::Down };
        path.owes_since = 0;
        (path.probe_gap, path.probe_at) = (gap, now.saturating_add(gap));
        if before == State::Down {
            return;
        }
        path.why = why;
        self.counters.downs = self.counters.downs.wrapping_add(1);
        // So that it neither reads nor writes any memory that may go elsewhere now.
        self.forget_below(at);
        self.halt(at);
        self.report(at);
        self.set_timer(at);
    }

    /// The rail below forgets the peer.
    pub(super) fn forget_below(&mut self, at: u32) {
        let Some(path) = self.paths.get_mut(at as usize).filter(|path| path.raw_known) else { return };
        path.raw_known = false;
        let raw = path.raw;
        self.raw.del_peer(raw);
        self.lost_below(at);
    }

    /// The rail below has forgotten the peer.
    pub(super) fn lost_below(&mut self, at: u32) {
        self.unread_all(at);
        self.lose_coming(at);
    }

    /// Makes the peer known to the rail below once more.
    pub(super) fn add_below(&mut self, at: u32) {
        let Some(path) = self.paths.get(at as usize).filter(|path| !path.raw_known) else { return };
        let start = (at as usize).wrapping_mul(self.config.card_bytes as usize);
        let Some(card) = self.cards.get(start..start.wrapping_add(path.card_len.into())) else { return };
        if let Ok(raw) = self.raw.add_peer(Peer(at), card)
            && let Some(path) = self.paths.get_mut(at as usize)
        {
            (path.raw, path.raw_known) = (raw, true);
        }
    }

    /// The rail below is to touch no memory of this peer any more, and goes on: unless it has a device, whose work for that peer
    /// ends untold with that. Then the link is down, as whoever waits for the work learns by that only.
    pub(super) fn start_over_below(&mut self, at: u32) {
        let can = &self.attributes.one_sided;
        let up = self.paths.get(at as usize).is_some_and(|path| path.state == State::Up);
        if up && can.any() && !can.at_once {
            return self.down(at, Why::Broken);
        }
        self.forget_below(at);
        self.add_below(at);
        if self.paths.get(at as usize).is_some_and(|path| !path.raw_known) {
            self.down(at, Why::Broken);
        }
    }

    /// The rail below has lost a peer.
    pub(super) fn on_raw_lost(&mut self, at: u32, why: Lost) {
        if self.paths.get(at as usize).is_none_or(|path| !path.raw_known || path.state == State::Free) {
            return;
        }
        // It is to be told to forget the peer before it can be added again.
        self.forget_below(at);
        let why = match Why::from(why) {
            Why::Closed => Why::Broken, // of the rail; the peer's link has not said good-bye
            other => other,
        };
        self.down(at, why);
    }

    pub(super) fn report(&mut self, at: u32) {
        if let Some(path) = self.paths.get_mut(at as usize)
            && !path.in_reports
        {
            path.in_reports = true;
            self.reports.push(at);
        }
    }

    /// What is to be told of links.
    pub(super) fn next_report(&mut self) -> Option<Event> {
        while let Some(at) = self.reports.pop() {
            let Some(path) = self.paths.get_mut(at as usize) else { continue };
            path.in_reports = false;
            let peer = Peer(path.peer);
            match (path.state, path.told_down) {
                (State::Down | State::Closed, false) => {
                    path.told_down = true;
                    return Some(Event::Down(peer, path.why.into()));
                }
                (State::Up, true) => {
                    (path.told_down, path.up_untold) = (false, false);
                    return Some(Event::Up(peer));
                }
                // It was up in between: what left then is to be moved as well, which nobody would look for.
                (State::Down | State::Closed, true) if path.up_untold => {
                    (path.told_down, path.up_untold) = (false, false);
                    path.in_reports = true;
                    self.reports.push(at);
                    return Some(Event::Up(peer));
                }
                (State::Up | State::Greeting, false) if core::mem::take(&mut path.silent) => {
                    let doubted = path.doubted_at;
                    let due = if path.state == State::Greeting { self.unmet_at(at) } else { self.silent_at(at) };
                    let due = due.filter(|due| *due <= self.now).map(|due| Instant::from_nanos(due.max(doubted)));
                    return Some(Event::Silent(peer, due));
                }
                _ => {}
            }
        }
        None
    }

    /// Says its last word to a peer, and forgets it.
    pub(super) fn forget(&mut self, endpoint: Endpoint, word: Kind) {
        let at = endpoint.0;
        let Some(path) = self.paths.get(at as usize).filter(|path| path.state != State::Free) else { return };
        if path.met() && path.state != State::Closed {
            self.send_ack(at, word); // one that does not know this side yet does not see it
        }
        if let Some(path) = self.paths.get_mut(at as usize)
            && path.raw_known
        {
            path.raw_known = false;
            let raw = path.raw;
            self.raw.del_peer(raw); // what it says is of the rail's own end, which links do not believe
        }
        self.drop_kept(at);
        self.drop_coming(at);
        self.out_bits(at).0.fill(0);
        self.timers.remove(at);
        self.acks.remove(at);
        for queue in [&mut self.work, &mut self.reports, &mut self.refused] {
            queue.retain(|other| other != at);
        }
        if let Some(path) = self.paths.get_mut(at as usize) {
            *path = FromZeros::new_zeroed();
        }
        self.free.push(at);
    }
}
