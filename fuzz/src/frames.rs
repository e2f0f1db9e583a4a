//! Frames of a hostile peer, during the traffic of an honest one.
//!
//! Three ends of two meshes: the victim, which is an engine with two rails; an honest engine; and a hostile end without
//! an engine, which sends what the input says and knows the handles that the victim gave it. The hostile peer may spoil
//! its own messages. It must not access memory that was not given to it, must not stop, lose, duplicate or change a
//! message between the other two, and must not make the victim keep anything after it is deleted.

use arbitrary::{Arbitrary, Result, Unstructured};
use towline_core::arena::Arena;
use towline_core::convertor::Span;
use towline_core::pml::matching::{ANY, Pattern};
use towline_core::pml::{Config, Failure, Message, Mode, PARAMS, Pml, Request, Sending, Status, rdma};
use towline_core::pool::Handle;
use towline_core::rail::loopback::{Hub, Rail};
use towline_core::rail::native::{KEY, Key};
use towline_core::rail::{Endpoint, Event, HEAD, Lane, Peer, Rail as _, Shape, tags};
use towline_core::rma::Access;
use towline_core::time::Instant;
use towline_core::wire::{self, Header};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::device_rail::{DeviceRail, Memory};

const VICTIM: u32 = 0;
const HOSTILE: u32 = 1;
const HONEST: u32 = 2;
const ENDS: u32 = 3;
const RAILS: usize = 2;
const SLOTS: u32 = 16;
const FRAME: u32 = 256;
const CONFIG: Config = Config {
    peers: ENDS,
    requests: 10,
    unexpected: 9,
    units: 9,
    unit_bytes: 64,
    probes: 1,
    seed: 7,
    first_sequence: u32::MAX as u64 - 5,
    rma: towline_core::rma::Config::OFF,
    rdma: rdma::Config { messages: 3, kept_pins: 0, windows: false },
};
/// Sends under way between the engines, so that requests are left for receives.
const MOST_SENDS: usize = 4;
/// Contexts and tags that the engines use; the hostile peer uses these and others.
const CONTEXTS: u32 = 2;
const TAGS: u32 = 3;

/// Runs one input, and then checks that the honest traffic completes and that everything is released.
pub fn run(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let mut memory = [(); RAILS].map(|()| vec![0; Hub::cost(ENDS, SLOTS, FRAME)]);
    let hubs =
        memory.each_mut().map(|memory| Hub::new(&mut Arena::new(memory), ENDS, SLOTS, FRAME).expect("cost is enough"));
    // One in two inputs has the receivers' devices get.
    let gets = data.len() % 2 == 1;
    let attributes = DeviceRail::attributes(Hub::attributes(FRAME), gets);
    let bytes = CONFIG.bytes(&[&attributes; RAILS]);
    let (mut one, mut other) = (vec![0; bytes], vec![0; bytes]);
    let registered: [Memory; RAILS] = Default::default();
    let node = |me, other, room| {
        let rails = std::array::from_fn(|at| {
            DeviceRail::new(hubs[at].rail(me).expect("an end for each"), me, registered[at].clone(), gets)
        });
        Node::new(rails, CONFIG, other, room)
    };
    let mut victim = node(VICTIM, HONEST, &mut one);
    let mut honest = node(HONEST, VICTIM, &mut other);
    victim.add(HONEST, &honest.engine.params());
    honest.add(VICTIM, &victim.engine.params());
    let mut hostile = Hostile::new(&hubs, registered.clone(), CONFIG.first_sequence as u32);
    let Ok(credit) = <[u8; 2]>::arbitrary(&mut data) else { return };
    let mut params: [u8; PARAMS] = honest.engine.params();
    (params[4], params[6]) = (credit[0], credit[1]);
    victim.add(HOSTILE, &params);
    while !data.is_empty() {
        if step(&mut victim, &mut honest, &mut hostile, &params, &mut data).is_err() {
            break;
        }
    }
    finish(&mut victim, &mut honest);
}

fn step<'m>(
    victim: &mut Node<'m>,
    honest: &mut Node<'m>,
    hostile: &mut Hostile<'_>,
    params: &[u8],
    data: &mut Unstructured<'_>,
) -> Result<()> {
    match u8::arbitrary(data)? % 16 {
        0..=4 => hostile.send_header(data)?,
        5 => hostile.send_raw(data)?,
        6 => hostile.listen(),
        7 => {
            let source = [HOSTILE, HONEST, ANY, HOSTILE][usize::from(u8::arbitrary(data)? & 3)];
            victim.receive(source, data)?;
        }
        8 => honest.receive(VICTIM, data)?,
        9 => victim.send(HOSTILE, honest, data)?,
        10 => victim.send(HONEST, honest, data)?,
        11 => honest.send(VICTIM, victim, data)?,
        12 => {
            honest.progress();
            victim.progress();
        }
        13 => {
            let index = u8::arbitrary(data)?;
            let node = if index & 1 == 0 { victim } else { honest };
            if let Some(pending) = node.pending.get(usize::from(index >> 1)) {
                node.engine.cancel(pending.request);
            }
        }
        14 => {
            let source = [HOSTILE, HONEST, ANY, ANY][usize::from(u8::arbitrary(data)? & 3)];
            victim.probe(source, data)?;
        }
        _ => {
            victim.engine.del_peer(Peer(HOSTILE));
            if bool::arbitrary(data)? {
                victim.engine.purge(CONTEXTS);
            }
            victim.add(HOSTILE, params);
            hostile.sequence = CONFIG.first_sequence as u32;
        }
    }
    Ok(())
}

fn finish<'m>(victim: &mut Node<'m>, honest: &mut Node<'m>) {
    victim.engine.del_peer(Peer(HOSTILE));
    victim.cancel_all();
    honest.cancel_all();
    for round in 0.. {
        assert!(round < 2000, "stand-still: {:?} {:?}", victim.engine.counters(), honest.engine.counters());
        victim.progress();
        honest.progress();
        if victim.is_done() && honest.is_done() {
            break;
        }
        victim.receive_any();
        honest.receive_any();
    }
    for node in [&mut *victim, &mut *honest] {
        node.cancel_all();
        node.progress();
        assert!(node.pending.is_empty());
    }
    // Answers and credit that are still on their way.
    for _ in 0..20 {
        victim.progress();
        honest.progress();
    }
    assert_eq!((victim.engine.used(), honest.engine.used()), ([0; 3], [0; 3]), "something was kept");
    assert_eq!((victim.engine.pins(), honest.engine.pins()), ([0; 2], [0; 2]), "memory stays registered");
}

/// An engine, with the operations of its user.
struct Node<'m> {
    engine: Pml<'m, [DeviceRail<'m>; RAILS]>,
    /// The other engine.
    other: u32,
    pending: Vec<Pending>,
    taken: Vec<Message>,
    /// What the other engine sent and was not received yet.
    due: Vec<(u32, Box<[u8]>)>,
    /// Tells messages apart.
    count: u8,
}

struct Pending {
    request: Request,
    /// The memory of a receive; none for a send.
    sink: Option<Box<[u8]>>,
    /// The memory of a send, which must stay.
    _data: Option<Box<[u8]>>,
    /// A receive for anything from the other engine in this context.
    any_in: Option<u32>,
}

impl<'m> Node<'m> {
    fn new(rails: [DeviceRail<'m>; RAILS], config: Config, other: u32, memory: &'m mut [u8]) -> Self {
        let engine = Pml::new(config, &mut Arena::new(memory), rails).expect("the configuration says how much");
        Self { engine, other, pending: Vec::new(), taken: Vec::new(), due: Vec::new(), count: 0 }
    }

    fn add(&mut self, peer: u32, params: &[u8]) {
        let reach = |_, rail: &mut DeviceRail<'m>| rail.add_peer(Peer(peer), &peer.to_le_bytes());
        self.engine.add_peer(Peer(peer), params, reach).expect("the peer can be reached");
    }

    fn send(&mut self, to: u32, receiver: &mut Self, data: &mut Unstructured<'_>) -> Result<()> {
        let (context, tag, mode) = (context(data)?, tag(data)?, u8::arbitrary(data)?);
        let len = usize::from(u16::arbitrary(data)? % 900);
        if self.pending.iter().filter(|pending| pending.sink.is_none()).count() >= MOST_SENDS {
            return Ok(());
        }
        // A ready send may fail by right, so it goes to the hostile peer only.
        let modes = [Mode::Standard, Mode::Synchronous, Mode::Complete, Mode::Buffered, Mode::Ready];
        let mode = modes[usize::from(mode) % if to == HOSTILE { 5 } else { 4 }];
        self.count = self.count.wrapping_add(1);
        let bytes: Box<[u8]> = (0..len).map(|i| (i as u8).wrapping_mul(7).wrapping_add(self.count)).collect();
        // SAFETY: the bytes are kept until the outcome is taken.
        let sending = unsafe { self.engine.isend(Peer(to), context, tag, mode, Span::of(&bytes)) };
        if sending.is_ok() && to == self.other {
            receiver.due.push((tag, bytes.clone()));
        }
        if let Ok(Sending::Pending(request)) = sending {
            if len.is_multiple_of(2) {
                self.engine.notify(request);
            }
            self.pending.push(Pending { request, sink: None, _data: Some(bytes), any_in: None });
        }
        Ok(())
    }

    fn receive(&mut self, source: u32, data: &mut Unstructured<'_>) -> Result<()> {
        let tag = if bool::arbitrary(data)? { ANY } else { tag(data)? };
        let pattern = Pattern { context: context(data)?, source, tag };
        // At least a byte, which tells messages apart.
        self.post(pattern, 1 + usize::from(u16::arbitrary(data)? % 900), None);
        Ok(())
    }

    fn post(&mut self, pattern: Pattern, len: usize, any_in: Option<u32>) {
        let mut sink: Box<[u8]> = vec![0; len].into();
        let span = Span::contiguous(sink.as_mut_ptr(), len);
        // SAFETY: the sink is kept until the outcome is taken.
        if let Ok(request) = unsafe { self.engine.irecv(pattern, span) } {
            if len.is_multiple_of(2) {
                self.engine.notify(request);
            }
            self.pending.push(Pending { request, sink: Some(sink), _data: None, any_in });
        }
    }

    fn probe(&mut self, source: u32, data: &mut Unstructured<'_>) -> Result<()> {
        let pattern = Pattern { context: context(data)?, source, tag: ANY };
        if let Some(envelope) = self.engine.iprobe(pattern)
            && let Ok(Some((message, taken))) = self.engine.improbe(pattern)
        {
            assert_eq!(taken, envelope);
            self.taken.push(message);
        }
        self.receive_taken();
        Ok(())
    }

    fn receive_taken(&mut self) {
        while let Some(message) = self.taken.pop() {
            let mut sink: Box<[u8]> = vec![0; 900].into();
            let span = Span::contiguous(sink.as_mut_ptr(), sink.len());
            // SAFETY: the sink is kept until the outcome is taken.
            match unsafe { self.engine.imrecv(message, span) } {
                Ok(request) => self.pending.push(Pending { request, sink: Some(sink), _data: None, any_in: None }),
                Err((towline_core::pml::Refusal::Busy, message)) => {
                    self.taken.push(message);
                    return;
                }
                // It was the hostile peer's, which was deleted.
                Err(_) => {}
            }
        }
    }

    /// One receive for anything from the other engine in each context, unless there is one.
    fn receive_any(&mut self) {
        self.receive_taken();
        for context in 0..CONTEXTS {
            if self.pending.iter().all(|pending| pending.any_in != Some(context)) {
                self.post(Pattern { context, source: self.other, tag: ANY }, 900, Some(context));
            }
        }
    }

    fn cancel_all(&mut self) {
        for pending in &self.pending {
            self.engine.cancel(pending.request);
        }
    }

    fn progress(&mut self) {
        self.engine.progress(Instant::ZERO);
        while let Some(request) = self.engine.next_completed() {
            let known = self.pending.iter().any(|pending| pending.request == request);
            assert!(known, "announced, and not under way");
        }
        let (engine, due, other) = (&mut self.engine, &mut self.due, self.other);
        self.pending.retain(|pending| {
            let Some(outcome) = engine.test(pending.request) else { return true };
            if let Some(sink) = &pending.sink {
                received(due, other, sink, outcome);
            }
            false
        });
    }

    /// Whether all that the other engine sent is here, and all that was sent has gone.
    fn is_done(&self) -> bool {
        self.due.is_empty() && self.taken.is_empty() && self.pending.iter().all(|pending| pending.sink.is_some())
    }
}

/// Finds what was received among what the other engine sent.
fn received(due: &mut Vec<(u32, Box<[u8]>)>, other: u32, sink: &[u8], outcome: std::result::Result<Status, Failure>) {
    let status = match outcome {
        Ok(status) | Err(Failure::Truncated(status)) => status,
        Err(Failure::Cancelled | Failure::PeerFailed(Peer(HOSTILE))) => return,
        Err(failure) => panic!("{failure:?}"),
    };
    assert!(status.delivered <= sink.len() as u64 && status.delivered <= status.received);
    let got = &sink[..status.delivered as usize];
    assert!(sink[got.len()..].iter().all(|byte| *byte == 0), "bytes behind the message's end");
    if status.peer.0 != other {
        return;
    }
    let place = due.iter().position(|(tag, sent)| {
        *tag == status.tag && sent.len() as u64 == status.received && sent[..got.len()] == *got
    });
    due.remove(place.expect("a message that was not sent, was received before, or was spoilt"));
}

/// The end without an engine.
struct Hostile<'h> {
    rails: [Rail<'h>; RAILS],
    /// By each rail.
    victim: [Endpoint; RAILS],
    /// Handles of the victim's, as it sent them.
    handles: Vec<u64>,
    /// What it was offered, and has not said a word on.
    offers: Vec<wire::Offer>,
    sequence: u32,
    /// Memory of its own, which the victim's device may reach: its number.
    own: u64,
    _room: Box<[u8]>,
    /// Of each rail.
    registered: [Memory; RAILS],
    /// All that it was ever offered: by which rail, and the number.
    keys: Vec<(usize, u64)>,
}

impl<'h> Hostile<'h> {
    fn new(hubs: &'h [Hub<'h>; RAILS], registered: [Memory; RAILS], sequence: u32) -> Self {
        let mut rails = hubs.each_ref().map(|hub| hub.rail(HOSTILE).expect("an end for each"));
        let reach = |rail: &mut Rail<'h>| rail.add_peer(Peer(VICTIM), &VICTIM.to_le_bytes());
        let victim = rails.each_mut().map(|rail| reach(rail).expect("the victim can be reached"));
        let mut room: Box<[u8]> = vec![0x5a; 1000].into();
        // The first of each, so that its number is the same.
        for registered in &registered {
            registered.borrow_mut().push(Some((HOSTILE, room.as_mut_ptr() as usize, 1000, Access::ANY)));
        }
        Self {
            rails,
            victim,
            handles: Vec::new(),
            offers: Vec::new(),
            sequence,
            own: 0,
            _room: room,
            registered,
            keys: Vec::new(),
        }
    }

    /// Takes what the victim sent, and notes its handles.
    fn listen(&mut self) {
        for rail in 0..RAILS {
            while let Some(Event::Frame(frame)) = self.rails[rail].poll(Instant::ZERO) {
                let head = frame.head();
                match wire::kind(head) {
                    Some(wire::Kind::Rendezvous) => self.note::<wire::Rendezvous>(head, |header| header.sender.get()),
                    Some(wire::Kind::Ack) => self.note::<wire::Ack>(head, |header| header.receiver.get()),
                    Some(wire::Kind::Offer) => {
                        if let Ok((offer, _)) = wire::Offer::read_from_prefix(head) {
                            let number = u64::from_le_bytes(std::array::from_fn(|at| offer.key[at]));
                            self.keys.push((rail, number));
                            self.offers.push(offer);
                        }
                    }
                    _ => {}
                }
                if !frame.is_whole() {
                    self.rails[rail].release(frame.id);
                }
            }
        }
    }

    fn note<H: FromBytes + KnownLayout + Immutable>(&mut self, head: &[u8], handle: impl Fn(&H) -> u64) {
        if let Ok((header, _)) = H::read_from_prefix(head) {
            self.handles.push(handle(&header));
        }
    }

    /// Its device writes to memory that it was offered, now or long ago, if that is registered still.
    fn write(&mut self, choice: u8) {
        let Some((rail, key)) = self.keys.iter().rev().nth(usize::from(choice) % self.keys.len().max(1)) else {
            return;
        };
        let registered = self.registered[*rail].borrow();
        if let Some((VICTIM, base, len, access)) = registered.get(*key as usize).copied().flatten()
            && access.contains(Access::REMOTE_WRITE)
        {
            // SAFETY: registered memory is there, and whoever registered it lets peers write to it.
            unsafe { (base as *mut u8).write_bytes(choice | 1, len as usize) };
        }
    }

    /// A frame with a header of some kind, more or less right.
    fn send_header(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        let kind = u8::arbitrary(data)? % 15;
        match kind {
            0..=2 => {
                let header = wire::Match::new(context(data)?, any_tag(data)?, self.number(data)?);
                self.send(header, data)
            }
            3 | 4 => {
                let handle = Handle::from_bits(u8::arbitrary(data)?.into());
                let (context, tag, number) = (context(data)?, any_tag(data)?, self.number(data)?);
                self.send(wire::Rendezvous::new(context, tag, number, handle, size(data)?), data)
            }
            5 => {
                let (ours, theirs) = (Handle::from_bits(u8::arbitrary(data)?.into()), self.handle(data)?);
                let ack = wire::Ack::new(theirs, ours, size(data)?);
                let flag = [0, wire::FLAG_PUT, wire::FLAG_GET, wire::FLAG_PUT][usize::from(u8::arbitrary(data)? & 3)];
                self.send(ack.with_device(flag, size(data)? as u32), data)
            }
            6 | 7 => {
                let header = wire::Fragment::new(self.handle(data)?, size(data)?);
                self.send(header, data)
            }
            8 => {
                let header = wire::Finish::new(self.handle(data)?);
                self.send(header, data)
            }
            9 => {
                let mut header = wire::Reject::new(self.handle(data)?, wire::Reason::Unmatched);
                header.reason.set(u32::arbitrary(data)? % 5);
                self.send(header, data)
            }
            10 => {
                let number = if u8::arbitrary(data)? < 200 { self.own } else { u8::arbitrary(data)?.into() };
                let mut key = [0; KEY];
                key[..8].copy_from_slice(&number.to_le_bytes());
                let header = wire::Offer::new(self.handle(data)?, size(data)?, size(data)? as u32, Key(key));
                self.send(header, data)
            }
            11 => {
                // Mostly on what it was offered.
                let offer = self.offers.pop().filter(|_| !data.is_empty());
                let (offset, len) = match offer {
                    Some(offer) => (offer.offset.get(), offer.len.get()),
                    None => (size(data)?, size(data)? as u32),
                };
                let header = wire::Performed::new(self.handle(data)?, offset, len);
                self.send(header, data)
            }
            12 => {
                self.write(u8::arbitrary(data)?);
                Ok(())
            }
            13 => self.send(wire::Held::new(u8::arbitrary(data)?.into()), data),
            _ => match u8::arbitrary(data)? % 3 {
                0 => self.send(wire::Credit::new(), data),
                1 => self.send(wire::Ask::new(context(data)?, any_tag(data)?), data),
                _ => self.send(wire::Nothing::new(u8::arbitrary(data)?.into()), data),
            },
        }
    }

    fn send<H: Header>(&mut self, mut header: H, data: &mut Unstructured<'_>) -> Result<()> {
        let (flags, credit) = (u8::arbitrary(data)?, u8::arbitrary(data)?);
        let common = header.common_mut();
        common.flags |= flags & 0x0f;
        common.envelopes.set((credit >> 4).into());
        common.units.set((credit & 15).into());
        // Control frames have none: mostly it is so.
        let body = u8::arbitrary(data)?;
        let body = usize::from(if header.as_bytes().len() > 40 && body < 200 { 0 } else { body });
        let mut frame = header.as_bytes().to_vec();
        let header = frame.len();
        frame.extend((0..body).map(|i| i as u8 | 1));
        self.put(usize::from(flags >> 7), tags::PML, header, &frame);
        Ok(())
    }

    /// A frame of any bytes, for any tag.
    fn send_raw(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        let tag = if bool::arbitrary(data)? { tags::PML } else { u8::arbitrary(data)? };
        let (header, len) = (u8::arbitrary(data)?, u8::arbitrary(data)?);
        let len = usize::from(len).min(data.len());
        let frame = data.bytes(len)?;
        self.put(usize::from(header >> 7), tag, usize::from(header) % (HEAD + 1), frame);
        Ok(())
    }

    fn put(&mut self, rail: usize, tag: u8, header: usize, frame: &[u8]) {
        let len = frame.len().min(FRAME as usize);
        let shape = Shape { tag, lane: Lane::Control, header: header.min(len) as u8, len: len as u32 };
        if let Ok(mut grant) = self.rails[rail].reserve(self.victim[rail], shape) {
            grant.write(0, &frame[..len]);
            let ticket = grant.finish();
            self.rails[rail].commit(ticket);
        }
    }

    /// Mostly the number that is due.
    fn number(&mut self, data: &mut Unstructured<'_>) -> Result<u32> {
        let choice = u8::arbitrary(data)?;
        if choice < 200 {
            self.sequence = self.sequence.wrapping_add(1);
            return Ok(self.sequence.wrapping_sub(1));
        }
        Ok(self.sequence.wrapping_add(choice.into()).wrapping_sub(220))
    }

    /// Mostly one that the victim gave out, perhaps long ago.
    fn handle(&mut self, data: &mut Unstructured<'_>) -> Result<u64> {
        let choice = u8::arbitrary(data)?;
        if choice == 255 {
            return u64::arbitrary(data);
        }
        let back = usize::from(choice) % self.handles.len().max(1);
        Ok(self.handles.iter().rev().nth(back).copied().unwrap_or(choice.into()))
    }
}

fn context(data: &mut Unstructured<'_>) -> Result<u32> {
    Ok(u32::from(u8::arbitrary(data)?) % CONTEXTS)
}

fn tag(data: &mut Unstructured<'_>) -> Result<u32> {
    Ok(u32::from(u8::arbitrary(data)?) % TAGS)
}

fn any_tag(data: &mut Unstructured<'_>) -> Result<u32> {
    let tag = u8::arbitrary(data)?;
    Ok(if tag < 240 { u32::from(tag) % TAGS } else { (tag as i8) as u32 })
}

/// A length or an offset: mostly within what the others use, now and then absurd.
fn size(data: &mut Unstructured<'_>) -> Result<u64> {
    let (small, shift) = (u16::arbitrary(data)?, u8::arbitrary(data)?);
    Ok(if shift < 230 { u64::from(small) % 1000 } else { u64::from(small).wrapping_shl(u32::from(shift) - 192) })
}
