//! Frames of a hostile peer to an engine, during the traffic of an honest peer.
//!
//! Two meshes have three ends each. The victim is an engine with two rails. The honest peer is an engine too. The hostile
//! peer has no engine: the input determines its frames, and it knows the handles that the victim sent to it. The hostile
//! peer may corrupt its own messages. It must not access memory that was not offered to it. It must not stop, lose,
//! duplicate or change a message between the other two. After it is deleted, the victim must hold no resources for it.

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
/// Sends of one engine that may be in progress, so that requests are left for receives.
const MAX_SENDS: usize = 4;
/// Contexts and tags that the engines use. The hostile peer uses these and others.
const CONTEXTS: u32 = 2;
const TAGS: u32 = 3;

/// Runs one input, and then checks that the honest traffic completes and that everything is released.
pub fn run(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let mut memory = [(); RAILS].map(|()| vec![0; Hub::cost(ENDS, SLOTS, FRAME)]);
    let hubs =
        memory.each_mut().map(|memory| Hub::new(&mut Arena::new(memory), ENDS, SLOTS, FRAME).expect("cost is enough"));
    // For every second input length, the receivers' devices get. Otherwise the senders' devices put.
    let gets = data.len() % 2 == 1;
    let attributes = DeviceRail::attributes(Hub::attributes(FRAME), gets);
    let bytes = CONFIG.bytes(&[&attributes; RAILS]);
    let (mut one, mut other) = (vec![0; bytes], vec![0; bytes]);
    let registered: [Memory; RAILS] = Default::default();
    let node = |me, other, memory| {
        let rails = std::array::from_fn(|at| {
            DeviceRail::new(hubs[at].rail(me).expect("the mesh has this end"), me, registered[at].clone(), gets)
        });
        Node::new(rails, CONFIG, other, memory)
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
        assert!(round < 2000, "no progress: {:?} {:?}", victim.engine.counters(), honest.engine.counters());
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
    // Acknowledgements and credit that have not arrived yet.
    for _ in 0..20 {
        victim.progress();
        honest.progress();
    }
    assert_eq!((victim.engine.used(), honest.engine.used()), ([0; 3], [0; 3]), "resources are still in use");
    assert_eq!((victim.engine.pins(), honest.engine.pins()), ([0; 2], [0; 2]), "memory is still registered");
}

/// An engine and its user's operations.
struct Node<'m> {
    engine: Pml<'m, [DeviceRail<'m>; RAILS]>,
    /// The other engine.
    other: u32,
    pending: Vec<Pending>,
    /// Messages that a matched probe took and that are not received yet.
    probed: Vec<Message>,
    /// Messages that the other engine sent and that are not received yet, with their tags.
    due: Vec<(u32, Box<[u8]>)>,
    /// Number of sends. The content of a message depends on it, so that messages differ.
    count: u8,
}

struct Pending {
    request: Request,
    /// The memory of a receive; `None` for a send.
    sink: Option<Box<[u8]>>,
    /// The memory of a send, which must be kept until the send is complete.
    _data: Option<Box<[u8]>>,
    /// The context, if this is a receive for any message of the other engine in that context.
    any_in: Option<u32>,
}

impl<'m> Node<'m> {
    fn new(rails: [DeviceRail<'m>; RAILS], config: Config, other: u32, memory: &'m mut [u8]) -> Self {
        let engine = Pml::new(config, &mut Arena::new(memory), rails).expect("the memory is large enough");
        Self { engine, other, pending: Vec::new(), probed: Vec::new(), due: Vec::new(), count: 0 }
    }

    fn add(&mut self, peer: u32, params: &[u8]) {
        let connect = |_, rail: &mut DeviceRail<'m>| rail.add_peer(Peer(peer), &peer.to_le_bytes());
        self.engine.add_peer(Peer(peer), params, connect).expect("the peer is reachable");
    }

    fn send(&mut self, to: u32, receiver: &mut Self, data: &mut Unstructured<'_>) -> Result<()> {
        let (context, tag, mode) = (context(data)?, tag(data)?, u8::arbitrary(data)?);
        let len = usize::from(u16::arbitrary(data)? % 900);
        if self.pending.iter().filter(|pending| pending.sink.is_none()).count() >= MAX_SENDS {
            return Ok(());
        }
        // A ready send fails if no receive is posted, so only the hostile peer gets one.
        let modes = [Mode::Standard, Mode::Synchronous, Mode::Complete, Mode::Buffered, Mode::Ready];
        let mode = modes[usize::from(mode) % if to == HOSTILE { 5 } else { 4 }];
        self.count = self.count.wrapping_add(1);
        let bytes: Box<[u8]> = (0..len).map(|i| (i as u8).wrapping_mul(7).wrapping_add(self.count)).collect();
        // SAFETY: the bytes are kept until the result is taken.
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
        // At least one byte, so that messages can be distinguished.
        self.post(pattern, 1 + usize::from(u16::arbitrary(data)? % 900), None);
        Ok(())
    }

    fn post(&mut self, pattern: Pattern, len: usize, any_in: Option<u32>) {
        let mut sink: Box<[u8]> = vec![0; len].into();
        let span = Span::contiguous(sink.as_mut_ptr(), len);
        // SAFETY: the sink is kept until the result is taken.
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
            && let Ok(Some((message, probed))) = self.engine.improbe(pattern)
        {
            assert_eq!(probed, envelope);
            self.probed.push(message);
        }
        self.receive_probed();
        Ok(())
    }

    fn receive_probed(&mut self) {
        while let Some(message) = self.probed.pop() {
            let mut sink: Box<[u8]> = vec![0; 900].into();
            let span = Span::contiguous(sink.as_mut_ptr(), sink.len());
            // SAFETY: the sink is kept until the result is taken.
            match unsafe { self.engine.imrecv(message, span) } {
                Ok(request) => self.pending.push(Pending { request, sink: Some(sink), _data: None, any_in: None }),
                Err((towline_core::pml::Refusal::Busy, message)) => {
                    self.probed.push(message);
                    return;
                }
                // A message of the hostile peer, which was deleted.
                Err(_) => {}
            }
        }
    }

    /// Posts in each context a receive for any message of the other engine, unless there is one already.
    fn receive_any(&mut self) {
        self.receive_probed();
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
            assert!(known, "the engine reported a completed request that is not in progress");
        }
        let (engine, due, other) = (&mut self.engine, &mut self.due, self.other);
        self.pending.retain(|pending| {
            let Some(result) = engine.test(pending.request) else { return true };
            if let Some(sink) = &pending.sink {
                received(due, other, sink, result);
            }
            false
        });
    }

    /// Whether all messages of the other engine are received and all sends are complete.
    fn is_done(&self) -> bool {
        self.due.is_empty() && self.probed.is_empty() && self.pending.iter().all(|pending| pending.sink.is_some())
    }
}

/// Removes a received message from the messages that the other engine sent.
fn received(due: &mut Vec<(u32, Box<[u8]>)>, other: u32, sink: &[u8], result: std::result::Result<Status, Failure>) {
    let status = match result {
        Ok(status) | Err(Failure::Truncated(status)) => status,
        Err(
            Failure::Cancelled
            | Failure::PeerFailed(Peer(HOSTILE))
            | Failure::PeerClosed { peer: Peer(HOSTILE), .. }
            | Failure::Aborted(Status { peer: Peer(HOSTILE), .. }),
        ) => return,
        Err(failure) => panic!("{failure:?}"),
    };
    assert!(status.delivered <= sink.len() as u64 && status.delivered <= status.received);
    let got = &sink[..status.delivered as usize];
    assert!(sink[got.len()..].iter().all(|byte| *byte == 0), "the receive wrote bytes after the end of the message");
    if status.peer.0 != other {
        return;
    }
    let place = due.iter().position(|(tag, sent)| {
        *tag == status.tag && sent.len() as u64 == status.received && sent[..got.len()] == *got
    });
    due.remove(place.expect("a message that was sent, is unchanged, and was not received before"));
}

/// The end without an engine.
struct Hostile<'h> {
    rails: [Rail<'h>; RAILS],
    /// The victim's endpoint on each rail.
    victim: [Endpoint; RAILS],
    /// Handles that the victim sent.
    handles: Vec<u64>,
    /// Offers of the victim that this end has not answered.
    offers: Vec<wire::Offer>,
    sequence: u32,
    /// The number of this end's own registered memory, which the victim's device may access.
    own: u64,
    _memory: Box<[u8]>,
    /// The registered memory of all ends, for each rail.
    registered: [Memory; RAILS],
    /// All memory that the victim ever offered: the rail, and the number of the memory.
    keys: Vec<(usize, u64)>,
}

impl<'h> Hostile<'h> {
    fn new(hubs: &'h [Hub<'h>; RAILS], registered: [Memory; RAILS], sequence: u32) -> Self {
        let mut rails = hubs.each_ref().map(|hub| hub.rail(HOSTILE).expect("the mesh has this end"));
        let connect = |rail: &mut Rail<'h>| rail.add_peer(Peer(VICTIM), &VICTIM.to_le_bytes());
        let victim = rails.each_mut().map(|rail| connect(rail).expect("the victim is reachable"));
        let mut memory: Box<[u8]> = vec![0x5a; 1000].into();
        // It is the first registered memory of each rail, so its number is 0 on all of them.
        for registered in &registered {
            registered.borrow_mut().push(Some((HOSTILE, memory.as_mut_ptr() as usize, 1000, Access::ANY)));
        }
        Self {
            rails,
            victim,
            handles: Vec::new(),
            offers: Vec::new(),
            sequence,
            own: 0,
            _memory: memory,
            registered,
            keys: Vec::new(),
        }
    }

    /// Receives the victim's frames, and records its handles and offers.
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

    /// This end's device writes to memory that the victim offered at any time, if it is still registered.
    fn write(&mut self, choice: u8) {
        let Some((rail, key)) = self.keys.iter().rev().nth(usize::from(choice) % self.keys.len().max(1)) else {
            return;
        };
        let registered = self.registered[*rail].borrow();
        if let Some((VICTIM, base, len, access)) = registered.get(*key as usize).copied().flatten()
            && access.contains(Access::REMOTE_WRITE)
        {
            // SAFETY: registered memory exists, and its owner permits peers to write to it.
            unsafe { (base as *mut u8).write_bytes(choice | 1, len as usize) };
        }
    }

    /// Sends a frame with a header of any kind. Most fields are plausible.
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
                // Mostly a report on an offer of the victim.
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
        // Control frames have no body. Some of these do, to test that they are refused.
        let body = u8::arbitrary(data)?;
        let body = usize::from(if header.as_bytes().len() > 40 && body < 200 { 0 } else { body });
        let mut frame = header.as_bytes().to_vec();
        let header = frame.len();
        frame.extend((0..body).map(|i| i as u8 | 1));
        self.put(usize::from(flags >> 7), tags::PML, header, &frame);
        Ok(())
    }

    /// Sends a frame of arbitrary bytes with an arbitrary tag.
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

    /// A sequence number, mostly the next one.
    fn number(&mut self, data: &mut Unstructured<'_>) -> Result<u32> {
        let choice = u8::arbitrary(data)?;
        if choice < 200 {
            self.sequence = self.sequence.wrapping_add(1);
            return Ok(self.sequence.wrapping_sub(1));
        }
        Ok(self.sequence.wrapping_add(choice.into()).wrapping_sub(220))
    }

    /// A handle, mostly one that the victim sent at some time.
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

/// A length or an offset, mostly in the range that the engines use, and sometimes far too large.
fn size(data: &mut Unstructured<'_>) -> Result<u64> {
    let (small, shift) = (u16::arbitrary(data)?, u8::arbitrary(data)?);
    Ok(if shift < 230 { u64::from(small) % 1000 } else { u64::from(small).wrapping_shl(u32::from(shift) - 192) })
}
