//! Liveness: peers whose port is closed, and hosts that are asked whether they are alive.
//!
//! A report that a port is closed begins a [check](crate::probes::closed_port). While it goes on, the link asks the peer itself
//! ([`Event::Silent`]).

use std::net::SocketAddr;

use socket2::SockAddr;
use towline_core::rail::{Event, Lost};
use towline_core::time::Instant;
use towline_net::random;

use crate::probes::closed_port::ClosedPortCheck;
use crate::probes::host::HostProbe;
use crate::rail::Rail;
use crate::rail::peer::{ConnState, PeerEntry};
use crate::system::reports;

/// Maximum number of reports that are taken at a time.
const REPORTS: usize = 32;
/// Receive calls that may find datagrams between the report of a closed port and the loss of the peer. The datagrams that the
/// peer had sent are in the socket when the report arrives.
const CLOSING_RECEIVES: u32 = 1024;

impl Rail {
    /// Takes the kernel's reports of datagrams that were not delivered. Returns whether there was any.
    #[cold]
    pub(super) fn handle_reports(&mut self) -> bool {
        for taken in 0..REPORTS {
            let Some(report) = reports::next_report(&self.socket) else { return taken != 0 };
            if report.from_network && report.number == libc::ECONNREFUSED as u32 {
                report.destination.into_iter().for_each(|to| self.on_closed_port(to, report.quoted()));
            } else {
                let error = std::io::Error::from_raw_os_error(report.number as i32);
                log::debug!("udp: {:?}: {error}", report.destination);
            }
        }
        true
    }

    /// A port was reported closed, by a report that quotes these bytes: the peer there may have ended.
    fn on_closed_port(&mut self, at: SocketAddr, quoted: &[u8]) {
        self.counters.closed_port_reports += 1;
        let now = self.now;
        for endpoint in 0..self.peers.endpoints() {
            let Some(entry) = self.peers.get_mut(endpoint) else { continue };
            let remote = entry.remote.as_ref().and_then(SockAddr::as_socket);
            match entry.state {
                ConnState::Established if remote == Some(at) => match &mut entry.port_check {
                    None => self.begin_port_check(endpoint),
                    Some(check) => {
                        if check.on_report(quoted, now) {
                            entry.state = ConnState::Closing;
                            if !self.closing.contains(&endpoint) {
                                self.closing.push(endpoint);
                            }
                            self.closing_receives = CLOSING_RECEIVES;
                        }
                    }
                },
                ConnState::Connecting(_) if entry.handshake.has_sent(quoted) => {
                    let candidates = (0..32).zip(&entry.candidates).filter(|(_, it)| **it == at);
                    entry.closed = candidates.fold(entry.closed, |closed, (bit, _)| closed | 1 << bit);
                    if entry.closed.count_ones() as usize >= entry.candidates.len().min(32) {
                        self.lose(endpoint, Lost::Broken);
                    }
                }
                _ => {}
            }
        }
    }

    fn begin_port_check(&mut self, endpoint: u32) {
        if let Ok(nonce) = random::bytes()
            && let Some(entry) = self.peers.get_mut(endpoint)
        {
            entry.port_check = Some(ClosedPortCheck::new(nonce, self.now));
            self.checked_ports.push(endpoint);
            self.next_port_check = Some(self.now);
        }
    }

    /// Sends the nonces that are due to ports that are checked.
    #[cold]
    pub(super) fn check_ports(&mut self) {
        let (now, mut at) = (self.now, 0);
        self.next_port_check = None;
        while let Some(endpoint) = self.checked_ports.get(at).copied() {
            let has_session =
                |entry: &&mut PeerEntry| matches!(entry.state, ConnState::Established | ConnState::Closing);
            let check = self.peers.get_mut(endpoint).filter(has_session).and_then(|entry| {
                entry.port_check = entry.port_check.filter(|check| check.is_active(now));
                Some((entry.peer, entry.remote.clone()?, entry.port_check.as_mut()?))
            });
            let Some((peer, remote, check)) = check else {
                self.checked_ports.swap_remove(at);
                continue;
            };
            let nonce = check.nonce();
            let (due, next) = check.poll(now);
            self.next_port_check = Some(self.next_port_check.map_or(next, |other| other.min(next)));
            at += 1;
            if due {
                if !self.events.iter().any(|(of, _)| *of == endpoint) {
                    self.events.push_back((endpoint, Event::Silent(peer, None))); // so that the link asks the peer
                }
                self.send_datagram(&nonce, &remote);
            }
        }
        self.handle_reports(); // within one host they have arrived already
    }

    /// Gives up the probe of the host of a peer that is removed, so that no descriptor is left. Other peers on that host start
    /// another probe.
    pub(super) fn stop_probe(&mut self, endpoint: u32) {
        let at = self.peers.get(endpoint).and_then(PeerEntry::host);
        let reserved = &mut self.reserved;
        self.hosts.iter_mut().filter(|host| Some(host.at) == at).for_each(|host| host.stop(reserved));
    }

    /// Probes the host of a peer, even if the peer's process is stopped. Returns when the host was last known to be alive. A
    /// forwarder is another host, so `None` is returned for a peer behind one.
    #[cold]
    pub(super) fn probe_host(&mut self, endpoint: u32) -> Option<Instant> {
        let from = self.address();
        let at = self.peers.get(endpoint).filter(|entry| !entry.forwarded)?.host()?;
        let index = self.hosts.iter().position(|host| host.at == at).unwrap_or_else(|| {
            self.hosts.push(HostProbe::new(at));
            self.hosts.len() - 1
        });
        let host = self.hosts.get_mut(index)?;
        host.probe(from, &mut self.reserved, self.now);
        host.alive
    }
}

#[cfg(test)]
mod tests {
    use towline_core::rail::{Endpoint, Lane, Peer, Rail as _, Shape};
    use towline_core::time::Duration;

    use super::*;
    use crate::probes::host::{INTERVAL, ProbeSocket, open};
    use crate::system::socket as sys;
    use crate::{Config, JobKey};

    /// Two rails in virtual time, with a session.
    struct Pair {
        rails: [Rail; 2],
        to: [Endpoint; 2],
        now: Instant,
        /// Frames, silence events and losses of each rail.
        frames: [u32; 2],
        silent: [u32; 2],
        lost: [u32; 2],
    }

    impl Pair {
        fn connected() -> Self {
            let mut rails = [0, 1].map(|rank| {
                let mut config = Config::new(1, rank, JobKey::new([9; 32]));
                (config.within_host, config.idle_interval_polls) = (true, 1);
                Rail::new(config).unwrap()
            });
            let cards = rails.each_ref().map(|rail| rail.card().to_vec());
            let to = [0, 1].map(|own: usize| rails[own].add_peer(Peer(7), &cards[1 - own]).unwrap());
            let [frames, silent, lost] = [[0; 2]; 3];
            let mut pair = Self { rails, to, now: Instant::from_nanos(1), frames, silent, lost };
            while pair.frames != [1, 1] {
                for own in 0..2 {
                    if pair.frames[1 - own] == 0 {
                        pair.send(own);
                    }
                }
                pair.pass(1);
            }
            pair
        }

        fn send(&mut self, from: usize) {
            let shape = Shape { tag: 0x80, lane: Lane::Eager, header: 4, len: 4 };
            let Ok(mut grant) = self.rails[from].reserve(self.to[from], shape) else { return };
            grant.write(0, b"data");
            let ticket = grant.finish();
            self.rails[from].commit(ticket);
        }

        /// Advances the time by `millis` milliseconds, in steps of 10.
        fn pass(&mut self, millis: u64) {
            for _ in 0..millis.div_ceil(10) {
                self.now = self.now + Duration::from_millis(millis.min(10));
                (0..2).for_each(|own| self.poll(own));
            }
        }

        fn poll(&mut self, own: usize) {
            for _ in 0..8 {
                match self.rails[own].poll(self.now) {
                    Some(Event::Frame(_)) => self.frames[own] += 1,
                    Some(Event::Silent(..)) => self.silent[own] += 1,
                    Some(Event::Lost(..)) => self.lost[own] += 1,
                    _ => {}
                }
            }
        }

        /// The process of rank 1 has ended, and its socket with it.
        fn kill(&mut self) {
            self.rails[1].socket = sys::open("127.0.0.1:0".parse().unwrap()).unwrap();
        }

        /// An attacker forges a report to rank 0 that the port of rank 1 is closed.
        fn forge(&mut self, quoted: &[u8]) {
            let at = self.rails[1].address();
            self.rails[0].on_closed_port(at, quoted);
        }
    }

    #[test]
    fn p7_forged_reports_lose_no_peer() {
        let mut pair = Pair::connected();
        for _ in 0..60 {
            pair.forge(&[0; 64]);
            pair.pass(100);
        }
        assert_eq!(pair.lost, [0, 0]);
        assert!(pair.silent[0] > 50, "the link asks the peer");
        pair.send(0);
        pair.pass(10);
        assert_eq!(pair.frames[1], 2);
        // The events end with the check.
        pair.pass(5000);
        let silent = pair.silent[0];
        pair.pass(5000);
        assert_eq!((pair.silent[0], pair.rails[0].checked_ports.len()), (silent, 0));
    }

    /// An attacker who sees all datagrams cannot make a peer lost that sends authenticated datagrams.
    #[test]
    fn p7_a_peer_that_sends_is_not_lost_for_any_report() {
        let mut pair = Pair::connected();
        pair.forge(&[]);
        for _ in 0..50 {
            pair.pass(100);
            let nonce = pair.rails[0].peers.get(0).unwrap().port_check.unwrap().nonce();
            pair.forge(&nonce);
            if pair.rails[0].closing.is_empty() {
                pair.send(1);
            }
        }
        pair.pass(10);
        assert_eq!((pair.lost, pair.frames[0]), ([0, 0], 51));
    }

    #[test]
    fn p7_a_killed_peer_is_lost_soon_and_after_its_last_frames() {
        let mut pair = Pair::connected();
        pair.pass(2000);
        pair.send(1);
        pair.poll(1);
        pair.kill();
        pair.send(0);
        let killed = pair.now;
        while pair.lost[0] == 0 {
            pair.pass(1);
            assert!(pair.now.since(killed) < Duration::from_millis(1000), "soon");
        }
        assert_eq!(pair.frames[0], 2);
    }

    /// The kernel of a host answers for it. The answer of a forwarder tells nothing about the host of the peer.
    #[test]
    fn p7_a_host_answers_for_a_rank_that_is_stopped() {
        let mut pair = Pair::connected();
        let first = pair.now;
        assert!(pair.rails[0].probe_host(0).is_some_and(|alive| alive == first), "at once, within a host");
        pair.now = first + INTERVAL;
        pair.rails[0].now = pair.now;
        assert_eq!(pair.rails[0].probe_host(0), Some(pair.now), "another probe");
        pair.rails[0].peers.get_mut(0).unwrap().forwarded = true;
        assert_eq!(pair.rails[0].probe_host(0), None);
    }

    #[test]
    fn p7_a_removed_peer_leaves_no_probe() {
        let mut pair = Pair::connected();
        assert!(pair.rails[0].probe_host(0).is_some());
        let socket = open("127.0.0.1:0".parse().unwrap()).unwrap();
        pair.rails[0].hosts[0].socket = Some(ProbeSocket::Own(socket));
        let to = pair.to[0];
        pair.rails[0].del_peer(to);
        assert!(pair.rails[0].hosts[0].socket.is_none());
    }
}
