//! Devices with two links: fragments of long messages go by both, and by one when the other fails.

use offload::Limits;
use towline_core::pml::Config;
use towline_host_tests::random::Random;
use towline_window::command::{Body, Command, Mode};
use towline_window::completion::Completion;
use towline_window::host::Host;
use towline_window::ring::Pushed;

use crate::network::{Faults, Network};
use crate::node::{DeviceRails, Dpu, Window, attach};

/// Nanoseconds between two polls while nothing is on its way.
const IDLE: u64 = 100_000;
/// Nanoseconds after which a wait has failed. A link is given up after 5 seconds of silence.
const LIMIT: u64 = 20_000_000_000;
const MESSAGE: u64 = 100_000;
const LIMITS: Limits = Limits {
    engine: Config { requests: 32, unexpected: 16, units: 64, ..Config::SMALLEST },
    communicators: 4,
    messages: 4,
};

struct Pair {
    networks: [Network; 2],
    // A device is dropped before its window.
    devices: [Dpu<DeviceRails>; 2],
    hosts: [Host<'static>; 2],
    comms: [u32; 2],
    _windows: [Window; 2],
    now: u64,
}

impl Pair {
    /// Two devices, of which the second one has one link or two.
    fn new(faults: Faults, links: usize) -> Self {
        let networks = [1, 2].map(|seed| Network::new(2, 1500, faults, Random::new(seed)));
        let windows = [Window::new(), Window::new()];
        let plugged = |at: usize| {
            let has_link = |link| at == 0 || link < links;
            let ports = [0, 1].map(|link| has_link(link).then(|| networks[link].plug(at)));
            Dpu::plugged_twice(&windows[at], &LIMITS, 7, ports)
        };
        let mut devices = [plugged(0), plugged(1)];
        let hosts = [0, 1].map(|at| attach(&windows[at], &mut devices[at], 100 + at as u32, 0));
        let mut this = Self { networks, devices, hosts, comms: [0; 2], _windows: windows, now: 0 };
        let buffers = Window::buffers();
        let cards = [0, 1].map(|at| {
            let into = Body { region: 0, at: buffers, bytes: 1024 };
            let mut card = vec![0; this.call(at, Command::Publish { into }) as usize];
            this.hosts[at].memory().read(buffers, &mut card).unwrap();
            card
        });
        for at in 0..2 {
            for (peer, card) in (0..).zip(&cards) {
                this.hosts[at].memory().write(buffers, card).unwrap();
                let card = Body { region: 0, at: buffers, bytes: card.len() as u64 };
                this.call(at, Command::AddPeer { peer, card });
            }
            let peers = Body::default();
            let command = Command::AddCommunicator { context: 1, rank: at as u32, size: 2, peers };
            this.comms[at] = this.call(at, command);
        }
        this
    }

    /// Lets time pass until something arrives, or for a moment.
    fn step(&mut self) {
        let next = self.networks.iter().filter_map(Network::next_at).min().unwrap_or(u64::MAX);
        self.now = next.min(self.now + IDLE);
        self.networks.iter().for_each(|network| network.advance(self.now));
        self.devices.iter_mut().for_each(|device| while device.poll(self.now) != 0 {});
    }

    fn next(&mut self, at: usize) -> Completion {
        let start = self.now;
        loop {
            if let Some(completion) = self.hosts[at].take().unwrap() {
                return completion;
            }
            self.step();
            assert!(self.now - start < LIMIT, "a command does not complete");
        }
    }

    fn begin(&mut self, at: usize, command: Command) {
        assert_eq!(self.hosts[at].command(1, &command), Ok(Pushed::Done));
    }

    /// Executes a command that completes at once. Returns its value.
    fn call(&mut self, at: usize, command: Command) -> u32 {
        self.begin(at, command);
        self.next(at).result.unwrap().value
    }

    /// Sends a long message from a device to the other, and checks its bytes.
    fn exchange(&mut self, from: usize, seed: u64) {
        let to = 1 - from;
        let body = Body { region: 0, at: Window::buffers() + 4096, bytes: MESSAGE };
        let bytes: Vec<u8> = (0..MESSAGE).map(|at| (at * 31 + (at >> 8) + seed) as u8).collect();
        self.hosts[from].memory().write(body.at, &bytes).unwrap();
        let receive = Command::Receive { comm: self.comms[to], source: from as u32, tag: 5, body };
        let mode = Mode::Synchronous;
        let send = Command::Send { comm: self.comms[from], dest: to as u32, tag: 5, mode, body };
        self.begin(to, receive);
        self.begin(from, send);
        for at in [from, to] {
            let end = self.next(at);
            assert!(end.result.is_ok(), "{end:?}");
        }
        let mut into = vec![0; bytes.len()];
        self.hosts[to].memory().read(body.at, &mut into).unwrap();
        assert!(into == bytes, "message {seed} was changed");
    }

    /// Datagrams of each link so far.
    fn sent(&self) -> [u64; 2] {
        self.networks.each_ref().map(|network| network.counts().sent)
    }
}

#[test]
fn both_links_carry_fragments_and_one_goes_on_without_the_other() {
    for (seed, cut) in [(0, 0), (1, 1)] {
        let faults = if seed == 0 { Faults::default() } else { Faults { lose: 20, repeat: 10, ..Faults::default() } };
        let mut pair = Pair::new(faults, 2);
        for number in 0..10 {
            pair.exchange(number as usize % 2, number);
        }
        let before = pair.sent();
        // 70 fragments of each message.
        assert!(before.iter().all(|sent| *sent >= 250), "{before:?}");
        pair.networks[cut].cut();
        for number in 0..10 {
            pair.exchange(number as usize % 2, number);
        }
        let during = pair.sent();
        assert!(during[1 - cut] - before[1 - cut] >= 600, "{before:?} {during:?}");
        // From then on the link has nothing but probes.
        let (start, after) = (pair.now, during[cut]);
        for number in 0..10 {
            pair.exchange(number as usize % 2, number);
        }
        let probes = pair.sent()[cut] - after;
        assert!(probes < 50, "{probes} datagrams to a link that has failed");
        assert!(pair.now - start < 1_000_000_000, "messages wait for the link that has failed");
    }
}

#[test]
fn a_device_with_one_link_reaches_one_with_two() {
    let mut pair = Pair::new(Faults::default(), 1);
    for number in 0..4 {
        pair.exchange(number as usize % 2, number);
    }
    let [first, second] = pair.sent();
    assert!(first >= 280 && second == 0, "{first} and {second} datagrams");
}
