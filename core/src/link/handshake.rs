//! The handshake: hellos, by which the two sides learn each other's session.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U64};

use super::checksum::Checksum;
use super::header::{Hello, Kind, seed};
use super::path::{ConnState, DownReason, Path};
use super::state::Link;
use crate::rail::{FullRail, MULTIRAIL};

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// Begins the handshake with a peer, since the user wants to send to it.
    pub(super) fn connect(&mut self, at: u32) {
        let gap = self.config.initial_timeout.as_nanos();
        let now = self.clock.now;
        let idle = |path: &&mut Path| path.session.state == ConnState::Idle;
        let Some(path) = self.peers.paths.get_mut(at as usize).filter(idle) else { return };
        path.session.state = ConnState::Connecting;
        (path.liveness.heard_at, path.liveness.owes_since) = (now, now.max(1));
        (path.liveness.probe_at, path.liveness.probe_interval) = (now.wrapping_add(gap), gap);
        // A user that has other links to the peer connects them now, too. So they are connected before this one fails.
        self.report_silence(at);
        self.send_hello(at);
        self.set_timer(at);
    }

    /// Sends a hello now, or when there is room. Returns whether it was sent now.
    pub(super) fn send_hello(&mut self, at: u32) -> bool {
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return true };
        path.due.hello = false;
        if !path.below.known {
            return true;
        }
        let hello = Hello {
            kind: Kind::Hello as u8,
            reserved: 0,
            window: U16::new(self.config.window as u16),
            session: U64::new(path.session.local),
            first: U64::new(self.config.first_number),
            seen: U64::new(path.session.remote),
        };
        let seed = path.session.hello_seeds[0];
        let sent = self.send_control(at, seed, (0, false, 0), hello.as_bytes());
        self.counters.hellos = self.counters.hellos.wrapping_add(sent.into());
        if !sent && let Some(path) = self.peers.paths.get_mut(at as usize) {
            path.due.hello = true;
            let times = path.due.refusals;
            self.ack_at(at, self.clock.now.wrapping_add(self.retry_delay(times)));
        }
        sent
    }

    /// A hello of the peer has arrived.
    pub(super) fn on_hello(&mut self, at: u32, hello: &Hello) {
        let (session, seen) = (hello.session.get(), hello.seen.get());
        let Some(path) = self.peers.paths.get(at as usize) else { return };
        let (local, remote, window) = (path.session.local, path.session.remote, u32::from(hello.window.get()));
        if session == 0 || session < remote || !(4..=1024).contains(&window) {
            return; // the hello is of an earlier session, or forged
        }
        if path.session.state == ConnState::Closed {
            return;
        }
        if remote != 0 && session != remote && path.session.known_to_peer {
            // The peer has deleted this side, and added it again. The notice of how its session has ended was lost. A normal end is not
            // known, so this is none: whoever waits for the former process must not take it for one that has finished.
            return self.set_down(at, DownReason::GivenUp);
        }
        if session != remote {
            let [out, into] = [(self.config.incarnation, local), (path.session.remote_incarnation, session)];
            let seeds = [seed(&self.checksum, out, into), seed(&self.checksum, into, out)];
            let own = self.config.window;
            let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
            (path.session.remote, path.session.seeds) = (session, seeds);
            path.receive.restart(hello.first.get());
            path.send.window = window.min(own);
        }
        if seen == local {
            self.on_heard(at);
            // This answer shows the peer that this side knows its session. The peer does not answer it.
            if let Some(path) = self.peers.paths.get_mut(at as usize) {
                path.due.frames = path.due.frames.max(1);
            }
            self.ack_now(at);
        } else {
            self.send_hello(at);
        }
    }

    /// A frame has arrived that proves that the peer is there, and knows this side's session.
    pub(super) fn on_heard(&mut self, at: u32) {
        let (now, first) = (self.clock.now, self.config.initial_timeout.as_nanos());
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        path.liveness.heard_at = now;
        path.liveness.doubted_at = 0;
        if path.send.unacked == 0 && path.session.state != ConnState::Connecting {
            path.liveness.owes_since = 0;
        }
        if !path.session.known_to_peer {
            path.session.known_to_peer = true;
            // A hello that was answered at once measures the round trip.
            let trip = now.saturating_sub(path.liveness.owes_since);
            if path.session.state == ConnState::Connecting && path.liveness.probe_interval == first && trip < first {
                path.estimator.sample(trip, now);
            }
            path.liveness.owes_since = if path.send.unacked == 0 { 0 } else { now.max(1) };
            match path.session.state {
                ConnState::Connecting => self.set_up(at),
                ConnState::Idle => {
                    // As when this side begins: the user's other links to the peer are to connect, too.
                    self.report_silence(at);
                    self.set_up(at);
                }
                ConnState::Down if MULTIRAIL => self.on_recovered(at),
                ConnState::Down | ConnState::Free | ConnState::Up | ConnState::Closed => {}
            }
        }
    }
}
