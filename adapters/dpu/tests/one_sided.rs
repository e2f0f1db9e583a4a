//! Puts, gets and atomics of hosts, over devices that a thread of this process runs.

mod common;

use std::sync::mpsc;
use std::thread;

use common::{Devices, ENGINE, WINDOW, start_many};
use offload::Limits;
use towline_core::convertor::{Layout, Span};
use towline_core::pml::Config;
use towline_core::rma;
use towline_dpu::mapping::Mapping;
use towline_dpu::one_sided::{Access, Atomic, AtomicFlags, AtomicOp, Key, Registered, Remote};
use towline_dpu::{Failure, Lost, Options, Refusal, Transport};
use towline_window::atomics::Ordering;
use towline_window::completion;
use towline_window::header::at;

const BYTES: u64 = 400_000;
const ONE_SIDED: rma::Config = rma::Config { regions: 4, operations: 8, window: 4 };
const ADD: Atomic = Atomic::Op(AtomicOp::Add, 1);
const WORD: AtomicFlags = AtomicFlags::empty();

const fn engine(peers: u32) -> Config {
    Config { peers, rma: ONE_SIDED, ..ENGINE }
}

fn start(count: u32) -> Devices {
    start_many(count, Limits { engine: engine(count), communicators: 2, messages: 2 })
}

/// Hosts that know each other and themselves.
fn hosts(devices: &Devices) -> Vec<Transport> {
    let mut hosts: Vec<_> = (0..devices.files.len()).map(|node| devices.open(node)).collect();
    let cards: Vec<_> = hosts.iter_mut().map(|host| host.card().unwrap()).collect();
    for host in &mut hosts {
        for (peer, card) in (0..).zip(&cards) {
            host.add_peer(peer, card).unwrap();
        }
    }
    hosts
}

fn registered(host: &mut Transport, bytes: u64) -> Registered {
    let buffer = host.buffer(bytes).unwrap();
    host.register(buffer, Access::ANY, None).unwrap()
}

/// Two hosts, and memory of the second one.
fn pair(devices: &Devices) -> ([Transport; 2], Registered, Remote) {
    let [mut a, mut b] = <[_; 2]>::try_from(hosts(devices)).unwrap();
    let memory = registered(&mut b, BYTES);
    let key = Key::from_bytes(&memory.key().to_bytes()).unwrap();
    let remote = a.reach(1, &key).unwrap();
    ([a, b], memory, remote)
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ at >> 8 ^ seed) as u8).collect()
}

/// Puts bytes, and waits.
fn put(host: &mut Transport, remote: &Remote, offset: u64, bytes: &[u8]) -> Result<u64, Failure> {
    // SAFETY: the bytes live during the call.
    let access = unsafe { host.put(remote, offset, Span::of(bytes)) }.unwrap();
    host.wait_access(access)
}

/// Gets bytes, and waits.
fn get(host: &mut Transport, remote: &Remote, offset: u64, bytes: usize) -> Result<Vec<u8>, Failure> {
    let mut into = vec![0xa5; bytes];
    // SAFETY: the memory outlives the operation, and nothing else accesses it.
    let access = unsafe { host.get(remote, offset, Span::contiguous(into.as_mut_ptr(), bytes)) }.unwrap();
    host.wait_access(access).map(|_| into)
}

fn add(host: &mut Transport, remote: &Remote, offset: u64) -> Result<u64, Failure> {
    let access = host.atomic(remote, offset, ADD, WORD).unwrap();
    host.wait_access(access)
}

#[test]
fn bytes_of_any_memory_are_put_and_got() {
    let devices = start(2);
    let ([mut a, mut b], memory, remote) = pair(&devices);
    for (turn, length) in [0, 1, 8, 983, 984, 985, 1024, 1025, 10_000, 300_000].into_iter().enumerate() {
        let (bytes, offset) = (pattern(length, turn), 3 + turn as u64);
        assert_eq!(put(&mut a, &remote, offset, &bytes), Ok(0));
        let mut there = vec![0; length];
        assert!(b.copy(memory.buffer(), offset, &mut there));
        assert!(there == bytes, "{length} bytes were put");
        assert!(b.fill(memory.buffer(), offset, &pattern(length, turn + 7)));
        assert!(get(&mut a, &remote, offset, length) == Ok(pattern(length, turn + 7)), "{length} bytes were got");
    }
    let layout = Layout::vector(2, 4, 8).unwrap();
    let (mut from, mut to) = (*b"abcd....efgh", [b'-'; 12]);
    // SAFETY: layout and arrays outlive the operations.
    unsafe {
        let put = a.put(&remote, 0, Span::laid_out(from.as_mut_ptr(), &layout)).unwrap();
        assert_eq!(a.wait_access(put), Ok(0));
        let got = a.get(&remote, 0, Span::laid_out(to.as_mut_ptr(), &layout)).unwrap();
        assert_eq!(a.wait_access(got), Ok(0));
    }
    assert_eq!(&to, b"abcd----efgh");
    assert_eq!(get(&mut a, &remote, 0, 8).as_deref(), Ok(&b"abcdefgh"[..]));
    // Memory in the buffers is not copied.
    let buffer = a.buffer(1000).unwrap();
    assert!(a.fill(&buffer, 0, &pattern(1000, 3)));
    let access = a.put_buffer(&remote, 500, &buffer, 900).unwrap();
    assert_eq!(a.wait_access(access), Ok(0));
    assert!(a.fill(&buffer, 0, &[0; 1000]));
    let access = a.get_buffer(&remote, 500, &buffer, 900).unwrap();
    assert_eq!(a.wait_access(access), Ok(0));
    let mut into = vec![0; 1000];
    assert!(a.copy(&buffer, 0, &mut into));
    assert!(into[..900] == pattern(1000, 3)[..900] && into[900..] == [0; 100]);
    // All copies and keys were returned.
    a.free(buffer);
    a.forget_remote(remote);
    let all = a.buffer(WINDOW as u64 * 3 / 4).unwrap();
    a.free(all);
}

#[test]
fn the_host_of_the_memory_makes_no_call() {
    let devices = start(2);
    let ([mut a, b], memory, remote) = pair(&devices);
    let mapping = Mapping::open(&devices.files[1], 0).unwrap();
    // SAFETY: the mapping outlives it.
    let window = unsafe { mapping.memory() }.unwrap();
    // What the other host writes, and what it makes the device write: positions of rings.
    let positions =
        || [at::COMMANDS_TAKEN, at::COMPLETIONS_TAKEN].map(|at| window.word(at).unwrap().load(Ordering::Acquire));
    let before = positions();
    let place = b.address_of(memory.buffer()).addr().get();
    let (sender, receiver) = mpsc::channel();
    // The other host is in a call of the operating system, and in none of the transport.
    let other = thread::spawn(move || {
        let () = receiver.recv().unwrap();
        let mut b = b;
        let completions = b.progress();
        (b, completions)
    });
    assert_eq!(put(&mut a, &remote, 64, b"written by the device"), Ok(0));
    assert_eq!((0..10).map(|_| add(&mut a, &remote, 0).unwrap()).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    assert_eq!(get(&mut a, &remote, 0, 8), Ok(10_u64.to_le_bytes().to_vec()));
    // The window has it all, although the host that maps it has not run.
    let mut bytes = vec![0; WINDOW];
    window.read(0, &mut bytes).unwrap();
    let found = bytes.windows(21).position(|bytes| bytes == b"written by the device").expect("it was put there");
    assert_eq!(found % 4096, (place + 64) % 4096, "in the registered memory");
    assert_eq!(bytes[found - 64..][..8], 10_u64.to_le_bytes());
    assert_eq!(positions(), before, "the host has written a command, or taken a completion");
    sender.send(()).unwrap();
    let (b, completions) = other.join().unwrap();
    assert_eq!(completions, 0, "the device tells its host nothing");
    drop((b, memory));
}

#[test]
fn two_hosts_count_on_one_word() {
    const EACH: u64 = 2000;
    let devices = start(3);
    let mut all = hosts(&devices);
    let memory = registered(&mut all[2], 64);
    let key = memory.key();
    let owner = all.pop().unwrap();
    let counting: Vec<_> = all
        .into_iter()
        .map(|mut host| {
            thread::spawn(move || {
                let remote = host.reach(2, &key).unwrap();
                let (mut begun, mut seen) = (vec![], vec![]);
                for _ in 0..EACH {
                    if begun.len() == 5 {
                        seen.push(host.wait_access(begun.remove(0)).unwrap());
                    }
                    begun.push(host.atomic(&remote, 8, ADD, WORD).unwrap());
                    // By compare and swap, in competition with the other host.
                    let mut word = 0;
                    loop {
                        let swap = host.atomic(&remote, 16, Atomic::CompareSwap(word, word + 1), WORD).unwrap();
                        match host.wait_access(swap).unwrap() {
                            old if old == word => break,
                            old => word = old,
                        }
                    }
                }
                host.flush(Some(2)).unwrap();
                seen.extend(begun.into_iter().map(|access| host.test_access(access).unwrap().unwrap()));
                seen
            })
        })
        .collect();
    let mut seen: Vec<_> = counting.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..2 * EACH), "each value is returned once");
    let mut words = [0; 16];
    assert!(owner.copy(memory.buffer(), 8, &mut words));
    assert_eq!(words, *[2 * EACH; 2].map(u64::to_le_bytes).as_flattened());
}

#[test]
fn the_key_stays_in_the_buffers_until_its_operations_are_over() {
    let devices = start(2);
    let ([mut a, b], memory, remote) = pair(&devices);
    let key = memory.key();
    a.forget_remote(remote);
    for turn in 0..50 {
        let remote = a.reach(1, &key).unwrap();
        let begun: Vec<_> = (0..4).map(|_| a.atomic(&remote, 0, ADD, WORD).unwrap()).collect();
        a.forget_remote(remote);
        // Whoever gets the memory of the key would change it.
        let other = a.buffer(64).unwrap();
        assert!(a.fill(&other, 0, &[0xff; 64]));
        for (at, access) in (0..).zip(begun) {
            assert_eq!(a.wait_access(access), Ok(turn * 4 + at));
        }
        a.free(other);
    }
    drop(b);
}

#[test]
fn deregistered_memory_is_the_owners_again() {
    let devices = start(2);
    let ([mut a, mut b], memory, remote) = pair(&devices);
    assert_eq!(add(&mut a, &remote, 0), Ok(0));
    let buffer = b.deregister(memory).unwrap();
    let stale = Err(Failure::Operation(completion::Failure::StaleKey));
    assert_eq!(add(&mut a, &remote, 0), stale);
    // The same memory again, with fewer rights, and for host 0 alone.
    let memory = b.register(buffer, Access::REMOTE_READ, Some(0)).unwrap();
    assert_eq!(add(&mut a, &remote, 0), stale);
    let remote = a.reach(1, &memory.key()).unwrap();
    assert_eq!(add(&mut a, &remote, 0), Err(Failure::Operation(completion::Failure::NoRight)));
    assert_eq!(get(&mut a, &remote, 0, 8), Ok(1_u64.to_le_bytes().to_vec()));
    let own = b.reach(1, &memory.key()).unwrap();
    assert_eq!(get(&mut b, &own, 0, 8), Err(Failure::Operation(completion::Failure::NoRight)));
    let buffer = b.deregister(memory).unwrap();
    b.free(buffer);
    // Its session ends what it has registered.
    let memory = registered(&mut b, BYTES);
    let remote = a.reach(1, &memory.key()).unwrap();
    assert!(add(&mut a, &remote, 0).is_ok());
    drop((b, own, memory));
    let mut b = devices.open(1);
    let cards = [a.card().unwrap(), b.card().unwrap()];
    b.add_peer(0, &cards[0]).unwrap();
    a.del_peer(1).unwrap();
    a.add_peer(1, &cards[1]).unwrap();
    assert_eq!(add(&mut a, &remote, 0), stale);
}

#[test]
fn what_cannot_be_begun_is_refused() {
    let devices = start(2);
    let ([mut a, mut b], memory, remote) = pair(&devices);
    let refused = |result: Result<Registered, (Refusal, _)>| result.map(drop).map_err(|(why, _)| why);
    let buffer = a.buffer(64).unwrap();
    let (why, buffer) = b.register(buffer, Access::ANY, None).unwrap_err();
    assert_eq!(why, Refusal::Invalid, "it is of another transport");
    let (why, buffer) = a.register(buffer, Access::LOCAL_WRITE, None).unwrap_err();
    assert_eq!(why, Refusal::Invalid, "peers have no right");
    let unknown = a.register(buffer, Access::ANY, Some(9));
    assert_eq!(refused(unknown), Err(Refusal::Device(completion::Failure::NoSuchThing)));
    assert_eq!(b.atomic(&remote, 0, ADD, WORD), Err(Refusal::Invalid), "it is of another transport");
    assert!(matches!(a.deregister(memory), Err((Refusal::Invalid, _))), "it is of another transport");
    // As many as the device says, which the host counts until it takes completions.
    let most = ONE_SIDED.operations;
    let begun: Vec<_> = (0..most).map(|_| a.atomic(&remote, 0, ADD, WORD).unwrap()).collect();
    assert_eq!(a.atomic(&remote, 0, ADD, WORD), Err(Refusal::Busy));
    assert!(begun.into_iter().all(|access| a.wait_access(access).is_ok()));
    assert_eq!(add(&mut a, &remote, 0), Ok(most.into()));
    assert_eq!(add(&mut a, &remote, BYTES), Err(Failure::Operation(completion::Failure::OutOfMemory)));
    assert_eq!(add(&mut a, &remote, 4), Err(Failure::Operation(completion::Failure::NotAvailable)));
    a.lose_peer(1).unwrap();
    assert_eq!(add(&mut a, &remote, 0), Err(Failure::Operation(completion::Failure::PeerFailed)));
}

#[test]
fn a_device_without_one_sided_operations_is_named_as_the_reason() {
    // A device whose firmware was built without them.
    let devices = start_many(1, Limits { engine: ENGINE, communicators: 2, messages: 2 });
    let mut host = devices.open(0);
    let buffer = host.buffer(64).unwrap();
    let (why, _) = host.register(buffer, Access::ANY, None).unwrap_err();
    assert!(matches!(why, Refusal::NoOneSided(_)) && why.to_string().contains("built without them"), "{why}");
    drop(host);
    // A device of the version before, whose word for their number is reserved.
    let devices = start(1);
    let mapping = Mapping::open(&devices.files[0], 0).unwrap();
    // SAFETY: the mapping outlives it.
    let memory = unsafe { mapping.memory() }.unwrap();
    memory.write(at::VERSION, &(1_u32 << 16).to_le_bytes()).unwrap();
    let mut host = Transport::open(&devices.files[0], Options::default()).unwrap();
    let buffer = host.buffer(64).unwrap();
    let (why, _) = host.register(buffer, Access::ANY, None).unwrap_err();
    assert_eq!(why, Refusal::NoOneSided(1 << 16));
    assert!(why.to_string().contains("version 1.0, and they came with 1.1: update its firmware"), "{why}");
    assert!(!host.card().unwrap().is_empty(), "all else works");
}

#[test]
fn operations_end_if_their_device_stops() {
    let mut devices = start(2);
    let ([mut a, b], memory, remote) = pair(&devices);
    devices.stop();
    let access = a.atomic(&remote, 0, ADD, WORD).unwrap();
    assert_eq!(a.flush(None), Err(Failure::Device(Lost::Silent)));
    assert_eq!(a.wait_access(access), Err(Failure::Device(Lost::Silent)));
    assert_eq!(a.atomic(&remote, 0, ADD, WORD), Err(Refusal::Lost(Lost::Silent)));
    drop((b, memory));
}
