//! Hellos: connecting to peers on first use, and renewing sessions.

use std::net::SocketAddr;

use socket2::SockAddr;
use towline_core::rail::Lost;
use towline_core::time::{Duration, Instant};
use towline_net::time::core_duration;
use towline_net::{EncryptionMismatch, random};

use crate::queues::inbox::Arrived;
use crate::rail::Rail;
use crate::rail::peer::{ConnState, Retry};
use crate::wire::hello::{BadHello, Hello};

/// Time between the first two hellos. It doubles from one hello to the next.
const FIRST_INTERVAL: Duration = Duration::from_millis(1);
/// Longest time between two hellos of a renewal.
const LONGEST_RENEWAL_INTERVAL: Duration = Duration::from_millis(1000);

impl Rail {
    /// Begins the sessions that `reserve` requested.
    #[cold]
    pub(super) fn connect_requested(&mut self) {
        let deadline = self.now + core_duration(self.config.connect_timeout);
        while let Some(endpoint) = self.requested.pop() {
            if let Some(entry) = self.peers.get_mut(endpoint)
                && entry.state == ConnState::Unused
            {
                entry.state = ConnState::Connecting(Retry { sent: 0, next: self.now, deadline });
                self.connecting.push(endpoint);
            }
        }
        self.send_due_hellos();
    }

    /// Sends the hellos that are due.
    #[cold]
    pub(super) fn send_due_hellos(&mut self) {
        self.next_hello = None;
        self.send_hellos_to_connect();
        self.send_hellos_to_renew();
    }

    /// Requests a session with new keys. The present session goes on until the new one is there.
    pub(super) fn renew(&mut self, endpoint: u32) {
        let entry = self.peers.get_mut(endpoint);
        if entry.is_some_and(|entry| entry.state == ConnState::Established && entry.handshake.renew()) {
            self.schedule_renewal(endpoint, self.now);
        }
    }

    /// Sends hellos to a peer with a session from this time on, until the new session is confirmed.
    #[cold]
    fn schedule_renewal(&mut self, endpoint: u32, next: Instant) {
        let Some(entry) = self.peers.get_mut(endpoint) else { return };
        entry.renewal = Some(Retry { sent: 0, next, deadline: next });
        if !self.renewing.contains(&endpoint) {
            self.renewing.push(endpoint);
        }
        self.note_next_hello(next);
    }

    fn note_next_hello(&mut self, next: Instant) {
        self.next_hello = Some(self.next_hello.map_or(next, |other| other.min(next)));
    }

    /// Sends hellos to the peers whose session is renewed. The present session goes on, so there is no deadline: the link finds
    /// out whether the peer is there.
    fn send_hellos_to_renew(&mut self) {
        let now = self.now;
        let mut at = 0;
        while let Some(endpoint) = self.renewing.get(at).copied() {
            let entry = self.peers.get_mut(endpoint);
            let entry = entry.filter(|it| it.state == ConnState::Established && it.handshake.is_unsettled());
            let Some((entry, mut retry)) = entry.and_then(|entry| entry.renewal.map(|retry| (entry, retry))) else {
                self.renewing.swap_remove(at);
                continue;
            };
            if retry.next <= now {
                let next = now + interval(retry.sent, LONGEST_RENEWAL_INTERVAL);
                retry = Retry { sent: retry.sent.saturating_add(1), next, ..retry };
                entry.renewal = Some(retry);
                let hello = entry.handshake.next_hello(&self.config.key);
                if let Some(to) = entry.remote.as_ref().and_then(SockAddr::as_socket) {
                    self.send_hello(&hello, to);
                }
            }
            self.note_next_hello(retry.next);
            at += 1;
        }
    }

    /// Sends hellos to the peers without a session, each time to the next one of their addresses.
    fn send_hellos_to_connect(&mut self) {
        let (now, longest) = (self.now, core_duration(self.config.hello_interval));
        let mut at = 0;
        while let Some(endpoint) = self.connecting.get(at).copied() {
            let Some(entry) = self.peers.get_mut(endpoint) else { break };
            let ConnState::Connecting(retry) = entry.state else { break };
            if retry.deadline <= now {
                self.lose(endpoint, Lost::TimedOut); // takes it off the list
                continue;
            }
            let mut next = retry.next;
            if next <= now {
                let turn = retry.sent as usize % entry.candidates.len().max(1);
                next = now + interval(retry.sent, longest);
                entry.state = ConnState::Connecting(Retry { sent: retry.sent.saturating_add(1), next, ..retry });
                let hello = entry.handshake.next_hello(&self.config.key);
                if let Some(to) = entry.candidates.get(turn).copied() {
                    self.send_hello(&hello, to);
                }
            }
            self.note_next_hello(next.min(retry.deadline));
            at += 1;
        }
    }

    /// Sends a hello. If it is lost, another one follows.
    fn send_hello(&mut self, hello: &Hello, to: SocketAddr) {
        let bytes = hello.encode(&self.config.key);
        self.counters.hellos_sent += 1;
        self.send_datagram(&bytes, &to.into());
    }

    /// Handles a hello that has arrived.
    #[cold]
    pub(super) fn on_hello(&mut self, hello: Result<Hello, BadHello>, arrived: Arrived) {
        let hello = match hello {
            Ok(hello) => hello,
            Err(BadHello::Datagram(why)) => return self.drop_bad(why),
            Err(BadHello::Key) => return self.counters.dropped_key += 1,
        };
        let endpoint = self.peers.endpoint_of(hello.identity.from);
        let entry = endpoint.and_then(|endpoint| Some((endpoint, self.peers.get_mut(endpoint)?)));
        let (Some((endpoint, entry)), Some(from), Ok(fresh)) = (entry, self.inbox.sender(arrived), random::bytes())
        else {
            return self.counters.dropped_misdirected += 1; // a rank that is to be added soon sends another hello
        };
        if matches!(entry.state, ConnState::Lost | ConnState::Closing) || !entry.handshake.concerns(&hello) {
            return self.counters.dropped_misdirected += 1;
        }
        if entry.handshake.base().encrypted != hello.encrypted {
            return self.refuse_encryption(endpoint, &hello, from);
        }
        let is_established = entry.state == ConnState::Established;
        // Anybody may replay a hello. A replay must not keep this end busy, and must not make it send much.
        let is_own_address = entry.candidates.contains(&from)
            || entry.remote.as_ref().and_then(SockAddr::as_socket).is_some_and(|remote| remote == from);
        if is_established && !is_own_address {
            if entry.answered_foreign.is_some_and(|last| self.now < last + FIRST_INTERVAL) {
                return self.counters.dropped_misdirected += 1;
            }
            entry.answered_foreign = Some(self.now);
        }
        let outcome = entry.handshake.on_hello(&hello, fresh, &self.config.key);
        // With a session, the address changes only to one of the card: a forwarder of a hello must not get into the path.
        if outcome.established && (!is_established || entry.candidates.contains(&from)) {
            log::debug!("udp link {}: rank {} is established at {from}", self.config.link, entry.rank);
            entry.remote = Some(from.into());
        }
        let unsettled = entry.handshake.is_unsettled();
        entry.state = if outcome.established { ConnState::Established } else { entry.state };
        self.counters.established += u64::from(outcome.established);
        if outcome.established && !is_established {
            self.leave_lists(endpoint);
        } else if outcome.established && unsettled {
            self.schedule_renewal(endpoint, self.now + FIRST_INTERVAL);
        }
        if let Some(answer) = outcome.answer {
            self.send_hello(&answer, from);
        }
    }

    /// One end encrypts and the other does not: reports it and loses the peer.
    #[cold]
    fn refuse_encryption(&mut self, endpoint: u32, hello: &Hello, from: SocketAddr) {
        self.counters.refused_encryption += 1;
        let Some(entry) = self.peers.get_mut(endpoint) else { return };
        let own = entry.handshake.base();
        let (theirs, ours) = ((hello.encrypted, hello.encrypt), (own.encrypted, own.encrypt));
        let mismatch = EncryptionMismatch { rank: entry.rank, theirs, ours };
        log::error!("udp link {}: {mismatch}", self.config.link);
        let answer = entry.handshake.next_hello(&self.config.key);
        self.send_hello(&answer, from); // so that the peer can report it too
        self.lose(endpoint, Lost::Broken);
    }
}

/// Time until the next hello after `sent` ones.
fn interval(sent: u32, longest: Duration) -> Duration {
    Duration::from_nanos((FIRST_INTERVAL.as_nanos() << sent.min(20)).min(longest.as_nanos()))
}
