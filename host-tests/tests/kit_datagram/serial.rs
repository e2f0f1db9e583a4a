//! The kits over a serial line inside a link, and lines alone. The line loses, changes and adds bytes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use datagram::{Address, Interface};
use embedded_io::{ErrorKind, ErrorType, Read, ReadReady, Write, WriteReady};
use serial::{Counters, Line};
use towline_core::arena::Arena;
use towline_core::link::SmallCrc32c;
use towline_core::time::Instant;
use towline_host_tests::kit::mesh::Setup;
use towline_host_tests::rail_suite;
use towline_host_tests::random::Random;

use super::{Linked, STEP, linked};

/// Most bytes that a driver keeps until time passes and they are on the line.
const TRANSMIT: usize = 64;
/// Most bytes that a driver keeps before they are read.
const RECEIVE: usize = 4096;

/// The faults of bytes, each per hundred thousand.
#[derive(Clone, Copy, Default)]
struct Faults {
    lose: u64,
    flip: u64,
    add: u64,
}

/// The state of the driver at an end.
#[derive(Default)]
struct Driver {
    /// Bytes that are not on the line yet.
    out: VecDeque<u8>,
    /// Bytes since the last zero byte. The bus gives them to the other ends together, since only one end sends at a time.
    turn: Vec<u8>,
    arrived: VecDeque<u8>,
    /// Bytes were lost since the last read, because there was no room for them.
    overrun: bool,
    gone: bool,
}

/// A bus with several ends.
struct Bus {
    ends: Vec<Driver>,
    /// Each end receives what it sends, too. The kits send messages to their own node.
    echo: bool,
    faults: Faults,
    random: Random,
}

impl Bus {
    fn new(ends: usize, echo: bool, faults: Faults, seed: u64) -> Rc<RefCell<Self>> {
        let ends = (0..ends).map(|_| Driver::default()).collect();
        Rc::new(RefCell::new(Self { ends, echo, faults, random: Random::new(seed) }))
    }

    /// Time passes: each driver sends what it has.
    fn pass(&mut self) {
        for from in 0..self.ends.len() {
            while let Some(byte) = self.ends[from].out.pop_front() {
                self.put(from, byte);
            }
        }
    }

    fn put(&mut self, from: usize, byte: u8) {
        let (faults, echo) = (self.faults, self.echo);
        let mut happens = |rate| rate != 0 && self.random.below(100_000) < rate;
        let (lose, flip, add) = (happens(faults.lose), happens(faults.flip), happens(faults.add));
        let byte = if flip { byte ^ 1 << self.random.below(8) } else { byte };
        let added = if add { Some(self.random.word() as u8) } else { None };
        for byte in (!lose).then_some(byte).into_iter().chain(added) {
            self.ends[from].turn.push(byte);
            if byte == 0 {
                let turn = std::mem::take(&mut self.ends[from].turn);
                for (_, end) in self.ends.iter_mut().enumerate().filter(|(at, end)| (echo || *at != from) && !end.gone)
                {
                    let room = RECEIVE - end.arrived.len();
                    end.overrun |= room < turn.len();
                    end.arrived.extend(turn.iter().take(room));
                }
            }
        }
    }
}

/// The driver of an end.
struct Port {
    me: usize,
    bus: Rc<RefCell<Bus>>,
}

impl ErrorType for Port {
    type Error = ErrorKind;
}

impl ReadReady for Port {
    fn read_ready(&mut self) -> Result<bool, ErrorKind> {
        let end = &self.bus.borrow().ends[self.me];
        Ok(end.overrun || !end.arrived.is_empty())
    }
}

impl Read for Port {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, ErrorKind> {
        let mut bus = self.bus.borrow_mut();
        let end = &mut bus.ends[self.me];
        if std::mem::take(&mut end.overrun) {
            return Err(ErrorKind::OutOfMemory);
        }
        let len = into.len().min(end.arrived.len());
        assert!(len > 0, "the line asks first whether there are bytes");
        into.iter_mut().zip(end.arrived.drain(..len)).for_each(|(to, byte)| *to = byte);
        Ok(len)
    }
}

impl WriteReady for Port {
    fn write_ready(&mut self) -> Result<bool, ErrorKind> {
        Ok(self.bus.borrow().ends[self.me].out.len() < TRANSMIT)
    }
}

impl Write for Port {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, ErrorKind> {
        let mut bus = self.bus.borrow_mut();
        let out = &mut bus.ends[self.me].out;
        let len = bytes.len().min(TRANSMIT - out.len());
        assert!(len > 0, "the line asks first whether there is room");
        out.extend(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        panic!("this would wait");
    }
}

type TestLine = Line<'static, Port, SmallCrc32c>;

fn line(bus: &Rc<RefCell<Bus>>, me: usize, longest: usize) -> TestLine {
    let block = vec![0; TestLine::bytes(longest)].leak();
    let port = Port { me, bus: bus.clone() };
    Line::new(port, me as u8, longest, SmallCrc32c, &mut Arena::new(block)).expect("the memory is large enough")
}

struct Cluster {
    longest: usize,
    held: u32,
    faults: Faults,
    now: u64,
    buses: Vec<Rc<RefCell<Bus>>>,
}

impl Cluster {
    const fn new(longest: usize, held: u32, faults: Faults) -> Self {
        Self { longest, held, faults, now: 0, buses: Vec::new() }
    }
}

impl Setup for Cluster {
    type Rail = Linked<TestLine>;

    fn rails(&mut self, count: usize) -> Vec<Self::Rail> {
        let bus = Bus::new(count, true, self.faults, 5);
        self.buses.push(bus.clone());
        (0..count).map(|me| linked(line(&bus, me, self.longest), me, self.held)).collect()
    }

    fn now(&mut self) -> Instant {
        self.now += STEP;
        self.buses.iter().for_each(|bus| bus.borrow_mut().pass());
        Instant::from_nanos(self.now)
    }

    fn leave(&mut self, rail: Self::Rail) -> bool {
        let port = rail.into_raw().into_interface().into_port();
        let mut bus = port.bus.borrow_mut();
        bus.pass();
        bus.ends[port.me].gone = true;
        true
    }

    fn longest_header(&self) -> usize {
        towline_core::rail::LINKED_HEAD
    }
}

const BAD: Faults = Faults { lose: 30, flip: 30, add: 30 };

mod over_a_serial_line {
    use super::*;
    rail_suite!(Cluster::new(260, 4, Faults::default()));
}

mod over_a_bad_serial_line {
    use super::*;
    rail_suite!(Cluster::new(260, 4, BAD));
}

mod mtl {
    use super::*;
    towline_host_tests::matching_suite!(Cluster::new(1500, 4, BAD));
}

/// Two lines alone.
struct Pair {
    bus: Rc<RefCell<Bus>>,
    lines: [TestLine; 2],
}

/// Bytes of the longest datagram of a [`Pair`].
const LONGEST: usize = 600;

impl Pair {
    fn new(faults: Faults, seed: u64) -> Self {
        let bus = Bus::new(2, false, faults, seed);
        let lines = [0, 1].map(|me| line(&bus, me, LONGEST));
        Self { bus, lines }
    }

    /// Sends a datagram from end 0 to an end.
    fn send(&mut self, to: u8, datagram: &[u8]) {
        self.lines[0].send(&TestLine::end(to), datagram);
        self.drain();
    }

    /// Lets end 0 write all of its frame.
    fn drain(&mut self) {
        while self.lines[0].has_arrived() {
            self.bus.borrow_mut().pass();
        }
        self.bus.borrow_mut().pass();
    }

    /// Everything that end 1 receives now.
    fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut into = [0; LONGEST];
        let mut all = Vec::new();
        while self.lines[1].has_arrived() {
            if let Some((len, from)) = self.lines[1].receive(&mut into) {
                assert_eq!(from, TestLine::end(0));
                all.push(into[..len].to_vec());
            }
        }
        all
    }

    /// Puts bytes on the line as they are.
    fn put(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.bus.borrow_mut().put(0, *byte);
        }
    }

    fn counters(&self) -> Counters {
        *self.lines[1].counters()
    }
}

/// Bytes with many zeros, or with none.
fn datagram(random: &mut Random) -> Vec<u8> {
    let zeros = random.pick(&[0, 5, 500]);
    let len = random.below(LONGEST as u64 + 1);
    (0..len).map(|_| if random.chance(zeros) { 0 } else { random.between(1, 255) as u8 }).collect()
}

#[test]
fn every_datagram_arrives_and_noise_between_frames_costs_none() {
    let mut random = Random::new(1);
    let mut pair = Pair::new(Faults::default(), 0);
    let mut noises = 0;
    for len in (0..=LONGEST).map(Some).chain([None; 500]) {
        // Without zeros and of each length, for all ends of blocks; then of any bytes.
        let sent = len.map_or_else(|| datagram(&mut random), |len| vec![0xff; len]);
        pair.send(1, &sent);
        assert_eq!(pair.receive(), [sent]);
        // The next frame begins with a zero byte, which ends the noise.
        let noise: Vec<u8> = (0..random.below(20)).map(|_| random.between(1, 255) as u8).collect();
        pair.put(&noise);
        noises += noise.len() as u32;
    }
    pair.send(1, b"last");
    assert_eq!(pair.receive(), [b"last"]);
    assert_eq!(pair.counters().bad_bytes, noises);
    assert!(pair.counters().bad_frames > 900);
}

#[test]
fn damaged_frames_are_dropped_and_the_next_one_arrives() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut pair = Pair::new(Faults { lose: 200, flip: 200, add: 200 }, seed);
        let (mut arrived, mut rounds, mut before) = (0, 0, vec![]);
        for _ in 0..300 {
            let sent = datagram(&mut random);
            pair.send(1, &sent);
            for received in pair.receive() {
                // The last byte of a frame may be lost. Then the first byte of the next frame ends it.
                let known = received == sent || received == before;
                assert!(known, "seed {seed}: a damaged frame was accepted");
                arrived += 1;
            }
            before = sent;
            rounds += 1;
        }
        assert!(arrived > 30 && arrived < rounds && pair.counters().bad_frames > 30, "seed {seed}: {arrived} arrived");
        pair.bus.borrow_mut().faults = Faults::default();
        pair.send(1, b"after all faults");
        // What came before ends with the first byte of this frame at the latest.
        assert_eq!(pair.receive().last(), Some(&b"after all faults".to_vec()), "seed {seed}");
    }
}

#[test]
fn frames_for_others_and_frames_that_are_too_long_are_counted() {
    let mut pair = Pair::new(Faults::default(), 0);
    pair.send(2, b"for another end");
    assert_eq!((pair.receive(), pair.counters().others), (vec![], 1));
    // A valid frame of an end with longer datagrams.
    pair.lines[0] = line(&pair.bus, 0, LONGEST + 1);
    pair.send(1, &[7; LONGEST + 1]);
    assert_eq!((pair.receive(), pair.counters().bad_frames), (vec![], 1));
    // Frames that are too short for a checksum: of COBS, but not of a line.
    for short in [&[1][..], &[2, 9], &[5, 1, 2, 3, 4], &[6, 1, 2, 3, 4, 5]] {
        pair.put(short);
        pair.put(&[0]);
    }
    assert_eq!((pair.receive(), pair.counters().bad_frames), (vec![], 5));
}

#[test]
fn overruns_and_datagrams_that_cannot_be_sent_are_counted() {
    let mut pair = Pair::new(Faults::default(), 0);
    for _ in 0..8 {
        pair.send(1, &[1; LONGEST]);
    }
    // The driver keeps six whole frames and the begin of the seventh.
    assert_eq!(pair.receive().len(), 6);
    assert_eq!(pair.counters().read_errors, 1);
    pair.send(1, b"after the overrun");
    assert_eq!(pair.receive(), [b"after the overrun"]);
    let first = &mut pair.lines[0];
    first.send(&TestLine::end(1), &[1; LONGEST + 1]);
    first.send(&Address::of_six([1; 6]), b"no end of a line");
    assert_eq!(first.counters().refused, 2);
}

/// A rail refuses a frame while the frame before is being written.
#[test]
fn a_frame_leaves_before_the_next_one_is_taken() {
    let mut pair = Pair::new(Faults::default(), 0);
    let first = &mut pair.lines[0];
    assert_eq!((first.capacity(), first.room()), (1, 1));
    first.send(&TestLine::end(1), &[1; LONGEST]);
    assert_eq!(first.room(), 0);
    first.send(&TestLine::end(1), &[2; 10]);
    assert_eq!((first.counters().sent, first.counters().refused), (1, 1));
    pair.drain();
    assert_eq!(pair.receive(), [vec![1; LONGEST]]);
}
