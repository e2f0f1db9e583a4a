//! Frames that migrate from one link to another, between two nodes with several links each.

use super::mesh::{Mesh, TestLink, bytes, name_of};
use super::wire::{Faults, Random, WireFailure, WireState, wires};
use crate::arena::Arena;
use crate::convertor::Span;
use crate::link::header::ACK_SPAN;
use crate::link::{Config, Crc32c, Link};
use crate::rail::*;
use crate::rail::{COPIED, Failover, Rail};
use crate::time::Instant;
use std::{boxed::Box, cell::RefCell, collections::BTreeMap, format, rc::Rc, vec, vec::Vec};

struct Node {
    links: Vec<TestLink>,
    to: Vec<Endpoint>,
    down: Vec<bool>,
    got: Vec<Vec<u8>>,
    pending: BTreeMap<u64, Box<[u8]>>,
    in_place: BTreeMap<u64, Box<[u8]>>,
    /// Bodies that the link no longer reads. A device may still read them.
    finished: Vec<Box<[u8]>>,
    cookies: u64,
    duplicates: u32,
    awaited: u32,
    migrated: u32,
}

struct Nodes {
    nodes: Vec<Node>,
    wires: Vec<Rc<RefCell<WireState>>>,
    random: Random,
    now: u64,
}

impl Nodes {
    fn new(seed: u64, faults: Faults) -> Self {
        Self::with(2, seed, faults, |config| config.slots = 64)
    }

    fn with(count: u8, seed: u64, faults: Faults, change: impl Fn(&mut Config)) -> Self {
        let mut wires: Vec<_> = (0..u64::from(count)).map(|rail| wires(2, seed * 2 + rail, faults, true)).collect();
        let shared = wires.iter().map(|wires| wires[0].shared.clone()).collect();
        let mut nodes: Vec<Node> = (0..2u8)
            .map(|node| {
                let link = |rail: u8| {
                    let wire = wires[usize::from(rail)].remove(0);
                    // The two sides have different names for each link.
                    let mut config = Config::new(rail * 10 + node + 5, 100 + u64::from(node), wire.attributes());
                    config.first_number = u64::from(u16::MAX) - 5;
                    change(&mut config);
                    let block = vec![0; config.bytes(&wire)].leak();
                    Link::new(wire, Crc32c, config, &mut Arena::new(block)).unwrap()
                };
                Node {
                    links: (0..count).map(link).collect(),
                    to: vec![],
                    down: vec![false; count.into()],
                    got: vec![],
                    pending: BTreeMap::new(),
                    in_place: BTreeMap::new(),
                    finished: vec![],
                    cookies: 0,
                    duplicates: 0,
                    awaited: 0,
                    migrated: 0,
                }
            })
            .collect();
        let cards: Vec<Vec<Vec<u8>>> =
            nodes.iter().map(|node| node.links.iter().map(|link| link.card().to_vec()).collect()).collect();
        for (at, node) in nodes.iter_mut().enumerate() {
            let add = |(link, card): (&mut TestLink, &Vec<u8>)| link.add_peer(Peer(7), card).unwrap();
            node.to = node.links.iter_mut().zip(&cards[1 - at]).map(add).collect();
        }
        Self { nodes, wires: shared, random: Random(seed), now: 0 }
    }

    /// Nodes whose links are connected: each link has carried one frame, whose name is the link.
    fn connected(seed: u64, faults: Faults) -> Self {
        let mut nodes = Self::new(seed, faults);
        nodes.connect();
        nodes
    }

    fn connect(&mut self) {
        for link in 0..self.wires.len() {
            self.until("a frame is taken", |nodes| nodes.nodes[0].try_send(link, &bytes(link as u64, 30)));
        }
        self.drain();
    }

    /// Goes on until everything that the first node has sent is acknowledged.
    fn drain(&mut self) {
        self.until("everything is acknowledged", |nodes| {
            let Node { links, to, .. } = &nodes.nodes[0];
            links.iter().zip(to).all(|(link, to)| link.drained(*to))
        });
    }

    /// The names of the frames that arrived at the second node, in ascending order.
    fn got(&self) -> Vec<u64> {
        let mut got: Vec<u64> = self.nodes[1].got.iter().map(|frame| name_of(frame)).collect();
        got.sort_unstable();
        got
    }

    fn step(&mut self) {
        let mut any = true;
        while any {
            any = false;
            for node in &mut self.nodes {
                for link in 0..node.links.len() {
                    if let Some(event) = node.links[link].poll(Instant::from_nanos(self.now)) {
                        node.take(link, event);
                        any = true;
                    }
                }
                node.migrate_frames();
            }
        }
        let links = self.nodes.iter().flat_map(|node| &node.links);
        let next = links.filter_map(Rail::poll_at).map(Instant::as_nanos).min();
        self.now = next.unwrap_or(self.now + 1000).clamp(self.now + 1, self.now + 10_000_000);
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..1_000_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        let counters: Vec<_> = self.nodes.iter().flat_map(|node| &node.links).map(|link| *link.counters()).collect();
        panic!("it did not happen: {what}: {counters:#?}");
    }
}

impl Node {
    fn cookie(&mut self) -> Cookie {
        self.cookies += 1;
        Cookie(self.cookies)
    }

    fn try_send(&mut self, link: usize, bytes: &[u8]) -> bool {
        let (header, body) = bytes.split_at(bytes.len().min(20));
        let shape = Shape { tag: 0x99, lane: Lane::Bulk, header: header.len() as u8, len: bytes.len() as u32 };
        let cookie = self.cookie();
        let body: Box<[u8]> = body.into();
        // SAFETY: a body in place is kept until its completion is reported.
        match unsafe { self.links[link].send(self.to[link], shape, header, Span::of(&body), cookie) } {
            Ok(Sent::InPlace) => drop(self.in_place.insert(cookie.0, body)),
            Ok(_) => {}
            Err(_) => return false,
        }
        true
    }

    /// The same with a grant.
    fn try_grant(&mut self, link: usize, bytes: &[u8]) -> bool {
        let shape = Shape { tag: 0x99, lane: Lane::Bulk, header: 20, len: bytes.len() as u32 };
        let Ok(mut grant) = self.links[link].reserve(self.to[link], shape) else { return false };
        grant.write(0, bytes);
        let ticket = grant.finish();
        self.links[link].commit(ticket);
        true
    }

    fn over(&mut self, cookie: u64) {
        let mut body = self.in_place.remove(&cookie).expect("its end is told once");
        body.fill(0xee);
        self.finished.push(body);
    }

    fn migrate_frames(&mut self) {
        for link in 0..self.links.len() {
            while self.down[link] && (0..self.links.len()).any(|other| self.migrate_frame(link, other)) {}
        }
    }

    /// Whether the other link takes the first link's oldest frame.
    fn migrate_frame(&mut self, link: usize, other: usize) -> bool {
        let (from, to) = (self.to[link], self.to[other]);
        if self.down[other] {
            return false;
        }
        let Some(unacked) = self.links[link].next_unacked(from) else { return false };
        assert!(unacked.cookie.is_none() || unacked.body.len() > COPIED);
        let header = &unacked.header[..usize::from(unacked.shape.header)];
        // SAFETY: the frame's body stays until it has migrated; then it belongs to the user, until its completion is reported.
        let Ok(sent) = (unsafe {
            self.links[other].send_migrated(to, unacked.origin, unacked.shape, header, unacked.body, unacked.cookie)
        }) else {
            return false;
        };
        self.links[link].migrated(from, unacked.origin);
        scribble(&mut self.links[link]);
        self.migrated += 1;
        if let Some(cookie) = unacked.cookie.filter(|_| sent != Sent::InPlace) {
            self.over(cookie.0);
        }
        true
    }

    fn take(&mut self, link: usize, event: Event) {
        match event {
            Event::Frame(frame) => self.take_frame(link, &frame),
            Event::Migrated(origin, frame) => self.take_migrated(link, origin, &frame),
            Event::Sent(cookie) => self.over(cookie.0),
            Event::Delivered(cookie) => {
                let bytes = self.pending.remove(&cookie.0).expect("its end is told once");
                self.got.push(bytes.into_vec());
            }
            Event::Down(..) => self.down[link] = true,
            Event::Up(_) => self.down[link] = false,
            Event::Silent(..) => {}
            Event::Performed(..) => panic!("no such operation was begun"),
            Event::Lost(..) => panic!("links are down, not lost"),
        }
    }

    fn take_frame(&mut self, link: usize, frame: &Frame) {
        assert_eq!(frame.tag, 0x99);
        if frame.is_whole() {
            return self.got.push(frame.head().to_vec());
        }
        let mut bytes = vec![0x77; frame.len as usize].into_boxed_slice();
        let cookie = self.cookie();
        // SAFETY: the sink stays in `pending` until its completion is reported.
        let delivery =
            unsafe { self.links[link].deliver(frame.id, 0, Span::contiguous(bytes.as_mut_ptr(), bytes.len()), cookie) };
        match delivery {
            Delivery::Done => self.got.push(bytes.into_vec()),
            Delivery::Pending => drop(self.pending.insert(cookie.0, bytes)),
        }
    }

    fn take_migrated(&mut self, link: usize, origin: Origin, frame: &Frame) {
        let claims: Vec<Claim> =
            (0..self.links.len()).filter_map(|other| self.links[other].claim(self.to[other], origin)).collect();
        let awaited = claims.iter().find(|claim| matches!(claim, Claim::Awaited { .. }));
        match awaited.or(claims.first()) {
            Some(Claim::New) => self.take_frame(link, frame),
            Some(Claim::Awaited { skip, sink, cookie }) => {
                self.awaited += 1;
                // SAFETY: the sink is in `pending`, and the link that had it has handed it over.
                match unsafe { self.links[link].deliver(frame.id, *skip, *sink, *cookie) } {
                    Delivery::Done => self.take(link, Event::Delivered(*cookie)),
                    Delivery::Pending => {}
                }
            }
            Some(Claim::Duplicate) | None => {
                self.duplicates += 1;
                assert!(!claims.is_empty(), "{origin:?} is known to one of them");
                if !frame.is_whole() {
                    self.links[link].release(frame.id);
                }
            }
        }
    }
}

/// Overwrites the memory of long grants, which is free.
fn scribble(link: &mut TestLink) {
    let (long, free) = (&link.send.long, &mut link.send.long_free);
    free.retain(|place| {
        // SAFETY: the memory has at least this length, and no frame uses it.
        unsafe { long.at(place).write_bytes(0xee, long.each()) };
        true
    });
}

/// A reserved frame is in memory of its link. The link frees that memory when the frame has migrated, so the other link must
/// not read it there.
#[test]
fn p14_b37_a_long_grant_is_copied_by_the_link_that_carries_it() {
    let mut nodes = Nodes::connected(1, Faults { in_place: 1000, ..Faults::default() });
    nodes.wires[0].borrow_mut().faults.silent = true;
    for number in 2..6u64 {
        assert!(nodes.nodes[0].try_grant(0, &bytes(number, 9000)));
    }
    assert!(nodes.nodes[0].in_place.is_empty());
    nodes.until("all have arrived", |nodes| nodes.nodes[1].got.len() == 6);
    assert_eq!(nodes.nodes[0].migrated, 4);
    assert_eq!(nodes.got(), [0, 1, 2, 3, 4, 5]);
    assert!(nodes.nodes[1].got.iter().all(|frame| *frame == bytes(name_of(frame), frame.len())));
}

#[test]
fn p14_b37_b34_frames_of_a_link_that_is_down_arrive_once_by_the_other() {
    let (mut duplicates, mut awaited, mut migrated) = (0, 0, 0);
    for seed in 0..30 {
        let faults = Faults {
            drop: 100,
            corrupt: [0, 200][seed as usize % 2],
            jitter: 20_000,
            late_body: 500,
            in_place: 400,
            by_pages: [0, 600][seed as usize / 2 % 2],
            ..Faults::default()
        };
        let mut nodes = Nodes::new(seed, faults);
        let mut names = vec![];
        for number in 0..120u64 {
            let len = 8 + nodes.random.below([60, 9000][number as usize % 2]) as usize;
            let frame = bytes(number, len);
            // The first link is preferred. It breaks from time to time: by the rail, or by silence.
            nodes.until("a frame is taken", |nodes| {
                let node = &mut nodes.nodes[0];
                let give = if number % 5 == 4 && len > 20 { Node::try_grant } else { Node::try_send };
                give(node, 0, &frame) || (node.down[0] && give(node, 1, &frame))
            });
            names.push(number);
            if number % 30 == 29 {
                if nodes.random.chance(500) {
                    nodes.wires[0].borrow_mut().cut(0, 1);
                } else {
                    nodes.wires[0].borrow_mut().faults.silent = true;
                    nodes.until("the silence is noticed", |nodes| nodes.nodes[0].down[0]);
                    nodes.wires[0].borrow_mut().faults.silent = false;
                }
            }
        }
        nodes.until("everything is acknowledged", |nodes| {
            nodes.nodes.iter().all(|node| {
                let kept = node.links.iter().zip(&node.to).all(|(link, to)| link.drained(*to) && link.used() == [0, 0]);
                kept && node.in_place.is_empty() && node.pending.is_empty()
            })
        });
        assert_eq!(nodes.got(), names);
        assert!(nodes.nodes[1].got.iter().all(|frame| *frame == bytes(name_of(frame), frame.len())));
        duplicates += nodes.nodes[1].duplicates;
        awaited += nodes.nodes[1].awaited;
        migrated += nodes.nodes[0].migrated;
    }
    assert!(duplicates > 0 && awaited > 0 && migrated > 0, "{duplicates} {awaited} {migrated}");
}

#[test]
fn b37_p14_unacked_frames_are_exactly_those_without_an_acknowledgement() {
    let mut nodes = Nodes::new(1, Faults::default());
    for number in 0..10u64 {
        nodes.until("a frame is taken", |nodes| nodes.nodes[0].try_send(0, &bytes(number, 30)));
    }
    let to = nodes.nodes[0].to.clone();
    nodes.until("everything is acknowledged", |nodes| nodes.nodes[0].links[0].drained(to[0]));
    assert!(nodes.nodes[0].links[0].next_unacked(to[0]).is_none(), "of a link that is up");
    nodes.wires[0].borrow_mut().faults.silent = true;
    nodes.nodes[0].down[1] = true; // no link to migrate to
    let frames = [bytes(10, 30), bytes(11, 5000), bytes(12, 700)];
    frames.iter().for_each(|frame| assert!(nodes.nodes[0].try_send(0, frame)));
    assert!(nodes.nodes[0].links[0].next_unacked(to[0]).is_none(), "of a link that is up");
    nodes.until("the silence is noticed", |nodes| nodes.nodes[0].down[0]);
    let node = &mut nodes.nodes[0];
    for (index, frame) in frames.iter().enumerate() {
        let unacked = node.links[0].next_unacked(to[0]).expect("in their order");
        assert_eq!(unacked.origin, Origin { link: 5, number: u32::from(u16::MAX) - 5 + 10 + index as u32 });
        assert_eq!((unacked.shape.tag, unacked.shape.lane), (0x99, Lane::Bulk));
        assert_eq!((usize::from(unacked.shape.header), unacked.shape.len as usize), (20, frame.len()));
        let mut all = unacked.header[..20].to_vec();
        all.resize(frame.len(), 0);
        // SAFETY: the body stays until it has migrated.
        unsafe { unacked.body.pack(all[20..].as_mut_ptr(), frame.len() - 20) };
        assert!(all == *frame);
        assert_eq!(unacked.cookie.is_some(), index == 1);
        node.links[0].migrated(to[0], Origin { number: unacked.origin.number ^ 1, ..unacked.origin });
        assert_eq!(node.links[0].next_unacked(to[0]).expect("not that one").origin, unacked.origin);
        node.links[0].migrated(to[0], unacked.origin);
    }
    assert!(node.links[0].next_unacked(to[0]).is_none());
    assert!(node.links[0].drained(to[0]) && node.links[0].used() == [0, 0]);
}

#[test]
fn p14_b37_claims_tell_new_duplicate_and_awaited_frames_apart() {
    let mut nodes = Nodes::new(2, Faults::default());
    let first = u64::from(u16::MAX) - 5;
    for number in 0..4u64 {
        nodes.until("a frame is taken", |nodes| nodes.nodes[0].try_send(0, &bytes(number, 30)));
    }
    nodes.until("all have arrived", |nodes| nodes.nodes[1].got.len() == 4);
    // The body of one frame is corrupted on the way: its delivery is awaited.
    nodes.wires[0].borrow_mut().faults.late_body = 1000;
    nodes.wires[0].borrow_mut().now = nodes.now;
    nodes.until("one more", |nodes| nodes.nodes[0].try_send(0, &bytes(4, 6000)));
    nodes.until("its header has arrived", |nodes| nodes.nodes[1].pending.len() == 1);
    let node = &mut nodes.nodes[1];
    let (to, origin) = (node.to.clone(), |number: u64| Origin { link: 5, number: (first + number) as u32 });
    for number in 0..4 {
        assert!(matches!(node.links[0].claim(to[0], origin(number)), Some(Claim::Duplicate)));
        assert!(node.links[1].claim(to[1], origin(number)).is_none(), "of another link");
    }
    let Some(Claim::Awaited { skip: 0, sink, cookie }) = node.links[0].claim(to[0], origin(4)) else { panic!() };
    assert_eq!(sink.len(), 6000);
    assert!(node.pending.contains_key(&cookie.0));
    assert!(matches!(node.links[0].claim(to[0], origin(4)), Some(Claim::Duplicate)), "handed over once");
    assert!(matches!(node.links[0].claim(to[0], origin(9)), Some(Claim::New)));
    assert!(matches!(node.links[0].claim(to[0], origin(9)), Some(Claim::Duplicate)));
    assert!(node.links[0].claim(to[0], origin(5000)).is_none(), "it cannot have been sent");
    assert!(node.links[0].claim(Endpoint(77), origin(0)).is_none());
    assert_eq!(node.links[0].used(), [0, 0]);
}

/// A migrated frame names the link that it was given to first. If it migrates again, its number on the link in between remains,
/// and no frame claims that number. Without gaps, that link would be full forever when it had given out the numbers of a whole
/// window.
#[test]
fn p14_b37_a_link_from_which_migrated_frames_migrated_on_is_as_good_as_new_when_it_is_up() {
    const SECOND: u64 = 1_000_000_000;
    let mut nodes = Nodes::connected(1, Faults::default());
    let until = |nodes: &mut Nodes, time| nodes.until("time passes", |nodes| nodes.now >= time);
    // The first link is silent, and a little later the other one. In between the other link takes the frames that the
    // first could not deliver.
    let since = nodes.now;
    nodes.wires[0].borrow_mut().faults.silent = true;
    assert!((2..5).all(|number| nodes.nodes[0].try_send(0, &bytes(number, 30 + number as usize * 1000))));
    until(&mut nodes, since + 3 * SECOND);
    nodes.wires[1].borrow_mut().faults.silent = true;
    nodes.until("they have migrated", |nodes| nodes.nodes[0].migrated == 3);
    nodes.wires[0].borrow_mut().faults.silent = false;
    nodes.until("the first is back", |nodes| !nodes.nodes[0].down[0]);
    nodes.until("they have migrated on", |nodes| nodes.nodes[0].migrated == 6);
    nodes.until("all have arrived", |nodes| nodes.nodes[1].got.len() == 5);
    nodes.wires[1].borrow_mut().faults.silent = false;
    nodes.until("the other is back", |nodes| nodes.nodes.iter().all(|node| !node.down[1]));
    for number in 5..1000 {
        nodes.until("a frame is taken", |nodes| nodes.nodes[0].try_send(1, &bytes(number, 30)));
    }
    nodes.drain();
    assert_eq!(nodes.got(), (0..1000).collect::<Vec<u64>>());
}

/// The same where more frames have migrated on than one control frame covers, and where most of the control frames are lost.
#[test]
fn p14_b37_gaps_are_reported_until_each_is_known() {
    const SECOND: u64 = 1_000_000_000;
    for seed in 0..4 {
        let mut nodes = Nodes::with(2, seed, Faults::default(), |config| (config.window, config.slots) = (1024, 2048));
        nodes.connect();
        let mut name = 2;
        // Congestion windows open as frames are acknowledged.
        for link in [0, 1].repeat(2000) {
            nodes.until("a frame is taken", |nodes| nodes.nodes[0].try_send(link, &bytes(name, 30)));
            name += 1;
        }
        nodes.drain();
        let (since, before) = (nodes.now, name);
        nodes.wires[0].borrow_mut().faults.silent = true;
        while nodes.nodes[0].try_send(0, &bytes(name, 30)) {
            name += 1;
        }
        let moving = (name - before) as u32;
        assert!(u64::from(moving) > 2 * ACK_SPAN, "{moving}");
        nodes.until("time passes", |nodes| nodes.now >= since + 3 * SECOND);
        nodes.wires[1].borrow_mut().faults.silent = true;
        nodes.until("they have migrated", |nodes| nodes.nodes[0].migrated == moving);
        nodes.wires[0].borrow_mut().faults.silent = false;
        nodes.until("the first is back", |nodes| !nodes.nodes[0].down[0]);
        nodes.until("they have migrated on", |nodes| nodes.nodes[0].migrated == 2 * moving);
        nodes.wires[1].borrow_mut().faults = Faults { drop_own: 700, drop: 100, ..Faults::default() };
        nodes.until("the other is back", |nodes| nodes.nodes.iter().all(|node| !node.down[1]));
        for _ in 0..2000 {
            nodes.until("a frame is taken", |nodes| nodes.nodes[0].try_send(1, &bytes(name, 30)));
            name += 1;
        }
        nodes.drain();
        assert!(nodes.got().into_iter().eq(0..name));
    }
}

/// The peer gets the report that a frame has migrated. The frame is claimed once, as any other.
#[test]
fn p14_b37_b34_a_frame_that_has_migrated_is_new_once() {
    const SECOND: u64 = 1_000_000_000;
    let mut nodes = Nodes::connected(1, Faults::default());
    let since = nodes.now;
    nodes.wires[0].borrow_mut().faults.silent = true;
    assert!((2..6).all(|name| nodes.nodes[0].try_send(0, &bytes(name, 30))));
    nodes.until("time passes", |nodes| nodes.now >= since + 3 * SECOND);
    nodes.wires[1].borrow_mut().faults.silent = true;
    nodes.until("they have migrated", |nodes| nodes.nodes[0].migrated == 4);
    nodes.nodes[0].down[1] = true; // so that they do not come back yet
    nodes.nodes[0].down[0] = true;
    nodes.wires[0].borrow_mut().faults.silent = false;
    nodes.until("the first is back, and its numbers are passed over", |nodes| {
        let path = &nodes.nodes[0].links[0].peers.paths[nodes.nodes[0].to[0].0 as usize];
        !nodes.nodes[0].down[0] && path.send.first == path.send.next
    });
    assert_eq!(nodes.nodes[1].got.len(), 2);
    let to = nodes.nodes[1].to[0];
    let link = &mut nodes.nodes[1].links[0];
    let origin = |behind: u32| Origin { link: 5, number: u32::from(u16::MAX) - 5 + behind };
    assert!(matches!(link.claim(to, origin(0)), Some(Claim::Duplicate)), "it arrived on this link");
    for behind in [2, 1, 4, 3] {
        assert!(matches!(link.claim(to, origin(behind)), Some(Claim::New)));
        assert!(matches!(link.claim(to, origin(behind)), Some(Claim::Duplicate)));
    }
    assert!(matches!(link.claim(to, origin(0)), Some(Claim::Duplicate)));
}

/// Links fail in turn and are restored, and then all but one fail permanently. All frames arrive by the last one. So frames
/// have migrated whose numbers it has given out, up to a whole window.
#[test]
fn p14_b37_b34_one_link_that_is_up_is_enough() {
    for seed in 280..340 {
        let links = 2 + seed % 2;
        let faults = Faults {
            drop: 40,
            double: 40,
            corrupt: 20,
            busy: 30,
            jitter: 300_000,
            late_body: 300,
            in_place: 300,
            by_pages: 300,
            ..Faults::default()
        };
        let mut nodes = Nodes::with(links as u8, seed, faults, |config| {
            (config.window, config.slots, config.peers) = (if seed % 4 < 2 { 4 } else { 16 }, 64, 1 + seed as u32 % 3);
        });
        let mut random = Random(!seed);
        let burst = [1000, 300, 100][random.below(3) as usize];
        let (mut sent, mut broken) = ([0; 2], vec![false; links as usize]);
        while sent != [300; 2] {
            let link = random.below(links) as usize;
            if random.chance(10) {
                broken[link] = !broken[link];
                let breaks =
                    [WireFailure::Silent, WireFailure::Broken, WireFailure::NoArrivals(0), WireFailure::NoArrivals(1)];
                let mut wire = nodes.wires[link].borrow_mut();
                if broken[link] { wire.fail(breaks[random.below(4) as usize]) } else { wire.restore() }
            }
            let from = random.below(2) as usize;
            let length =
                [8 + random.below(50), 30 + random.below(50), 200, 200 + random.below(7000)][random.below(4) as usize];
            let bytes = bytes(sent[from], length as usize);
            let node = &mut nodes.nodes[from];
            let grant = (20..4000).contains(&length) && random.chance(300);
            if sent[from] < 300
                && !node.down[link]
                && (if grant { node.try_grant(link, &bytes) } else { node.try_send(link, &bytes) })
            {
                sent[from] += 1;
            }
            // In bursts, which fill windows.
            if random.chance(burst) {
                nodes.step();
            }
        }
        let lives = random.below(links) as usize;
        for (link, wire) in nodes.wires.iter().enumerate() {
            if link == lives { wire.borrow_mut().restore() } else { wire.borrow_mut().fail(WireFailure::Silent) }
        }
        nodes.until(&format!("all comes by the link that lives, seed {seed}"), |nodes| {
            nodes.nodes.iter().all(|node| node.got.len() >= 300)
        });
        for node in &nodes.nodes {
            let mut names: Vec<u64> = node.got.iter().map(|frame| name_of(frame)).collect();
            names.sort_unstable();
            assert!(names.into_iter().eq(0..300), "seed {seed}");
            assert!(node.got.iter().all(|frame| *frame == bytes(name_of(frame), frame.len())), "seed {seed}");
        }
    }
}

/// A frame that comes back to the link that it was given to first has another number there. If that link breaks in the middle
/// of the body, the next link takes over the pending delivery. The number becomes a gap once the delivery is no longer awaited.
#[test]
fn p14_b37_b34_a_frame_that_came_back_to_its_first_link_is_taken_over_from_there() {
    const SECOND: u64 = 1_000_000_000;
    let mut nodes = Nodes::connected(3, Faults { by_pages: 1000, ..Faults::default() });
    let since = nodes.now;
    nodes.wires[0].borrow_mut().faults.silent = true;
    assert!(nodes.nodes[0].try_send(0, &bytes(2, 9000)));
    nodes.until("time passes", |nodes| nodes.now >= since + 3 * SECOND);
    nodes.wires[1].borrow_mut().faults.silent = true;
    nodes.until("it has migrated", |nodes| nodes.nodes[0].migrated == 1);
    nodes.wires[0].borrow_mut().faults = Faults { late_body: 1000, jitter: 1_000_000, ..Faults::default() };
    nodes.until("it is coming back", |nodes| nodes.nodes[0].migrated == 2 && !nodes.nodes[1].pending.is_empty());
    nodes.wires[0].borrow_mut().faults.silent = true;
    nodes.wires[0].borrow_mut().cut(0, 1);
    nodes.wires[1].borrow_mut().faults.silent = false;
    nodes.until("it has arrived by the other link", |nodes| nodes.nodes[1].got.len() == 3);
    assert_eq!((nodes.nodes[0].migrated, nodes.nodes[1].awaited), (3, 1));
    nodes.wires[0].borrow_mut().faults = Faults::default();
    nodes.until("the first is back", |nodes| nodes.nodes.iter().all(|node| !node.down[0]));
    for number in 3..1000 {
        nodes.until("a frame is taken", |nodes| nodes.nodes[0].try_send(0, &bytes(number, 30)));
    }
    nodes.drain();
    assert_eq!(nodes.got(), (0..1000).collect::<Vec<u64>>());
}

/// A migrated frame may arrive late. The link that carries it was silent, while the link that it was given to first is up
/// again, and has numbered so many frames since that the next one has the same low half-word.
#[test]
fn p14_b37_a_late_migrated_frame_is_not_taken_for_a_later_frame_of_its_first_link() {
    const SECOND: u64 = 1_000_000_000;
    let mut nodes = Nodes::connected(1, Faults::default());
    let since = nodes.now;
    // The frame arrives, but its sender gets no acknowledgement.
    nodes.wires[0].borrow_mut().without_arrivals = Some(0);
    assert!(nodes.nodes[0].try_send(0, &bytes(2, 30)));
    nodes.until("time passes", |nodes| nodes.now >= since + 3 * SECOND);
    nodes.wires[1].borrow_mut().faults.silent = true;
    nodes.until("it has migrated", |nodes| nodes.nodes[0].migrated == 1);
    nodes.wires[0].borrow_mut().without_arrivals = None;
    nodes.until("the first is back", |nodes| nodes.nodes.iter().all(|node| !node.down[0]));
    let names = 3..3 + u64::from(u16::MAX);
    for number in names.clone() {
        nodes.until("a frame is taken", |nodes| nodes.nodes[0].try_send(0, &bytes(number, 30)));
    }
    nodes.until("everything is acknowledged", |nodes| nodes.nodes[0].links[0].drained(nodes.nodes[0].to[0]));
    assert!(!nodes.nodes[0].down[1], "it is the copy on the second link that counts here");
    nodes.wires[1].borrow_mut().faults.silent = false;
    nodes.drain();
    assert_eq!(nodes.nodes[1].duplicates, 1);
    nodes.until("one more", |nodes| nodes.nodes[0].try_send(0, &bytes(names.end, 30)));
    nodes.drain();
    assert!(nodes.got().into_iter().eq(0..=names.end));
}

/// A migrated frame acknowledges nothing. So the frames that arrived before it are acknowledged by another frame, and not
/// sent again.
#[test]
fn p14_b37_frames_that_arrived_before_a_migrated_frame_was_sent_are_acknowledged() {
    let mut mesh = Mesh::new(2, 1, Faults::default(), |_| {});
    mesh.send(0, 1, Lane::Eager, &bytes(0, 30));
    mesh.settle();
    mesh.send(0, 1, Lane::Eager, &bytes(1, 30));
    mesh.until("it has arrived", |mesh| mesh.ends[1].link.counters().received == 2);
    let end = &mut mesh.ends[1];
    let shape = Shape { tag: 0x99, lane: Lane::Eager, header: 8, len: 8 };
    // SAFETY: there is no body.
    let sent = unsafe {
        end.link.send_migrated(end.to[0], Origin { link: 200, number: 5 }, shape, &[7; 8], Span::EMPTY, None)
    };
    assert!(sent.is_ok());
    mesh.settle();
    assert_eq!(mesh.ends[0].link.counters().resent, 0);
}
