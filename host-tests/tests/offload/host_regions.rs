//! Host regions: bodies of messages in memory of the host outside the window.

use std::sync::Mutex;

use offload::host_memory::{BadMemory, HostMemory, HostTables};
use towline_core::arena::Arena;
use towline_window::atomics::Ordering;
use towline_window::command::{ANY, Body, Command, HostRange, KeyPlace, Mode};
use towline_window::completion::{Done, Failure};
use towline_window::header::at;

use super::{ENGINE, Pair, attach, buffers, sink, with_pair};

/// Where the memory of a host begins.
const BASE: u64 = 1 << 40;
const BYTES: usize = 100_000;
const REGIONS: u32 = 2;

/// Memory of a host. What lies beyond is not mapped.
#[derive(Debug)]
pub(super) struct Host {
    bytes: Mutex<Vec<u8>>,
    /// Which numbers are open.
    opened: Mutex<Vec<bool>>,
}

impl Host {
    fn of(bytes: Vec<u8>) -> &'static Self {
        Box::leak(Box::new(Self { bytes: Mutex::new(bytes), opened: Mutex::new(Vec::new()) }))
    }

    fn copy(&self, opened: u32, address: u64, len: usize, copy: impl FnOnce(&mut [u8])) -> Result<(), BadMemory> {
        assert!(self.opened.lock().unwrap()[opened as usize], "it is closed");
        let at = address.checked_sub(BASE).ok_or(BadMemory)? as usize;
        copy(self.bytes.lock().unwrap().get_mut(at..).and_then(|rest| rest.get_mut(..len)).ok_or(BadMemory)?);
        Ok(())
    }

    fn open_count(&self) -> usize {
        self.opened.lock().unwrap().iter().filter(|is_open| **is_open).count()
    }
}

impl HostMemory for Host {
    fn open(&self, description: &[u8]) -> Option<u32> {
        let mut opened = self.opened.lock().unwrap();
        opened.push(description == b"here");
        (description == b"here").then_some(opened.len() as u32 - 1)
    }

    fn close(&self, opened: u32) {
        assert!(std::mem::replace(&mut self.opened.lock().unwrap()[opened as usize], false), "it is closed");
    }

    fn read(&self, opened: u32, from: u64, into: &mut [u8]) -> Result<(), BadMemory> {
        self.copy(opened, from, into.len(), |bytes| into.copy_from_slice(bytes))
    }

    fn write(&self, opened: u32, from: &[u8], to: u64) -> Result<(), BadMemory> {
        self.copy(opened, to, from.len(), |bytes| bytes.copy_from_slice(from))
    }
}

/// Lets the devices reach the memory of their hosts.
pub(super) fn reach(pair: &mut Pair<'_>) -> [&'static Host; 2] {
    let hosts = [1, 2].map(|seed| Host::of((0..BYTES).map(|at| (at * 7 + seed) as u8).collect()));
    for (node, host) in pair.nodes.iter_mut().zip(hosts) {
        let block = vec![0; HostTables::bytes(REGIONS, ENGINE.requests) + 8].leak();
        node.server.reach_host(host, REGIONS, ENGINE.requests, &mut Arena::new(block)).unwrap();
    }
    hosts
}

fn register(address: u64, bytes: u64) -> Command {
    let description = KeyPlace { region: 0, at: buffers() };
    Command::RegisterHost { memory: HostRange { address, bytes }, description, bytes: 4 }
}

impl Pair<'_> {
    pub(super) fn region(&mut self, me: usize) -> u32 {
        self.nodes[me].memory.write(buffers(), b"here").unwrap();
        self.call(me, register(BASE, BYTES as u64 + 10_000)).unwrap().value
    }
}

fn bytes_of(host: &Host, at: usize, bytes: usize) -> Vec<u8> {
    host.bytes.lock().unwrap()[at..at + bytes].to_vec()
}

#[test]
fn messages_lie_in_host_regions_at_one_side_or_at_both() {
    with_pair(|pair, comms| {
        let hosts = reach(pair);
        let regions = [0, 1].map(|me| pair.region(me));
        assert!(regions.iter().all(|region| *region != 0));
        for (tag, length) in (0_u32..).zip([0, 1, 500, 1024, 40_000]) {
            for (from_region, into_region, taken) in [(true, true, false), (true, false, true), (false, true, true)] {
                hosts[1].bytes.lock().unwrap().fill(0);
                let into = Body { region: regions[1], at: 50_000, bytes: length };
                let into = if into_region { into } else { sink(length as usize) };
                let expected = bytes_of(hosts[0], 3, length as usize);
                let sent = if from_region {
                    let body = Body { region: regions[0], at: 3, bytes: length };
                    pair.begin(0, Command::Send { comm: comms[0], dest: 1, tag, mode: Mode::Synchronous, body })
                } else {
                    pair.send(0, comms[0], tag, Mode::Synchronous, &expected)
                };
                let received = if taken {
                    pair.settle();
                    let probe = Command::Probe { comm: comms[1], source: 0, tag, take: true };
                    let message = pair.call(1, probe).unwrap().value;
                    pair.begin(1, Command::ReceiveMatched { message, body: into })
                } else {
                    pair.begin(1, Command::Receive { comm: comms[1], source: ANY, tag, body: into })
                };
                let done = pair.result(1, received).unwrap().unwrap();
                assert_eq!((done.rank, done.tag, done.received, done.delivered), (0, tag, length, length));
                assert_eq!(pair.result(0, sent), Some(Ok(Done::default())));
                let got = if into_region {
                    bytes_of(hosts[1], 50_000, length as usize)
                } else {
                    pair.received(1, length as usize)
                };
                assert!(got == expected, "{length} bytes");
                // Nothing beside the memory was written.
                let written = hosts[1].bytes.lock().unwrap().iter().filter(|byte| **byte != 0).count();
                assert!(written <= if into_region { length as usize } else { 0 });
            }
        }
        assert_eq!(pair.nodes.each_mut().map(|node| node.server.in_use().host), [[1, 0]; 2]);
    });
}

#[test]
fn each_wrong_region_description_and_range_is_refused() {
    with_pair(|pair, comms| {
        assert_eq!(pair.call(0, register(BASE, 8)), Err(Failure::NoHostMemory), "the device reaches no such memory");
        assert_eq!(pair.call(0, Command::DeregisterHost { region: 1 << 16 | 1 }), Err(Failure::NoSuchThing));
        let hosts = reach(pair);
        pair.nodes[0].memory.write(buffers(), b"there").unwrap();
        assert_eq!(pair.call(0, register(BASE, 8)), Err(Failure::NoHostMemory), "a description for another board");
        for (address, bytes) in [(BASE, 0), (u64::MAX, 1), (2, u64::MAX - 1)] {
            assert_eq!(pair.call(0, register(address, bytes)), Err(Failure::Malformed), "{bytes} bytes at {address}");
        }
        for (place, bytes, why) in [
            (KeyPlace { region: 0, at: 0 }, 4, Failure::OutOfBounds),
            (KeyPlace { region: 1, at: buffers() }, 4, Failure::OutOfBounds),
            (KeyPlace { region: 0, at: u64::MAX }, 4, Failure::OutOfBounds),
            (KeyPlace { region: 0, at: buffers() }, 0, Failure::NoHostMemory),
            (KeyPlace { region: 0, at: buffers() }, 257, Failure::Malformed),
        ] {
            let memory = HostRange { address: BASE, bytes: 8 };
            assert_eq!(pair.call(0, Command::RegisterHost { memory, description: place, bytes }), Err(why));
        }
        let regions = [pair.region(0), pair.region(0)];
        assert_eq!(pair.call(0, register(BASE, 8)), Err(Failure::Full));
        assert_eq!(hosts[0].open_count(), 2);
        let most = BYTES as u64 + 10_000;
        let wrong = |region| Body { region, at: 0, bytes: 8 };
        for body in [
            Body { region: regions[0], at: most, bytes: 1 },
            Body { region: regions[0], at: 0, bytes: most + 1 },
            Body { region: regions[0], at: u64::MAX, bytes: 2 },
            Body { region: regions[0], at: 2, bytes: u64::MAX },
            wrong(regions[0] + 7),
            wrong(regions[0] ^ 1 << 16),
            wrong(1),
            wrong(1 << 16),
            wrong(u32::MAX),
        ] {
            let send = Command::Send { comm: comms[0], dest: 1, tag: 0, mode: Mode::Standard, body };
            let receive = Command::Receive { comm: comms[0], source: 1, tag: 0, body };
            for command in [send, receive, Command::ReceiveMatched { message: 0, body }] {
                assert_eq!(pair.call(0, command), Err(Failure::OutOfBounds), "{command:?}");
            }
        }
        // Only messages may lie there.
        let body = Body { region: regions[0], at: 0, bytes: 512 };
        for command in [
            Command::Publish { into: body },
            Command::AddPeer { peer: 1, card: body },
            Command::AddCommunicator { context: 9, rank: 0, size: 2, peers: body },
            Command::SendFrame { peer: 1, tag: 1, body },
            Command::ReceiveFrame { body },
        ] {
            assert_eq!(pair.call(0, command), Err(Failure::OutOfBounds), "{command:?}");
        }
        // The number of a region that has ended is not that of the next one.
        assert_eq!(pair.call(0, Command::DeregisterHost { region: regions[1] }), Ok(Done::default()));
        assert_eq!(pair.call(0, Command::DeregisterHost { region: regions[1] }), Err(Failure::NoSuchThing));
        assert_eq!(hosts[0].open_count(), 1);
        let next = pair.region(0);
        assert!(!regions.contains(&next));
        let send = Command::Send { comm: comms[0], dest: 1, tag: 0, mode: Mode::Standard, body: wrong(regions[1]) };
        assert_eq!(pair.call(0, send), Err(Failure::OutOfBounds));
        assert_eq!(pair.nodes[0].server.in_use().host, [2, 0], "refused commands have no body");
    });
}

#[test]
fn memory_that_is_not_mapped_ends_its_operation_and_the_receive_of_a_peer() {
    with_pair(|pair, comms| {
        let hosts = reach(pair);
        let regions = [0, 1].map(|me| pair.region(me));
        let whole = |me: usize| Body { region: regions[me], at: 0, bytes: 2000 };
        let beyond = |me: usize| Body { region: regions[me], at: BYTES as u64 - 1000, bytes: 2000 };
        for (from, into, ends) in [
            (beyond(0), whole(1), [Err(Failure::BadMemory), Err(Failure::Aborted)]),
            (whole(0), beyond(1), [Ok(()), Err(Failure::BadMemory)]),
            (beyond(0), beyond(1), [Err(Failure::BadMemory), Err(Failure::Aborted)]),
            (whole(0), whole(1), [Ok(()), Ok(())]),
        ] {
            let received = pair.begin(1, Command::Receive { comm: comms[1], source: 0, tag: 1, body: into });
            let command = Command::Send { comm: comms[0], dest: 1, tag: 1, mode: Mode::Standard, body: from };
            let sent = pair.begin(0, command);
            assert_eq!(pair.result(0, sent).unwrap().map(drop), ends[0]);
            assert_eq!(pair.result(1, received).unwrap().map(drop), ends[1]);
            assert_eq!(pair.nodes.each_mut().map(|node| node.server.in_use().host), [[1, 0]; 2]);
        }
        assert!(bytes_of(hosts[0], 0, 2000) == bytes_of(hosts[1], 0, 2000));
    });
}

#[test]
fn a_region_that_ends_takes_its_memory_from_operations_in_progress() {
    with_pair(|pair, comms| {
        let hosts = reach(pair);
        let regions = [0, 1].map(|me| pair.region(me));
        let before = hosts.map(|host| host.bytes.lock().unwrap().clone());
        let body = |me: usize| Body { region: regions[me], at: 0, bytes: 5000 };
        // A receive whose message comes later, and a send that waits for its receive.
        let receive = Command::Receive { comm: comms[1], source: 0, tag: 1, body: body(1) };
        let received = pair.begin(1, receive);
        let command = Command::Send { comm: comms[0], dest: 1, tag: 2, mode: Mode::Standard, body: body(0) };
        let sent = pair.begin(0, command);
        for me in [0, 1] {
            assert_eq!(pair.call(me, Command::DeregisterHost { region: regions[me] }), Ok(Done::default()));
            assert_eq!(hosts[me].open_count(), 0);
        }
        pair.send(0, comms[0], 1, Mode::Standard, &[9; 5000]);
        assert_eq!(pair.result(1, received), Some(Err(Failure::BadMemory)));
        let late = pair.begin(1, Command::Receive { comm: comms[1], source: 0, tag: 2, body: sink(5000) });
        assert_eq!(pair.result(1, late), Some(Err(Failure::Aborted)));
        assert_eq!(pair.result(0, sent), Some(Err(Failure::BadMemory)));
        assert!(hosts.map(|host| host.bytes.lock().unwrap().clone()) == before);
    });
}

#[test]
fn the_end_of_a_session_ends_its_regions() {
    with_pair(|pair, comms| {
        let hosts = reach(pair);
        let region = pair.region(0);
        let body = Body { region, at: 0, bytes: 5000 };
        let receive = Command::Receive { comm: comms[0], source: ANY, tag: 1, body };
        pair.begin(0, receive);
        pair.begin(0, Command::Send { comm: comms[0], dest: 1, tag: 1, mode: Mode::Standard, body });
        pair.settle();
        assert_eq!(pair.nodes[0].server.in_use().host, [1, 2]);
        let node = &mut pair.nodes[0];
        node.memory.word(at::WANTED).unwrap().store(0, Ordering::Release);
        node.host = attach(&mut node.server, node.memory, 1000);
        assert_eq!(node.server.in_use().host, [0, 0]);
        assert_eq!(hosts[0].open_count(), 0);
        node.completions.clear();
        let comm = pair.communicator(0, Body::default()).unwrap();
        let receive = Command::Receive { comm, source: ANY, tag: 1, body };
        assert_eq!(pair.call(0, receive), Err(Failure::OutOfBounds));
        assert_ne!(pair.region(0), region);
    });
}
