//! A raw rail for tests: two or more ends in virtual time, with random faults.

use crate::convertor::Span;
use crate::link::header::Kind;
use crate::rail::attributes::EXCLUSIVITY_DEFAULT;
use crate::rail::native::OneSided;
use crate::rail::*;
use crate::rail::{COPIED, Rail};
use crate::time::Instant;
use std::{cell::RefCell, collections::VecDeque, rc::Rc, vec, vec::Vec};

/// Reproducible random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound.max(1)
    }

    pub fn chance(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }
}

/// The faults. Probabilities are per mille.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub drop: u32,
    pub double: u32,
    pub corrupt: u32,
    pub busy: u32,
    /// How many nanoseconds a packet takes at least, and up to how many more.
    pub delay: u64,
    pub jitter: u64,
    pub late_body: u32,
    pub in_place: u32,
    /// Bodies with a checksum count as copied, but are read from the sender's memory when they arrive.
    pub by_pages: u32,
    /// Nothing arrives, and no event reports that.
    pub silent: bool,
    /// Only control frames are lost.
    pub drop_own: u32,
    /// Negative acknowledgements are lost.
    pub lose_nacks: bool,
}

/// The failure of a wire until it is restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireFailure {
    /// Nothing arrives, and no event reports that.
    Silent,
    /// Nothing arrives at this end.
    NoArrivals(usize),
    /// The failure is reported to both ends, and all packets in flight are lost.
    Broken,
}

#[derive(Clone, Debug)]
struct Packet {
    from: usize,
    to: usize,
    tag: u8,
    header: usize,
    bytes: Vec<u8>,
    at: u64,
    body_at: u64,
    /// The sender's memory of a body that was not copied yet.
    pages: Option<Span>,
}

impl Packet {
    /// Copies the body when it arrives, as it is by then.
    fn take_in(&mut self, now: u64) {
        if self.body_at <= now
            && let Some(pages) = self.pages.take()
        {
            let at = self.bytes.len() - pages.len() as usize;
            // SAFETY: bodies in place are kept to the end of a test, slots are leaked.
            unsafe { pages.pack(self.bytes[at..].as_mut_ptr(), pages.len() as usize) };
        }
    }
}

#[derive(Debug)]
struct Reading {
    from: usize,
    to: usize,
    tag: u8,
    header: Vec<u8>,
    body: Span,
    cookie: Cookie,
    at: u64,
}

#[derive(Debug)]
struct Pending {
    end: usize,
    packet: Packet,
    skip: usize,
    sink: Span,
    cookie: Cookie,
}

/// The state that all ends share.
#[derive(Debug)]
pub struct WireState {
    pub now: u64,
    pub faults: Faults,
    /// Frames of the first end that are lost: number, and how many times each.
    pub victims: Vec<(u64, u32)>,
    /// The number of frames after which the wire fails.
    pub fails_after: Option<(usize, WireFailure)>,
    /// Nothing arrives at this end.
    pub without_arrivals: Option<usize>,
    /// There is no room for frames to these ends.
    pub full: Vec<usize>,
    /// When the next poll makes room for all frames.
    pub room_at: Option<u64>,
    /// Hosts answer, even if frames are lost.
    pub hosts_answer: bool,
    pub random: Random,
    packets: Vec<Packet>,
    reading: Vec<Reading>,
    pending: Vec<Pending>,
    names: Vec<Vec<Option<Peer>>>,
    events: Vec<VecDeque<Event>>,
    /// Bodies sent in place so far.
    pub in_place: u32,
    /// Bodies with a checksum that were not copied so far.
    pub by_pages: u32,
    /// All frames that were sent: sender, tag, bytes.
    pub log: Vec<(usize, u8, Vec<u8>)>,
}

/// One end.
#[derive(Debug)]
pub struct Wire {
    pub shared: Rc<RefCell<WireState>>,
    me: usize,
    card: [u8; 4],
    attributes: Attributes,
    held: RefCell<Vec<(u64, Packet)>>,
    ids: u64,
    room: Vec<u8>,
    draft: Option<(Endpoint, Shape)>,
}

pub const MAX_FRAME: u32 = 10_016;

pub fn wires(count: usize, seed: u64, faults: Faults, lossy: bool) -> Vec<Wire> {
    let state = WireState {
        now: 0,
        faults,
        victims: vec![],
        fails_after: None,
        without_arrivals: None,
        full: vec![],
        room_at: None,
        hosts_answer: false,
        random: Random(seed),
        packets: vec![],
        reading: vec![],
        pending: vec![],
        names: vec![vec![None; count]; count],
        events: vec![VecDeque::new(); count],
        in_place: 0,
        by_pages: 0,
        log: vec![],
    };
    let shared = Rc::new(RefCell::new(state));
    let capabilities =
        if lossy { Capabilities::SEND | Capabilities::NEED_ACK | Capabilities::NEED_CSUM } else { Capabilities::SEND };
    (0..count)
        .map(|me| Wire {
            shared: shared.clone(),
            me,
            card: (me as u32).to_le_bytes(),
            attributes: Attributes {
                name: "wire",
                capabilities,
                exclusivity: EXCLUSIVITY_DEFAULT,
                latency: 1000,
                bandwidth: 1000,
                eager_limit: 5016,
                rendezvous_eager_limit: 0,
                min_fragment: 100,
                max_send_size: MAX_FRAME,
                cache_size: 0,
                cache_bytes: 0,
                accelerator: crate::rail::AcceleratorLimits::NONE,
                frames_kept: 4,
                one_sided: OneSided::NONE,
            },
            held: RefCell::new(vec![]),
            ids: 0,
            room: vec![0; MAX_FRAME as usize],
            draft: None,
        })
        .collect()
}

impl WireState {
    fn launch(&mut self, mut packet: Packet) {
        let faults = self.faults;
        self.log.push((packet.from, packet.tag, packet.bytes.clone()));
        let own = packet.tag == 0x11;
        if let Some((_, how)) = self.fails_after.take_if(|(after, _)| self.log.len() > *after) {
            self.fail(how);
        }
        let number = u16::from_le_bytes([packet.bytes[0], packet.bytes[1]]);
        let victim = self.victims.iter_mut().find(|(victim, times)| *victim as u16 == number && *times != 0);
        if let Some((_, times)) = victim.filter(|_| packet.from == 0 && !own) {
            *times -= 1;
            return;
        }
        if self.faults.silent
            || self.without_arrivals == Some(packet.to)
            || self.random.chance(faults.drop)
            || (own && self.random.chance(faults.drop_own))
            || (own && faults.lose_nacks && packet.bytes.get(12) == Some(&(Kind::Nack as u8)))
        {
            return;
        }
        let twice = self.random.chance(faults.double);
        if self.random.chance(faults.corrupt) {
            let bit = self.random.below(packet.bytes.len() as u64 * 8);
            packet.bytes[bit as usize / 8] ^= 1 << (bit % 8);
        }
        for _ in 0..=usize::from(twice) {
            packet.at = self.now + 1000 + faults.delay + self.random.below(faults.jitter + 1);
            packet.body_at = packet.at;
            if packet.bytes.len() > packet.header && self.random.chance(faults.late_body) {
                packet.body_at += 1 + self.random.below(20_000);
            }
            self.packets.push(packet.clone());
        }
    }

    /// Both sides of a pair lose each other, and all packets between them.
    pub fn cut(&mut self, one: usize, other: usize) {
        for (me, peer) in [(one, other), (other, one)] {
            self.packets.retain(|packet| (packet.from, packet.to) != (peer, me));
            self.reading.retain(|reading| (reading.from, reading.to) != (me, peer));
            self.pending.retain(|pending| (pending.end, pending.packet.from) != (me, peer));
            if let Some(name) = self.names[me][peer].take() {
                self.events[me].push_back(Event::Lost(name, Lost::Broken));
            }
        }
    }

    /// Lets the wire fail.
    pub fn fail(&mut self, how: WireFailure) {
        self.faults.silent = matches!(how, WireFailure::Silent | WireFailure::Broken);
        match how {
            WireFailure::Silent => {}
            WireFailure::NoArrivals(end) => self.without_arrivals = Some(end),
            WireFailure::Broken => self.cut(0, 1),
        }
    }

    /// Restores the wire.
    pub fn restore(&mut self) {
        (self.faults.silent, self.without_arrivals) = (false, None);
    }

    /// Puts a frame on the way as if `from` had sent it.
    pub fn forge(&mut self, from: usize, to: usize, tag: u8, bytes: &[u8]) {
        let header = bytes.len().min(HEAD);
        let bytes = bytes.to_vec();
        self.packets.push(Packet { from, to, tag, header, bytes, at: self.now, body_at: self.now, pages: None });
    }
}

impl Wire {
    /// Limits how many frames the rail holds for its reader.
    pub fn keeps(&mut self, frames: u32) {
        self.attributes.frames_kept = frames;
    }

    fn admit(&mut self, to: Endpoint, shape: Shape) -> Result<(), SendError> {
        let limit = if shape.lane == Lane::Bulk { self.attributes.max_send_size } else { self.attributes.eager_limit };
        if shape.len > limit || usize::from(shape.header) > HEAD {
            return Err(SendError::TooLong);
        }
        let mut state = self.shared.borrow_mut();
        if state.names[self.me].get(to.0 as usize).is_none_or(Option::is_none) {
            return Err(SendError::Unreachable);
        }
        let busy = state.faults.busy;
        if state.full.contains(&(to.0 as usize)) || state.random.chance(busy) { Err(SendError::Busy) } else { Ok(()) }
    }

    fn packet(&self, to: Endpoint, shape: Shape, bytes: Vec<u8>) -> Packet {
        let header = usize::from(shape.header);
        Packet { from: self.me, to: to.0 as usize, tag: shape.tag, header, bytes, at: 0, body_at: 0, pages: None }
    }
}

impl Rail for Wire {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        &self.card
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        let end = u32::from_le_bytes(card.try_into().map_err(|_| Unreachable::BadCard)?);
        let mut state = self.shared.borrow_mut();
        let name = state.names[self.me].get_mut(end as usize).ok_or(Unreachable::OtherProcess)?;
        *name = Some(peer);
        Ok(Endpoint(end))
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        let mut state = self.shared.borrow_mut();
        let (me, peer) = (self.me, endpoint.0 as usize);
        if peer >= state.names.len() {
            return;
        }
        state.names[me][peer] = None;
        state.packets.retain(|packet| (packet.from, packet.to) != (peer, me));
        state.reading.retain(|reading| (reading.from, reading.to) != (me, peer));
        state.pending.retain(|pending| (pending.end, pending.packet.from) != (me, peer));
        self.held.borrow_mut().retain(|(_, packet)| packet.from != peer);
    }

    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        self.admit(to, shape)?;
        self.draft = Some((to, shape));
        let ticket = Ticket { endpoint: to, position: 0, len: shape.len, extra: 0 };
        // SAFETY: the room is as long as the longest frame.
        Ok(unsafe { Grant::new(self.room.as_mut_ptr(), shape.len as usize, ticket) })
    }

    fn commit(&mut self, _: Ticket) -> Sent {
        let (to, shape) = self.draft.take().expect("a draft");
        let packet = self.packet(to, shape, self.room[..shape.len as usize].to_vec());
        self.shared.borrow_mut().launch(packet);
        Sent::Done
    }

    unsafe fn send(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        assert_eq!(header.len() as u64 + body.len(), u64::from(shape.len));
        assert_eq!(header.len(), usize::from(shape.header));
        self.admit(to, shape)?;
        let in_place = self.shared.borrow().faults.in_place;
        if body.len() > COPIED && self.shared.borrow_mut().random.chance(in_place) {
            let mut state = self.shared.borrow_mut();
            let at = state.now + state.random.below(30_000);
            state.in_place += 1;
            let (from, to) = (self.me, to.0 as usize);
            state.reading.push(Reading { from, to, tag: shape.tag, header: header.to_vec(), body, cookie, at });
            return Ok(Sent::InPlace);
        }
        let mut bytes = header.to_vec();
        bytes.resize(shape.len as usize, 0);
        // SAFETY: the caller guarantees that the body is valid.
        unsafe { body.pack(bytes[header.len()..].as_mut_ptr(), body.len() as usize) };
        let packet = self.packet(to, shape, bytes);
        self.shared.borrow_mut().launch(packet);
        Ok(Sent::Done)
    }

    unsafe fn send_summed(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        let by_pages = self.shared.borrow().faults.by_pages;
        if body.len() <= COPIED || !self.shared.borrow_mut().random.chance(by_pages) {
            // SAFETY: passed on from the caller.
            return unsafe { self.send(to, shape, header, body, cookie) };
        }
        self.admit(to, shape)?;
        let mut bytes = header.to_vec();
        bytes.resize(shape.len as usize, 0);
        let packet = Packet { pages: Some(body), ..self.packet(to, shape, bytes) };
        let mut state = self.shared.borrow_mut();
        state.by_pages += 1;
        state.launch(packet);
        Ok(Sent::Done)
    }

    fn drained(&self, to: Endpoint) -> bool {
        let state = self.shared.borrow();
        !state.reading.iter().any(|reading| (reading.from, reading.to) == (self.me, to.0 as usize))
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        let state = &mut *self.shared.borrow_mut();
        state.now = state.now.max(now.as_nanos());
        let now = state.now;
        if state.room_at.take_if(|at| *at <= now).is_some() {
            state.full.clear();
        }
        if let Some(at) = state.reading.iter().position(|reading| reading.from == self.me && reading.at <= now) {
            let Reading { from, to, tag, mut header, body, cookie, .. } = state.reading.remove(at);
            let count = header.len();
            header.resize(count + body.len() as usize, 0);
            // SAFETY: the sender keeps the body until its completion is reported.
            unsafe { body.pack(header[count..].as_mut_ptr(), body.len() as usize) };
            state.launch(Packet { from, to, tag, header: count, bytes: header, at: 0, body_at: 0, pages: None });
            return Some(Event::Sent(cookie));
        }
        let in_now = |pending: &Pending| pending.end == self.me && pending.packet.body_at <= now;
        if let Some(at) = state.pending.iter().position(in_now) {
            let Pending { mut packet, skip, sink, cookie, .. } = state.pending.remove(at);
            packet.take_in(now);
            let bytes = packet.bytes.get(skip..).unwrap_or(&[]);
            // SAFETY: the receiver keeps the sink until its completion is reported.
            unsafe { sink.unpack(bytes.as_ptr(), bytes.len()) };
            return Some(Event::Delivered(cookie));
        }
        if let Some(event) = state.events[self.me].pop_front() {
            return Some(event);
        }
        if self.held.borrow().len() >= self.attributes.frames_kept as usize {
            return None;
        }
        let due = state.packets.iter().enumerate().filter(|(_, packet)| packet.to == self.me && packet.at <= now);
        let at = due.min_by_key(|(_, packet)| packet.at).map(|(at, _)| at)?;
        let mut packet = state.packets.remove(at);
        packet.take_in(now);
        let from = state.names[self.me][packet.from]?;
        let whole = packet.bytes.len() <= HEAD;
        let valid = if whole || packet.body_at <= now { packet.bytes.len().min(HEAD) } else { packet.header };
        let mut head = [0xcc; HEAD];
        head[..valid].copy_from_slice(&packet.bytes[..valid]);
        self.ids += 1;
        let id = FrameId(self.ids);
        let (tag, len) = (packet.tag, packet.bytes.len() as u32);
        if !whole {
            self.held.borrow_mut().push((self.ids, packet));
        }
        Some(Event::Frame(Frame { id, from, tag, valid: valid as u8, len, head }))
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        let mut held = self.held.borrow_mut();
        let Some((_, packet)) = held.iter_mut().find(|(id, _)| *id == frame.0) else { return 0 };
        packet.take_in(self.shared.borrow().now);
        let there = if packet.body_at <= self.shared.borrow().now { packet.bytes.len() } else { packet.header };
        let part = packet.bytes.get(at..there).unwrap_or(&[]);
        let count = part.len().min(into.len());
        into[..count].copy_from_slice(&part[..count]);
        count
    }

    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery {
        let mut held = self.held.borrow_mut();
        let Some(at) = held.iter().position(|(id, _)| *id == frame.0) else { return Delivery::Done };
        let (_, mut packet) = held.remove(at);
        let mut state = self.shared.borrow_mut();
        packet.take_in(state.now);
        if packet.body_at > state.now {
            state.pending.push(Pending { end: self.me, packet, skip, sink, cookie });
            return Delivery::Pending;
        }
        let bytes = packet.bytes.get(skip..).unwrap_or(&[]);
        // SAFETY: the caller guarantees that the sink is valid.
        unsafe { sink.unpack(bytes.as_ptr(), bytes.len()) };
        Delivery::Done
    }

    fn release(&mut self, frame: FrameId) {
        let mut held = self.held.borrow_mut();
        let before = held.len();
        held.retain(|(id, _)| *id != frame.0);
        assert_eq!(held.len() + 1, before, "released once, and never when it is gone");
    }

    fn poll_at(&self) -> Option<Instant> {
        let state = self.shared.borrow();
        let room = self.held.borrow().len() < self.attributes.frames_kept as usize;
        let packets = state.packets.iter().filter(|packet| room && packet.to == self.me).map(|packet| packet.at);
        let pending = state.pending.iter().filter(|pending| pending.end == self.me).map(|p| p.packet.body_at);
        let reading = state.reading.iter().filter(|reading| reading.from == self.me).map(|reading| reading.at);
        let events = state.events[self.me].front().map(|_| state.now);
        packets.chain(pending).chain(reading).chain(events).chain(state.room_at).min().map(Instant::from_nanos)
    }

    fn arm(&mut self) -> bool {
        self.poll_at().is_none_or(|at| at.as_nanos() > self.shared.borrow().now)
    }
}

impl Liveness for Wire {
    fn ask_host(&mut self, _: Endpoint) -> Option<Instant> {
        let state = self.shared.borrow();
        state.hosts_answer.then(|| Instant::from_nanos(state.now))
    }
}

impl FastPath for Wire {}
impl RequestCache for Wire {}
impl SingleCopy for Wire {}
impl DeviceMemory for Wire {}
impl Failover for Wire {}
