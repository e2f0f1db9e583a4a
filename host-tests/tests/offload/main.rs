//! The server of a device: two servers with loopback rails between them, and their hosts, in one thread.

mod announcements;
mod host_regions;
mod one_sided;

use std::collections::HashMap;
use std::ptr::NonNull;

use offload::{Limits, Server};
use towline_core::arena::Arena;
use towline_core::pml::Config;
use towline_core::rail::loopback::{Hub, Rail as Loopback};
use towline_core::rma;
use towline_core::time::Instant;
use towline_window::atomics::Ordering;
use towline_window::command::{ANY, Body, Command, Mode};
use towline_window::completion::{Completion, Done, Failure};
use towline_window::device::{About, Device};
use towline_window::doorbell::Doorbell;
use towline_window::header::at;
use towline_window::host::{Attaching, DeviceError, Host};
use towline_window::layout::Layout;
use towline_window::memory::Memory;
use towline_window::ring::Pushed;

const WINDOW: usize = 1 << 18;
const SLOTS: u32 = 16;
const ONE_SIDED: rma::Config = rma::Config { regions: 3, operations: 4, window: 2 };
const ENGINE: Config =
    Config { peers: 2, requests: 8, unexpected: 8, units: 8, unit_bytes: 512, rma: ONE_SIDED, ..Config::SMALLEST };
/// Bytes of a frame of the rails.
const FRAME: u32 = 1024;
const LIMITS: Limits = Limits { engine: ENGINE, communicators: 2, messages: 2 };
const CONTEXT: u32 = 5;

#[repr(align(64))]
struct Lines([u8; WINDOW]);

type Rails<'m> = [Loopback<'m>; 1];

/// A device and its host.
struct Node<'m> {
    server: Server<'m, 'static, Rails<'m>>,
    host: Host<'static>,
    memory: Memory<'static>,
    /// Completions that nobody has asked for yet, by their cookies.
    completions: HashMap<u64, Result<Done, Failure>>,
    cookies: u64,
}

/// Two nodes that do not know each other yet.
struct Pair<'m> {
    nodes: [Node<'m>; 2],
    now: u64,
}

fn window() -> Memory<'static> {
    let lines = Box::leak(Box::new(Lines([0; WINDOW])));
    // SAFETY: nothing else refers to the leaked memory.
    unsafe { Memory::new(NonNull::from(&mut lines.0).cast(), WINDOW) }.unwrap()
}

fn buffers() -> u64 {
    Layout::plan(WINDOW, SLOTS, SLOTS).unwrap().buffers
}

fn attach(server: &mut Server<'_, 'static, Rails<'_>>, memory: Memory<'static>, session: u32) -> Host<'static> {
    let mut attaching = Attaching::new(memory, session).unwrap();
    server.poll(Instant::from_nanos(0));
    attaching.poll().unwrap()
}

/// Calls `work` with two nodes.
fn with_strangers(work: impl FnOnce(&mut Pair<'_>)) {
    let bytes =
        Hub::cost(2, 8, FRAME) + 2 * Server::<'static, '_, Rails<'static>>::bytes(&LIMITS, &[&Hub::attributes(FRAME)]);
    let mut block = vec![0; bytes];
    let mut arena = Arena::new(&mut block);
    let hub = Hub::new(&mut arena, 2, 8, FRAME).unwrap();
    let nodes = [0, 1].map(|me| {
        let memory = window();
        let about = About {
            boot: me + 1,
            operations: ENGINE.requests,
            one_sided: ENGINE.rma.operations,
            description: "test",
            doorbell: Doorbell::None,
        };
        let device = Device::start(memory, Layout::plan(WINDOW, SLOTS, SLOTS).unwrap(), &about).unwrap();
        let rails = [hub.rail(me).unwrap()];
        let mut server = Server::new(&LIMITS, &mut arena, rails, device).map_err(|(why, _)| why).unwrap();
        let host = attach(&mut server, memory, 100 + me);
        Node { server, host, memory, completions: HashMap::new(), cookies: 0 }
    });
    work(&mut Pair { nodes, now: 0 });
}

/// Calls `work` with two nodes that know each other, and with the numbers of a communicator of both.
fn with_pair(work: impl FnOnce(&mut Pair<'_>, [u32; 2])) {
    with_strangers(|pair| {
        pair.introduce();
        let comms = [0, 1].map(|me| pair.communicator(me, Body::default()).unwrap());
        work(pair, comms);
    });
}

impl Pair<'_> {
    fn step(&mut self) -> u32 {
        self.now += 1000;
        let mut events = 0;
        for node in &mut self.nodes {
            events += node.server.poll(Instant::from_nanos(self.now));
            while let Some(Completion { cookie, result, .. }) = node.host.take().unwrap() {
                assert!(node.completions.insert(cookie, result).is_none(), "cookie {cookie} was completed twice");
            }
        }
        events
    }

    fn settle(&mut self) {
        while self.step() != 0 {}
    }

    /// Writes a command, and returns its cookie.
    fn begin(&mut self, me: usize, command: Command) -> u64 {
        let node = &mut self.nodes[me];
        node.cookies += 1;
        assert_eq!(node.host.command(node.cookies, &command), Ok(Pushed::Done));
        node.cookies
    }

    /// The result of a command, if it is over.
    fn result(&mut self, me: usize, cookie: u64) -> Option<Result<Done, Failure>> {
        self.settle();
        self.nodes[me].completions.remove(&cookie)
    }

    /// Executes a command that completes.
    fn call(&mut self, me: usize, command: Command) -> Result<Done, Failure> {
        let cookie = self.begin(me, command);
        self.result(me, cookie).expect("the command completes")
    }

    fn card(&mut self, me: usize) -> Vec<u8> {
        let into = Body { region: 0, at: buffers(), bytes: 512 };
        let length = self.call(me, Command::Publish { into }).unwrap().value;
        let mut card = vec![0; length as usize];
        self.nodes[me].memory.read(buffers(), &mut card).unwrap();
        card
    }

    fn introduce(&mut self) {
        let cards = [self.card(0), self.card(1)];
        for me in 0..2 {
            self.add_peer(me, 1 - me as u32, &cards[1 - me]).unwrap();
        }
    }

    fn add_peer(&mut self, me: usize, peer: u32, card: &[u8]) -> Result<Done, Failure> {
        self.nodes[me].memory.write(buffers(), card).unwrap();
        let card = Body { region: 0, at: buffers(), bytes: card.len() as u64 };
        self.call(me, Command::AddPeer { peer, card })
    }

    fn communicator(&mut self, me: usize, peers: Body) -> Result<u32, Failure> {
        let command = Command::AddCommunicator { context: CONTEXT, rank: me as u32, size: 2, peers };
        self.call(me, command).map(|done| done.value)
    }

    /// Writes a message to the buffers, and returns where it is.
    fn message(&mut self, me: usize, bytes: &[u8]) -> Body {
        self.nodes[me].memory.write(buffers(), bytes).unwrap();
        Body { region: 0, at: buffers(), bytes: bytes.len() as u64 }
    }

    fn send(&mut self, me: usize, comm: u32, tag: u32, mode: Mode, bytes: &[u8]) -> u64 {
        let body = self.message(me, bytes);
        self.begin(me, Command::Send { comm, dest: 1 - me as u32, tag, mode, body })
    }

    fn received(&mut self, me: usize, bytes: usize) -> Vec<u8> {
        let mut into = vec![0; bytes];
        self.nodes[me].memory.read(sink(bytes).at, &mut into).unwrap();
        into
    }
}

/// Where messages are received.
fn sink(bytes: usize) -> Body {
    Body { region: 0, at: buffers() + WINDOW as u64 / 2, bytes: bytes as u64 }
}

#[test]
fn messages_of_all_lengths_arrive_whether_they_are_expected_or_not() {
    with_pair(|pair, comms| {
        for (number, length) in (0..).zip([0, 1, 33, 512, 513, 5000, 100_000]) {
            for (mode, posted) in [(Mode::Standard, true), (Mode::Synchronous, false), (Mode::Complete, true)] {
                let (from, to) = (number % 2, 1 - number % 2);
                let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + number) as u8).collect();
                let receive = Command::Receive { comm: comms[to], source: from as u32, tag: ANY, body: sink(length) };
                let early = posted.then(|| pair.begin(to, receive));
                pair.settle();
                let sent = pair.send(from, comms[from], number as u32, mode, &bytes);
                pair.settle();
                let received = early.unwrap_or_else(|| pair.begin(to, receive));
                let length = length as u64;
                let done = Done {
                    rank: from as u32,
                    tag: number as u32,
                    received: length,
                    delivered: length,
                    value: 0,
                    word: 0,
                };
                assert_eq!(pair.result(to, received), Some(Ok(done)), "{length} {mode:?} {posted}");
                assert_eq!(pair.result(from, sent), Some(Ok(Done::default())));
                assert_eq!(pair.received(to, bytes.len()), bytes);
            }
        }
        // The devices have matched the messages.
        let matched = |node: &Node<'_>| {
            let counters = node.server.transport().counters();
            counters.expected + counters.unexpected
        };
        assert_eq!(pair.nodes.iter().map(matched).sum::<u64>(), 21);
    });
}

#[test]
fn a_message_that_is_longer_than_its_memory_is_delivered_in_part() {
    with_pair(|pair, comms| {
        let receive = pair.begin(1, Command::Receive { comm: comms[1], source: ANY, tag: 3, body: sink(4) });
        pair.send(0, comms[0], 3, Mode::Standard, b"too long");
        let done = Done { rank: 0, tag: 3, received: 8, delivered: 4, value: 0, word: 0 };
        assert_eq!(pair.result(1, receive), Some(Ok(done)));
        assert_eq!(pair.received(1, 8), b"too \0\0\0\0");
    });
}

#[test]
fn a_ready_send_needs_a_receive() {
    with_pair(|pair, comms| {
        let sent = pair.send(0, comms[0], 3, Mode::Ready, b"early");
        assert_eq!(pair.result(0, sent), Some(Err(Failure::NotReady)));
        let receive = pair.begin(1, Command::Receive { comm: comms[1], source: 0, tag: 4, body: sink(5) });
        pair.settle();
        let sent = pair.send(0, comms[0], 4, Mode::Ready, b"ready");
        assert_eq!(pair.result(0, sent), Some(Ok(Done::default())));
        assert!(pair.result(1, receive).unwrap().is_ok());
    });
}

/// The host of the receiver has receives that its device does not have.
#[test]
fn a_ready_send_is_kept_for_a_receive_of_the_host() {
    with_pair(|pair, comms| {
        assert_eq!(pair.call(1, Command::KeepReady { keep: true }), Ok(Done::default()));
        let sent = pair.send(0, comms[0], 3, Mode::Ready, b"ready");
        pair.settle();
        assert_eq!(pair.result(0, sent), None, "its receive has not begun");
        let probe = Command::Probe { comm: comms[1], source: 0, tag: 3, take: true };
        let message = pair.call(1, probe).expect("it is there").value;
        let receive = pair.begin(1, Command::ReceiveMatched { message, body: sink(5) });
        assert_eq!(pair.result(0, sent), Some(Ok(Done::default())));
        assert!(pair.result(1, receive).unwrap().is_ok());
        assert_eq!(pair.received(1, 5), b"ready");
        assert_eq!(pair.call(1, Command::KeepReady { keep: false }), Ok(Done::default()));
        let sent = pair.send(0, comms[0], 3, Mode::Ready, b"early");
        assert_eq!(pair.result(0, sent), Some(Err(Failure::NotReady)));
    });
}

#[test]
fn probes_find_messages_and_take_them_out() {
    with_pair(|pair, comms| {
        let probe = |take| Command::Probe { comm: comms[1], source: ANY, tag: 9, take };
        assert_eq!(pair.call(1, probe(false)), Err(Failure::NotFound));
        assert_eq!(pair.call(1, probe(true)), Err(Failure::NotFound));
        let nobody = Command::Probe { comm: comms[1], source: 9, tag: ANY, take: false };
        assert_eq!(pair.call(1, nobody), Err(Failure::NoSuchThing));
        pair.send(0, comms[0], 9, Mode::Standard, b"hello");
        pair.settle();
        let found = Done { rank: 0, tag: 9, received: 5, delivered: 0, value: 0, word: 0 };
        assert_eq!(pair.call(1, probe(false)), Ok(found));
        let taken = pair.call(1, probe(true)).unwrap();
        assert_eq!(Done { value: 0, ..taken }, found);
        assert_eq!(pair.call(1, probe(false)), Err(Failure::NotFound));
        let receive = Command::ReceiveMatched { message: taken.value, body: sink(5) };
        assert_eq!(pair.call(1, receive), Ok(Done { delivered: 5, ..found }));
        assert_eq!(pair.received(1, 5), b"hello");
        assert_eq!(pair.call(1, receive), Err(Failure::NoSuchThing));
    });
}

#[test]
fn operations_that_have_not_begun_can_be_cancelled() {
    with_pair(|pair, comms| {
        let receive = pair.begin(1, Command::Receive { comm: comms[1], source: 0, tag: 1, body: sink(8) });
        assert_eq!(pair.call(1, Command::Cancel { cookie: receive }), Ok(Done::default()));
        assert_eq!(pair.result(1, receive), Some(Err(Failure::Cancelled)));
        assert_eq!(pair.call(1, Command::Cancel { cookie: receive }), Err(Failure::NoSuchThing));
        let late = pair.send(0, comms[0], 1, Mode::Synchronous, b"left already");
        pair.settle();
        assert_eq!(pair.call(0, Command::Cancel { cookie: late }), Err(Failure::NotFound));
    });
}

#[test]
fn full_tables_refuse_commands_and_lose_nothing() {
    with_pair(|pair, comms| {
        let receive = |tag| Command::Receive { comm: comms[1], source: 0, tag, body: sink(8) };
        let begun: Vec<_> = (0..ENGINE.requests).map(|tag| pair.begin(1, receive(tag))).collect();
        assert_eq!(pair.call(1, receive(99)), Err(Failure::Full));
        for (tag, receive) in (0..).zip(begun) {
            pair.send(0, comms[0], tag, Mode::Standard, b"message");
            assert!(pair.result(1, receive).unwrap().is_ok());
        }
        pair.communicator(1, Body::default()).unwrap_err();
        let other = |context| Command::AddCommunicator { context, rank: 0, size: 1, peers: Body::default() };
        assert!(pair.call(1, other(70)).is_ok());
        assert_eq!(pair.call(1, other(71)), Err(Failure::Full));
    });
}

#[test]
fn more_completions_than_the_ring_has_slots_wait_for_room() {
    with_pair(|pair, comms| {
        let probe = Command::Probe { comm: comms[0], source: 1, tag: 0, take: false };
        let node = &mut pair.nodes[0];
        let mut written: u64 = 0;
        // The host reads nothing, so the ring of completions fills, then that of commands.
        for round in 0..200 {
            while node.host.command(1000 + written, &probe) == Ok(Pushed::Done) {
                written += 1;
            }
            node.server.poll(Instant::from_nanos(round));
        }
        assert!(written > u64::from(SLOTS + SLOTS / 2));
        for cookie in 0..written {
            let completion = loop {
                if let Some(completion) = node.host.take().unwrap() {
                    break completion;
                }
                node.server.poll(Instant::from_nanos(1000));
            };
            assert_eq!(completion, Completion::new(1000 + cookie, Err(Failure::NotFound)));
        }
    });
}

#[test]
fn memory_outside_the_buffers_is_refused() {
    with_pair(|pair, comms| {
        let end = WINDOW as u64;
        for (region, at, bytes) in [
            (0, 0, 8),
            (0, buffers() - 64, 65),
            (0, end - 4, 5),
            (0, end, 1),
            (0, u64::MAX, 2),
            (0, buffers(), u64::MAX),
            (1, buffers(), 8),
        ] {
            let body = Body { region, at, bytes };
            let comm = comms[0];
            let receive = Command::Receive { comm, source: 1, tag: 0, body };
            let send = Command::Send { comm, dest: 1, tag: 0, mode: Mode::Standard, body };
            for command in [receive, send, Command::Publish { into: body }, Command::AddPeer { peer: 1, card: body }] {
                assert_eq!(pair.call(0, command), Err(Failure::OutOfBounds), "{command:?}");
            }
        }
        let short = Body { region: 0, at: buffers(), bytes: 3 };
        assert_eq!(pair.call(0, Command::Publish { into: short }), Err(Failure::OutOfBounds));
    });
}

#[test]
fn things_that_do_not_exist_are_refused() {
    with_pair(|pair, comms| {
        let body = sink(8);
        let receive = |comm, source| Command::Receive { comm, source, tag: 0, body };
        assert_eq!(pair.call(0, receive(comms[0] + 1, 1)), Err(Failure::NoSuchThing));
        assert_eq!(pair.call(0, receive(comms[0], 2)), Err(Failure::NoSuchThing));
        assert_eq!(pair.call(0, Command::ReceiveMatched { message: 99, body }), Err(Failure::NoSuchThing));
        let delete = Command::DeleteCommunicator { comm: comms[0] };
        assert_eq!(pair.call(0, delete), Ok(Done::default()));
        assert_eq!(pair.call(0, delete), Err(Failure::NoSuchThing));
        let next = pair.communicator(0, Body::default()).unwrap();
        assert_ne!(next, comms[0], "the number of a deleted communicator is not used again");
        assert_eq!(pair.call(0, receive(comms[0], 1)), Err(Failure::NoSuchThing));
        for (rank, size) in [(2, 2), (0, 3), (0, 0)] {
            let command = Command::AddCommunicator { context: 80, rank, size, peers: Body::default() };
            assert_eq!(pair.call(0, command), Err(Failure::Malformed), "{rank} {size}");
        }
        for card in [&[][..], &[0; 40], &[0xff; 200], &[0; 2000]] {
            assert!(pair.add_peer(0, 0, card).is_err());
        }
    });
}

#[test]
fn a_communicator_may_order_its_peers_in_another_way() {
    with_strangers(|pair| {
        pair.introduce();
        let comms = [0, 1].map(|me| {
            let table: Vec<u8> = [1_u32, 0].iter().flat_map(|peer| peer.to_le_bytes()).collect();
            let peers = pair.message(me, &table);
            let command = Command::AddCommunicator { context: CONTEXT, rank: 1 - me as u32, size: 2, peers };
            pair.call(me, command).unwrap().value
        });
        let receive = pair.begin(1, Command::Receive { comm: comms[1], source: ANY, tag: 4, body: sink(3) });
        let body = pair.message(0, b"abc");
        let send = Command::Send { comm: comms[0], dest: 0, tag: 4, mode: Mode::Standard, body };
        assert_eq!(pair.call(0, send), Ok(Done::default()));
        let done = Done { rank: 1, tag: 4, received: 3, delivered: 3, value: 0, word: 0 };
        assert_eq!(pair.result(1, receive), Some(Ok(done)));
    });
}

#[test]
fn a_session_leaves_nothing_behind() {
    with_pair(|pair, comms| {
        // A posted receive, an unexpected message, one that was taken out, and a long send that waits for its receive.
        pair.begin(1, Command::Receive { comm: comms[1], source: 0, tag: 77, body: sink(8) });
        pair.send(0, comms[0], 1, Mode::Standard, b"unexpected");
        pair.send(0, comms[0], 2, Mode::Standard, b"taken out");
        pair.send(0, comms[0], 3, Mode::Synchronous, &[1; 5000]);
        pair.send(1, comms[1], 4, Mode::Synchronous, &[1; 5000]);
        pair.settle();
        pair.call(1, Command::Probe { comm: comms[1], source: 0, tag: 2, take: true }).unwrap();
        pair.call(0, Command::KeepReady { keep: true }).unwrap();

        for me in [1, 0] {
            let node = &mut pair.nodes[me];
            let session = node.server.device().session();
            // Completions of the session before, which the host has not taken, do not reach the next host.
            let probe = Command::Probe { comm: comms[me], source: 1 - me as u32, tag: 99, take: false };
            for _ in 0..SLOTS + 1 {
                node.host.command(1000, &probe).unwrap();
                node.server.poll(Instant::from_nanos(1));
            }
            node.memory.word(at::WANTED).unwrap().store(0, Ordering::Release);
            node.host = attach(&mut node.server, node.memory, session + 10);
            node.completions.clear();
        }
        pair.settle();
        for node in &pair.nodes {
            assert!(node.completions.is_empty(), "{:?}", node.completions);
            assert_eq!(node.server.transport().operations().count(), 0);
            assert_eq!(node.server.transport().unreceived().count(), 0);
        }
        pair.introduce();
        let comms = [0, 1].map(|me| pair.communicator(me, Body::default()).unwrap());
        let receive = pair.begin(0, Command::Receive { comm: comms[0], source: 1, tag: ANY, body: sink(3) });
        pair.send(1, comms[1], 6, Mode::Standard, b"new");
        assert_eq!(pair.result(0, receive).unwrap().unwrap().tag, 6);
        let ready = pair.send(1, comms[1], 7, Mode::Ready, b"early");
        assert_eq!(pair.result(1, ready), Some(Err(Failure::NotReady)));
        // All places for messages that probes take out are free.
        for tag in 0..LIMITS.messages {
            pair.send(0, comms[0], tag, Mode::Standard, b"taken out");
            pair.settle();
            pair.call(1, Command::Probe { comm: comms[1], source: 0, tag, take: true }).unwrap();
        }
    });
}

#[test]
fn the_end_of_a_session_does_not_complete_synchronous_sends() {
    with_pair(|pair, comms| {
        let sent = pair.send(0, comms[0], 2, Mode::Synchronous, &[1; 100]);
        pair.settle();
        pair.call(1, Command::Probe { comm: comms[1], source: 0, tag: 2, take: true }).unwrap();
        let node = &mut pair.nodes[1];
        node.memory.word(at::WANTED).unwrap().store(0, Ordering::Release);
        node.host = attach(&mut node.server, node.memory, 555);
        // The loopback rail does not tell of the end, so the send goes on.
        assert_eq!(pair.result(0, sent), None);
    });
}

#[test]
fn a_message_of_a_deleted_peer_gives_its_place_back() {
    with_pair(|pair, comms| {
        pair.send(0, comms[0], 2, Mode::Standard, b"taken out");
        pair.settle();
        let taken = pair.call(1, Command::Probe { comm: comms[1], source: 0, tag: 2, take: true }).unwrap();
        pair.call(1, Command::DeletePeer { peer: 0 }).unwrap();
        let receive = Command::ReceiveMatched { message: taken.value, body: sink(20) };
        assert_eq!(pair.call(1, receive), Err(Failure::NoSuchThing));
        let card = pair.card(0);
        pair.add_peer(1, 0, &card).unwrap();
        assert_eq!(pair.add_peer(1, 0, &card), Err(Failure::Malformed), "it was added already");
        assert_eq!(pair.add_peer(1, 99, &card), Err(Failure::NoSuchThing));
    });
}

/// Two devices with the same address and the same start would take each other's messages.
#[test]
fn the_card_of_another_peer_is_refused() {
    with_pair(|pair, _| {
        let card = pair.card(0);
        assert_eq!(pair.add_peer(1, 1, &card), Err(Failure::Malformed), "it is the card of peer 0");
        pair.call(1, Command::DeletePeer { peer: 0 }).unwrap();
        pair.add_peer(1, 1, &card).unwrap();
        assert_eq!(pair.add_peer(1, 0, &card), Err(Failure::Malformed), "now of peer 1");
        // A lost peer may come back as another one.
        pair.call(1, Command::LosePeer { peer: 1 }).unwrap();
        pair.add_peer(1, 0, &card).unwrap();
    });
}

#[test]
fn no_command_is_executed_without_a_session() {
    with_pair(|pair, _| {
        let node = &mut pair.nodes[0];
        node.memory.word(at::WANTED).unwrap().store(0, Ordering::Release);
        node.server.poll(Instant::from_nanos(1));
        node.host.command(1, &Command::DeletePeer { peer: 1 }).unwrap();
        assert_eq!(node.server.poll(Instant::from_nanos(2)), 0);
    });
}

#[test]
fn the_session_of_a_host_that_violates_the_protocol_ends() {
    with_pair(|pair, comms| {
        let node = &mut pair.nodes[0];
        node.memory.word(at::COMPLETIONS_TAKEN).unwrap().store(0x1234_5678, Ordering::Relaxed);
        let probe = Command::Probe { comm: comms[0], source: 1, tag: 0, take: false };
        for round in 0..u64::from(3 * SLOTS) {
            let _ = node.host.command(round, &probe);
            node.server.poll(Instant::from_nanos(round));
        }
        assert_eq!(node.server.device().session(), 0);
        assert_eq!(node.host.check(), Err(DeviceError::Ended));
    });
}
