//! The kits over the firmware's rail of datagrams inside a link, on a simulated network that loses, repeats, reorders and changes
//! datagrams, on a serial line, on the frame device of the example of a board, and by UDP over IPv4.

mod example;
mod ipv4;
mod page;
#[path = "../post/mod.rs"]
mod post;
mod serial;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use datagram::{Address, Interface, Rail};
use towline_core::arena::Arena;
use towline_core::link::{self, Crc32c, Link};
use towline_core::rail::{LINKED_HEAD, Lane, Peer, Rail as _, Shape};
use towline_core::time::{Duration, Instant};
use towline_host_tests::kit::mesh::Setup;
use towline_host_tests::rail_suite;
use towline_host_tests::random::Random;

/// Nanoseconds between two polls.
const STEP: u64 = 1000;

/// The faults of datagrams, each per mille.
#[derive(Clone, Copy, Default)]
struct Faults {
    lose: u32,
    repeat: u32,
    reorder: u32,
    corrupt: u32,
}

/// Datagrams that wait at a port, with the number of the other port.
type Queue = VecDeque<(usize, Vec<u8>)>;
/// Most datagrams that wait to be received. More are lost.
const MOST_ARRIVED: usize = 64;

/// The network: what each port sends, and what has arrived there. A port without queues has left.
struct Network {
    ports: Vec<Option<(Queue, Queue)>>,
    faults: Faults,
    random: Random,
}

impl Network {
    /// Moves the oldest datagram of a port to its receiver.
    fn transmit(&mut self, from: usize) {
        let Self { ports, faults, random } = self;
        let Some((to, mut bytes)) = ports[from].as_mut().and_then(|(out, _)| out.pop_front()) else { return };
        let Some(Some((_, arrived))) = ports.get_mut(to) else { return };
        if random.chance(faults.lose) || arrived.len() >= MOST_ARRIVED {
            return;
        }
        if random.chance(faults.corrupt) {
            let bit = random.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        if random.chance(faults.repeat) {
            arrived.push_back((from, bytes.clone()));
        }
        if random.chance(faults.reorder) {
            arrived.push_front((from, bytes));
        } else {
            arrived.push_back((from, bytes));
        }
    }
}

/// A port of the network.
struct Port {
    me: usize,
    network: Rc<RefCell<Network>>,
    longest: usize,
    capacity: usize,
}

fn address(port: usize) -> Address {
    Address::of_six([0x02, 0, 0, 0, 0, port as u8])
}

impl Interface for Port {
    fn address(&self) -> Address {
        address(self.me)
    }

    fn longest(&self) -> usize {
        self.longest
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn room(&mut self) -> usize {
        let mut network = self.network.borrow_mut();
        network.transmit(self.me);
        let waiting = network.ports[self.me].as_ref().map_or(0, |(out, _)| out.len());
        self.capacity.saturating_sub(waiting)
    }

    fn send(&mut self, to: &Address, datagram: &[u8]) {
        assert!(datagram.len() <= self.longest);
        let mut network = self.network.borrow_mut();
        let to = (0..network.ports.len()).find(|port| address(*port) == *to).expect("an address of this network");
        if let Some((out, _)) = &mut network.ports[self.me] {
            assert!(out.len() < self.capacity, "the rail asks for room first");
            out.push_back((to, datagram.to_vec()));
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<(usize, Address)> {
        let mut network = self.network.borrow_mut();
        network.transmit(self.me);
        let (from, bytes) = network.ports[self.me].as_mut()?.1.pop_front()?;
        into[..bytes.len()].copy_from_slice(&bytes);
        // Ethernet makes short frames longer.
        let len = bytes.len().max(60.min(self.longest));
        into[bytes.len()..len].fill(0xee);
        Some((len, address(from)))
    }

    fn has_arrived(&mut self) -> bool {
        let mut network = self.network.borrow_mut();
        network.transmit(self.me);
        network.ports[self.me].as_ref().is_some_and(|(_, arrived)| !arrived.is_empty())
    }
}

struct Cluster {
    longest: usize,
    capacity: usize,
    held: u32,
    faults: Faults,
    now: u64,
}

impl Cluster {
    const fn new(longest: usize, capacity: usize, held: u32, faults: Faults) -> Self {
        Self { longest, capacity, held, faults, now: 0 }
    }
}

type Linked<I> = Link<'static, Rail<'static, I>, Crc32c>;

/// A link over a rail over an interface.
fn linked<I: Interface>(interface: I, me: usize, held: u32) -> Linked<I> {
    let config = datagram::Config { peers: 4, held, latency: 10_000, bandwidth: 1000 };
    let block = vec![0; Rail::<'static, I>::bytes(&config, interface.longest())].leak();
    let raw = Rail::new(interface, &config, &mut Arena::new(block)).expect("the memory is large enough");
    let config = link::Config {
        peers: 4,
        slots: 16,
        control_slots: 4,
        window: 64,
        deliveries: 8,
        least_timeout: Duration::from_nanos(200_000),
        initial_timeout: Duration::from_nanos(500_000),
        most_timeout: Duration::from_millis(3),
        dead_after: Duration::from_millis(50),
        heartbeat: Duration::from_millis(5),
        ..link::Config::new(0, 77 + me as u64, raw.attributes())
    };
    let block = vec![0; config.bytes(&raw)].leak();
    Link::new(raw, Crc32c, config, &mut Arena::new(block)).expect("the memory is large enough")
}

impl Setup for Cluster {
    type Rail = Linked<Port>;

    fn rails(&mut self, count: usize) -> Vec<Linked<Port>> {
        let ports = (0..count).map(|_| Some((Queue::new(), Queue::new()))).collect();
        let network = Rc::new(RefCell::new(Network { ports, faults: self.faults, random: Random::new(3) }));
        let one = |me: usize| {
            let port = Port { me, network: network.clone(), longest: self.longest, capacity: self.capacity };
            linked(port, me, self.held)
        };
        (0..count).map(one).collect()
    }

    fn now(&mut self) -> Instant {
        self.now += STEP;
        Instant::from_nanos(self.now)
    }

    fn leave(&mut self, rail: Linked<Port>) -> bool {
        let port = rail.into_raw().into_interface();
        port.network.borrow_mut().ports[port.me] = None;
        true
    }

    fn longest_header(&self) -> usize {
        LINKED_HEAD
    }
}

const BAD: Faults = Faults { lose: 50, repeat: 30, reorder: 50, corrupt: 20 };

mod over_ethernet {
    use super::*;
    rail_suite!(Cluster::new(1500, 8, 4, Faults::default()));
}

mod over_bad_ethernet {
    use super::*;
    rail_suite!(Cluster::new(1500, 8, 4, BAD));
}

/// The interface takes one datagram at a time, and the reader may hold two frames.
mod over_the_smallest_interface {
    use super::*;
    rail_suite!(Cluster::new(256, 1, 2, BAD));
}

/// The suite for matching transports.
mod mtl {
    use super::*;
    towline_host_tests::matching_suite!(Cluster::new(1500, 8, 4, BAD));
}

/// The suite for one-sided operations, which are emulated.
mod one_sided {
    use super::*;
    towline_host_tests::one_sided_suite!(Cluster::new(1500, 8, 4, BAD));
}

/// An interface that has sent nothing yet.
struct Full {
    room: usize,
}

impl Interface for Full {
    fn address(&self) -> Address {
        address(0)
    }

    fn longest(&self) -> usize {
        256
    }

    fn capacity(&self) -> usize {
        8
    }

    fn room(&mut self) -> usize {
        self.room
    }

    fn send(&mut self, _: &Address, _: &[u8]) {
        self.room -= 1;
    }

    fn receive(&mut self, _: &mut [u8]) -> Option<(usize, Address)> {
        None
    }

    fn has_arrived(&mut self) -> bool {
        false
    }
}

#[test]
fn control_frames_have_room_of_their_own() {
    let config = datagram::Config { peers: 1, held: 1, latency: 1, bandwidth: 1 };
    let mut block = vec![0; Rail::<'static, Full>::bytes(&config, 256)];
    let mut rail = Rail::new(Full { room: 8 }, &config, &mut Arena::new(&mut block)).expect("enough memory");
    let mut card = vec![6];
    card.extend_from_slice(address(1).bytes());
    let to = rail.add_peer(Peer(1), &card).expect("an address");
    let mut sends = |lane| {
        let shape = Shape { tag: 0x80, lane, header: 8, len: 8 };
        let mut count = 0;
        while let Ok(grant) = rail.reserve(to, shape) {
            let ticket = grant.finish();
            rail.commit(ticket);
            count += 1;
        }
        count
    };
    assert_eq!((sends(Lane::Bulk), sends(Lane::Eager), sends(Lane::Control)), (6, 0, 2));
}
