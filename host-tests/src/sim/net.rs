//! The network that simulated rails share: frames under way, in virtual time.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use towline_core::btl::{Cookie, Lane, Peer};
use towline_core::convertor::Span;

use super::faults::{Counts, Faults, Make};
use super::rail::SimRail;
use crate::dice::Dice;

/// Some nodes, each with one rail of every make, all reaching each other and themselves.
#[derive(Clone)]
pub struct Net(pub(super) Rc<RefCell<State>>);

/// All that is under way.
pub(super) struct State {
    pub now: u64,
    pub dice: Dice,
    pub faults: Faults,
    pub makes: Vec<Make>,
    pub counts: Counts,
    pub ends: Vec<End>,
    pub links: Vec<Link>,
    packets: Vec<Option<Packet>>,
    free: Vec<u32>,
    nodes: u32,
    ids: u64,
    /// All that was ever lent.
    pub loans: Vec<Lent>,
    /// Whether to print what happens: `TOWLINE_TRACE`.
    trace: bool,
}

/// A body that one node lent to another.
#[derive(Clone, Copy)]
pub(super) struct Lent {
    pub from: u32,
    pub to: u32,
    pub rail: u32,
    /// The lender's age of the borrower: when it has changed, the body is void.
    pub age: u32,
    pub body: Span,
}

/// One rail of one node.
#[derive(Default)]
pub(super) struct End {
    pub inbox: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// What came from nodes that are not known here yet.
    pub waiting: Vec<(u64, u64, u32)>,
    pub outbox: VecDeque<u32>,
    pub events: BinaryHeap<Reverse<(u64, u64, Later)>>,
    /// What the peers are called here, by node.
    pub names: Vec<Option<Peer>>,
    /// Times that each peer was added here; what happened to an earlier one is not reported.
    pub ages: Vec<u32>,
    pub held: u32,
}

/// One direction between two ends.
#[derive(Clone, Default)]
pub(super) struct Link {
    /// Frames under way or unreleased, by lane.
    pub used: [u32; 3],
    pub busy_until: u64,
    pub refuses_until: u64,
    pub latest: u64,
    pub cut: bool,
}

/// What an end will report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Later {
    /// A packet's body is in its sink.
    Delivered(u32),
    /// A body of that node's is no longer read.
    Sent { node: u32, age: u32, cookie: u64 },
    /// The node is lost.
    Lost { node: u32, age: u32 },
}

/// A frame.
#[derive(Clone)]
pub(super) struct Packet {
    pub id: u64,
    pub from: u32,
    pub to: u32,
    pub rail: u32,
    pub tag: u8,
    pub lane: Lane,
    pub header: u8,
    pub bytes: Vec<u8>,
    /// The body, as long as it lies with the sender: then `bytes` is the header alone.
    pub in_place: Option<(Span, Cookie)>,
    /// When the body is in.
    pub body_at: u64,
    /// Where a pending delivery goes to: the sink, and the bytes left out before it.
    pub sink: Option<(Span, usize, Cookie)>,
    /// A second copy takes no room.
    pub copy: bool,
    /// Handed over and not yet given back.
    pub held: bool,
}

impl Packet {
    pub fn len(&self) -> usize {
        self.bytes.len() + self.in_place.map_or(0, |(body, _)| body.len() as usize)
    }
}

impl Net {
    /// A network of `nodes` nodes with one rail of each make.
    pub fn new(nodes: u32, makes: Vec<Make>, faults: Faults, dice: Dice) -> Self {
        let ends = nodes as usize * makes.len();
        let end = || End { names: vec![None; nodes as usize], ages: vec![0; nodes as usize], ..End::default() };
        Self(Rc::new(RefCell::new(State {
            now: 0,
            dice,
            faults,
            counts: Counts::default(),
            ends: (0..ends).map(|_| end()).collect(),
            links: vec![Link::default(); ends * nodes as usize],
            makes,
            packets: vec![],
            free: vec![],
            nodes,
            ids: 0,
            loans: vec![],
            trace: std::env::var_os("TOWLINE_TRACE").is_some(),
        })))
    }

    /// The rails of one node, in the order of the makes. To be asked for once per node.
    pub fn rails(&self, node: u32) -> Vec<SimRail> {
        let count = self.0.borrow().makes.len() as u32;
        (0..count).map(|rail| SimRail::new(self.clone(), node, rail)).collect()
    }

    /// How often each thing happened so far.
    pub fn counts(&self) -> Counts {
        self.0.borrow().counts
    }

    /// Moves the clock on; it never goes back.
    pub fn advance(&self, now: u64) {
        self.0.borrow_mut().advance(now);
    }

    /// The next nanosecond at which something arrives or is reported, if nobody sends any more.
    pub fn next_at(&self) -> Option<u64> {
        let state = self.0.borrow();
        let keep = |at: usize| state.makes[at % state.makes.len()].frames_kept;
        state.ends.iter().enumerate().filter_map(|(at, end)| end.next_at(keep(at))).min()
    }

    /// Frames that are under way or held.
    pub fn under_way(&self) -> usize {
        let state = self.0.borrow();
        state.packets.len() - state.free.len()
    }

    /// Prints a line about a node, where a trace is wanted.
    pub fn trace(&self, node: u32, what: impl FnOnce() -> String) {
        let state = self.0.borrow();
        if state.trace {
            println!("{:>9} node {node}: {}", state.now, what());
        }
    }

    /// Ends all faults that are a matter of chance, to see that what is left comes to an end.
    pub fn calm(&self) {
        let mut state = self.0.borrow_mut();
        state.faults = Faults { deaths: std::mem::take(&mut state.faults.deaths), ..Faults::default() };
    }
}

impl End {
    /// When the end must be polled, with at most `keep` frames held.
    pub fn next_at(&self, keep: u32) -> Option<u64> {
        let arrival = self.inbox.peek().map(|next| next.0.0).filter(|_| self.held < keep);
        let event = self.events.peek().map(|next| next.0.0);
        let outbox = if self.outbox.is_empty() { None } else { Some(0) };
        [arrival, event, outbox].into_iter().flatten().min()
    }
}

/// The engine's header in words, for a trace.
fn describe(bytes: &[u8]) -> String {
    use towline_core::wire;
    use zerocopy::FromBytes;

    macro_rules! header {
        ($name:ident $($field:ident)*) => {
            wire::$name::read_from_prefix(bytes).map_or(String::new(), |(header, _)| {
                let common = header.common;
                let (flags, envelopes, units) = (common.flags, common.envelopes.get(), common.units.get());
                #[allow(unused_mut)]
                let mut text = format!("{} flags {flags:x} credit {envelopes} {units}", stringify!($name));
                $(text += &format!(" {} {:x}", stringify!($field), header.$field.get());)*
                text
            })
        };
    }
    match wire::kind(bytes) {
        Some(wire::Kind::Match) => header!(Match context tag sequence),
        Some(wire::Kind::Rendezvous) => header!(Rendezvous context tag sequence sender total),
        Some(wire::Kind::Ack) => header!(Ack sender receiver wanted),
        Some(wire::Kind::Fragment) => header!(Fragment receiver offset),
        Some(wire::Kind::Finish) => header!(Finish sender),
        Some(wire::Kind::Reject) => header!(Reject sender reason),
        Some(wire::Kind::Credit) => header!(Credit),
        Some(wire::Kind::Held) => header!(Held notice),
        Some(wire::Kind::Ask) => header!(Ask context tag),
        Some(wire::Kind::Nothing) => header!(Nothing notice),
        None => String::new(),
    }
}

impl State {
    pub fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
        if self.faults.deaths.is_empty() {
            return;
        }
        let now = self.now;
        let due: Vec<_> = self.faults.deaths.extract_if(.., |death| death.2 <= now).collect();
        for (node, rail, _) in due {
            let rails = rail.map_or(0..self.makes.len() as u32, |rail| rail..rail + 1);
            for rail in rails {
                for other in (0..self.nodes).filter(|other| *other != node) {
                    self.cut(node, other, rail);
                }
            }
        }
    }

    pub fn end(&mut self, node: u32, rail: u32) -> &mut End {
        let at = node as usize * self.makes.len() + rail as usize;
        &mut self.ends[at]
    }

    pub fn link(&mut self, from: u32, to: u32, rail: u32) -> &mut Link {
        let at = (from as usize * self.makes.len() + rail as usize) * self.nodes as usize + to as usize;
        &mut self.links[at]
    }

    pub fn packet(&mut self, at: u32) -> &mut Packet {
        self.packets[at as usize].as_mut().expect("a packet that is queued exists")
    }

    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Prints what becomes of a frame, where a trace is wanted.
    pub fn trace(&self, what: &str, packet: &Packet) {
        if self.trace {
            let Packet { id, from, to, rail, lane, .. } = packet;
            let header = describe(&packet.bytes);
            println!(
                "{:>9} {what} frame {id} {from}->{to} rail {rail} {lane:?} {} bytes {header}",
                self.now,
                packet.len()
            );
        }
    }

    /// The packet that a frame id names, if it still does.
    pub fn find(&self, frame: u64) -> Option<&Packet> {
        self.packets.get(frame as u32 as usize)?.as_ref().filter(|packet| packet.id as u32 == (frame >> 32) as u32)
    }

    pub fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// Keeps a packet that was committed, and sends it now or when its sender polls. Whether it went at once.
    pub fn accept(&mut self, packet: Packet) -> bool {
        self.counts.frames += 1;
        self.counts.bytes += packet.len() as u64;
        let (from, to, rail, lane) = (packet.from, packet.to, packet.rail, packet.lane);
        self.link(from, to, rail).used[lane as usize] += 1;
        self.trace("sent", &packet);
        let at = self.keep(packet);
        if self.dice.chance(self.faults.staged) {
            self.counts.staged += 1;
            self.end(from, rail).outbox.push_back(at);
            return false;
        }
        self.launch(at);
        true
    }

    fn keep(&mut self, packet: Packet) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.packets[at as usize] = Some(packet);
                at
            }
            None => {
                self.packets.push(Some(packet));
                self.packets.len() as u32 - 1
            }
        }
    }

    /// Puts a packet on its way, with all that may befall it there.
    pub fn launch(&mut self, at: u32) {
        let packet = self.packet(at);
        let (from, to, rail, len) = (packet.from, packet.to, packet.rail, packet.len() as u64);
        let long = packet.len() > usize::from(packet.header);
        if self.link(from, to, rail).cut {
            return self.discard(at);
        }
        let mut start = self.link(from, to, rail).busy_until.max(self.now);
        let apart = |&(one, other, _): &(u32, u32, _)| (one, other) == (from, to) || (one, other) == (to, from);
        let window = self.faults.partitions.iter().filter(|partition| apart(partition)).map(|partition| partition.2);
        if let Some((_, until)) = window.clone().find(|(since, until)| (*since..*until).contains(&start)) {
            self.counts.partitioned += 1;
            if self.faults.drop != 0 {
                return self.discard(at);
            }
            start = until;
        }
        if self.dice.chance(self.faults.drop) {
            self.counts.dropped += 1;
            return self.discard(at);
        }
        let make = self.makes[rail as usize];
        let done = start + len * 1000 / u64::from(make.bandwidth);
        self.link(from, to, rail).busy_until = done;
        if self.dice.chance(self.faults.duplicate) {
            self.counts.duplicated += 1;
            self.materialize(at);
            let copy = Packet { copy: true, ..self.packet(at).clone() };
            let copy = self.keep(copy);
            self.arrive(copy, done, long);
        }
        if len > 0 && self.dice.chance(self.faults.corrupt) {
            self.counts.corrupted += 1;
            self.materialize(at);
            let bit = self.dice.below(len * 8);
            self.packet(at).bytes[bit as usize / 8] ^= 1 << (bit % 8);
        }
        self.arrive(at, done, long);
    }

    fn arrive(&mut self, at: u32, done: u64, long: bool) {
        let jitter = self.faults.jitter;
        let (to, rail) = (self.packet(at).to, self.packet(at).rail);
        let arrival = done + u64::from(self.makes[rail as usize].latency) + self.dice.below(jitter + 1);
        let late = long && self.dice.chance(self.faults.late_body);
        let wait = if late { self.dice.length(30_000) } else { 0 };
        self.counts.late_bodies += u64::from(late);
        let packet = self.packet(at);
        packet.body_at = arrival + wait;
        let id = packet.id;
        self.end(to, rail).inbox.push(Reverse((arrival, id, at)));
    }

    /// Reads a body that was left in place, and reports that to its sender a while later.
    pub fn materialize(&mut self, at: u32) {
        let packet = self.packet(at);
        let (from, to, rail) = (packet.from, packet.to, packet.rail);
        let Some((body, cookie)) = packet.in_place.take() else { return };
        let header = packet.bytes.len();
        packet.bytes.resize(header + body.len() as usize, 0);
        // SAFETY: the sender keeps the body readable until it is told otherwise, which is below; the packet's own
        // memory does not overlap it.
        unsafe { body.pack(packet.bytes[header..].as_mut_ptr(), body.len() as usize) };
        let when = self.now + self.dice.length(20_000);
        let (id, age) = (self.id(), self.end(from, rail).ages[to as usize]);
        self.end(from, rail).events.push(Reverse((when, id, Later::Sent { node: to, age, cookie: cookie.0 })));
    }

    /// Forgets a packet and frees its room.
    pub fn discard(&mut self, at: u32) {
        self.materialize(at);
        let Some(packet) = self.packets[at as usize].take() else { return };
        if packet.held {
            self.end(packet.to, packet.rail).held -= 1;
        }
        if !packet.copy {
            self.link(packet.from, packet.to, packet.rail).used[packet.lane as usize] -= 1;
        }
        self.free.push(at);
    }

    /// Forgets all packets from one end to another.
    pub fn purge(&mut self, from: u32, to: u32, rail: u32) {
        for at in 0..self.packets.len() {
            if self.packets[at].as_ref().is_some_and(|packet| (packet.from, packet.to, packet.rail) == (from, to, rail))
            {
                self.discard(at as u32);
            }
        }
        for node in [from, to] {
            let at = node as usize * self.makes.len() + rail as usize;
            let (end, packets) = (&mut self.ends[at], &self.packets);
            let exists = |at: &u32| packets[*at as usize].is_some();
            end.inbox.retain(|Reverse((_, _, at))| exists(at));
            end.waiting.retain(|(_, _, at)| exists(at));
            end.outbox.retain(exists);
            end.events.retain(|Reverse((_, _, later))| match later {
                Later::Delivered(at) => exists(at),
                Later::Sent { .. } | Later::Lost { .. } => true,
            });
        }
    }

    /// Reads all bodies that are left in place on the way from one end to another.
    pub fn settle_in_place(&mut self, from: u32, to: u32, rail: u32) {
        for at in 0..self.packets.len() {
            if self.packets[at].as_ref().is_some_and(|packet| (packet.from, packet.to, packet.rail) == (from, to, rail))
            {
                self.materialize(at as u32);
            }
        }
    }

    /// Cuts a pair of ends for good; both are told a while later.
    pub fn cut(&mut self, one: u32, other: u32, rail: u32) {
        self.counts.cut += 1;
        for (from, to) in [(one, other), (other, one)] {
            self.link(from, to, rail).cut = true;
            self.purge(from, to, rail);
            let when = self.now + self.dice.length(50_000);
            let (id, age) = (self.id(), self.end(from, rail).ages[to as usize]);
            self.end(from, rail).events.push(Reverse((when, id, Later::Lost { node: to, age })));
        }
    }
}
