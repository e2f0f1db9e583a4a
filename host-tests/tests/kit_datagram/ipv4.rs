//! The kit for rails over UDP and IPv4 inside a link, and the interface alone. The switch between the cards loses, repeats, reorders
//! and changes packets of IPv4, and never those of ARP.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::rc::Rc;

use datagram::{Address, Interface};
use ipv4::address::{PORT, of_ethernet};
use ipv4::{Bytes, Card, Memory, Tables, Udp};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use towline_core::rail::LINKED_HEAD;
use towline_core::time::Instant;
use towline_host_tests::kit::mesh::Setup;
use towline_host_tests::rail_suite;
use towline_host_tests::random::Random;

use super::{BAD, Faults, Linked, MOST_ARRIVED, STEP, linked};

/// Frames that a card takes at a time.
const CAPACITY: usize = 8;
const LONGEST: usize = 1472;
/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

thread_local! {
    /// Nanoseconds of the time in this test.
    static NOW: Cell<u64> = const { Cell::new(0) };
}

fn micros() -> u64 {
    NOW.get() / 1000
}

fn mac(port: usize) -> [u8; 6] {
    [0x02, 0x42, 192, 0, 2, 10 + port as u8]
}

fn address(port: usize) -> Address {
    let [high, low] = PORT.to_be_bytes();
    Address::of_six([192, 0, 2, 10 + port as u8, high, low])
}

/// A switch. A port without a queue has left.
struct Switch {
    ports: Vec<Option<VecDeque<Vec<u8>>>>,
    /// All frames that were sent.
    seen: Vec<Vec<u8>>,
    faults: Faults,
    random: Random,
}

impl Switch {
    fn new(ports: usize, faults: Faults) -> Rc<RefCell<Self>> {
        let ports = (0..ports).map(|_| Some(VecDeque::new())).collect();
        Rc::new(RefCell::new(Self { ports, seen: vec![], faults, random: Random::new(3) }))
    }

    /// Passes a frame on. The kits send messages to their own node, so a frame may go back to its sender.
    fn pass(&mut self, frame: Vec<u8>) {
        let Self { ports, faults, random, .. } = self;
        let faults = if frame[12..14] == [0x08, 0x00] { *faults } else { Faults::default() };
        for (to, port) in ports.iter_mut().enumerate() {
            let (Some(arrived), true) = (port, frame[..6] == mac(to) || frame[..6] == [0xff; 6]) else { continue };
            if random.chance(faults.lose) || arrived.len() >= MOST_ARRIVED {
                continue;
            }
            let mut bytes = frame.clone();
            if random.chance(faults.corrupt) {
                let bit = random.below(bytes.len() as u64 * 8) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            if random.chance(faults.repeat) {
                arrived.push_back(bytes.clone());
            }
            if random.chance(faults.reorder) {
                arrived.push_front(bytes);
            } else {
                arrived.push_back(bytes);
            }
        }
        if self.seen.len() < 100 {
            self.seen.push(frame);
        }
    }
}

/// A card at a port of the switch.
struct Plug {
    me: usize,
    mac: [u8; 6],
    switch: Rc<RefCell<Switch>>,
}

struct Frame(Vec<u8>);

impl RxToken for Frame {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

impl TxToken for &Plug {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        assert!(len <= 1514);
        let mut frame = vec![0; len];
        let result = write(&mut frame);
        self.switch.borrow_mut().pass(frame);
        result
    }
}

impl Device for Plug {
    type RxToken<'a> = Frame;
    type TxToken<'a> = &'a Self;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Frame, &Self)> {
        let frame = self.switch.borrow_mut().ports[self.me].as_mut()?.pop_front()?;
        Some((Frame(frame), self))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<&Self> {
        Some(self)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

impl Card for Plug {
    fn address(&self) -> [u8; 6] {
        self.mac
    }

    fn capacity(&self) -> usize {
        CAPACITY
    }

    fn room(&mut self) -> usize {
        CAPACITY
    }

    fn has_arrived(&mut self) -> bool {
        self.switch.borrow().ports[self.me].as_ref().is_some_and(|arrived| !arrived.is_empty())
    }
}

fn plug(switch: &Rc<RefCell<Switch>>, me: usize) -> Udp<Plug> {
    let memory = Memory { tables: Box::leak(Box::new(Tables::new())), bytes: Box::leak(Box::new(Bytes::new())) };
    let card = Plug { me, mac: mac(me), switch: switch.clone() };
    Udp::new(card, memory, micros).ok().expect("the card has an address")
}

struct Cluster {
    faults: Faults,
}

impl Setup for Cluster {
    type Rail = Linked<Udp<Plug>>;

    fn rails(&mut self, count: usize) -> Vec<Self::Rail> {
        let switch = Switch::new(count, self.faults);
        (0..count).map(|me| linked(plug(&switch, me), me, 4)).collect()
    }

    fn now(&mut self) -> Instant {
        NOW.set(NOW.get() + STEP);
        Instant::from_nanos(NOW.get())
    }

    fn leave(&mut self, rail: Self::Rail) -> bool {
        let card = rail.into_raw().into_interface();
        let Plug { me, switch, .. } = card.card();
        switch.borrow_mut().ports[*me] = None;
        true
    }

    fn longest_header(&self) -> usize {
        LINKED_HEAD
    }
}

mod over_a_network {
    use super::*;
    rail_suite!(Cluster { faults: Faults::default() });
}

mod over_a_bad_network {
    use super::*;
    rail_suite!(Cluster { faults: BAD });
}

/// All that has arrived at an interface.
fn arrived(at: &mut Udp<Plug>) -> Vec<(Vec<u8>, Address)> {
    let mut into = [0; LONGEST];
    let mut all = Vec::new();
    // One call handles some frames.
    while {
        all.extend(at.receive(&mut into).map(|(len, from)| (into[..len].to_vec(), from)));
        at.has_arrived()
    } {}
    all
}

/// Lets interfaces do what they have to do. Nothing arrives for them.
fn settle(ends: &mut [Udp<Plug>]) {
    for _ in 0..4 {
        ends.iter_mut().for_each(|end| assert_eq!(arrived(end), []));
    }
}

#[test]
fn the_longest_datagram_is_one_frame_after_arp() {
    let switch = Switch::new(2, Faults::default());
    let mut ends = [plug(&switch, 0), plug(&switch, 1)];
    assert_eq!((ends[0].address(), ends[0].longest()), (address(0), LONGEST));
    let long: Vec<u8> = (0..LONGEST).map(|at| at as u8).collect();
    ends[0].send(&address(1), &long);
    assert_eq!(arrived(&mut ends[1]), []);
    assert_eq!(arrived(&mut ends[0]), []);
    assert_eq!(arrived(&mut ends[1]), [(long, address(0))]);
    // The receiver knows the sender from its request.
    ends[1].send(&address(0), b"short");
    assert_eq!(arrived(&mut ends[0]), [(b"short".to_vec(), address(1))]);
    let seen = &switch.borrow().seen;
    let lengths: Vec<_> = seen.iter().map(|frame| frame.len()).collect();
    assert_eq!(lengths, [42, 42, 1514, 47]);
    // The bytes of RFC 826.
    let [me, other] = [mac(0), mac(1)];
    let asked = [&[0xff; 6][..], &me, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &me, &me[2..], &[0xff; 6], &other[2..]].concat();
    assert_eq!(seen[0], asked);
    let answered = [&me[..], &other, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &other, &other[2..], &me, &me[2..]].concat();
    assert_eq!(seen[1], answered);
    // Those of RFC 791 and RFC 768, without the checksums.
    let short = &seen[3];
    assert_eq!(short[..24], [&me[..], &other, &[8, 0, 0x45, 0, 0, 33, 0, 0, 0x40, 0, 64, 17]].concat());
    assert_eq!(short[26..40], [&other[2..], &me[2..], &[0xee, 0xac, 0xee, 0xac, 0, 13]].concat());
    assert_eq!(short[42..], *b"short");
}

#[test]
fn a_receiver_that_answers_no_arp_delays_no_other() {
    let switch = Switch::new(3, Faults::default());
    let mut ends = [plug(&switch, 0), plug(&switch, 1), plug(&switch, 2)];
    switch.borrow_mut().ports[2] = None;
    for _ in 0..10 {
        ends[0].send(&address(2), b"nobody hears this");
    }
    ends[0].send(&address(1), b"somebody hears this");
    // The stack has asked for the first one.
    NOW.set(NOW.get() + SECOND / 10);
    assert_eq!(arrived(&mut ends[0]), []);
    assert_eq!(arrived(&mut ends[1]), []);
    assert_eq!(arrived(&mut ends[0]), []);
    ends[0].send(&address(1), b"and this");
    let said = [b"somebody hears this".to_vec(), b"and this".to_vec()];
    assert_eq!(arrived(&mut ends[1]), said.map(|bytes| (bytes, address(0))));
    // The other one is asked for again and again, but ever more rarely.
    let before = switch.borrow().seen.len();
    for _ in 0..100 {
        NOW.set(NOW.get() + SECOND / 10);
        settle(&mut ends);
    }
    let asked = switch.borrow().seen.len() - before;
    assert!((10..30).contains(&asked), "{asked} requests in ten seconds");
}

#[test]
fn what_waits_for_arp_is_sent_when_the_receiver_appears() {
    let switch = Switch::new(2, Faults::default());
    let mut ends = [plug(&switch, 0), plug(&switch, 1)];
    switch.borrow_mut().ports[1] = None;
    for number in 0..5 {
        ends[0].send(&address(1), &[number]);
    }
    settle(&mut ends);
    switch.borrow_mut().ports[1] = Some(VecDeque::new());
    NOW.set(NOW.get() + 2 * SECOND);
    assert_eq!(arrived(&mut ends[0]), []);
    assert_eq!(arrived(&mut ends[1]), []);
    assert_eq!(arrived(&mut ends[0]), []);
    // There is room for two.
    assert_eq!(arrived(&mut ends[1]), [(vec![0], address(0)), (vec![1], address(0))]);
}

#[test]
fn more_receivers_than_sockets_are_reached() {
    const ENDS: usize = 20;
    let switch = Switch::new(ENDS, Faults::default());
    let mut ends: Vec<_> = (0..ENDS).map(|me| plug(&switch, me)).collect();
    for turn in 0..2 {
        for to in 1..ENDS {
            let (first, rest) = ends.split_at_mut(1);
            first[0].send(&address(to), &[turn, to as u8]);
            NOW.set(NOW.get() + SECOND / 10);
            assert_eq!(arrived(&mut first[0]), []);
            let mut heard = arrived(&mut rest[to - 1]);
            assert_eq!(arrived(&mut first[0]), []);
            heard.extend(arrived(&mut rest[to - 1]));
            assert_eq!(heard, [(vec![turn, to as u8], address(0))]);
        }
    }
}

#[test]
fn other_networks_are_reached_by_the_router() {
    let switch = Switch::new(1, Faults::default());
    let mut end = plug(&switch, 0);
    end.send(&Address::of_six([198, 51, 100, 7, 1, 2]), b"far");
    let request = switch.borrow().seen[0].clone();
    assert_eq!(request[38..], [192, 0, 2, 1]);
    let router = [0x02, 0, 0, 0, 0, 1];
    let reply =
        [&mac(0)[..], &router, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &router, &[192, 0, 2, 1], &mac(0), &mac(0)[2..]];
    switch.borrow_mut().pass(reply.concat());
    settle(std::slice::from_mut(&mut end));
    let sent = switch.borrow().seen[2].clone();
    assert_eq!((sent[..6].to_vec(), sent[30..34].to_vec()), (router.to_vec(), vec![198, 51, 100, 7]));
}

/// Nothing but datagrams for the port, with correct checksums, gets through, and nothing keeps them from it.
#[test]
fn frames_of_others_are_dropped() {
    let switch = Switch::new(2, Faults::default());
    let mut ends = [plug(&switch, 0), plug(&switch, 1)];
    ends[0].send(&address(1), b"hello");
    settle_all(&mut ends);
    ends[0].send(&address(1), b"hello");
    let good = switch.borrow().seen.last().unwrap().clone();
    assert_eq!(arrived(&mut ends[1]).len(), 1);
    // Changes of bits that the checksums cover, and all shorter frames.
    for at in 14..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        switch.borrow_mut().pass(bad);
        assert_eq!(arrived(&mut ends[1]), [], "byte {at}");
        switch.borrow_mut().pass(good[..at].to_vec());
        assert_eq!(arrived(&mut ends[1]), [], "{at} bytes");
    }
    // Random bytes of each kind of frame.
    let mut random = Random::new(5);
    for turn in 0..20_000u32 {
        let ethertype: [u8; 2] = [[8, 0], [8, 6], [0x88, 0xb5], [0x86, 0xdd]][turn as usize % 4];
        let length = random.below(200) as usize;
        let mut frame = [&mac(1)[..], &mac(0), &ethertype].concat();
        frame.extend((0..length).map(|_| random.word() as u8));
        if ethertype == [8, 0] && length >= 20 {
            frame[14..16].copy_from_slice(&[0x45, 0]);
            frame[30..34].copy_from_slice(&mac(1)[2..]);
        }
        switch.borrow_mut().pass(frame);
        assert_eq!(arrived(&mut ends[1]), [], "turn {turn}");
        arrived(&mut ends[0]);
    }
    switch.borrow_mut().pass(good);
    assert_eq!(arrived(&mut ends[1]), [(b"hello".to_vec(), address(0))]);
    assert!(!ends[1].has_arrived());
}

/// Lets interfaces do what they have to do.
fn settle_all(ends: &mut [Udp<Plug>]) {
    (0..4).for_each(|_| ends.iter_mut().for_each(|end| drop(arrived(end))));
}

#[test]
fn the_ethernet_address_has_the_ip_address() {
    assert_eq!(of_ethernet([0x02, 0x42, 192, 0, 2, 7]), Some(Ipv4Addr::new(192, 0, 2, 7)));
    for other in [
        [0x52, 0x54, 192, 0, 2, 7],
        [0x02, 0x43, 192, 0, 2, 7],
        [0x02, 0x42, 192, 0, 2, 0],
        [0x02, 0x42, 192, 0, 2, 255],
        [0x02, 0x42, 224, 0, 2, 7],
        [0x02, 0x42, 0, 0, 2, 7],
    ] {
        assert_eq!(of_ethernet(other), None);
        let switch = Switch::new(1, Faults::default());
        let memory = Memory { tables: Box::leak(Box::new(Tables::new())), bytes: Box::leak(Box::new(Bytes::new())) };
        assert!(Udp::new(Plug { me: 0, mac: other, switch }, memory, micros).is_err());
    }
}
