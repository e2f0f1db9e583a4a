//! A network of datagrams in virtual time, which loses, repeats, delays and changes them by seed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use datagram::{Address, Interface};
use towline_host_tests::random::Random;

/// Datagrams that a port takes at a time.
const CAPACITY: usize = 64;
/// Most datagrams that wait at a port. More are lost.
const MOST_WAITING: usize = 128;

/// The faults of datagrams, each per mille, and times in nanoseconds.
#[derive(Clone, Copy, Default, Debug)]
pub struct Faults {
    /// It is lost.
    pub lose: u32,
    /// It arrives twice.
    pub repeat: u32,
    /// One of its bits is changed.
    pub corrupt: u32,
    /// It takes up to this much longer, so datagrams overtake each other.
    pub jitter: u64,
}

/// Counts of datagrams.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// They were sent.
    pub sent: u64,
    /// They were lost by a fault.
    pub lost: u64,
    /// They arrived twice.
    pub repeated: u64,
    /// A bit was changed.
    pub corrupted: u64,
}

/// Datagrams on their way to a port: when each arrives and its number, its sender and its bytes.
type Queue = BTreeMap<(u64, u64), (usize, Vec<u8>)>;

struct State {
    now: u64,
    latency: u64,
    longest: usize,
    faults: Faults,
    random: Random,
    counts: Counts,
    /// Numbers the datagrams, so that those of one moment stay in order.
    sequence: u64,
    /// What is on its way to each port. A port that is not plugged in may have no queue.
    ports: Vec<Option<Queue>>,
}

/// The network.
#[derive(Clone)]
pub struct Network(Rc<RefCell<State>>);

impl Network {
    /// A network with `ports` ports, whose datagrams have up to `longest` bytes.
    pub fn new(ports: usize, longest: usize, faults: Faults, random: Random) -> Self {
        let ports = (0..ports).map(|_| None).collect();
        let (counts, sequence) = (Counts::default(), 0);
        Self(Rc::new(RefCell::new(State { now: 0, latency: 2000, longest, faults, random, counts, sequence, ports })))
    }

    /// The interface at a port.
    pub fn plug(&self, port: usize) -> Port {
        self.0.borrow_mut().ports[port].get_or_insert_default();
        Port { me: port, network: self.clone() }
    }

    /// The machine at a port has ended. Either the port keeps what arrives for the next machine, or all of that is lost.
    pub fn unplug(&self, port: usize, keeps_datagrams: bool) {
        if !keeps_datagrams {
            self.0.borrow_mut().ports[port] = None;
        }
    }

    /// Advances the clock.
    pub fn advance(&self, now: u64) {
        self.0.borrow_mut().now = now;
    }

    /// From now on all datagrams are lost.
    pub fn cut(&self) {
        self.0.borrow_mut().faults.lose = 1000;
    }

    /// When the next datagram arrives. Those that have arrived and that nobody has received do not count.
    pub fn next_at(&self) -> Option<u64> {
        let state = self.0.borrow();
        let later = (state.now + 1, 0);
        state.ports.iter().flatten().filter_map(|port| port.range(later..).next()).map(|((at, _), _)| *at).min()
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.0.borrow().counts
    }
}

impl State {
    fn transmit(&mut self, from: usize, to: usize, datagram: &[u8]) {
        self.counts.sent += 1;
        if self.random.chance(self.faults.lose) {
            self.counts.lost += 1;
            return;
        }
        let mut bytes = datagram.to_vec();
        if self.random.chance(self.faults.corrupt) {
            let bit = self.random.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            self.counts.corrupted += 1;
        }
        let copies = 1 + u64::from(self.random.chance(self.faults.repeat));
        self.counts.repeated += copies - 1;
        for _ in 0..copies {
            let at = self.now + self.latency + self.random.below(self.faults.jitter + 1);
            self.sequence += 1;
            if let Some(port) = &mut self.ports[to]
                && port.len() < MOST_WAITING
            {
                port.insert((at, self.sequence), (from, bytes.clone()));
            }
        }
    }
}

/// A port of the network.
pub struct Port {
    me: usize,
    network: Network,
}

fn address(port: usize) -> Address {
    Address::of_six([0x02, 0, 0, 0, 0, port as u8])
}

impl Interface for Port {
    fn address(&self) -> Address {
        address(self.me)
    }

    fn longest(&self) -> usize {
        self.network.0.borrow().longest
    }

    fn capacity(&self) -> usize {
        CAPACITY
    }

    fn room(&mut self) -> usize {
        CAPACITY
    }

    fn send(&mut self, to: &Address, datagram: &[u8]) {
        let mut state = self.network.0.borrow_mut();
        let to = (0..state.ports.len()).find(|port| address(*port) == *to).expect("an address of this network");
        state.transmit(self.me, to, datagram);
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<(usize, Address)> {
        let mut state = self.network.0.borrow_mut();
        let now = state.now;
        let port = state.ports[self.me].as_mut()?;
        let next = port.first_entry().filter(|entry| entry.key().0 <= now)?;
        let (from, bytes) = next.remove();
        into[..bytes.len()].copy_from_slice(&bytes);
        Some((bytes.len(), address(from)))
    }

    fn has_arrived(&mut self) -> bool {
        let state = self.network.0.borrow();
        state.ports[self.me].as_ref().is_some_and(|port| port.keys().next().is_some_and(|(at, _)| *at <= state.now))
    }
}
