//! The whole state of the network, and its basic operations.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::devices::Devices;
use super::endpoint::{End, Exposed, Path, PendingEvent};
use super::faults::{Counts, Faults, Outage, RailParams, Window};
use super::packet::Packet;
use super::trace::describe;
use crate::random::Random;

/// The state of the network.
pub(super) struct NetworkState {
    pub now: u64,
    pub random: Random,
    pub faults: Faults,
    pub rail_params: Vec<RailParams>,
    pub counts: Counts,
    pub ends: Vec<End>,
    pub paths: Vec<Path>,
    pub packets: Vec<Option<Packet>>,
    pub free: Vec<u32>,
    pub nodes: u32,
    pub ids: u64,
    /// The incarnation of each node. `Err` while it is dead.
    pub incarnations: Vec<Result<u32, u32>>,
    /// Requests that each node has prepared and not released.
    pub prepared: Vec<u64>,
    /// Datagrams for dead nodes, which may arrive after those have restarted.
    pub stale_packets: Vec<Packet>,
    /// A frame that is held back to swap places with the next one.
    pub held_for_swap: Option<Packet>,
    /// Outages that have not begun.
    pub upcoming_outages: Vec<Outage>,
    /// All buffers that were ever exposed.
    pub exposed_buffers: Vec<Exposed>,
    pub devices: Devices,
    /// Which nodes were lost together with their host.
    pub hosts_lost: Vec<bool>,
    /// Pairs of a node and a peer that it has given up.
    pub given_up: HashSet<(u32, u32)>,
    /// By node and peer: the incarnation of the peer that was added last.
    pub known_incarnations: HashMap<(u32, u32), u32>,
    /// When each node must be called if it sleeps, because of its engine or of an arrival.
    pub wakes_at: Vec<u64>,
    /// Whether to print all events: `TOWLINE_TRACE`.
    pub trace: bool,
}

impl NetworkState {
    /// The incarnation of a live node.
    pub fn incarnation(&self, node: u32) -> Option<u32> {
        self.incarnations[node as usize].ok()
    }

    pub fn end_index(&self, node: u32, rail: u32) -> usize {
        node as usize * self.rail_params.len() + rail as usize
    }

    pub fn end(&mut self, node: u32, rail: u32) -> &mut End {
        let at = self.end_index(node, rail);
        &mut self.ends[at]
    }

    /// Whether there is no such rail between two nodes.
    pub fn is_rail_missing(&self, one: u32, other: u32, rail: u32) -> bool {
        self.faults.missing.iter().any(|missing| missing.holds(one, other, rail))
    }

    pub fn path(&mut self, from: u32, to: u32, rail: u32) -> &mut Path {
        let at = (from as usize * self.rail_params.len() + rail as usize) * self.nodes as usize + to as usize;
        &mut self.paths[at]
    }

    pub fn packet(&mut self, at: u32) -> &mut Packet {
        self.packets[at as usize].as_mut().expect("a packet that is queued exists")
    }

    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Prints an event of a frame, if a trace is wanted.
    pub fn trace(&self, what: &str, packet: &Packet) {
        if self.trace {
            let Packet { id, from, to, rail, lane, .. } = packet;
            let header = describe(&packet.bytes);
            println!(
                "{:>9} {what} frame {id} {from}->{to} rail {rail} {lane:?} {} bytes {header}",
                self.now,
                packet.len()
            );
        }
    }

    /// The packet that belongs to a frame id, if it still exists.
    pub fn find(&self, frame: u64) -> Option<&Packet> {
        self.packets.get(frame as u32 as usize)?.as_ref().filter(|packet| packet.id as u32 == (frame >> 32) as u32)
    }

    pub fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    pub fn keep(&mut self, packet: Packet) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.packets[at as usize] = Some(packet);
                at
            }
            None => {
                self.packets.push(Some(packet));
                self.packets.len() as u32 - 1
            }
        }
    }

    /// Whether a rail of a node is dead now.
    pub fn is_in_outage(&self, node: u32, rail: u32) -> bool {
        let now = self.now;
        self.faults.outages.iter().any(|outage| {
            outage.node == node
                && outage.rail.is_none_or(|one| one == rail)
                && (outage.window.0..outage.window.1).contains(&now)
        })
    }

    /// Whether a rail of a node is stalled now.
    pub fn is_rail_stalled(&self, node: u32, rail: u32) -> bool {
        let now = self.now;
        self.faults
            .rail_stalls
            .iter()
            .any(|&(one, other, (since, until))| (one, other) == (node, rail) && (since..until).contains(&now))
    }

    /// The partition that blocks frames at that time: whether it blocks both directions, and its window.
    pub fn partition(&self, from: u32, to: u32, rail: u32, at: u64) -> Option<(bool, Window)> {
        let found = self.faults.partitions.iter().filter(|_| from != to).find(|partition| {
            let way = (partition.from, partition.to);
            (way == (from, to) || (partition.both && way == (to, from)))
                && partition.rail.is_none_or(|one| one == rail)
                && (partition.window.0..partition.window.1).contains(&at)
        });
        found.map(|partition| (partition.both, partition.window))
    }

    /// Adds an event that an end will report.
    pub fn report_at(&mut self, when: u64, node: u32, rail: u32, what: PendingEvent) {
        let id = self.id();
        self.end(node, rail).events.push(Reverse((when, id, what)));
        self.wake_at(when, node);
    }

    pub fn wake_at(&mut self, when: u64, node: u32) {
        let wakes_at = &mut self.wakes_at[node as usize];
        *wakes_at = when.min(*wakes_at);
    }

    /// Copies a body that was left in place, and reports this to its sender some time later.
    pub fn copy_body(&mut self, at: u32) {
        let packet = self.packet(at);
        let (from, to, rail) = (packet.from, packet.to, packet.rail);
        let Some((body, cookie)) = packet.in_place.take() else { return };
        let header = packet.bytes.len();
        packet.bytes.resize(header + body.len() as usize, 0);
        // SAFETY: the sender keeps the body readable until the report below; the packet's own memory does not overlap it.
        unsafe { body.pack(packet.bytes[header..].as_mut_ptr(), body.len() as usize) };
        let when = self.now + self.random.length(20_000);
        let epoch = self.end(from, rail).epochs[to as usize];
        self.report_at(when, from, rail, PendingEvent::Sent { node: to, epoch, cookie: cookie.0 });
    }

    /// Removes a packet and frees its slot.
    pub fn discard(&mut self, at: u32) {
        self.copy_body(at);
        let Some(packet) = self.packets[at as usize].take() else { return };
        if packet.held {
            self.end(packet.to, packet.rail).held -= 1;
        }
        if !packet.copy {
            self.path(packet.from, packet.to, packet.rail).used[packet.lane as usize] -= 1;
        }
        self.free.push(at);
    }

    /// The packets in flight from one end to another.
    pub fn between(&self, from: u32, to: u32, rail: u32) -> Vec<u32> {
        let such = |packet: &Packet| (packet.from, packet.to, packet.rail) == (from, to, rail);
        let numbered = self.packets.iter().zip(0u32..);
        numbered.filter(|(packet, _)| packet.as_ref().is_some_and(such)).map(|(_, at)| at).collect()
    }

    /// Removes all packets from one end to another that belong to this connection or an earlier one.
    pub fn purge(&mut self, from: u32, to: u32, rail: u32, session: u32) {
        for at in self.between(from, to, rail) {
            if self.packet(at).session <= Some(session) {
                self.discard(at);
            }
        }
        for node in [from, to] {
            let at = node as usize * self.rail_params.len() + rail as usize;
            let (end, packets) = (&mut self.ends[at], &self.packets);
            let exists = |at: &u32| packets[*at as usize].is_some();
            end.inbox.retain(|Reverse((_, _, at))| exists(at));
            end.waiting.retain(|(_, _, at)| exists(at));
            end.outbox.retain(exists);
            end.events.retain(|Reverse((_, _, later))| match later {
                PendingEvent::Delivered(at) => exists(at),
                PendingEvent::Sent { .. }
                | PendingEvent::Lost { .. }
                | PendingEvent::FalseRefusal { .. }
                | PendingEvent::Performed(_) => true,
            });
        }
    }

    /// Copies all bodies that were left in place, from one end to another.
    pub fn copy_bodies(&mut self, from: u32, to: u32, rail: u32) {
        for at in self.between(from, to, rail) {
            self.copy_body(at);
        }
    }
}
