//! The network that simulated rails share: frames under way, in virtual time.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::rc::Rc;

use towline_core::convertor::Span;
use towline_core::rail::{Cookie, Lane, Peer};
use towline_core::wire;

use super::devices::Devices;
use super::faults::{Counts, FOR_EVER, Faults, Make, Outage, Planted, Window};
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
    /// How often each node came to life; `Err` while it is dead.
    lives: Vec<Result<u32, u32>>,
    /// Requests that each node has prepared and not undone.
    pub prepared: Vec<u64>,
    /// Datagrams for nodes that are dead: they may be there when those come back.
    ghosts: Vec<Packet>,
    /// A frame that is to take the place of the next.
    swapped: Option<Packet>,
    /// Those of the outages that have not begun.
    ahead: Vec<Outage>,
    /// All that was ever lent.
    pub loans: Vec<Lent>,
    pub devices: Devices,
    /// Hosts that were lost with their node.
    hosts_lost: Vec<bool>,
    /// Who has given whom up.
    gone: HashSet<(u32, u32)>,
    /// By node and peer, the life of the peer that was added last.
    pub lives_known: HashMap<(u32, u32), u32>,
    /// When each node is to be called, if it sleeps: for its engine, or since something is there.
    wakes_at: Vec<u64>,
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
    /// So when the connection is another.
    pub session: u32,
    pub body: Span,
    pub recalled: bool,
}

/// One rail of one node.
#[derive(Default)]
pub(super) struct End {
    pub inbox: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// What came from nodes that are not known here yet.
    pub waiting: Vec<(u64, u64, u32)>,
    pub outbox: VecDeque<u32>,
    pub events: BinaryHeap<Reverse<(u64, u64, Later)>>,
    /// The peers that are known here, by node.
    pub names: Vec<Option<Named>>,
    /// Times that each peer was added here; what happened to an earlier one is not reported.
    pub ages: Vec<u32>,
    /// What is known of each peer's host.
    pub hosts: Vec<Host>,
    pub held: u32,
}

/// What an end knows of a peer's host.
#[derive(Clone, Copy, Default)]
pub(super) struct Host {
    /// A question that is under way: when it was asked, when its answer is here, and whether one comes.
    pub question: Option<(u64, u64, bool)>,
    /// When the latest was asked that was answered.
    pub there: Option<u64>,
}

/// A peer that is known at an end.
#[derive(Clone, Copy)]
pub(super) struct Named {
    /// What it is called there.
    pub peer: Peer,
    /// The connection to it; `None` where it could not be made.
    pub session: Option<u32>,
    /// Its life.
    pub life: u32,
}

/// One direction between two ends.
#[derive(Clone, Default)]
pub(super) struct Link {
    /// Frames under way or unreleased, by lane.
    pub used: [u32; 3],
    pub busy_until: u64,
    pub refuses_until: u64,
    pub latest: u64,
    /// Number of the connection, the same in both directions. What belongs to an older one is void.
    pub session: u32,
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
    /// Somebody says so.
    Rumour { node: u32, age: u32 },
    /// A device is through with that.
    Performed(u64),
}

/// A frame.
#[derive(Clone)]
pub(super) struct Packet {
    pub id: u64,
    pub from: u32,
    pub to: u32,
    pub rail: u32,
    /// The sender's connection.
    pub session: Option<u32>,
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
        let end = || State::new_end(nodes as usize, vec![0; nodes as usize]);
        Self(Rc::new(RefCell::new(State {
            now: 0,
            dice,
            lives: vec![Ok(0); nodes as usize],
            prepared: vec![0; nodes as usize],
            ghosts: vec![],
            swapped: None,
            ahead: faults.outages.clone(),
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
            devices: Devices::default(),
            hosts_lost: vec![false; nodes as usize],
            gone: HashSet::new(),
            lives_known: HashMap::new(),
            wakes_at: vec![0; nodes as usize],
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

    /// When a node that sleeps is to be called.
    pub fn wakes_at(&self, node: u32) -> u64 {
        self.0.borrow().wakes_at[node as usize]
    }

    /// A node sleeps until then, if nothing comes earlier.
    pub fn set_wakes_at(&self, node: u32, at: u64) {
        self.0.borrow_mut().wakes_at[node as usize] = at;
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

    /// Ends all faults, but for rails that are dead for ever, to see that what is left comes to an end.
    pub fn calm(&self) {
        let mut state = self.0.borrow_mut();
        let for_ever = |outage: &Outage| outage.window.1 == FOR_EVER;
        let now = state.now;
        let outages = state.faults.outages.iter().copied().filter(|outage| for_ever(outage) && outage.window.0 <= now);
        let outages = outages.collect();
        let Faults { hosts, planted, .. } = state.faults;
        let missing = std::mem::take(&mut state.faults.missing);
        let planted = planted.filter(|bug| !bug.is_of_rails());
        state.faults = Faults { outages, hosts, missing, planted, ..Faults::default() };
        state.ahead.clear();
    }

    /// When faults that go by the clock begin and end, the next one last.
    pub fn boundaries(&self) -> Vec<u64> {
        let state = self.0.borrow();
        let faults = &state.faults;
        let windows = faults.partitions.iter().map(|partition| partition.window);
        let windows = windows.chain(faults.stalls.iter().map(|stall| stall.2));
        let windows = windows.chain(faults.outages.iter().map(|outage| outage.window));
        let windows = windows.chain(faults.half.iter().map(|half| half.1));
        let windows = windows.chain(faults.rests.iter().map(|rest| rest.1));
        let mut all: Vec<u64> = windows.flat_map(|window| [window.0, window.1]).collect();
        all.sort_by(|one, other| other.cmp(one));
        all
    }

    /// A node dies, perhaps with its host. To be called before its memory goes; its rails must not be used any more.
    pub fn kill(&self, node: u32, with_host: bool) {
        let mut state = self.0.borrow_mut();
        state.hosts_lost[node as usize] = with_host;
        state.gone.retain(|(one, other)| *one != node && *other != node);
        state.counts.hosts_lost += u64::from(with_host && state.faults.hosts);
        state.kill(node);
    }

    /// Whether hosts answer.
    pub fn hosts_answer(&self) -> bool {
        self.0.borrow().faults.hosts
    }

    /// Until when a node stands still.
    pub fn rests_until(&self, node: u32) -> Option<u64> {
        let state = self.0.borrow();
        let now = |window: &Window| (window.0..window.1).contains(&state.now);
        state.faults.rests.iter().filter(|rest| rest.0 == node && now(&rest.1)).map(|rest| rest.1.1).max()
    }

    /// Whether a node has stood still since that time.
    pub fn rested_since(&self, node: u32, since: u64) -> bool {
        let state = self.0.borrow();
        let then = |window: &Window| window.1 > since && window.0 <= state.now;
        state.faults.rests.iter().any(|rest| rest.0 == node && then(&rest.1))
    }

    /// Says whether a node has given another one up. Its rails refuse then what still comes from there, where hosts answer: a
    /// link that missed the last word would be excused for ever.
    pub fn set_gone(&self, node: u32, peer: u32, gone: bool) {
        let mut state = self.0.borrow_mut();
        if gone {
            state.gone.insert((node, peer))
        } else {
            state.gone.remove(&(node, peer))
        };
    }

    /// Whether no rail leads from one node to another.
    pub fn are_unlinked(&self, one: u32, other: u32) -> bool {
        let state = self.0.borrow();
        (0..state.makes.len() as u32).all(|rail| state.is_missing(one, other, rail))
    }

    /// Counts what happens to nodes.
    pub fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.0.borrow_mut().counts);
    }

    /// A node comes back, with these rails.
    pub fn revive(&self, node: u32) -> Vec<SimRail> {
        self.0.borrow_mut().revive(node);
        self.rails(node)
    }

    /// Memory that living nodes have registered and not taken back.
    pub fn registered(&self) -> u64 {
        self.0.borrow().devices.registered()
    }

    /// Requests that living nodes have prepared and not undone.
    pub fn prepared(&self) -> u64 {
        self.0.borrow().prepared.iter().sum()
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
        Some(wire::Kind::Ack) => header!(Ack sender receiver wanted by_frames),
        Some(wire::Kind::Fragment) => header!(Fragment receiver offset),
        Some(wire::Kind::Finish) => header!(Finish sender),
        Some(wire::Kind::Reject) => header!(Reject sender reason),
        Some(wire::Kind::Credit) => header!(Credit),
        Some(wire::Kind::Held) => header!(Held notice),
        Some(wire::Kind::Ask) => header!(Ask context tag),
        Some(wire::Kind::Nothing) => header!(Nothing notice),
        Some(wire::Kind::Offer) => header!(Offer request offset len),
        Some(wire::Kind::Performed) => header!(Performed request offset len),
        None => String::new(),
    }
}

impl State {
    pub fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
        if self.ahead.is_empty() {
            return;
        }
        let now = self.now;
        let due: Vec<_> = self.ahead.extract_if(.., |outage| outage.window.0 <= now).collect();
        for Outage { node, rail, .. } in due {
            let rails = rail.map_or(0..self.makes.len() as u32, |rail| rail..rail + 1);
            for rail in rails {
                self.counts.outages += 1;
                let datagrams = self.makes[rail as usize].datagrams;
                for other in (0..self.nodes).filter(|other| *other != node && !datagrams) {
                    self.cut(node, other, rail);
                }
            }
        }
    }

    /// The life of a node that lives.
    pub fn life(&self, node: u32) -> Option<u32> {
        self.lives[node as usize].ok()
    }

    fn kill(&mut self, node: u32) {
        let Ok(life) = self.lives[node as usize] else { return };
        self.counts.killed += 1;
        self.lives[node as usize] = Err(life);
        self.prepared[node as usize] = 0;
        self.devices.kill(node);
        for rail in 0..self.makes.len() as u32 {
            let datagrams = self.makes[rail as usize].datagrams;
            for other in 0..self.nodes {
                if !datagrams {
                    self.cut(node, other, rail);
                    continue;
                }
                let mut left: Vec<u32> = self.end(node, rail).outbox.iter().copied().collect();
                let staged = self.end(other, rail).outbox.clone(); // not on its way yet
                left.extend(self.between(other, node, rail).iter().filter(|at| !staged.contains(at)));
                for at in left {
                    if self.packets[at as usize].is_none() {
                        continue;
                    }
                    let packet = self.packet(at);
                    if packet.to == node && packet.sink.is_none() && !packet.held && self.dice.chance(300) {
                        self.materialize(at);
                        let ghost = Packet { copy: true, ..self.packet(at).clone() };
                        self.ghosts.push(ghost);
                    }
                    self.discard(at);
                }
                self.settle_in_place(node, other, rail);
            }
            let nodes = self.nodes as usize;
            let end = self.end(node, rail);
            let ages = end.ages.iter().map(|age| age + 1).collect();
            *end = Self::new_end(nodes, ages);
        }
    }

    fn revive(&mut self, node: u32) {
        let Err(life) = self.lives[node as usize] else { return };
        self.counts.revived += 1;
        self.hosts_lost[node as usize] = false;
        self.lives[node as usize] = Ok(life + 1);
        let (ghosts, rest) = std::mem::take(&mut self.ghosts).into_iter().partition(|ghost| ghost.to == node);
        self.ghosts = rest;
        let ghosts: Vec<Packet> = ghosts;
        for ghost in ghosts {
            self.counts.ghosts += 1;
            let at = self.keep(ghost);
            let done = self.now + self.dice.length(1 << 20);
            self.arrive(at, done, false);
        }
    }

    fn new_end(nodes: usize, ages: Vec<u32>) -> End {
        End { names: vec![None; nodes], ages, hosts: vec![Host::default(); nodes], ..End::default() }
    }

    fn at(&self, node: u32, rail: u32) -> usize {
        node as usize * self.makes.len() + rail as usize
    }

    pub fn end(&mut self, node: u32, rail: u32) -> &mut End {
        let at = self.at(node, rail);
        &mut self.ends[at]
    }

    /// Whether that rail leads from one node to another.
    pub fn is_missing(&self, one: u32, other: u32, rail: u32) -> bool {
        self.faults.missing.iter().any(|missing| missing.holds(one, other, rail))
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
        if self.faults.planted.is_some() && self.plant(at) {
            return true;
        }
        if self.is_stalled(from, rail) || self.dice.chance(self.faults.staged) {
            self.counts.staged += 1;
            self.end(from, rail).outbox.push_back(at);
            return false;
        }
        self.launch(at);
        true
    }

    /// Does what a reliable rail must not. Whether the frame is dealt with.
    fn plant(&mut self, at: u32) -> bool {
        let (from, to) = (self.packet(at).from, self.packet(at).to);
        let first = wire::kind(&self.packet(at).bytes) == Some(wire::Kind::Match);
        if let Some(mut before) = self.swapped.take_if(|before| (before.from, before.to) == (from, to)) {
            if first {
                let place = std::mem::offset_of!(wire::Match, sequence);
                let (one, other) = (&mut before.bytes[place..place + 4], &mut self.packet(at).bytes[place..place + 4]);
                one.swap_with_slice(other);
            }
            let before = self.keep(before);
            self.launch(before);
            return false;
        }
        if !self.dice.chance(if self.faults.planted == Some(Planted::Swapped) { 300 } else { 20 }) {
            return false;
        }
        match self.faults.planted {
            Some(Planted::Swallowed) => {
                self.discard(at);
                return true;
            }
            Some(Planted::Doubled) => {
                self.materialize(at);
                let copy = Packet { copy: true, ..self.packet(at).clone() };
                let copy = self.keep(copy);
                self.launch(copy);
            }
            Some(Planted::Changed) => {
                self.materialize(at);
                let header = usize::from(self.packet(at).header);
                if let Some(byte) = self.packet(at).bytes.get_mut(header) {
                    *byte ^= 1;
                }
            }
            Some(Planted::Swapped) if first && self.swapped.is_none() => {
                self.swapped = self.packets[at as usize].take();
                self.free.push(at);
                return true;
            }
            _ => {}
        }
        false
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
        let make = self.makes[rail as usize];
        let session = self.link(from, to, rail).session;
        if !make.datagrams && self.packet(at).session != Some(session) {
            return self.discard(at);
        }
        let known = self.end(from, rail).names[to as usize].map(|named| named.life);
        if make.datagrams && from != to && self.faults.hosts {
            self.hear_of(from, to, rail, known);
        }
        if self.life(to).is_none()
            || (make.datagrams && from != to && [from, to].into_iter().any(|node| self.is_out(node, rail)))
        {
            self.counts.unheard += 1;
            return self.discard(at);
        }
        let mut start = self.link(from, to, rail).busy_until.max(self.now);
        while let Some((both, (_, until))) = self.partition(from, to, rail, start) {
            self.counts.partitioned += 1;
            self.counts.one_way += u64::from(!both);
            if make.datagrams {
                return self.discard(at);
            }
            start = until;
        }
        let half = self.faults.half.filter(|(_, window)| (window.0..window.1).contains(&self.now));
        let clean = half.is_some_and(|half| half.0 != rail);
        let lossy = |chance: u32| if make.datagrams && !clean { chance } else { 0 };
        if half.is_some_and(|half| half.0 == rail) && self.dice.chance(lossy(500)) {
            self.counts.halved += 1;
            if self.faults.planted == Some(Planted::Slandered) {
                (0..self.makes.len() as u32).for_each(|rail| self.tell_lost(from, to, rail));
            }
            return self.discard(at);
        }
        if self.dice.chance(lossy(self.faults.drop)) {
            self.counts.dropped += 1;
            return self.discard(at);
        }
        let done = start + len * 1000 / u64::from(make.bandwidth);
        self.link(from, to, rail).busy_until = done;
        if self.dice.chance(lossy(self.faults.duplicate)) {
            self.counts.duplicated += 1;
            self.materialize(at);
            let copy = Packet { copy: true, ..self.packet(at).clone() };
            let copy = self.keep(copy);
            let late = if self.dice.chance(200) { self.dice.length(1 << 27) } else { 0 };
            self.arrive(copy, done + late, long);
        }
        if len > 0 && self.dice.chance(lossy(self.faults.corrupt)) {
            self.corrupt(at);
        }
        self.arrive(at, done, long);
    }

    /// What a host says to a datagram for a process of it.
    fn hear_of(&mut self, from: u32, to: u32, rail: u32, known: Option<u32>) {
        let mine = self.lives_known.get(&(to, from)).copied();
        let given_up = self.gone.contains(&(to, from)) && mine == self.life(from);
        let gone = known.is_some() && (self.life(to) != known || given_up);
        let rumour = !gone && self.dice.chance(self.faults.rumours);
        if !(gone || rumour) || !self.is_host_there(from, to, rail) {
            return;
        }
        if gone {
            self.counts.refused += 1;
            return self.tell_lost(from, to, rail);
        }
        self.counts.rumours += 1;
        let (age, when) = (self.end(from, rail).ages[to as usize], self.now + self.dice.length(50_000));
        self.report_at(when, from, rail, Later::Rumour { node: to, age });
    }

    /// Whether what a host says of itself, or of a process of its own, arrives now.
    pub fn is_host_there(&mut self, from: u32, to: u32, rail: u32) -> bool {
        let lost = self.hosts_lost[to as usize];
        let now = self.now;
        let out = |node| self.is_out(node, rail) || self.is_stalled(node, rail);
        let apart = |from, to| self.partition(from, to, rail, now).is_some();
        let there = !lost && !out(from) && !out(to) && !apart(from, to) && !apart(to, from);
        there && !self.dice.chance(self.faults.drop) && !self.dice.chance(self.faults.drop)
    }

    /// Asks a node's host for a sign of life; when the latest question was asked that it has answered.
    pub fn ask_host(&mut self, from: u32, of: u32, rail: u32) -> Option<u64> {
        if !self.faults.hosts || self.faults.planted == Some(Planted::Deaf) {
            return None;
        }
        let (now, latency) = (self.now, u64::from(self.makes[rail as usize].latency));
        let mut host = self.end(from, rail).hosts[of as usize];
        if let Some((asked, _, answers)) = host.question.filter(|(_, at, _)| *at <= now) {
            host.question = None;
            host.there = if answers { Some(asked.max(host.there.unwrap_or(0))) } else { host.there };
        }
        if host.question.is_none() {
            let undead = self.hosts_lost[of as usize] && self.faults.planted == Some(Planted::Undead);
            let answers = undead || self.is_host_there(from, of, rail);
            *(if answers { &mut self.counts.hosts_asked } else { &mut self.counts.hosts_unheard }) += 1;
            host.question = Some((now, now + latency * 2, answers));
        }
        self.end(from, rail).hosts[of as usize] = host;
        host.there
    }

    /// Changes a frame on its way.
    fn corrupt(&mut self, at: u32) {
        self.counts.corrupted += 1;
        self.materialize(at);
        let len = self.packet(at).len() as u64;
        let (kind, bit, keep) = (self.dice.below(10), self.dice.below(len * 8), self.dice.below(len) as usize);
        let packet = self.packet(at);
        match kind {
            0 => packet.tag ^= 1 << (bit % 8),
            1 => {
                packet.bytes.truncate(keep);
                packet.header = packet.header.min(keep as u8);
            }
            _ => packet.bytes[bit as usize / 8] ^= 1 << (bit % 8),
        }
    }

    /// Whether a rail of a node is dead now.
    pub fn is_out(&self, node: u32, rail: u32) -> bool {
        let now = self.now;
        self.faults.outages.iter().any(|outage| {
            outage.node == node
                && outage.rail.is_none_or(|one| one == rail)
                && (outage.window.0..outage.window.1).contains(&now)
        })
    }

    /// Whether a rail of a node is stalled now.
    pub fn is_stalled(&self, node: u32, rail: u32) -> bool {
        let now = self.now;
        self.faults
            .stalls
            .iter()
            .any(|&(one, other, (since, until))| (one, other) == (node, rail) && (since..until).contains(&now))
    }

    /// What keeps frames at that time from their way, and until when; whether it holds both ways.
    pub fn partition(&self, from: u32, to: u32, rail: u32, at: u64) -> Option<(bool, Window)> {
        let found = self.faults.partitions.iter().filter(|_| from != to).find(|partition| {
            let way = (partition.from, partition.to);
            (way == (from, to) || (partition.both && way == (to, from)))
                && partition.rail.is_none_or(|one| one == rail)
                && (partition.window.0..partition.window.1).contains(&at)
        });
        found.map(|partition| (partition.both, partition.window))
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
        self.wake_at(arrival, to);
    }

    /// An end will report that.
    pub fn report_at(&mut self, when: u64, node: u32, rail: u32, what: Later) {
        let id = self.id();
        self.end(node, rail).events.push(Reverse((when, id, what)));
        self.wake_at(when, node);
    }

    fn wake_at(&mut self, when: u64, node: u32) {
        let wakes_at = &mut self.wakes_at[node as usize];
        *wakes_at = when.min(*wakes_at);
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
        let age = self.end(from, rail).ages[to as usize];
        self.report_at(when, from, rail, Later::Sent { node: to, age, cookie: cookie.0 });
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

    /// The packets from one end to another.
    fn between(&self, from: u32, to: u32, rail: u32) -> Vec<u32> {
        let such = |packet: &Packet| (packet.from, packet.to, packet.rail) == (from, to, rail);
        let numbered = self.packets.iter().zip(0u32..);
        numbered.filter(|(packet, _)| packet.as_ref().is_some_and(such)).map(|(_, at)| at).collect()
    }

    /// Forgets all packets from one end to another, of connections up to this one.
    pub fn purge(&mut self, from: u32, to: u32, rail: u32, session: u32) {
        for at in self.between(from, to, rail) {
            if self.packet(at).session <= Some(session) {
                self.discard(at);
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
                Later::Sent { .. } | Later::Lost { .. } | Later::Rumour { .. } | Later::Performed(_) => true,
            });
        }
    }

    /// Reads all bodies that are left in place on the way from one end to another.
    pub fn settle_in_place(&mut self, from: u32, to: u32, rail: u32) {
        for at in self.between(from, to, rail) {
            self.materialize(at);
        }
    }

    /// Breaks the connection of a pair of ends; both are told a while later.
    pub fn cut(&mut self, one: u32, other: u32, rail: u32) {
        self.counts.cut += 1;
        for (from, to) in [(one, other), (other, one)] {
            self.purge(from, to, rail, u32::MAX);
            self.tell_lost(from, to, rail);
        }
        self.renew(one, other, rail);
    }

    /// What belongs to the connection of a pair of ends is void from now on, but for what is under way.
    fn renew(&mut self, one: u32, other: u32, rail: u32) {
        let session = self.link(one, other, rail).session + 1;
        self.link(one, other, rail).session = session;
        self.link(other, one, rail).session = session;
    }

    /// One end will report the other as lost.
    pub fn tell_lost(&mut self, at: u32, of: u32, rail: u32) {
        let when = self.now + self.dice.length(50_000);
        self.tell_lost_at(when, at, of, rail);
    }

    fn tell_lost_at(&mut self, when: u64, at: u32, of: u32, rail: u32) {
        let age = self.end(at, rail).ages[of as usize];
        if self.end(at, rail).names[of as usize].is_some() {
            if self.trace {
                println!("{:>9} node {at}: rail {rail} will lose {of} at {when}", self.now);
            }
            self.report_at(when, at, rail, Later::Lost { node: of, age });
        }
    }

    /// One end closes its connection: the other hears of that after all that is under way.
    pub fn close(&mut self, from: u32, to: u32, rail: u32) {
        if from == to || self.makes[rail as usize].datagrams {
            return;
        }
        let now = self.now;
        let arrivals = self.end(to, rail).inbox.iter().filter(|next| next.0.0 > now).map(|next| next.0.0);
        let last = arrivals.max().unwrap_or(now).max(now);
        self.tell_lost_at(last + 1, to, from, rail);
        self.renew(from, to, rail);
    }
}
