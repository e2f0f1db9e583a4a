//! The server of a device, whose host writes any word of the window at any time, during the traffic of two other devices: messages,
//! and one-sided operations on memory that is registered for these two, which the hostile host must not read or change. Memory of the
//! hosts outside the windows may have the messages of all three.

use std::ptr::NonNull;
use std::sync::Mutex;

use arbitrary::{Arbitrary, Result, Unstructured};
use offload::host_memory::{BadMemory, HostMemory, HostTables};
use offload::{Limits, Server};
use towline_core::arena::Arena;
use towline_core::pml::Config;
use towline_core::rail::access::Access;
use towline_core::rail::atomics::{Atomic, AtomicFlags, AtomicOp};
use towline_core::rail::loopback::{Hub, Rail as Loopback};
use towline_core::rma;
use towline_core::time::Instant;
use towline_window::command::{ANY, Body, Command, HostRange, KEY, KeyPlace, Mode, Remote};
use towline_window::completion::{Completion, Done};
use towline_window::device::{About, Device};
use towline_window::doorbell::Doorbell;
use towline_window::header::at;
use towline_window::host::{Attaching, Host};
use towline_window::memory::Memory;
use towline_window::placed_ring::Ring;
use towline_window::ring::{Entry, START, Writer};

use crate::window::{BYTES, Lines, layout, scribble};

const NODES: u32 = 3;
const ENGINE: Config =
    Config { peers: NODES, requests: 6, unexpected: 6, units: 6, unit_bytes: 64, rma: ONE_SIDED, ..Config::SMALLEST };
const ONE_SIDED: rma::Config = rma::Config { regions: 2, operations: 2, window: 2 };
const LIMITS: Limits = Limits { engine: ENGINE, communicators: 2, messages: 2 };
/// The context of the two honest devices. The hostile host may use it, too.
const CONTEXT: u32 = 1;
/// The hostile host's device.
const HOSTILE: usize = 2;

/// Where things are in the buffers: the key of memory of device 0, that of memory of device 1, and this memory. Messages are before.
/// Device 1 has registered its memory for device 0 alone, and device 0 has registered a part for all.
const KEYS: [u64; 2] = [64, 128];
const SHARED: u64 = 192;
const SHARED_BYTES: u64 = 32;
const PUBLIC: u64 = SHARED + SHARED_BYTES;

/// Where the memory of a host begins, and how much of it is mapped. Regions reach beyond.
const HOST_BASE: u64 = 16;
const HOST_BYTES: usize = 100;
const HOST_REGIONS: u32 = 2;

/// Memory of a host outside its window. Each description is right, but for one that begins with an odd byte.
#[derive(Debug)]
struct HostBytes(Mutex<([u8; HOST_BYTES], [bool; HOST_REGIONS as usize])>);

impl HostBytes {
    fn copy(&self, opened: u32, address: u64, len: usize, copy: impl FnOnce(&mut [u8])) -> Result<(), BadMemory> {
        let (bytes, opened_all) = &mut *self.0.lock().unwrap();
        assert!(opened_all[opened as usize], "a region that has ended is used");
        let at = address.checked_sub(HOST_BASE).ok_or(BadMemory)?;
        copy(usize::try_from(at).ok().and_then(|at| bytes.get_mut(at..)?.get_mut(..len)).ok_or(BadMemory)?);
        Ok(())
    }
}

impl HostMemory for HostBytes {
    fn open(&self, description: &[u8]) -> Option<u32> {
        let (_, opened) = &mut *self.0.lock().unwrap();
        if description.first().is_none_or(|byte| byte % 2 == 1) {
            return None;
        }
        let place = opened.iter().position(|is_open| !is_open).expect("there are as many places as regions");
        opened[place] = true;
        Some(place as u32)
    }

    fn close(&self, opened: u32) {
        assert!(std::mem::take(&mut self.0.lock().unwrap().1[opened as usize]), "a region ends twice");
    }

    fn read(&self, opened: u32, from: u64, into: &mut [u8]) -> Result<(), BadMemory> {
        self.copy(opened, from, into.len(), |bytes| into.copy_from_slice(bytes))
    }

    fn write(&self, opened: u32, from: &[u8], to: u64) -> Result<(), BadMemory> {
        self.copy(opened, to, from.len(), |bytes| bytes.copy_from_slice(from))
    }
}

type Rails<'m> = [Loopback<'m>; 1];

struct Node<'m, 'w> {
    server: Server<'m, 'w, Rails<'m>>,
    host: Host<'w>,
    memory: Memory<'w>,
}

impl Node<'_, '_> {
    /// Executes a command of an honest host, and returns its result.
    fn call(&mut self, command: Command) -> Done {
        self.host.command(0, &command).unwrap();
        for _ in 0..100 {
            self.server.poll(Instant::from_nanos(0));
            if let Some(completion) = self.host.take().unwrap() {
                return completion.result.unwrap();
            }
        }
        panic!("{command:?} does not complete");
    }
}

/// Runs one input. The messages of the honest devices arrive, and all accesses are inside the windows.
pub fn run(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let server = Server::<'static, 'static, Rails<'static>>::bytes(&LIMITS, &[&Hub::attributes(256)])
        + HostTables::bytes(HOST_REGIONS, ENGINE.requests);
    let bytes = Hub::cost(NODES, 8, 256) + NODES as usize * server;
    let hosts = [0, 1, 2].map(|_| HostBytes(Mutex::new(([0; HOST_BYTES], [false; HOST_REGIONS as usize]))));
    let mut block = vec![0; bytes];
    let mut arena = Arena::new(&mut block);
    let hub = Hub::new(&mut arena, NODES, 8, 256).unwrap();
    let mut lines = [const { Lines([0; BYTES]) }; NODES as usize];
    let [a, b, c] = &mut lines;
    let mut nodes = [a, b, c]
        .map(|lines| {
            // SAFETY: the memory is used by its address only while the window exists.
            unsafe { Memory::new(NonNull::from(&mut lines.0).cast(), BYTES) }.unwrap()
        })
        .map({
            let mut me = 0;
            let (arena, hub, hosts) = (&mut arena, &hub, &hosts);
            move |memory| {
                let about =
                    About { boot: 1, operations: 6, one_sided: 2, description: "fuzz", doorbell: Doorbell::Pipes };
                let device = Device::start(memory, layout(), &about).unwrap();
                let mut server =
                    Server::new(&LIMITS, arena, [hub.rail(me).unwrap()], device).map_err(|(why, _)| why).unwrap();
                server.reach_host(&hosts[me as usize], HOST_REGIONS, ENGINE.requests, arena).unwrap();
                me += 1;
                let mut attaching = Attaching::new(memory, me).unwrap();
                server.poll(Instant::from_nanos(0));
                Node { server, host: attaching.poll().unwrap(), memory }
            }
        });
    let buffers = nodes[0].server.device().layout().buffers;
    let all = Body { region: 0, at: buffers, bytes: 256 };
    let cards = [0, 1, 2].map(|me| {
        let length = nodes[me].call(Command::Publish { into: all }).value;
        let mut card = vec![0; length as usize];
        nodes[me].memory.read(buffers, &mut card).unwrap();
        card
    });
    let comms = [0, 1, 2].map(|me| {
        for (peer, card) in (0..).zip(&cards) {
            if peer != me {
                nodes[me].memory.write(buffers, card).unwrap();
                let card = Body { bytes: card.len() as u64, ..all };
                nodes[me].call(Command::AddPeer { peer: peer as u32, card });
            }
        }
        let command =
            Command::AddCommunicator { context: CONTEXT, rank: me as u32, size: NODES, peers: Body::default() };
        nodes[me].call(command).value
    });

    share(&mut nodes);
    let regions = [0, 1].map(|me| {
        nodes[me].memory.write(buffers, &[2]).unwrap();
        let memory = HostRange { address: HOST_BASE, bytes: HOST_BYTES as u64 };
        let description = KeyPlace { region: 0, at: buffers };
        nodes[me].call(Command::RegisterHost { memory, description, bytes: 1 }).value
    });

    let mut hostile = Writer::new();
    let mut begun = 0;
    while !data.is_empty() {
        let node = &mut nodes[HOSTILE];
        if attack(node, &mut hostile, &mut data).is_err() {
            break;
        }
        if begun % 4 == 0 {
            exchange(&mut nodes, comms, begun);
        }
        if begun % 4 == 1 {
            pass_frame(&mut nodes, begun);
        }
        if begun % 4 == 2 {
            access(&mut nodes, begun);
        }
        if begun % 4 == 3 {
            exchange_outside(&mut nodes, &hosts, regions, comms, begun);
        }
        begun += 1;
    }
    exchange(&mut nodes, comms, begun);
    exchange_outside(&mut nodes, &hosts, regions, comms, begun);
    pass_frame(&mut nodes, begun);
    access(&mut nodes, begun);
}

/// A frame from device 0 to device 1. The hostile host sends frames, too, which may take the buffer: then it is given again.
fn pass_frame(nodes: &mut [Node<'_, '_>; 3], number: u32) {
    let place = body(&nodes[0], 0, u64::from(number % 64));
    let bytes: Vec<u8> = (0..place.bytes).map(|at| (at as u32 ^ number) as u8).collect();
    nodes[0].memory.write(place.at, &bytes).unwrap();
    nodes[1].host.command(7, &Command::ReceiveFrame { body: place }).unwrap();
    nodes[0].host.command(8, &Command::SendFrame { peer: 1, tag: number, body: place }).unwrap();
    let (mut is_sent, mut is_received) = (false, false);
    for _ in 0..100_000 {
        nodes.iter_mut().for_each(|node| _ = node.server.poll(Instant::from_nanos(0)));
        if let Some(completion) = nodes[0].host.take().unwrap() {
            assert_eq!(completion, Completion::new(8, Ok(Done::default())));
            is_sent = true;
        }
        if let Some(completion) = nodes[1].host.take().unwrap() {
            assert_eq!(completion.cookie, 7);
            match completion.result {
                Ok(done) if done.rank == 0 => {
                    let length = place.bytes;
                    let whole = Done { tag: number, received: length, delivered: length, ..Done::default() };
                    assert_eq!(done, whole);
                    let mut into = vec![0; bytes.len()];
                    nodes[1].memory.read(place.at, &mut into).unwrap();
                    assert_eq!(into, bytes);
                    is_received = true;
                }
                // A frame of the hostile host, or its loss.
                other => {
                    assert!(matches!(other, Ok(done) if done.rank == 2) || completion.failed == 2, "{completion:?}");
                    nodes[1].host.command(7, &Command::ReceiveFrame { body: place }).unwrap();
                }
            }
        }
        if is_sent && is_received {
            return;
        }
    }
    panic!("frame {number} does not arrive");
}

fn body(node: &Node<'_, '_>, at: u64, bytes: u64) -> Body {
    Body { region: 0, at: node.server.device().layout().buffers + at, bytes }
}

fn key(node: &Node<'_, '_>, owner: usize) -> KeyPlace {
    KeyPlace { region: 0, at: body(node, KEYS[owner], 0).at }
}

/// Devices 0 and 1 register memory, and all hosts get the keys.
fn share(nodes: &mut [Node<'_, '_>; 3]) {
    for (owner, only, at) in [(0, ANY, PUBLIC), (1, 0, SHARED)] {
        let memory = body(&nodes[owner], at, SHARED_BYTES);
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let place = key(&nodes[owner], owner);
        nodes[owner].call(Command::Register { access, only, memory, key: place });
        let mut bytes = [0; KEY];
        nodes[owner].memory.read(place.at, &mut bytes).unwrap();
        nodes.iter().for_each(|node| node.memory.write(place.at, &bytes).unwrap());
    }
}

fn shared(node: &Node<'_, '_>) -> [u8; SHARED_BYTES as usize] {
    let mut bytes = [0; SHARED_BYTES as usize];
    node.memory.read(body(node, SHARED, 0).at, &mut bytes).unwrap();
    bytes
}

/// A put, an atomic and a get of device 0 on memory of device 1. Nobody else has changed that.
fn access(nodes: &mut [Node<'_, '_>; 3], number: u32) {
    let expected = shared(&nodes[0]);
    assert!(number < 4 || shared(&nodes[1]) == expected, "memory was changed by a peer without the right");
    let bytes = [number as u8; SHARED_BYTES as usize];
    let remote = Remote { peer: 1, offset: 0, key: key(&nodes[0], 1) };
    let local = body(&nodes[0], SHARED, SHARED_BYTES);
    nodes[0].memory.write(local.at, &bytes).unwrap();
    let add = Atomic::Op(AtomicOp::Add, 1);
    perform(nodes, Command::Put { to: remote, body: local }, 0);
    perform(
        nodes,
        Command::Atomic { at: remote, atomic: add, flags: AtomicFlags::empty() },
        u64::from_le_bytes([number as u8; 8]),
    );
    perform(nodes, Command::Get { from: remote, body: local }, 0);
    let mut expected = bytes;
    let word = u64::from_le_bytes([number as u8; 8]).wrapping_add(1);
    expected[..8].copy_from_slice(&word.to_le_bytes());
    assert_eq!(shared(&nodes[0]), expected);
    assert_eq!(shared(&nodes[1]), expected);
}

/// An operation of device 0, while the host of device 1 does nothing.
fn perform(nodes: &mut [Node<'_, '_>; 3], command: Command, word: u64) {
    nodes[0].host.command(9, &command).unwrap();
    for _ in 0..1000 {
        nodes.iter_mut().for_each(|node| _ = node.server.poll(Instant::from_nanos(0)));
        if let Some(completion) = nodes[0].host.take().unwrap() {
            assert_eq!(completion, Completion::new(9, Ok(Done { word, ..Done::default() })));
            return;
        }
    }
    panic!("{command:?} does not complete");
}

/// The hostile host writes a command, or any word.
fn attack(node: &mut Node<'_, '_>, writer: &mut Writer, data: &mut Unstructured<'_>) -> Result<()> {
    match u8::arbitrary(data)? % 4 {
        0 => scribble(&node.memory, data)?,
        1 => {
            node.server.device_mut().announce_sleep();
            node.server.poll(Instant::from_nanos(0));
            let _ = (node.server.arm(), node.server.poll_at());
            node.server.device_mut().awake();
            // If the device serves another session, its ring begins again.
            if node.server.device().session() == 0 {
                *writer = Writer::new();
            }
        }
        _ => {
            let mut entry = Entry::default();
            // Small numbers reach most of the code.
            for word in &mut entry {
                *word = match u8::arbitrary(data)? {
                    255 => u32::arbitrary(data)?,
                    254 => u32::MAX,
                    253 => 1 << 16,
                    249 => 1 << 16 | 1, // the first region
                    252 => node.server.device().layout().buffers as u32,
                    251 => key(node, 1).at as u32,
                    250 => key(node, 0).at as u32,
                    small => small.into(),
                };
            }
            let layout = *node.server.device().layout();
            let ring = Ring::new(&node.memory, layout.commands, layout.command_slots, at::COMMANDS_TAKEN).unwrap();
            if writer.push(&ring, &entry).is_err() {
                ring_position(&node.memory);
            }
        }
    }
    Ok(())
}

/// Repairs the position that the hostile host itself has overwritten.
fn ring_position(memory: &Memory<'_>) {
    memory.word(at::COMMANDS_TAKEN).unwrap().store(START, towline_window::atomics::Ordering::Relaxed);
}

/// A message from memory of host 0 to memory of host 1, outside their windows.
fn exchange_outside(
    nodes: &mut [Node<'_, '_>; 3],
    hosts: &[HostBytes; 3],
    regions: [u32; 2],
    comms: [u32; 3],
    number: u32,
) {
    let length = number as usize % HOST_BYTES;
    let bytes: Vec<u8> = (0..length).map(|at| (at as u32 ^ number) as u8).collect();
    hosts[0].0.lock().unwrap().0[..length].copy_from_slice(&bytes);
    let at = (HOST_BYTES - length) as u64;
    let bodies = [(regions[0], 0), (regions[1], at)].map(|(region, at)| Body { region, at, bytes: length as u64 });
    pass(nodes, comms, number, bodies);
    assert_eq!(hosts[1].0.lock().unwrap().0[at as usize..], bytes);
}

/// A message from device 0 to device 1.
fn exchange(nodes: &mut [Node<'_, '_>; 3], comms: [u32; 3], number: u32) {
    let buffers = nodes[0].server.device().layout().buffers;
    let length = number as usize % 64;
    let body = Body { region: 0, at: buffers, bytes: length as u64 };
    let bytes: Vec<u8> = (0..length).map(|at| (at as u32 ^ number) as u8).collect();
    nodes[0].memory.write(buffers, &bytes).unwrap();
    pass(nodes, comms, number, [body; 2]);
    let mut into = vec![0; bytes.len()];
    nodes[1].memory.read(buffers, &mut into).unwrap();
    assert_eq!(into, bytes);
}

/// Passes a message from device 0 to device 1, between these bodies.
fn pass(nodes: &mut [Node<'_, '_>; 3], comms: [u32; 3], number: u32, [from, into]: [Body; 2]) {
    let receive = Command::Receive { comm: comms[1], source: 0, tag: number, body: into };
    nodes[1].host.command(7, &receive).unwrap();
    let send = Command::Send { comm: comms[0], dest: 1, tag: number, mode: Mode::Complete, body: from };
    nodes[0].host.command(8, &send).unwrap();
    let mut ends = [None, None];
    for _ in 0..1000 {
        for (node, end) in nodes.iter_mut().zip(&mut ends) {
            node.server.poll(Instant::from_nanos(0));
            if let Some(completion) = node.host.take().unwrap() {
                assert!(end.replace(completion).is_none());
            }
        }
        nodes[HOSTILE].server.poll(Instant::from_nanos(0));
        if let [Some(sent), Some(received)] = ends {
            assert_eq!(sent, Completion::new(8, Ok(Done::default())));
            let length = into.bytes;
            let done = Done { rank: 0, tag: number, received: length, delivered: length, value: 0, word: 0 };
            assert_eq!(received, Completion::new(7, Ok(done)));
            return;
        }
    }
    panic!("message {number} does not arrive: {ends:?}");
}
