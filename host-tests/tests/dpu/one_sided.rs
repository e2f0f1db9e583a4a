//! Puts, gets and atomics of hosts on memory of other DPUs.

use towline_core::rail::access::Access;
use towline_core::rail::atomics::{Atomic, AtomicFlags, AtomicOp};
use towline_window::atomics::Ordering;
use towline_window::command::{ANY, Body, Command, KEY, KeyPlace, Remote};
use towline_window::completion::{Done, Failure};
use towline_window::header::at;
use towline_window::host::Host;

use crate::commands::{add_peer, begin, call, card, introduce, next, pattern};
use crate::processes::{Dpus, Protocol, wait};

/// Where things are in the buffers: messages, registered memory, the own key, and that of the other DPU.
const LOCAL: u64 = 64 << 10;
const SHARED: u64 = 8 << 20;
const OWN_KEY: u64 = 32 << 10;
const OTHER_KEY: u64 = OWN_KEY + KEY as u64;
/// Bytes of registered memory. The counter is behind the bytes that are put.
const BYTES: u64 = 4 << 20;
const COUNTER: u64 = BYTES - 8;
const ADD: Atomic = Atomic::Op(AtomicOp::Add, 1);

fn body(host: &Host<'_>, at: u64, bytes: u64) -> Body {
    Body { region: 0, at: host.card().layout.buffers + at, bytes }
}

fn key(host: &Host<'_>, at: u64) -> KeyPlace {
    KeyPlace { region: 0, at: body(host, at, 0).at }
}

fn read(host: &Host<'_>, at: u64, bytes: usize) -> Vec<u8> {
    let mut into = vec![0; bytes];
    host.memory().read(body(host, at, 0).at, &mut into).unwrap();
    into
}

fn write(host: &Host<'_>, at: u64, bytes: &[u8]) {
    host.memory().write(body(host, at, 0).at, bytes).unwrap();
}

/// Registers memory of a host.
fn register(host: &mut Host<'_>) -> u32 {
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let (memory, key) = (body(host, SHARED, BYTES), key(host, OWN_KEY));
    call(host, Command::Register { access, only: ANY, memory, key }).unwrap().value
}

/// Gives the key of a host to another one.
fn pass_key(from: &Host<'_>, to: &Host<'_>) {
    write(to, OTHER_KEY, &read(from, OWN_KEY, KEY));
}

fn put(host: &Host<'_>, peer: u32, offset: u64, bytes: usize) -> Command {
    let to = Remote { peer, offset, key: key(host, OTHER_KEY) };
    Command::Put { to, body: body(host, LOCAL, bytes as u64) }
}

fn get(host: &Host<'_>, peer: u32, offset: u64, bytes: usize) -> Command {
    let from = Remote { peer, offset, key: key(host, OTHER_KEY) };
    Command::Get { from, body: body(host, LOCAL, bytes as u64) }
}

fn add(host: &Host<'_>, peer: u32) -> Command {
    let at = Remote { peer, offset: COUNTER, key: key(host, OTHER_KEY) };
    Command::Atomic { at, atomic: ADD, flags: AtomicFlags::empty() }
}

/// Positions of the rings, which each command and each completion change.
fn positions(host: &Host<'_>) -> [u32; 2] {
    [at::COMMANDS_TAKEN, at::COMPLETIONS_TAKEN].map(|at| host.memory().word(at).unwrap().load(Ordering::Acquire))
}

#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_device_serves_registered_memory_while_its_host_makes_no_call() {
    let dpus = Dpus::start("one-sided", 2, Protocol::Udp);
    let mut hosts = [dpus.attach(0, 7), dpus.attach(1, 8)];
    introduce(&mut hosts);
    let [a, b] = &mut hosts;
    assert!(a.card().one_sided > 0);
    register(b);
    pass_key(b, a);
    let before = positions(b);
    // Around the longest datagrams over Ethernet and UDP, whose frames have headers, around twice that, and longer.
    let around = |length: usize| (length - 60..length + 4).step_by(3);
    let lengths = [0, 1, 7, 8, 63, 64, 65].into_iter().chain(around(1472)).chain(around(1500)).chain(around(2 * 1472));
    for length in lengths.chain([4096, 100_000, 1_000_000]) {
        let offset = length as u64 % 13;
        let bytes = pattern(length, length);
        write(a, LOCAL, &bytes);
        let command = put(a, 1, offset, length);
        assert_eq!(call(a, command), Ok(Done::default()), "{length} bytes");
        assert!(read(b, SHARED + offset, length) == bytes, "{length} bytes were put");
        write(a, LOCAL, &vec![0; length + 8]);
        let command = get(a, 1, offset, length);
        assert_eq!(call(a, command), Ok(Done::default()), "{length} bytes");
        assert!(read(a, LOCAL, length) == bytes && read(a, LOCAL + length as u64, 8) == [0; 8], "{length} were got");
    }
    let command = add(a, 1);
    for old in 0..5 {
        assert_eq!(call(a, command), Ok(Done { word: old, ..Done::default() }));
    }
    assert_eq!(read(b, SHARED + COUNTER, 8), 5_u64.to_le_bytes());
    for (offset, why) in [(COUNTER + 8, Failure::OutOfMemory), (COUNTER - 4, Failure::NotAvailable)] {
        let at = Remote { peer: 1, offset, key: key(a, OTHER_KEY) };
        let command = Command::Atomic { at, atomic: ADD, flags: AtomicFlags::empty() };
        assert_eq!(call(a, command), Err(why));
    }
    assert_eq!(positions(b), before, "its host has written a command, or taken a completion");
    assert_eq!(b.take(), Ok(None), "its device tells it nothing");
    // Memory of the own device, by the device.
    pass_key(b, b);
    write(b, LOCAL, &pattern(10_000, 3));
    let command = put(b, 1, 0, 10_000);
    assert_eq!(call(b, command), Ok(Done::default()));
    assert!(read(b, SHARED, 10_000) == pattern(10_000, 3));
}

#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn the_atomics_of_two_hosts_on_one_counter_are_all_counted() {
    const EACH: usize = 300;
    const AT_ONCE: usize = 6;
    let dpus = Dpus::start("counter", 3, Protocol::Udp);
    let mut hosts = [dpus.attach(0, 7), dpus.attach(1, 8), dpus.attach(2, 9)];
    introduce(&mut hosts);
    let [a, b, owner] = &mut hosts;
    let registration = register(owner);
    let mut seen = vec![];
    let mut counting = [a, b].map(|host| {
        pass_key(owner, host);
        (host, 0, 0)
    });
    wait("all are counted", || {
        for (host, begun, ended) in &mut counting {
            while *begun < EACH && *begun - *ended < AT_ONCE {
                *begun += 1;
                let command = add(host, 2);
                begin(host, *begun as u64, command);
            }
            while let Some(completion) = host.take().unwrap() {
                seen.push(completion.result.unwrap().word);
                *ended += 1;
            }
        }
        (seen.len() == 2 * EACH).then_some(())
    });
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..2 * EACH as u64), "each value is returned once");
    assert_eq!(read(owner, SHARED + COUNTER, 8), (2 * EACH as u64).to_le_bytes());
    // After its end, the registration is gone.
    assert_eq!(call(owner, Command::Deregister { registration }), Ok(Done::default()));
    let (host, ..) = &mut counting[0];
    let command = add(host, 2);
    assert_eq!(call(host, command), Err(Failure::StaleKey));
}

#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn operations_on_memory_of_a_lost_peer_end() {
    let mut dpus = Dpus::start("one-sided-lost", 2, Protocol::Udp);
    let mut hosts = [dpus.attach(0, 7), dpus.attach(1, 8)];
    introduce(&mut hosts);
    register(&mut hosts[1]);
    pass_key(&hosts[1], &hosts[0]);
    let [mut a, b] = hosts;
    let command = add(&a, 1);
    assert_eq!(call(&mut a, command), Ok(Done::default()));
    // In the middle of a long get and of a long put, the device of the memory is reset.
    let commands = [get(&a, 1, 0, BYTES as usize - 64), put(&a, 1, 0, BYTES as usize - 64)];
    commands.into_iter().for_each(|command| begin(&mut a, 1, command));
    dpus.restart(1);
    (0..4).for_each(|_| begin(&mut a, 2, command));
    let ends: Vec<_> = (0..6).map(|_| next(&mut a)).collect();
    for end in &ends {
        // If the reset takes long, nothing has answered meanwhile.
        let is_lost = matches!(end.result, Err(Failure::PeerFailed | Failure::Unreachable));
        assert!(is_lost && end.failed == 1, "{ends:?}");
    }
    b.detach();
    // The key of the former start is refused here, and nothing reaches the new memory.
    let mut b = dpus.attach(1, 10);
    let cards = [card(&mut a), card(&mut b)];
    add_peer(&mut a, 1, &cards[1]);
    add_peer(&mut b, 0, &cards[0]);
    assert_eq!(call(&mut a, command), Err(Failure::BadKey));
    register(&mut b);
    write(&b, SHARED + COUNTER, &[0; 8]);
    assert_eq!(call(&mut a, command), Err(Failure::BadKey));
    pass_key(&b, &a);
    assert_eq!(call(&mut a, command), Ok(Done::default()));
    // The session of the other host ends, as if it had died. Its device goes on, and its registrations have ended.
    b.memory().word(at::WANTED).unwrap().store(0, Ordering::Release);
    wait("the peer is lost", || {
        let result = call(&mut a, command);
        assert!(matches!(result, Ok(_) | Err(Failure::PeerFailed)), "{result:?}");
        result.is_err().then_some(())
    });
    let mut b = dpus.attach(1, 11);
    let cards = [card(&mut a), card(&mut b)];
    add_peer(&mut a, 1, &cards[1]);
    add_peer(&mut b, 0, &cards[0]);
    assert_eq!(call(&mut a, command), Err(Failure::StaleKey));
}
