//! Frames of a hostile peer to a link, during the traffic of an honest peer.
//!
//! A mesh has three ends. The victim and the honest peer are links. The hostile peer has no link, but it knows the
//! protocol of `WIRE.md`, the sessions and all sequence numbers. The input determines its frames, some of which have valid
//! checksums. The hostile peer may corrupt its own frames. It must not access other memory. It must not stop, lose,
//! duplicate or change a frame between the other two. After it is deleted, the victim must hold no resources for it.

use arbitrary::{Arbitrary, Result, Unstructured};
use towline_core::arena::Arena;
use towline_core::convertor::Span;
use towline_core::link::{Checksum, Config, Crc32c, Link};
use towline_core::rail::loopback::{Hub, Rail};
use towline_core::rail::{COPIED, Failover, Liveness};
use towline_core::rail::{
    Cookie, Delivery, Endpoint, Event, Frame, GiveUp, Lane, Origin, Peer, Rail as _, SendError, Sent, Shape,
};
use towline_core::time::Instant;

const VICTIM: u32 = 0;
const HOSTILE: u32 = 1;
const HONEST: u32 = 2;
const ENDS: u32 = 3;
const SLOTS: u32 = 16;
const FRAME: u32 = 6000;
const FIRST: u64 = u16::MAX as u64 - 2;
const INCARNATION: u64 = 500;
/// The longest time between two polls of the honest end, in nanoseconds.
const MAX_POLL_INTERVAL: u64 = 500_000_000;

/// Runs one input, and then checks that the honest traffic completes and that everything is released.
pub fn run(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let mut memory = vec![0; Hub::cost(ENDS, SLOTS, FRAME)];
    let hub = Hub::new(&mut Arena::new(&mut memory), ENDS, SLOTS, FRAME).expect("cost is enough");
    let (mut one, mut other) = (vec![], vec![]);
    let mut victim = Node::new(&hub, VICTIM, &mut one);
    let mut honest = Node::new(&hub, HONEST, &mut other);
    let mut hostile = Hostile::new(&hub);
    victim.add(HONEST, honest.link.card());
    honest.add(VICTIM, victim.link.card());
    victim.add(HOSTILE, &hostile.card);
    let mut now = 0;
    while !data.is_empty() {
        if step(&mut victim, &mut honest, &mut hostile, &mut now, &mut data).is_err() {
            break;
        }
    }
    victim.remove(HOSTILE);
    for round in 0.. {
        assert!(round < 20_000, "no progress: {:?} {:?}", victim.link.counters(), honest.link.counters());
        now += 500_000;
        victim.poll(now);
        honest.poll(now);
        if victim.is_done(&honest) && honest.is_done(&victim) {
            break;
        }
    }
    assert_eq!((victim.link.used(), honest.link.used()), ([0, 0], [0, 0]), "resources are still in use");
}

fn step(
    victim: &mut Node<'_>,
    honest: &mut Node<'_>,
    hostile: &mut Hostile<'_>,
    now: &mut u64,
    data: &mut Unstructured<'_>,
) -> Result<()> {
    match u8::arbitrary(data)? % 16 {
        0..=2 => hostile.frame(data)?,
        3 | 4 => hostile.ack(data)?,
        5 => hostile.hello(data)?,
        6 => hostile.raw_frame(data)?,
        7 => hostile.listen(*now),
        8 => victim.send(HONEST, data)?,
        9 => honest.send(VICTIM, data)?,
        10 => victim.send(HOSTILE, data)?,
        11 => {
            let from = if bool::arbitrary(data)? { HOSTILE } else { HONEST };
            let to = victim.to[from as usize];
            // The victim claims no genuine frame of the honest end: that frame would count as received.
            if from == HOSTILE {
                let _ = victim.link.claim(to, Origin { link: u8::arbitrary(data)?, number: u32::arbitrary(data)? });
            } else {
                assert!(victim.link.claim(to, Origin { link: 99, number: u32::arbitrary(data)? }).is_none());
            }
        }
        12 => {
            *now += u64::from(u32::arbitrary(data)?) * 1000;
            if *now - honest.polled > MAX_POLL_INTERVAL {
                honest.poll(*now); // so that the victim does not report the honest end as failed
            }
            victim.poll(*now);
        }
        13 => honest.poll(*now),
        14 => {
            // Calls of an engine that has another link to the hostile end.
            let to = victim.to[HOSTILE as usize];
            match u8::arbitrary(data)? % 8 {
                0 => drop(victim.link.answered_since(to, Some(Instant::from_nanos(*now)))),
                1 => drop(victim.link.answered_since(to, None)),
                2 => drop(victim.link.give_up(to, GiveUp::Link)),
                _ => {}
            }
            victim.poll(*now);
        }
        _ => {
            victim.remove(HOSTILE);
            victim.add(HOSTILE, &hostile.card);
        }
    }
    Ok(())
}

/// A link and its user's operations.
struct Node<'m> {
    link: Link<'m, Rail<'m>, Crc32c>,
    to: [Endpoint; ENDS as usize],
    /// Bodies that the link sends in place, each with its cookie and peer.
    in_place: Vec<(u64, u32, Box<[u8]>)>,
    /// Sinks of pending deliveries, each with its cookie and peer.
    pending: Vec<(u64, u32, Box<[u8]>)>,
    /// Frames that were sent to the other honest end.
    sent: Vec<Vec<u8>>,
    /// Frames that arrived from the other honest end.
    received: Vec<Vec<u8>>,
    cookies: u64,
    /// Time of the last poll, in nanoseconds.
    polled: u64,
}

impl<'m> Node<'m> {
    fn new(hub: &'m Hub<'m>, end: u32, memory: &'m mut Vec<u8>) -> Self {
        let raw = hub.rail(end).expect("the mesh has this end");
        let config = Config {
            peers: 2,
            slots: 16,
            control_slots: 2,
            deliveries: 4,
            window: 16,
            first_number: FIRST,
            sums: true,
            ..Config::new(end as u8, 100 + u64::from(end), raw.attributes())
        };
        memory.resize(config.bytes(&raw), 0);
        let link = Link::new(raw, Crc32c, config, &mut Arena::new(memory)).expect("bytes are enough");
        let to = [Endpoint(u32::MAX); ENDS as usize];
        Self { link, to, in_place: vec![], pending: vec![], sent: vec![], received: vec![], cookies: 0, polled: 0 }
    }

    fn add(&mut self, peer: u32, card: &[u8]) {
        self.to[peer as usize] = self.link.add_peer(Peer(peer), card).expect("a card");
    }

    fn remove(&mut self, peer: u32) {
        self.link.del_peer(self.to[peer as usize]);
        // The link must not access this memory any more. The sanitizer detects such an access.
        self.in_place.retain(|body| body.1 != peer);
        self.pending.retain(|delivery| delivery.1 != peer);
    }

    fn send(&mut self, to: u32, data: &mut Unstructured<'_>) -> Result<()> {
        let len = 8 + usize::from(u16::arbitrary(data)?) % (self.link.attributes().max_send_size as usize - 7);
        self.cookies += 1;
        let mut bytes = vec![u8::arbitrary(data)?; len];
        bytes[..8].copy_from_slice(&self.cookies.to_le_bytes());
        let header = 8 + usize::from(u8::arbitrary(data)?) % 33;
        let (header, body) = bytes.split_at(header.min(len));
        let shape = Shape { tag: 0x80, lane: Lane::Bulk, header: header.len() as u8, len: len as u32 };
        let body: Box<[u8]> = body.into();
        // SAFETY: a body that is sent in place is kept until its completion is reported or the peer is deleted.
        match unsafe { self.link.send(self.to[to as usize], shape, header, Span::of(&body), Cookie(self.cookies)) } {
            Ok(Sent::InPlace) => {
                assert!(body.len() as u64 > COPIED);
                self.in_place.push((self.cookies, to, body));
            }
            Ok(_) => {}
            Err(SendError::Busy) => return Ok(()),
            Err(error) => {
                assert!(to == HOSTILE && error == SendError::Unreachable, "{error}");
                return Ok(());
            }
        }
        if to != HOSTILE {
            self.sent.push(bytes);
        }
        Ok(())
    }

    fn poll(&mut self, now: u64) {
        self.polled = now;
        while let Some(event) = self.link.poll(Instant::from_nanos(now)) {
            match event {
                Event::Frame(frame) => self.receive(&frame),
                Event::Migrated(_, frame) => {
                    assert_eq!(frame.from, Peer(HOSTILE));
                    if !frame.is_whole() {
                        self.link.release(frame.id);
                    }
                }
                Event::Sent(Cookie(cookie)) => {
                    let at = self.in_place.iter().position(|body| body.0 == cookie).expect("it is reported once");
                    self.in_place.swap_remove(at);
                }
                Event::Delivered(Cookie(cookie)) => {
                    let at =
                        self.pending.iter().position(|delivery| delivery.0 == cookie).expect("it is reported once");
                    let (_, from, bytes) = self.pending.swap_remove(at);
                    self.record(from, bytes.into_vec());
                }
                Event::Performed(..) => panic!("no device operation was begun"),
                Event::Silent(..) => {} // for the honest end, too, while it connects
                Event::Down(peer, _) | Event::Up(peer) | Event::Lost(peer, _) => assert_eq!(peer, Peer(HOSTILE)),
            }
        }
    }

    fn receive(&mut self, frame: &Frame) {
        if frame.is_whole() {
            return self.record(frame.from.0, frame.head().to_vec());
        }
        let len = frame.len as usize;
        let mut bytes = vec![0; len].into_boxed_slice();
        if len.is_multiple_of(3) && self.link.read(frame.id, 0, &mut bytes) == len {
            self.link.release(frame.id);
            return self.record(frame.from.0, bytes.into_vec());
        }
        self.cookies += 1;
        // The sink is too short for frames of the hostile end.
        let sink_len = if frame.from == Peer(HOSTILE) { len / 2 } else { len };
        let sink = Span::contiguous(bytes.as_mut_ptr(), sink_len);
        // SAFETY: the sink is kept until the delivery is reported or the peer is deleted.
        match unsafe { self.link.deliver(frame.id, 0, sink, Cookie(self.cookies)) } {
            Delivery::Done => self.record(frame.from.0, bytes.into_vec()),
            Delivery::Pending => self.pending.push((self.cookies, frame.from.0, bytes)),
        }
    }

    fn record(&mut self, from: u32, bytes: Vec<u8>) {
        if from != HOSTILE {
            self.received.push(bytes);
        }
    }

    /// Whether every frame to the other end has arrived there once and unchanged, and this end has all acknowledgements.
    fn is_done(&self, other: &Self) -> bool {
        let (mut sent, mut received): (Vec<_>, Vec<_>) = (self.sent.iter().collect(), other.received.iter().collect());
        sent.sort_unstable();
        received.sort_unstable();
        assert!(received.len() <= sent.len(), "a frame arrived twice, or was never sent");
        self.link.used() == [0, 0] && self.in_place.is_empty() && self.pending.is_empty() && sent == received
    }
}

struct Hostile<'m> {
    raw: Rail<'m>,
    to: Endpoint,
    card: Vec<u8>,
    /// Session of the last hello that was sent.
    own_session: u64,
    /// Session of the last hello that arrived.
    peer_session: u64,
}

impl<'m> Hostile<'m> {
    fn new(hub: &'m Hub<'m>) -> Self {
        let mut raw = hub.rail(HOSTILE).expect("the mesh has this end");
        let to = raw.add_peer(Peer(VICTIM), hub.rail(VICTIM).expect("the mesh has this end").card()).expect("a card");
        let mut card = vec![b'T', b'L', 2, 1, 7, 0, 0, 0];
        card.extend(INCARNATION.to_le_bytes());
        card.extend(raw.card());
        Self { raw, to, card, own_session: 1, peer_session: 0 }
    }

    /// Receives the victim's frames, and records its session.
    fn listen(&mut self, now: u64) {
        while let Some(event) = self.raw.poll(Instant::from_nanos(now)) {
            let Event::Frame(frame) = event else { continue };
            if !frame.is_whole() {
                self.raw.release(frame.id);
            }
            let head = frame.head();
            if frame.tag == 0x11 && head.get(12) == Some(&1) && head.len() >= 40 {
                self.peer_session = u64::from_le_bytes(head[16..24].try_into().expect("8 bytes"));
            }
        }
    }

    fn seed(&self, sessions: bool) -> u32 {
        let [own, peer] = if sessions { [self.own_session, self.peer_session] } else { [0, 0] };
        let words = [INCARNATION, own, 100 + u64::from(VICTIM), peer].map(u64::to_le_bytes);
        Crc32c.sum(0, words.as_flattened())
    }

    /// Sends a frame. Its checksum is valid unless the input chooses otherwise.
    fn post(
        &mut self,
        tag: u8,
        numbers: [u64; 2],
        seed: u32,
        mut bytes: Vec<u8>,
        data: &mut Unstructured<'_>,
    ) -> Result<()> {
        let count = bytes.len().min(56);
        let mut covered: Vec<u8> = numbers.map(u64::to_le_bytes).as_flattened().to_vec();
        covered.extend((bytes.len() as u32).to_le_bytes());
        covered.push(tag);
        covered.extend(&bytes[..count]);
        covered[25..29].fill(0);
        let check = Crc32c.sum(seed, &covered);
        let corrupt = u8::arbitrary(data)?;
        bytes[4..8].copy_from_slice(&(check ^ u32::from(corrupt < 8)).to_le_bytes());
        self.commit(tag, &bytes);
        Ok(())
    }

    fn commit(&mut self, tag: u8, bytes: &[u8]) {
        let header = bytes.len().min(56) as u8;
        let shape = Shape { tag, lane: Lane::Control, header, len: bytes.len() as u32 };
        let Ok(mut grant) = self.raw.reserve(self.to, shape) else { return };
        grant.write(0, bytes);
        let ticket = grant.finish();
        self.raw.commit(ticket);
    }

    /// A sequence number, mostly near the first one.
    fn near(data: &mut Unstructured<'_>) -> Result<u64> {
        let near = FIRST + u64::from(u8::arbitrary(data)? % 64);
        Ok(if u8::arbitrary(data)? < 240 { near } else { u64::arbitrary(data)? })
    }

    fn frame(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        let (number, ack) = (Self::near(data)?, FIRST + u64::from(u8::arbitrary(data)? % 8));
        let len = usize::from(u16::arbitrary(data)?) % [80, FRAME as usize - 12][usize::from(bool::arbitrary(data)?)];
        let fill = u8::arbitrary(data)?;
        let mut bytes = vec![];
        bytes.extend((number as u16).to_le_bytes());
        bytes.extend((ack as u16).to_le_bytes());
        bytes.extend([0; 8]);
        bytes.resize(12 + len, fill);
        let good = bool::arbitrary(data)?;
        if let Some(body) = bytes.get(56..).filter(|_| good) {
            let sum = Crc32c.sum(0, body);
            bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        }
        let tag = if bool::arbitrary(data)? { 0x80 } else { 0x12 };
        self.post(tag, [number, ack], self.seed(true), bytes, data)
    }

    fn ack(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        let ack = Self::near(data)?;
        let number = Self::near(data)?;
        let mut bytes = (number as u16).to_le_bytes().to_vec();
        bytes.extend((ack as u16).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(u32::from(bool::arbitrary(data)?).to_le_bytes());
        let words = u8::arbitrary(data)? % 7;
        let kind = 2 + u8::arbitrary(data)? % 7;
        bytes.extend([kind, words]);
        bytes.extend((ack.wrapping_add(u64::from(u8::arbitrary(data)? % 8)) as u16).to_le_bytes());
        for _ in 0..words.min(5) {
            bytes.extend(u64::arbitrary(data)?.to_le_bytes());
        }
        if u8::arbitrary(data)? < 8 {
            bytes.pop();
        }
        // The checksum covers the numbers of gaps and of migrated frames (kinds 7 and 8).
        self.post(0x11, [if kind >= 7 { number } else { 0 }, ack], self.seed(true), bytes, data)
    }

    fn hello(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        if u8::arbitrary(data)? < 64 {
            self.own_session = u64::from(u8::arbitrary(data)?);
        }
        let mut bytes = vec![0; 12];
        bytes.extend([1, 0]);
        let window = if u8::arbitrary(data)? < 240 { 16 } else { u16::arbitrary(data)? };
        bytes.extend(window.to_le_bytes());
        let seen = if u8::arbitrary(data)? < 200 { self.peer_session } else { u64::arbitrary(data)? };
        for word in [self.own_session, FIRST, seen] {
            bytes.extend(word.to_le_bytes());
        }
        let seed = self.seed(false);
        self.post(0x11, [0, 0], seed, bytes, data)
    }

    fn raw_frame(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        let tag = u8::arbitrary(data)?;
        let len = usize::from(u8::arbitrary(data)?).min(data.len());
        let bytes = data.bytes(len)?.to_vec();
        self.commit(tag, &bytes);
        Ok(())
    }
}
