//! The contexts of a trace, whose operations are commands of hosts: devices match, send and receive.

use std::collections::HashMap;

use offload::Limits;
use replay::loopback::{COMMUNICATORS, CONFIG, CONTEXTS};
use replay::{Contexts, Place};
use towline_core::pml::Rails;
use towline_window::command::{Body, Command, Mode};
use towline_window::completion::{Completion, Done, Failure};
use towline_window::host::Host;
use towline_window::ring::Pushed;

use crate::node::{Dpu, Window, attach};

/// The limits of each device.
pub const LIMITS: Limits = Limits { engine: CONFIG, communicators: COMMUNICATORS, messages: 4 };
/// The number of a communicator that does not exist.
const NONE: u32 = 0xffff_fffe;
/// Cookies of commands that complete at once begin here. Those below are names of operations.
const CALLS: u64 = 1 << 32;
/// Where the messages begin in the buffers. Before them is room for cards and tables.
const MESSAGES: u64 = 4096;

struct Node<R: 'static> {
    host: Host<'static>,
    device: Dpu<R>,
    window: Window,
    communicators: HashMap<u32, u32>,
}

/// Hosts and their devices.
pub struct Offloaded<R: 'static> {
    nodes: Vec<Node<R>>,
    /// The outcomes of operations, by their names.
    outcomes: HashMap<u32, Result<Done, Failure>>,
    /// The context of each operation.
    places: HashMap<u32, u32>,
    /// The messages that were taken out: context, and number at the device.
    taken: HashMap<u32, (u32, u32)>,
    calls: u64,
    /// Advances the clock. Returns the time in nanoseconds.
    clock: Box<dyn FnMut() -> u64>,
}

impl<R: Rails> Offloaded<R> {
    /// Hosts of these devices, which know each other.
    pub fn new(devices: Vec<(Dpu<R>, Window)>, clock: Box<dyn FnMut() -> u64>) -> Self {
        let node = |(me, (mut device, window)): (u32, (Dpu<R>, Window))| {
            let host = attach(&window, &mut device, 100 + me, 0);
            Node { host, device, window, communicators: HashMap::new() }
        };
        let mut all = Self {
            nodes: (0..).zip(devices).map(node).collect(),
            outcomes: HashMap::new(),
            places: HashMap::new(),
            taken: HashMap::new(),
            calls: CALLS,
            clock,
        };
        let cards: Vec<Vec<u8>> = (0..CONTEXTS).map(|at| all.card(at)).collect();
        for at in 0..CONTEXTS {
            for (peer, card) in (0..).zip(&cards) {
                let card = all.put(at, card);
                all.call(at, &Command::AddPeer { peer, card }).expect("the peer is reached");
            }
        }
        all
    }

    /// Requires that no device has an operation or a message left.
    pub fn check_unused(&mut self) {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let left = node.device.server.in_use();
            assert_eq!((left.operations, left.messages, left.pools), (0, 0, [0; 3]), "device {at}");
        }
    }

    fn card(&mut self, at: u32) -> Vec<u8> {
        let into = Body { region: 0, at: Window::buffers(), bytes: 1024 };
        let length = self.call(at, &Command::Publish { into }).expect("there is room for a card").value;
        let mut card = vec![0; length as usize];
        self.nodes[at as usize].window.memory().read(into.at, &mut card).expect("it is in the window");
        card
    }

    /// Writes to the begin of the buffers.
    fn put(&mut self, at: u32, bytes: &[u8]) -> Body {
        let body = Body { region: 0, at: Window::buffers(), bytes: bytes.len() as u64 };
        self.nodes[at as usize].window.memory().write(body.at, bytes).expect("it is in the window");
        body
    }

    fn turn(&mut self, at: u32) {
        let now = (self.clock)();
        self.turn_at(at, now);
    }

    fn turn_at(&mut self, at: u32, now: u64) {
        let node = &mut self.nodes[at as usize];
        node.device.poll(now);
        while let Some(Completion { cookie, result, .. }) = node.host.take().expect("the device follows the protocol") {
            let name = u32::try_from(cookie).unwrap_or(u32::MAX);
            assert!(self.outcomes.insert(name, result).is_none(), "cookie {cookie} was completed twice");
        }
    }

    /// Writes a command.
    fn write_command(&mut self, at: u32, cookie: u64, command: &Command) {
        while self.nodes[at as usize].host.command(cookie, command) != Ok(Pushed::Done) {
            self.turn(at);
        }
    }

    /// Executes a command that completes at once. All commands before it have been executed, too.
    fn call(&mut self, at: u32, command: &Command) -> Result<Done, Failure> {
        self.calls += 1;
        self.write_command(at, self.calls, command);
        loop {
            if let Some(result) = self.outcomes.remove(&u32::MAX) {
                return result;
            }
            self.turn(at);
        }
    }

    /// Begins an operation. Returns when the device has taken the command.
    fn begin(&mut self, name: u32, at: u32, command: &Command) {
        self.places.insert(name, at);
        self.write_command(at, name.into(), command);
        let nothing = Command::Probe { comm: NONE, source: 0, tag: 0, take: false };
        assert_eq!(self.call(at, &nothing), Err(Failure::NoSuchThing));
    }

    fn communicator(&self, at: u32, context: u32) -> u32 {
        self.nodes[at as usize].communicators.get(&context).copied().unwrap_or(NONE)
    }
}

/// Where a place is in the window.
fn body(place: Place) -> Body {
    Body { region: 0, at: position(place.at), bytes: place.bytes as u64 }
}

fn position(begin: usize) -> u64 {
    Window::buffers() + MESSAGES + begin as u64
}

impl<R: Rails> Contexts for Offloaded<R> {
    const PATIENCE: u32 = 3_000_000;

    fn progress(&mut self) {
        let now = (self.clock)();
        (0..CONTEXTS).for_each(|at| self.turn_at(at, now));
    }

    fn poll(&mut self, at: u32) {
        self.turn(at);
    }

    fn join(&mut self, at: u32, context: u32, peers: &[u32]) -> Result<(), Failure> {
        let table: Vec<u8> = peers.iter().flat_map(|peer| peer.to_le_bytes()).collect();
        let rank = peers.iter().position(|peer| *peer == at).map_or(at, |rank| rank as u32);
        let size = if peers.is_empty() { CONTEXTS } else { peers.len() as u32 };
        let peers = if peers.is_empty() { Body::default() } else { self.put(at, &table) };
        let made = self.call(at, &Command::AddCommunicator { context, rank, size, peers })?;
        self.nodes[at as usize].communicators.insert(context, made.value);
        Ok(())
    }

    fn leave(&mut self, at: u32, context: u32) -> Result<(), Failure> {
        let comm = self.communicator(at, context);
        self.nodes[at as usize].communicators.remove(&context);
        self.call(at, &Command::DeleteCommunicator { comm }).map(|_| ())
    }

    fn send(&mut self, name: u32, at: u32, context: u32, dest: u32, tag: u32, mode: Mode, place: Place) {
        let comm = self.communicator(at, context);
        self.begin(name, at, &Command::Send { comm, dest, tag, mode, body: body(place) });
    }

    fn receive(&mut self, name: u32, at: u32, context: u32, source: u32, tag: u32, place: Place) {
        let comm = self.communicator(at, context);
        self.begin(name, at, &Command::Receive { comm, source, tag, body: body(place) });
    }

    fn probe(&mut self, at: u32, context: u32, source: u32, tag: u32) -> Result<Done, Failure> {
        let comm = self.communicator(at, context);
        self.call(at, &Command::Probe { comm, source, tag, take: false })
    }

    fn take(&mut self, name: u32, at: u32, context: u32, source: u32, tag: u32) -> Result<Done, Failure> {
        let comm = self.communicator(at, context);
        let done = self.call(at, &Command::Probe { comm, source, tag, take: true })?;
        self.taken.insert(name, (at, done.value));
        Ok(done)
    }

    fn receive_taken(&mut self, name: u32, taken: u32, place: Place) {
        match self.taken.remove(&taken) {
            Some((at, message)) => self.begin(name, at, &Command::ReceiveMatched { message, body: body(place) }),
            None => drop(self.outcomes.insert(name, Err(Failure::NoSuchThing))),
        }
    }

    fn cancel(&mut self, name: u32) -> bool {
        let Some(at) = self.places.get(&name).copied() else { return false };
        self.call(at, &Command::Cancel { cookie: name.into() }).is_ok()
    }

    fn outcome(&mut self, name: u32) -> Option<Result<Done, Failure>> {
        self.outcomes.remove(&name)
    }

    fn write(&mut self, at: u32, begin: usize, bytes: &[u8]) {
        self.nodes[at as usize].window.memory().write(position(begin), bytes).expect("it is in the window");
    }

    fn read(&mut self, at: u32, begin: usize, into: &mut [u8]) {
        self.nodes[at as usize].window.memory().read(position(begin), into).expect("it is in the window");
    }
}
