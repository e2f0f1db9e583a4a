//! The transit of a frame from its sender to its receiver.

use std::cmp::Reverse;

use towline_core::wire;

use super::endpoint::PendingEvent;
use super::faults::PlantedBug;
use super::packet::Packet;
use super::state::NetworkState;

impl NetworkState {
    /// Accepts a committed packet, and sends it now or when its sender polls. Returns whether it was sent at once.
    pub fn accept(&mut self, packet: Packet) -> bool {
        self.counts.frames += 1;
        self.counts.bytes += packet.len() as u64;
        let (from, to, rail, lane) = (packet.from, packet.to, packet.rail, packet.lane);
        self.path(from, to, rail).used[lane as usize] += 1;
        self.trace("sent", &packet);
        let at = self.keep(packet);
        if self.faults.planted.is_some() && self.apply_planted_bug(at) {
            return true;
        }
        if self.is_rail_stalled(from, rail) || self.random.chance(self.faults.staged) {
            self.counts.staged += 1;
            self.end(from, rail).outbox.push_back(at);
            return false;
        }
        self.launch(at);
        true
    }

    /// Applies a planted bug of a rail. Returns whether the frame needs no further handling.
    pub fn apply_planted_bug(&mut self, at: u32) -> bool {
        let (from, to) = (self.packet(at).from, self.packet(at).to);
        let first = wire::kind(&self.packet(at).bytes) == Some(wire::Kind::Match);
        if let Some(mut before) = self.held_for_swap.take_if(|before| (before.from, before.to) == (from, to)) {
            if first {
                let place = std::mem::offset_of!(wire::Match, sequence);
                let (one, other) = (&mut before.bytes[place..place + 4], &mut self.packet(at).bytes[place..place + 4]);
                one.swap_with_slice(other);
            }
            let before = self.keep(before);
            self.launch(before);
            return false;
        }
        if !self.random.chance(if self.faults.planted == Some(PlantedBug::MessagesSwapped) { 300 } else { 20 }) {
            return false;
        }
        match self.faults.planted {
            Some(PlantedBug::FrameLost) => {
                self.discard(at);
                return true;
            }
            Some(PlantedBug::FrameDuplicated) => {
                self.copy_body(at);
                let copy = Packet { copy: true, ..self.packet(at).clone() };
                let copy = self.keep(copy);
                self.launch(copy);
            }
            Some(PlantedBug::BodyCorrupted) => {
                self.copy_body(at);
                let header = usize::from(self.packet(at).header);
                if let Some(byte) = self.packet(at).bytes.get_mut(header) {
                    *byte ^= 1;
                }
            }
            Some(PlantedBug::MessagesSwapped) if first && self.held_for_swap.is_none() => {
                self.held_for_swap = self.packets[at as usize].take();
                self.free.push(at);
                return true;
            }
            _ => {}
        }
        false
    }

    /// Sends a packet, with all faults that may affect it.
    pub fn launch(&mut self, at: u32) {
        let packet = self.packet(at);
        let (from, to, rail, len) = (packet.from, packet.to, packet.rail, packet.len() as u64);
        let long = packet.len() > usize::from(packet.header);
        let params = self.rail_params[rail as usize];
        let session = self.path(from, to, rail).session;
        if !params.datagrams && self.packet(at).session != Some(session) {
            return self.discard(at);
        }
        let known = self.end(from, rail).peers[to as usize].map(|named| named.incarnation);
        if params.datagrams && from != to && self.faults.hosts_answer {
            self.host_reply(from, to, rail, known);
        }
        if self.incarnation(to).is_none()
            || (params.datagrams && from != to && [from, to].into_iter().any(|node| self.is_in_outage(node, rail)))
        {
            self.counts.outage_losses += 1;
            return self.discard(at);
        }
        let mut start = self.path(from, to, rail).busy_until.max(self.now);
        while let Some((both, (_, until))) = self.partition(from, to, rail, start) {
            self.counts.partitioned += 1;
            self.counts.one_way += u64::from(!both);
            if params.datagrams {
                return self.discard(at);
            }
            start = until;
        }
        let lossy_rail = self.faults.lossy_rail.filter(|(_, window)| (window.0..window.1).contains(&self.now));
        let clean = lossy_rail.is_some_and(|lossy_rail| lossy_rail.0 != rail);
        let lossy = |chance: u32| if params.datagrams && !clean { chance } else { 0 };
        if lossy_rail.is_some_and(|lossy_rail| lossy_rail.0 == rail) && self.random.chance(lossy(500)) {
            self.counts.lossy_rail_losses += 1;
            if self.faults.planted == Some(PlantedBug::FalseLoss) {
                (0..self.rail_params.len() as u32).for_each(|rail| self.report_lost(from, to, rail));
            }
            return self.discard(at);
        }
        if self.random.chance(lossy(self.faults.drop)) {
            self.counts.dropped += 1;
            return self.discard(at);
        }
        let done = start + len * 1000 / u64::from(params.bandwidth);
        self.path(from, to, rail).busy_until = done;
        if self.random.chance(lossy(self.faults.duplicate)) {
            self.counts.duplicated += 1;
            self.copy_body(at);
            let copy = Packet { copy: true, ..self.packet(at).clone() };
            let copy = self.keep(copy);
            let late = if self.random.chance(200) { self.random.length(1 << 27) } else { 0 };
            self.arrive(copy, done + late, long);
        }
        if len > 0 && self.random.chance(lossy(self.faults.corrupt)) {
            self.corrupt(at);
        }
        self.arrive(at, done, long);
    }

    /// The reply of a host to a datagram for one of its processes.
    pub fn host_reply(&mut self, from: u32, to: u32, rail: u32, known: Option<u32>) {
        let mine = self.known_incarnations.get(&(to, from)).copied();
        let given_up = self.given_up.contains(&(to, from)) && mine == self.incarnation(from);
        let unreachable = known.is_some() && (self.incarnation(to) != known || given_up);
        let false_refusal = !unreachable && self.random.chance(self.faults.false_refusals);
        if !(unreachable || false_refusal) || !self.host_answers(from, to, rail) {
            return;
        }
        if unreachable {
            self.counts.refused += 1;
            return self.report_lost(from, to, rail);
        }
        self.counts.false_refusals += 1;
        let (epoch, when) = (self.end(from, rail).epochs[to as usize], self.now + self.random.length(50_000));
        self.report_at(when, from, rail, PendingEvent::FalseRefusal { node: to, epoch });
    }

    /// Whether a reply of a host would arrive now.
    pub fn host_answers(&mut self, from: u32, to: u32, rail: u32) -> bool {
        let lost = self.hosts_lost[to as usize];
        let now = self.now;
        let out = |node| self.is_in_outage(node, rail) || self.is_rail_stalled(node, rail);
        let apart = |from, to| self.partition(from, to, rail, now).is_some();
        let there = !lost && !out(from) && !out(to) && !apart(from, to) && !apart(to, from);
        there && !self.random.chance(self.faults.drop) && !self.random.chance(self.faults.drop)
    }

    /// Asks the host of a node whether it is alive. Returns the time of the latest request that it has answered.
    pub fn ask_host(&mut self, from: u32, of: u32, rail: u32) -> Option<u64> {
        if !self.faults.hosts_answer || self.faults.planted == Some(PlantedBug::HostsSilent) {
            return None;
        }
        let (now, latency) = (self.now, u64::from(self.rail_params[rail as usize].latency));
        let mut host = self.end(from, rail).hosts[of as usize];
        if let Some((asked, _, answers)) = host.question.filter(|(_, at, _)| *at <= now) {
            host.question = None;
            host.answered_at = if answers { Some(asked.max(host.answered_at.unwrap_or(0))) } else { host.answered_at };
        }
        if host.question.is_none() {
            let undead = self.hosts_lost[of as usize] && self.faults.planted == Some(PlantedBug::LostHostsAnswer);
            let answers = undead || self.host_answers(from, of, rail);
            *(if answers { &mut self.counts.hosts_asked } else { &mut self.counts.hosts_silent }) += 1;
            host.question = Some((now, now + latency * 2, answers));
        }
        self.end(from, rail).hosts[of as usize] = host;
        host.answered_at
    }

    /// Corrupts a frame in flight.
    pub fn corrupt(&mut self, at: u32) {
        self.counts.corrupted += 1;
        self.copy_body(at);
        let len = self.packet(at).len() as u64;
        let (kind, bit, keep) = (self.random.below(10), self.random.below(len * 8), self.random.below(len) as usize);
        let packet = self.packet(at);
        match kind {
            0 => packet.tag ^= 1 << (bit % 8),
            1 => {
                packet.bytes.truncate(keep);
                packet.header = packet.header.min(keep as u8);
            }
            _ => packet.bytes[bit as usize / 8] ^= 1 << (bit % 8),
        }
    }

    pub fn arrive(&mut self, at: u32, done: u64, long: bool) {
        let jitter = self.faults.jitter;
        let (to, rail) = (self.packet(at).to, self.packet(at).rail);
        let arrival = done + u64::from(self.rail_params[rail as usize].latency) + self.random.below(jitter + 1);
        let late = long && self.random.chance(self.faults.late_body);
        let wait = if late { self.random.length(30_000) } else { 0 };
        self.counts.late_bodies += u64::from(late);
        let packet = self.packet(at);
        packet.body_at = arrival + wait;
        let id = packet.id;
        self.end(to, rail).inbox.push(Reverse((arrival, id, at)));
        self.wake_at(arrival, to);
    }
}
