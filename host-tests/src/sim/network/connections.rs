//! Connections and nodes: connections break and are closed, nodes die and restart.

use super::endpoint::{End, PendingEvent};
use super::faults::Outage;
use super::packet::Packet;
use super::state::NetworkState;

impl NetworkState {
    pub fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
        if self.upcoming_outages.is_empty() {
            return;
        }
        let now = self.now;
        let due: Vec<_> = self.upcoming_outages.extract_if(.., |outage| outage.window.0 <= now).collect();
        for Outage { node, rail, .. } in due {
            let rails = rail.map_or(0..self.rail_params.len() as u32, |rail| rail..rail + 1);
            for rail in rails {
                self.counts.outages += 1;
                let datagrams = self.rail_params[rail as usize].datagrams;
                for other in (0..self.nodes).filter(|other| *other != node && !datagrams) {
                    self.cut(node, other, rail);
                }
            }
        }
    }

    pub fn kill(&mut self, node: u32) {
        let Ok(incarnation) = self.incarnations[node as usize] else { return };
        self.counts.killed += 1;
        self.incarnations[node as usize] = Err(incarnation);
        self.prepared[node as usize] = 0;
        self.devices.kill(node);
        for rail in 0..self.rail_params.len() as u32 {
            let datagrams = self.rail_params[rail as usize].datagrams;
            for other in 0..self.nodes {
                if !datagrams {
                    self.cut(node, other, rail);
                    continue;
                }
                let mut left: Vec<u32> = self.end(node, rail).outbox.iter().copied().collect();
                let staged = self.end(other, rail).outbox.clone(); // not sent yet
                left.extend(self.between(other, node, rail).iter().filter(|at| !staged.contains(at)));
                for at in left {
                    if self.packets[at as usize].is_none() {
                        continue;
                    }
                    let packet = self.packet(at);
                    if packet.to == node && packet.sink.is_none() && !packet.held && self.random.chance(300) {
                        self.copy_body(at);
                        let stale = Packet { copy: true, ..self.packet(at).clone() };
                        self.stale_packets.push(stale);
                    }
                    self.discard(at);
                }
                self.copy_bodies(node, other, rail);
            }
            let nodes = self.nodes as usize;
            let end = self.end(node, rail);
            let epochs = end.epochs.iter().map(|epoch| epoch + 1).collect();
            *end = End::unknown(nodes, epochs);
        }
    }

    pub fn revive(&mut self, node: u32) {
        let Err(incarnation) = self.incarnations[node as usize] else { return };
        self.counts.revived += 1;
        self.hosts_lost[node as usize] = false;
        self.incarnations[node as usize] = Ok(incarnation + 1);
        let (stale, rest) = std::mem::take(&mut self.stale_packets).into_iter().partition(|packet| packet.to == node);
        self.stale_packets = rest;
        let stale: Vec<Packet> = stale;
        for packet in stale {
            self.counts.stale_frames += 1;
            let at = self.keep(packet);
            let done = self.now + self.random.length(1 << 20);
            self.arrive(at, done, false);
        }
    }

    /// Breaks the connection of a pair of ends. Both ends report the loss some time later.
    pub fn cut(&mut self, one: u32, other: u32, rail: u32) {
        self.counts.cut += 1;
        for (from, to) in [(one, other), (other, one)] {
            self.purge(from, to, rail, u32::MAX);
            self.report_lost(from, to, rail);
        }
        self.renew(one, other, rail);
    }

    /// Begins a new connection of a pair of ends. Later frames of the old one are void.
    pub fn renew(&mut self, one: u32, other: u32, rail: u32) {
        let session = self.path(one, other, rail).session + 1;
        self.path(one, other, rail).session = session;
        self.path(other, one, rail).session = session;
    }

    /// Lets one end report the other as lost.
    pub fn report_lost(&mut self, at: u32, of: u32, rail: u32) {
        let when = self.now + self.random.length(50_000);
        self.report_lost_at(when, at, of, rail);
    }

    pub fn report_lost_at(&mut self, when: u64, at: u32, of: u32, rail: u32) {
        let epoch = self.end(at, rail).epochs[of as usize];
        if self.end(at, rail).peers[of as usize].is_some() {
            if self.trace {
                println!("{:>9} node {at}: rail {rail} will lose {of} at {when}", self.now);
            }
            self.report_at(when, at, rail, PendingEvent::Lost { node: of, epoch });
        }
    }

    /// Closes a connection at one end. The other end reports the loss after all frames in flight.
    pub fn close(&mut self, from: u32, to: u32, rail: u32) {
        if from == to || self.rail_params[rail as usize].datagrams {
            return;
        }
        let now = self.now;
        let arrivals = self.end(to, rail).inbox.iter().filter(|next| next.0.0 > now).map(|next| next.0.0);
        let last = arrivals.max().unwrap_or(now).max(now);
        self.report_lost_at(last + 1, to, from, rail);
        self.renew(from, to, rail);
    }
}
