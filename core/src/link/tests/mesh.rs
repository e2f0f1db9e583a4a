//! Links over a faulty wire, their users, and the invariants that they keep.

use super::wire::{Faults, Random, Wire, WireState, wires};
use crate::arena::Arena;
use crate::convertor::Span;
use crate::link::{Config, Crc32c, Link};
use crate::rail::*;
use crate::rail::{COPIED, Rail};
use crate::time::Instant;
use std::{boxed::Box, cell::RefCell, collections::BTreeMap, rc::Rc, vec, vec::Vec};

pub type TestLink = Link<'static, Wire, Crc32c>;

/// One end, and the data of its user.
pub struct End {
    pub link: TestLink,
    pub to: Vec<Endpoint>,
    /// Frames that arrived completely: sender, tag, bytes.
    pub got: Vec<(u32, u8, Vec<u8>)>,
    pub migrated: Vec<Origin>,
    /// Pending deliveries by cookie: sender, tag, bytes.
    pub pending: BTreeMap<u64, (u32, u8, Box<[u8]>)>,
    /// Bodies in place, by cookie. They are overwritten when the link reports that it no longer reads them.
    pub in_place: BTreeMap<u64, Box<[u8]>>,
    /// Bodies that the link no longer reads. A device may still read them.
    finished: Vec<Box<[u8]>>,
    pub sent: u32,
    pub reports: Vec<Event>,
    /// How many times the link has reported `Event::Silent`.
    pub silences: u32,
    /// The deadline for an answer of the peer, from the last `Event::Silent`.
    pub due: Option<Instant>,
    cookies: u64,
}

pub struct Mesh {
    pub ends: Vec<End>,
    pub shared: Rc<RefCell<WireState>>,
    pub random: Random,
    pub now: u64,
}

/// The bytes of a frame, by its name.
pub fn bytes(name: u64, len: usize) -> Vec<u8> {
    let mut random = Random(name);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| random.word().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes.iter_mut().zip(name.to_le_bytes()).for_each(|(to, from)| *to = from);
    bytes
}

pub fn name_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

impl Mesh {
    pub fn new(count: usize, seed: u64, faults: Faults, tune: impl Fn(&mut Config)) -> Self {
        Self::with(wires(count, seed, faults, true), seed, tune)
    }

    pub fn with(wires: Vec<Wire>, seed: u64, tune: impl Fn(&mut Config)) -> Self {
        let shared = wires[0].shared.clone();
        let count = wires.len();
        let ends = wires.into_iter().enumerate().map(|(end, wire)| {
            let mut config = Config::new(3 + end as u8, 1000 + end as u64, wire.attributes());
            config.peers = count as u32 - 1;
            config.slots = 64;
            tune(&mut config);
            let block = vec![0; config.bytes(&wire)].leak();
            End {
                link: Link::new(wire, Crc32c, config, &mut Arena::new(block)).unwrap(),
                to: vec![Endpoint(u32::MAX); count],
                got: vec![],
                migrated: vec![],
                pending: BTreeMap::new(),
                in_place: BTreeMap::new(),
                finished: vec![],
                sent: 0,
                reports: vec![],
                silences: 0,
                due: None,
                cookies: 0,
            }
        });
        let mut mesh = Self { ends: ends.collect(), shared, random: Random(seed ^ 0xabcd), now: 0 };
        for one in 0..count {
            for other in (0..count).filter(|other| *other != one) {
                mesh.add_each_other(one, other);
            }
        }
        mesh
    }

    pub fn add_each_other(&mut self, one: usize, other: usize) {
        let card = self.ends[other].link.card().to_vec();
        self.ends[one].to[other] = self.ends[one].link.add_peer(Peer(other as u32 + 10), &card).unwrap();
    }

    /// Sends once, by a grant or from the user's memory.
    pub fn try_send(&mut self, from: usize, to: usize, lane: Lane, bytes: &[u8]) -> Result<Sent, SendError> {
        let header = (8 + self.random.below(33) as usize).min(bytes.len());
        let tag = bytes[0] | 0x80;
        let shape = Shape { tag, lane, header: header as u8, len: bytes.len() as u32 };
        let by_grant = self.random.chance(300);
        let end = &mut self.ends[from];
        if by_grant {
            let mut grant = end.link.reserve(end.to[to], shape)?;
            grant.write(0, bytes);
            let ticket = grant.finish();
            return Ok(end.link.commit(ticket));
        }
        let body: Box<[u8]> = bytes[header..].into();
        end.cookies += 1;
        let cookie = Cookie(end.cookies);
        // SAFETY: a body that is in place is kept until its completion is reported.
        let sent = unsafe { end.link.send(end.to[to], shape, &bytes[..header], Span::of(&body), cookie) }?;
        if sent == Sent::InPlace {
            assert!(body.len() as u64 > COPIED);
            end.in_place.insert(cookie.0, body);
        }
        Ok(sent)
    }

    pub fn send(&mut self, from: usize, to: usize, lane: Lane, bytes: &[u8]) {
        for _ in 0..1_000_000 {
            match self.try_send(from, to, lane, bytes) {
                Ok(_) => return,
                Err(SendError::Busy) => self.step(),
                Err(error) => panic!("{error}: {:?} {:?}", self.ends[from].reports, self.ends[from].link.counters()),
            }
        }
        panic!("busy forever: {:?}", self.ends[from].link.counters());
    }

    /// Polls one end once, and processes the event.
    pub fn poll(&mut self, end: usize) -> bool {
        let Some(event) = self.ends[end].link.poll(Instant::from_nanos(self.now)) else { return false };
        let choice = self.random.word();
        self.ends[end].take(event, choice);
        true
    }

    /// Polls all ends until there are no events, then moves the clock to the next time at which something is to be done.
    pub fn step(&mut self) {
        let mut any = true;
        while any {
            any = (0..self.ends.len()).fold(false, |any, end| self.poll(end) | any);
        }
        let next = self.ends.iter().filter_map(|end| end.link.poll_at()).map(Instant::as_nanos).min();
        self.now = next.unwrap_or(self.now + 1000).clamp(self.now + 1, self.now + 10_000_000);
    }

    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..2_000_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        let counters: Vec<_> = self.ends.iter().map(|end| *end.link.counters()).collect();
        panic!("it did not happen: {what}: {counters:#?}");
    }

    pub fn run_for(&mut self, nanos: u64) {
        let end = self.now + nanos;
        while self.now < end {
            self.step();
        }
    }

    /// Lets exactly this much time pass.
    pub fn pass(&mut self, nanos: u64) {
        let end = self.now + nanos;
        loop {
            while (0..self.ends.len()).fold(false, |any, end| self.poll(end) | any) {}
            let next = self.ends.iter().filter_map(|end| end.link.poll_at()).map(Instant::as_nanos).min();
            if self.now == end {
                return;
            }
            self.now = next.unwrap_or(end).clamp(self.now + 1, end);
        }
    }

    pub fn faults(&mut self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.shared.borrow_mut().faults);
    }

    /// Everything that was accepted has been acknowledged, reported and delivered.
    pub fn settle(&mut self) {
        self.until("everything is acknowledged", |mesh| {
            mesh.ends.iter().all(|end| end.link.used() == [0, 0] && end.in_place.is_empty() && end.pending.is_empty())
        });
    }

    /// These frames arrived from one end at the other, each once and unchanged.
    pub fn check(&mut self, from: usize, to: usize, mut names: Vec<u64>) {
        let from = from as u32 + 10;
        let mut got: Vec<u64> = vec![];
        self.ends[to].got.retain(|(peer, tag, frame)| {
            if *peer != from {
                return true;
            }
            let name = name_of(frame);
            assert!(*frame == bytes(name, frame.len()), "frame {name:x} of {} bytes was changed", frame.len());
            assert_eq!(*tag, frame[0] | 0x80);
            got.push(name);
            false
        });
        got.sort_unstable();
        names.sort_unstable();
        assert_eq!(got, names, "each of them once");
    }
}

impl End {
    pub fn take(&mut self, event: Event, choice: u64) {
        match event {
            Event::Frame(frame) => self.take_frame(&frame, choice),
            Event::Migrated(origin, frame) => {
                self.migrated.push(origin);
                self.take_frame(&frame, choice);
            }
            Event::Sent(cookie) => {
                let mut body = self.in_place.remove(&cookie.0).expect("its end is told once");
                body.fill(0xee);
                self.sent += 1;
                self.finished.push(body);
            }
            Event::Delivered(cookie) => {
                let (from, tag, bytes) = self.pending.remove(&cookie.0).expect("its end is told once");
                self.got.push((from, tag, bytes.into_vec()));
            }
            Event::Lost(..) | Event::Down(..) | Event::Up(_) => self.reports.push(event),
            Event::Silent(_, due) => (self.silences, self.due) = (self.silences + 1, due),
            Event::Performed(..) => panic!("no such operation was begun"),
        }
    }

    fn take_frame(&mut self, frame: &Frame, choice: u64) {
        let (len, valid) = (frame.len as usize, usize::from(frame.valid));
        if frame.is_whole() {
            assert_eq!(valid, len);
            self.got.push((frame.from.0, frame.tag, frame.head().to_vec()));
            return;
        }
        let mut bytes = vec![0x77; len].into_boxed_slice();
        bytes[..valid].copy_from_slice(frame.head());
        if choice & 3 == 0 && self.link.read(frame.id, 0, &mut bytes) == len {
            self.link.release(frame.id);
            self.got.push((frame.from.0, frame.tag, bytes.into_vec()));
            return;
        }
        let skip = if choice & 4 == 0 { valid } else { choice as usize >> 8 & 7 };
        self.cookies += 1;
        let cookie = Cookie(1 << 40 | self.cookies);
        let sink = Span::contiguous(bytes[skip..].as_mut_ptr(), len - skip);
        // SAFETY: the sink stays in `pending` until its completion is reported.
        match unsafe { self.link.deliver(frame.id, skip, sink, cookie) } {
            Delivery::Done => self.got.push((frame.from.0, frame.tag, bytes.into_vec())),
            Delivery::Pending => drop(self.pending.insert(cookie.0, (frame.from.0, frame.tag, bytes))),
        }
    }
}
