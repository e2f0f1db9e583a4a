//! How two sides become known to each other.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U64};

use super::checksum::Checksum;
use super::header::{Hello, Kind, seed};
use super::path::{State, Why};
use super::state::Link;
use crate::rail::FullRail;

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

    pub(super) fn on_hello(&mut self, at: u32, hello: &Hello) {
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
}
