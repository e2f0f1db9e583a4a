//! Two peers, each with two links. The first peer loses one link, the second peer the other: the frames of the two links
//! change places.

use super::mesh::{TestLink, bytes, name_of};
use super::wire::{Faults, WireFailure, WireState, wires};
use crate::arena::Arena;
use crate::convertor::Span;
use crate::link::{Config, Crc32c, Link};
use crate::rail::*;
use crate::time::Instant;
use std::{cell::RefCell, rc::Rc, vec, vec::Vec};

/// Node 0 knows nodes 1 and 2, each by two links. They know only node 0.
struct Star {
    links: [[TestLink; 2]; 3],
    /// Of node 0: by link, then by node less one. Of the others: by node less one, then by link.
    hub_to: [[Endpoint; 2]; 2],
    to_hub: [[Endpoint; 2]; 2],
    wires: [Rc<RefCell<WireState>>; 2],
    down: [[bool; 2]; 2],
    got: [Vec<u64>; 2],
    now: u64,
}

impl Star {
    fn new(slots: u32, longest: usize) -> Self {
        let mut ends: Vec<_> = (0..2).map(|rail| wires(3, rail, Faults::default(), true)).collect();
        let shared = [0, 1].map(|rail: usize| ends[rail][0].shared.clone());
        let mut links = [0, 1, 2].map(|node: u8| {
            [0, 1].map(|rail: u8| {
                let wire = ends[usize::from(rail)].remove(0);
                let config = Config {
                    peers: 2,
                    slots,
                    control_slots: 1,
                    long_slots: 1,
                    ..Config::new(rail * 10 + node, 100 + u64::from(node), wire.attributes())
                };
                assert!(longest <= wire.attributes().max_send_size as usize);
                let block = vec![0; config.bytes(&wire)].leak();
                Link::new(wire, Crc32c, config, &mut Arena::new(block)).unwrap()
            })
        });
        let cards = links.each_ref().map(|links| links.each_ref().map(|link| link.card().to_vec()));
        let hub_to = [0, 1].map(|rail: usize| {
            [1, 2].map(|node: usize| links[0][rail].add_peer(Peer(node as u32), &cards[node][rail]).unwrap())
        });
        let to_hub = [1, 2]
            .map(|node: usize| [0, 1].map(|rail: usize| links[node][rail].add_peer(Peer(0), &cards[0][rail]).unwrap()));
        let (down, got) = ([[false; 2]; 2], [vec![], vec![]]);
        Self { links, hub_to, to_hub, wires: shared, down, got, now: 0 }
    }

    fn send(&mut self, rail: usize, node: usize, bytes: &[u8]) -> bool {
        let (header, body) = bytes.split_at(20);
        let shape = Shape { tag: 0x99, lane: Lane::Bulk, header: 20, len: bytes.len() as u32 };
        let Ok(mut grant) = self.links[0][rail].reserve(self.hub_to[rail][node - 1], shape) else { return false };
        grant.write(0, header);
        grant.write(20, body);
        let ticket = grant.finish();
        self.links[0][rail].commit(ticket);
        true
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..100_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!(
            "it did not happen: {what}: {:?}, {:?}",
            self.got,
            self.links[0].each_ref().map(|link| *link.counters())
        );
    }

    fn step(&mut self) {
        for node in 0..3 {
            for rail in 0..2 {
                while let Some(event) = self.links[node][rail].poll(Instant::from_nanos(self.now)) {
                    match (node, event) {
                        (0, Event::Down(Peer(peer), _)) => self.down[rail][peer as usize - 1] = true,
                        (0, Event::Up(Peer(peer))) => self.down[rail][peer as usize - 1] = false,
                        (_, Event::Frame(frame)) => self.take(node, rail, &frame),
                        (_, Event::Migrated(origin, frame)) => self.take_migrated(node, rail, origin, &frame),
                        _ => {}
                    }
                }
            }
        }
        self.migrate_frames();
        let due = self.links.iter().flatten().filter_map(Rail::poll_at).map(Instant::as_nanos).min();
        self.now = due.unwrap_or(self.now + 1000).clamp(self.now + 1, self.now + 10_000_000);
    }

    fn take(&mut self, node: usize, rail: usize, frame: &Frame) {
        let mut bytes = vec![0; frame.len as usize];
        if frame.is_whole() {
            bytes.copy_from_slice(frame.head());
        } else {
            let sink = Span::contiguous(bytes.as_mut_ptr(), bytes.len());
            // SAFETY: wires without faults write during the call.
            let delivery = unsafe { self.links[node][rail].deliver(frame.id, 0, sink, Cookie(1)) };
            assert_eq!(delivery, Delivery::Done);
        }
        assert_eq!(bytes, super::mesh::bytes(name_of(&bytes), bytes.len()));
        self.got[node - 1].push(name_of(&bytes));
    }

    fn take_migrated(&mut self, node: usize, rail: usize, origin: Origin, frame: &Frame) {
        let claims = [0, 1].map(|other: usize| self.links[node][other].claim(self.to_hub[node - 1][other], origin));
        match claims.into_iter().flatten().next() {
            Some(Claim::New) => self.take(node, rail, frame),
            other => panic!("no part of it arrived before: {other:?}"),
        }
    }

    fn migrate_frames(&mut self) {
        for (rail, node) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let (from, to) = (self.hub_to[rail][node], self.hub_to[1 - rail][node]);
            while self.down[rail][node]
                && let Some(frame) = self.links[0][rail].next_unacked(from)
            {
                let header = &frame.header[..usize::from(frame.shape.header)];
                let carrier = &mut self.links[0][1 - rail];
                // SAFETY: the body is the link's until it has migrated.
                let sent =
                    unsafe { carrier.send_migrated(to, frame.origin, frame.shape, header, frame.body, frame.cookie) };
                if sent.is_err() {
                    break;
                }
                self.links[0][rail].migrated(from, frame.origin);
            }
        }
    }
}

/// The slots of each link are taken by frames that have to migrate to the other link. Without a reserve slot neither link
/// could begin.
#[test]
fn p14_b34_frames_of_two_links_that_are_down_change_places_where_both_are_full() {
    for (slots, len) in [(1, 100), (3, 100), (1, 9000), (8, 9000)] {
        let mut star = Star::new(slots, len);
        let mut number = 0;
        for (rail, node) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
            star.until("they are connected", |star| star.send(rail, node, &bytes(number, len)));
            number += 1;
        }
        let (mut sent, first) = ([0, 0], number as usize);
        star.until("all have arrived", |star| star.got.iter().map(Vec::len).sum::<usize>() == first);
        // The reserve slot is free again.
        for _ in 0..2 {
            star.until("all is in order", |star| {
                let drained =
                    |star: &Star, rail: usize| (0..2).all(|node| star.links[0][rail].drained(star.hub_to[rail][node]));
                star.down == [[false; 2]; 2] && (0..2).all(|rail| drained(star, rail))
            });
            // Node 1 loses the first link, node 2 the second one. All slots are taken before the links notice it.
            for (rail, node) in [(0, 1), (1, 2)] {
                star.wires[rail].borrow_mut().fail(WireFailure::NoArrivals(node));
                let before = sent[node - 1];
                while star.send(rail, node, &bytes(number, len)) {
                    number += 1;
                    sent[node - 1] += 1;
                }
                assert!(sent[node - 1] > before);
            }
            star.until("all have arrived by the other link", |star| {
                star.got.iter().zip(sent).all(|(got, sent)| got.len() == 2 + sent)
            });
            star.wires.iter().for_each(|wire| wire.borrow_mut().restore());
        }
        let mut got: Vec<u64> = star.got.iter().flatten().copied().collect();
        got.sort_unstable();
        assert!(got.into_iter().eq(0..number), "each once");
    }
}
