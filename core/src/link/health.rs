//! How two sides meet, whether they still hear each other, and how they meet again.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::Link;
use super::checksum::Checksum;
use super::header::{ACK, ACK_WORDS, Ack, Header, Hello, Kind, TAG, head_check, seed};
use super::numbers::widen;
use super::path::{Path, State, Why};
use crate::rail::{Endpoint, Event, FullRail, HEAD, Liveness, Lost, Peer};
use crate::time::Instant;

/// A peer that is probed is not given up before it has missed so many.
const TRIES: u8 = 32;

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// Begins to greet a peer to whom something is to be sent.
    pub(super) fn greet(&mut self, at: u32) {
        let gap = self.config.initial_timeout.as_nanos();
        let now = self.now;
        let Some(path) = self.paths.get_mut(at as usize).filter(|path| path.state == State::Quiet) else { return };
        path.state = State::Greeting;
        (path.heard_at, path.owes_since) = (now, now.max(1));
        (path.probe_at, path.probe_gap) = (now.saturating_add(gap), gap);
        // Who has other links to it has them greet it too: each has met it by the time that one is out of order.
        path.silent = true;
        self.report(at);
        self.hello(at);
        self.set_timer(at);
    }

    /// Greets a peer, now or when there is room. Whether it was now.
    pub(super) fn hello(&mut self, at: u32) -> bool {
        let Some(path) = self.paths.get_mut(at as usize) else { return true };
        path.greets = false;
        if !path.raw_known {
            return true;
        }
        let hello = Hello {
            kind: Kind::Hello as u8,
            reserved: 0,
            window: U16::new(self.config.window as u16),
            session: U64::new(path.mine),
            first: U64::new(self.config.first_number),
            seen: U64::new(path.theirs),
        };
        let seed = path.hello_seeds[0];
        let left = self.send_own(at, seed, (0, false, 0), hello.as_bytes());
        self.counters.hellos = self.counters.hellos.wrapping_add(left.into());
        if !left && let Some(path) = self.paths.get_mut(at as usize) {
            path.greets = true;
            let times = path.ack_refused;
            self.ack_at(at, self.now.saturating_add(self.after_refusals(times)));
        }
        left
    }

    /// A frame of the other link's own.
    pub(super) fn on_own(&mut self, at: u32, len: u32, header: &Header, head: &[u8], rest: &[u8]) {
        let kind = rest.first().copied().and_then(Kind::of);
        let Some(path) = self.paths.get(at as usize) else { return };
        let (kind, known) = match kind {
            Some(kind) if len as usize <= HEAD => (kind, path.met() || kind == Kind::Hello),
            _ => {
                self.counters.malformed = self.counters.malformed.wrapping_add(1);
                return;
            }
        };
        if !known {
            self.counters.early = self.counters.early.wrapping_add(1);
            return;
        }
        let (seed, ack) = match kind {
            Kind::Hello => (path.hello_seeds[1], 0),
            _ => (path.seeds[1], widen(header.ack.get(), path.first)),
        };
        let numbers = matches!(kind, Kind::Void | Kind::Away);
        let number = if numbers { widen(header.number.get(), path.base) } else { 0 };
        if head_check(&self.sums, seed, TAG, len, [number, ack], head) != header.head_check.get() {
            self.counters.bad_heads = self.counters.bad_heads.wrapping_add(1);
            return;
        }
        if kind == Kind::Hello {
            match Hello::read_from_prefix(rest) {
                Ok((hello, _)) => self.on_hello(at, &hello),
                Err(_) => self.counters.malformed = self.counters.malformed.wrapping_add(1),
            }
            return;
        }
        let mut told = Ack::new_zeroed();
        told.as_mut_bytes().iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        let words = usize::from(told.words);
        if rest.len() < ACK || words > ACK_WORDS || rest.len() != ACK.wrapping_add(words.wrapping_mul(8)) {
            self.counters.malformed = self.counters.malformed.wrapping_add(1);
            return;
        }
        self.heard(at);
        let from = widen(told.from.get(), ack);
        let came = told.came.map(U64::get);
        let bits = came.get(..words).unwrap_or(&[]);
        // The others of several say less.
        let (told, all) = if numbers || kind == Kind::Wanted { (&[][..], false) } else { (bits, from == ack) };
        if !self.take_ack(at, ack, from, told, all) {
            return;
        }
        if !numbers {
            self.see_voids(at); // or two that are told so would answer each other
        }
        match kind {
            Kind::Ack => {
                self.counters.acks_received = self.counters.acks_received.wrapping_add(1);
                match header.body_check.get() {
                    0 => self.on_doubles(at, header.number.get()),
                    _ => self.on_answer(at, header.number.get()),
                }
            }
            Kind::Probe => {
                if let Some(path) = self.paths.get_mut(at as usize) {
                    path.answer = u32::from(header.number.get()).wrapping_add(1);
                }
                self.ack_now(at);
            }
            Kind::Bye => self.down(at, Why::Closed),
            Kind::GivenUp => self.down(at, Why::GivenUp),
            Kind::Wanted => self.on_wanted(at, from, bits),
            Kind::Void => self.on_gone(at, number, bits, false),
            Kind::Away => self.on_gone(at, number, bits, true),
            Kind::Hello => {}
        }
    }

    fn on_hello(&mut self, at: u32, hello: &Hello) {
        let (session, seen) = (hello.session.get(), hello.seen.get());
        let Some(path) = self.paths.get(at as usize) else { return };
        let (mine, theirs, window) = (path.mine, path.theirs, u32::from(hello.window.get()));
        if session == 0 || session < theirs || !(4..=1024).contains(&window) {
            return; // of an earlier life
        }
        if path.state == State::Closed {
            return;
        }
        if theirs != 0 && session != theirs && path.known {
            // The peer has forgotten this side, and added it anew.
            return self.down(at, Why::Closed);
        }
        if session != theirs {
            let [out, into] = [(self.config.incarnation, mine), (path.their_incarnation, session)];
            let seeds = [seed(&self.sums, out, into), seed(&self.sums, into, out)];
            let own = self.config.window;
            let Some(path) = self.paths.get_mut(at as usize) else { return };
            (path.theirs, path.seeds) = (session, seeds);
            (path.base, path.top) = (hello.first.get(), hello.first.get());
            path.seen = path.base as u16;
            path.window = window.min(own);
        }
        if seen == mine {
            self.heard(at);
            // So that the peer sees it as well; an answer to this is not answered.
            if let Some(path) = self.paths.get_mut(at as usize) {
                path.owed = path.owed.max(1);
            }
            self.ack_now(at);
        } else {
            self.hello(at);
        }
    }

    /// The peer is there, and knows this side.
    pub(super) fn heard(&mut self, at: u32) {
        let (now, first) = (self.now, self.config.initial_timeout.as_nanos());
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        path.heard_at = now;
        path.doubted_at = 0;
        if path.kept == 0 && path.state != State::Greeting {
            path.owes_since = 0;
        }
        if !path.known {
            path.known = true;
            // The greeting tells how long a round trip takes, if it was answered at once.
            let trip = now.saturating_sub(path.owes_since);
            if path.state == State::Greeting && path.probe_gap == first && trip < first {
                path.estimator.sample(trip, now);
            }
            path.owes_since = if path.kept == 0 { 0 } else { now.max(1) };
            match path.state {
                State::Greeting => self.up(at),
                State::Quiet => {
                    // As when this side greets first: who was met by one link is to be met by the others.
                    path.silent = true;
                    self.report(at);
                    self.up(at);
                }
                State::Down => self.answered(at),
                State::Free | State::Up | State::Closed => {}
            }
        }
    }

    fn on_answer(&mut self, at: u32, probe: u16) {
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

    /// A peer that was down has answered.
    fn answered(&mut self, at: u32) {
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

    fn up(&mut self, at: u32) {
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
    fn lost_below(&mut self, at: u32) {
        self.unread_all(at);
        self.lose_coming(at);
    }

    /// Makes the peer known to the rail below once more.
    fn add_below(&mut self, at: u32) {
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

    fn report(&mut self, at: u32) {
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

    /// When something is to be done for a peer, if nothing comes from it.
    fn deadline(&self, at: u32) -> Option<u64> {
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
    fn dead_at(&self, at: u32) -> Option<u64> {
        let path = self.paths.get(at as usize)?;
        self.silent_at(at).map(|due| due.max(path.excused_until))
    }

    /// When the peer has been silent for too long. One that is probed has to have missed enough of that: who polls seldom hears seldom.
    fn silent_at(&self, at: u32) -> Option<u64> {
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
    fn probes(&self, path: &Path) -> bool {
        path.state == State::Up && self.config.heartbeat.as_nanos() != 0
    }

    /// When the peer was last known to be there, as far as anybody could know.
    fn sign_of_life(&self, path: &Path) -> u64 {
        self.proven_at(path).max(if path.kept == 0 { 0 } else { path.owes_since })
    }

    /// When the peer last gave a sign of life. Of one that is to acknowledge something, and is probed, to be heard is not
    /// enough: it may be that it hears nothing itself.
    fn proven_at(&self, path: &Path) -> u64 {
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

    fn run_timer(&mut self, at: u32) {
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
    fn put_off(&mut self, at: u32, most: u64) {
        let now = self.now;
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.probe_gap = path.probe_gap.saturating_mul(2).min(most.max(1));
            path.probe_at = now.saturating_add(path.probe_gap);
        }
    }

    /// A peer that answers no greeting for a while may not be there. Where another link hears it, it is this link that is out of
    /// order.
    fn tell_unmet(&mut self, at: u32) {
        let unmet = self.is_unmet(at);
        if let Some(path) = self.paths.get_mut(at as usize).filter(|_| unmet) {
            path.silent = true;
            self.report(at);
        }
    }

    /// Whether a peer was greeted in vain for so long that nobody would wait for this link if there is another one.
    fn is_unmet(&self, at: u32) -> bool {
        self.unmet_at(at).is_some_and(|due| due <= self.now)
    }

    /// When a peer that is greeted will have been so in vain for so long.
    fn unmet_at(&self, at: u32) -> Option<u64> {
        let (silent, most) = (self.config.dead_after.as_nanos(), self.config.hello_within.as_nanos());
        // As long as a peer that was met may be silent, unless that is for ever.
        let patience = (most / 16).max(silent.min(most / 2));
        let path = self.paths.get(at as usize).filter(|path| path.state == State::Greeting)?;
        Some(path.heard_at.max(self.began).max(self.grace).saturating_add(patience))
    }

    /// Probes a link that is down.
    fn try_again(&mut self, at: u32) {
        self.put_off(at, self.config.most_probe.as_nanos());
        if self.paths.get(at as usize).is_none_or(|path| !path.told_down) {
            return;
        }
        self.add_below(at);
        self.probe(at);
    }

    /// Asks a silent peer for a sign of life.
    fn keep_up(&mut self, at: u32) {
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
    fn excuse(&mut self, at: u32) -> bool {
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
    fn is_behind(&self) -> bool {
        self.now != self.heard_all && self.listened <= self.config.patience() / 2
    }

    /// Silence is not the end of a peer before so many nanoseconds more.
    fn wait_for_sign(&mut self, at: u32, nanos: u64) {
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

    /// Whether a probe has left.
    fn probe(&mut self, at: u32) -> bool {
        let Some(path) = self.paths.get_mut(at as usize) else { return false };
        if !path.known {
            return self.hello(at);
        }
        path.probe = path.probe.wrapping_add(1);
        self.counters.probes = self.counters.probes.wrapping_add(1);
        self.send_ack(at, Kind::Probe)
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
