//! Links are cut and come back, one at a time, while frames flow both ways and the reader holds frames for a while. Each frame
//! arrives once.

use std::collections::HashMap;

use towline_core::convertor::Span;
use towline_core::rail::bundle::Counters;
use towline_core::rail::{Cookie, Delivery, Endpoint, Event, Frame, Lane, Peer, Rail, Sent, Shape};
use towline_core::time::Instant;
use towline_host_tests::pattern::patterned;
use towline_host_tests::random::Random;
use towline_host_tests::sim::network::Net;
use towline_host_tests::sim::network::faults::{Faults, Outage, RailParams};

use crate::setup::{TestBundle, bundle};

const TAG: u8 = 0x99;
/// Frames in each direction.
const FRAMES: u64 = 600;
/// Nanoseconds of an outage, and from the begin of one to the begin of the next one, by the other rail.
const OUTAGE: u64 = 30_000_000;
const TURN: u64 = 80_000_000;

/// Says which seed failed.
pub struct Seed(pub u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

/// Outages of rails 0 and 1 of node 0 in turn.
pub fn outages(count: u64) -> Vec<Outage> {
    short_outages(count, OUTAGE, TURN)
}

/// The same. Each lasts for `length` nanoseconds, and `turn` nanoseconds after its begin the next one begins.
fn short_outages(count: u64, length: u64, turn: u64) -> Vec<Outage> {
    let outage = |number: u64| {
        let begin = 5_000_000 + number * turn;
        Outage { node: 0, rail: Some((number % 2) as u32), window: (begin, begin + length) }
    };
    (0..count).map(outage).collect()
}

/// The longest rest of a reader, in nanoseconds. A rail below yields nothing while its reader holds as many frames as it may, so
/// after a longer rest the links would be silent.
const REST: u64 = 5_000_000;

struct Node {
    rail: TestBundle,
    to: Endpoint,
    sent: u64,
    in_place: HashMap<u64, Box<[u8]>>,
    pending: HashMap<u64, Box<[u8]>>,
    held: Vec<Frame>,
    got: Vec<u64>,
    cookies: u64,
    /// Until when the reader leaves the frames that it holds alone.
    rests_until: u64,
}

impl Node {
    fn cookie(&mut self) -> Cookie {
        self.cookies += 1;
        Cookie(self.cookies)
    }

    fn try_send(&mut self, random: &mut Random) {
        let limits = *self.rail.attributes();
        let lane = random.pick(&[Lane::Control, Lane::Eager, Lane::Bulk, Lane::Bulk]);
        let most = match lane {
            Lane::Bulk => limits.max_send_size,
            _ => limits.eager_limit,
        };
        let bytes = frame(self.sent, random.between(8, u64::from(most)) as usize);
        let header = bytes.len().min(20);
        let shape = Shape { tag: TAG, lane, header: header as u8, len: bytes.len() as u32 };
        if random.chance(300) {
            let Ok(mut grant) = self.rail.reserve(self.to, shape) else { return };
            grant.write(0, &bytes);
            let ticket = grant.finish();
            self.rail.commit(ticket);
        } else {
            let (cookie, body): (_, Box<[u8]>) = (self.cookie(), bytes[header..].into());
            // SAFETY: a body in place is kept until its end is reported.
            match unsafe { self.rail.send(self.to, shape, &bytes[..header], Span::of(&body), cookie) } {
                Ok(Sent::InPlace) => drop(self.in_place.insert(cookie.0, body)),
                Ok(_) => {}
                Err(_) => return,
            }
        }
        self.sent += 1;
    }

    fn poll(&mut self, now: u64, random: &mut Random) -> bool {
        let Some(event) = self.rail.poll(Instant::from_nanos(now)) else { return false };
        match event {
            Event::Frame(frame) if frame.is_whole() => self.take(frame.head()),
            Event::Frame(frame) if random.chance(500) => {
                self.held.push(frame);
                assert!(self.held.len() <= self.rail.attributes().frames_kept as usize, "more frames than promised");
            }
            Event::Frame(frame) => self.deliver(&frame),
            Event::Sent(cookie) => self.in_place.remove(&cookie.0).expect("its end is told once").fill(0xee),
            Event::Delivered(cookie) => {
                let bytes = self.pending.remove(&cookie.0).expect("its end is told once");
                self.take(&bytes);
            }
            other => {
                let links: Vec<_> = self.rail.links().iter().map(|link| *link.counters()).collect();
                panic!(
                    "a bundle with a link that works reports {other:?} at {now}: {:?}, {links:#?}",
                    self.rail.counters()
                )
            }
        }
        true
    }

    fn deliver(&mut self, frame: &Frame) {
        let mut bytes = vec![0x77; frame.len as usize].into_boxed_slice();
        let cookie = self.cookie();
        // SAFETY: the sink stays in `pending` until the end of the delivery is reported.
        let delivery =
            unsafe { self.rail.deliver(frame.id, 0, Span::contiguous(bytes.as_mut_ptr(), bytes.len()), cookie) };
        match delivery {
            Delivery::Done => self.take(&bytes),
            Delivery::Pending => drop(self.pending.insert(cookie.0, bytes)),
        }
    }

    /// Delivers a frame that was held for a while.
    fn deliver_held(&mut self, now: u64, random: &mut Random) {
        if now >= self.rests_until && random.chance(5) {
            self.rests_until = now + random.below(REST);
        }
        if !self.held.is_empty() && now >= self.rests_until {
            let frame = self.held.swap_remove(random.below(self.held.len() as u64) as usize);
            self.deliver(&frame);
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let name = u64::from_le_bytes(bytes[..8].try_into().expect("each frame begins with its number"));
        assert!(bytes == frame(name, bytes.len()), "frame {name} has other bytes");
        self.got.push(name);
    }

    fn is_done(&self) -> bool {
        self.sent == FRAMES
            && self.got.len() as u64 >= FRAMES
            && self.in_place.is_empty()
            && self.pending.is_empty()
            && self.held.is_empty()
            && self.rail.drained(self.to)
    }
}

fn frame(name: u64, len: usize) -> Vec<u8> {
    let mut bytes = patterned(name, len);
    bytes[..8].copy_from_slice(&name.to_le_bytes());
    bytes
}

/// Two nodes exchange frames while the faults last. Returns the counters of both bundles.
fn exchange(seed: u64, params: RailParams, faults: Faults) -> [Counters; 2] {
    let _seed = Seed(seed);
    let mut random = Random::new(seed);
    let net = Net::new(2, vec![params; 2], faults, random.fork());
    let mut bundles = [0, 1].map(|node| bundle(&net, node));
    let cards = [0, 1].map(|node: usize| bundles[node].card().to_vec());
    let to = [0, 1].map(|node| bundles[node].add_peer(Peer(9), &cards[1 - node]).expect("they reach each other"));
    let mut to = to.into_iter();
    let mut nodes = bundles.map(|rail| Node {
        rail,
        to: to.next().expect("one endpoint for each node"),
        sent: 0,
        in_place: HashMap::new(),
        pending: HashMap::new(),
        held: vec![],
        got: vec![],
        cookies: 0,
        rests_until: 0,
    });
    let mut now = 0;
    for _ in 0..10_000_000u64 {
        if nodes.iter().all(Node::is_done) {
            for node in &mut nodes {
                node.got.sort_unstable();
                assert!(node.got.iter().copied().eq(0..FRAMES), "each frame arrives once");
            }
            return nodes.map(|node| node.rail.counters());
        }
        for node in &mut nodes {
            // The flow lasts for all outages.
            if node.sent < FRAMES && now / (3 * TURN / FRAMES) >= node.sent {
                node.try_send(&mut random);
            }
            while node.poll(now, &mut random) {}
            if random.chance(200) {
                node.deliver_held(now, &mut random);
            }
        }
        let next =
            nodes.iter().filter_map(|node| node.rail.poll_at()).map(Instant::as_nanos).chain(net.next_at()).min();
        now = next.unwrap_or(u64::MAX).clamp(now + 200, now + 50_000);
    }
    let state =
        nodes.map(|node| (node.sent, node.got.len(), node.held.len(), node.pending.len(), node.rail.counters()));
    panic!("not all frames have arrived in time: {state:#?}");
}

fn check(params: RailParams, faults: &Faults) {
    let mut all = Counters::default();
    for seed in 0..30 {
        for counters in exchange(seed, params, faults.clone()) {
            all.links_down += counters.links_down;
            all.links_up += counters.links_up;
            all.frames_migrated += counters.frames_migrated;
            all.duplicates += counters.duplicates;
        }
    }
    assert!(all.links_down >= 16 && all.links_up != 0 && all.frames_migrated != 0, "{all:?}");
}

#[test]
fn p14_b37_frames_over_a_bundle_arrive_once_while_connections_break() {
    let faults =
        Faults { outages: outages(4), late_body: 500, in_place: 500, staged: 300, busy: 100, ..Faults::default() };
    check(RailParams { frames_kept: 3, ..RailParams::default() }, &faults);
}

/// The links come up again while the reader still holds frames from before. It gets no more frames than the bundle has promised.
#[test]
fn b9_a_reader_holds_no_more_frames_than_promised_when_links_come_back() {
    let faults = Faults { outages: short_outages(24, 200_000, 10_000_000), late_body: 500, ..Faults::default() };
    check(RailParams { frames_kept: 2, ..RailParams::default() }, &faults);
}

#[test]
fn p14_b37_frames_over_a_bundle_arrive_once_while_datagrams_are_lost() {
    let faults = Faults {
        outages: outages(4),
        drop: 50,
        duplicate: 30,
        corrupt: 30,
        jitter: 20_000,
        late_body: 500,
        in_place: 500,
        busy: 100,
        busy_for: 500,
        ..Faults::default()
    };
    check(RailParams { frames_kept: 3, ..RailParams::default() }.datagrams(), &faults);
}
