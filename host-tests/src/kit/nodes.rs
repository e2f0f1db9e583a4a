//! Matching transports under test: several nodes in one thread, over rails of any kind, each wrapped in a recorder.

use std::cell::RefCell;
use std::ptr::NonNull;
use std::rc::Rc;

use towline_core::arena::Arena;
use towline_core::convertor::Span;
use towline_core::mtl::{Comm, Failure, Group, Mode, Mtl, Request, Sending, Source, Status, Tag};
use towline_core::pml::{Config, Rails, rdma};
use towline_core::rail::{Attributes, FullRail, Peer, Rail, Unreachable};
use towline_core::time::Instant;

use towline_core::pml::offload::Offload;
use towline_dpu::Matching;

use super::mesh::Setup;
use super::recorder::{Log, Recorder};
use super::wait_limit::WaitLimit;

/// Number of communicators for which each node has room.
const COMMS: u32 = 4;

/// The rails of one node, and the device that matches its messages, if there is one.
pub struct Links<R>(pub Vec<Recorder<R>>, pub Option<Matching>);

impl<R: FullRail> Rails for Links<R> {
    type Rail = Recorder<R>;

    fn count(&self) -> usize {
        self.0.len()
    }

    fn rail(&self, index: usize) -> Option<&Recorder<R>> {
        self.0.get(index)
    }

    fn rail_mut(&mut self, index: usize) -> Option<&mut Recorder<R>> {
        self.0.get_mut(index)
    }

    fn offload(&mut self) -> Option<&mut dyn Offload> {
        match &mut self.1 {
            Some(device) => Some(device),
            None => None,
        }
    }
}

/// A transport under test.
pub type Engine<R> = Mtl<'static, Links<R>>;

/// Limits that most checks run with.
pub const CONFIG: Config = Config {
    peers: 4,
    requests: 64,
    unexpected: 64,
    units: 64,
    unit_bytes: 512,
    probes: 1,
    seed: 7,
    first_sequence: u32::MAX as u64 - 1,
    rma: towline_core::rma::Config::OFF,
    rdma: rdma::Config { messages: 4, ..rdma::Config::OFF },
};

/// The nodes. All of them know each other, and themselves if the rails support that. They share the communicator
/// `world`.
pub struct World<S: Setup> {
    /// The transports.
    pub nodes: Vec<Engine<S::Rail>>,
    /// Context 1, in which rank and node are the same.
    pub world: Vec<Comm>,
    /// The records of the rails, by node and then by link.
    pub logs: Vec<Vec<Rc<RefCell<Log>>>>,
    /// Whether nodes can send to themselves.
    pub own: bool,
    /// Dropped after the nodes, which use what it has.
    setup: S,
}

impl<S: Setup> World<S> {
    /// Makes `count` nodes, with as many rails each as the setup says.
    pub fn new(setup: S, count: usize, config: Config) -> Self {
        let links = setup.links();
        Self::with_links(setup, count, links, config, |_, _| {})
    }

    /// Makes `count` nodes with `links` rails each. `change(link, attributes)` may change the attributes of the rails.
    pub fn with_links(
        setup: S,
        count: usize,
        links: usize,
        config: Config,
        change: impl Fn(usize, &mut Attributes),
    ) -> Self {
        let mut world = Self::unconnected(setup, count, links, config, change);
        for node in 0..count {
            for other in 0..count {
                let added = world.introduce(node, other);
                if node == other {
                    // Many rails cannot send to their own node.
                    world.own &= added.is_ok();
                } else {
                    added.expect("rails of one setup reach each other");
                }
            }
        }
        world
    }

    /// Makes nodes that do not know each other.
    pub fn unconnected(
        mut setup: S,
        count: usize,
        links: usize,
        config: Config,
        change: impl Fn(usize, &mut Attributes),
    ) -> Self {
        let mut sets: Vec<Vec<Recorder<S::Rail>>> = (0..count).map(|_| vec![]).collect();
        for link in 0..links {
            for (set, rail) in sets.iter_mut().zip(setup.rails(count)) {
                set.push(Recorder::new(rail, |attributes| change(link, attributes)));
            }
        }
        let logs = sets.iter().map(|set| set.iter().map(Recorder::log).collect()).collect();
        let mut devices = setup.devices(count);
        introduce_devices(&mut devices);
        let mut devices = devices.into_iter();
        let nodes: Vec<_> = sets.into_iter().map(|set| engine(set, devices.next(), config)).collect();
        let mut world = Self { setup, nodes, world: vec![], logs, own: true };
        for node in 0..count {
            let comm = world.nodes[node].add_comm(1, Group::World { size: count as u32 }, node as u32);
            world.world.push(comm.expect("room for a communicator"));
        }
        world
    }

    /// Introduces `other` to `node`.
    ///
    /// # Errors
    /// The error of the transport.
    pub fn introduce(&mut self, node: usize, other: usize) -> Result<(), Unreachable> {
        let cards = self.cards(other);
        let params = self.nodes[other].params();
        let peer = Peer(other as u32);
        self.nodes[node].add_peer(peer, &params, |link, rail| rail.add_peer(peer, &cards[link]))?;
        if let Some(other) = &mut self.nodes[other].pml().rails_mut().1 {
            let card = other.card().expect("the device has a card");
            let device = self.nodes[node].pml().rails_mut().1.as_mut().expect("each node has a device");
            if !device.has_peer(peer.0) {
                device.add_peer(peer.0, &card).expect("devices reach each other");
            }
        }
        Ok(())
    }

    /// The cards of a node's rails.
    pub fn cards(&mut self, node: usize) -> Vec<Vec<u8>> {
        self.nodes[node].pml().rails().0.iter().map(|rail| rail.card().to_vec()).collect()
    }

    /// The current time.
    pub fn now(&mut self) -> Instant {
        self.setup.now()
    }

    /// The setup and the first two nodes, to drive one node while the other is in a blocking call.
    pub fn pair(&mut self) -> (&mut S, &mut Engine<S::Rail>, &mut Engine<S::Rail>) {
        let (first, second) = self.nodes.split_at_mut(1);
        (&mut self.setup, &mut first[0], &mut second[0])
    }

    /// Makes progress at every node once. Returns the number of events.
    pub fn round(&mut self) -> u32 {
        let now = self.setup.now();
        self.nodes.iter_mut().map(|node| node.progress(now)).sum()
    }

    /// Makes progress until `done`.
    ///
    /// # Panics
    /// If this does not happen in time.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let mut wait_limit = WaitLimit::default();
        while !done(self) {
            let came = self.round() > 0;
            if wait_limit.expired(came) {
                let counters: Vec<_> = self.nodes.iter().map(|node| *node.counters()).collect();
                panic!("this did not happen in time: {what}; {counters:#?}");
            }
        }
    }

    /// Makes progress until nothing happens any more.
    pub fn run_until_idle(&mut self) {
        let mut idle = 0;
        self.until("the nodes become idle", |world| {
            idle = if world.round() > 0 { 0 } else { idle + 1 };
            idle > 2000
        });
    }

    /// Waits for a request, with progress at every node.
    ///
    /// # Errors
    /// The failure of the request.
    pub fn finish(&mut self, node: usize, request: Request) -> Result<Status, Failure> {
        let mut outcome = None;
        self.until("a request is over", |world| {
            outcome = world.nodes[node].test(request);
            outcome.is_some()
        });
        outcome.expect("it is over")
    }

    /// Waits for a send.
    ///
    /// # Errors
    /// The failure of the send.
    pub fn finish_send(&mut self, node: usize, sending: Sending) -> Result<(), Failure> {
        match sending {
            Sending::Complete => Ok(()),
            Sending::Pending(request) => self.finish(node, request).map(drop),
        }
    }

    /// Begins a send in `world`. The bytes must stay unchanged until it completes, which every check ensures.
    pub fn isend(&mut self, node: usize, to: usize, tag: u32, mode: Mode, bytes: &[u8]) -> Sending {
        self.isend_span(node, to, tag, mode, Span::of(bytes))
    }

    /// Begins a send from a span.
    pub fn isend_span(&mut self, node: usize, to: usize, tag: u32, mode: Mode, data: Span) -> Sending {
        let comm = self.world[node];
        // SAFETY: every check ensures what the documentation says.
        let sent = unsafe { self.nodes[node].isend(comm, to as u32, tag, mode, data) };
        sent.expect("a send within the limits is accepted")
    }

    /// Posts a receive in `world`. The buffer must stay valid until it completes, which every check ensures.
    pub fn irecv(&mut self, node: usize, source: Source, tag: Tag, room: &mut [u8]) -> Request {
        self.irecv_span(node, source, tag, Span::contiguous(room.as_mut_ptr(), room.len()))
    }

    /// Returns when the receives of a node are posted, also where a device posts them: it executes calls in their order.
    pub fn confirm_posted(&mut self, node: usize) {
        let _ = self.nodes[node].iprobe(self.world[node], Source::Any, Tag::Is(0x8000_0009));
    }

    /// Posts a receive into a span.
    pub fn irecv_span(&mut self, node: usize, source: Source, tag: Tag, sink: Span) -> Request {
        let comm = self.world[node];
        // SAFETY: every check ensures what the documentation says.
        let posted = unsafe { self.nodes[node].irecv(comm, source, tag, sink) };
        posted.expect("a receive within the limits is accepted")
    }

    /// Sends one message, receives it, and compares the bytes.
    pub fn exchange(&mut self, from: usize, to: usize, tag: u32, bytes: &[u8]) {
        let mut room = vec![0; bytes.len()];
        let receive = self.irecv(to, Source::Rank(from as u32), Tag::Is(tag), &mut room);
        let sending = self.isend(from, to, tag, Mode::Standard, bytes);
        let status = self.finish(to, receive).expect("it is received");
        self.finish_send(from, sending).expect("it is sent");
        assert_eq!((status.received, status.delivered, status.tag), (bytes.len() as u64, bytes.len() as u64, tag));
        assert!(room == bytes, "{} bytes with tag {tag} were changed", bytes.len());
    }

    /// Checks that all pools of all nodes are unused, and that no node has counted something that honest peers do not
    /// cause.
    pub fn assert_all_released(&mut self) {
        self.run_until_idle();
        for (node, engine) in self.nodes.iter_mut().enumerate() {
            assert_eq!(engine.pml().used(), [0, 0, 0], "requests, envelopes, units of node {node}");
            let counters = engine.counters();
            let odd =
                [counters.malformed, counters.stale, counters.credit_violations, counters.unknown_tags, counters.lost];
            assert_eq!(odd, [0; 5], "malformed, stale, credit_violations, unknown_tags, lost of node {node}");
        }
    }
}

/// Introduces all devices to each other and to themselves.
fn introduce_devices(devices: &mut [Matching]) {
    let cards: Vec<_> = devices.iter_mut().map(|device| device.card().expect("the device has a card")).collect();
    for device in devices {
        for (peer, card) in (0..).zip(&cards) {
            device.add_peer(peer, card).expect("devices reach each other");
        }
    }
}

fn engine<R: FullRail>(set: Vec<Recorder<R>>, device: Option<Matching>, config: Config) -> Engine<R> {
    let attributes: Vec<_> = set.iter().map(Rail::attributes).collect();
    let bytes = Engine::<R>::bytes(&config, COMMS, &attributes);
    let memory = vec![0u64; bytes.div_ceil(8) + 1].leak();
    let len = memory.len() * 8;
    // SAFETY: the memory is fresh zeros, and is leaked for this engine only.
    let mut arena = unsafe { Arena::from_zeroed(NonNull::from(memory).cast(), len) };
    Mtl::new(config, COMMS, &mut arena, Links(set, device)).expect("the arena has what the configuration takes")
}
