//! Commands to two DPUs, and a reset of one of them.

use towline_window::command::{ANY, Body, Command, Mode};
use towline_window::completion::{Completion, Done, Failure};
use towline_window::fault::Fault;
use towline_window::host::{AttachError, Attaching, DeviceError, Host};
use towline_window::ring::Pushed;

use crate::processes::{Dpus, Protocol, is_emulated, is_virtual, wait};

/// Executes a command, and returns its result. No other command is in progress.
pub fn call(host: &mut Host<'_>, command: Command) -> Result<Done, Failure> {
    begin(host, 1, command);
    let completion = next(host);
    assert_eq!(completion.cookie, 1);
    completion.result
}

pub fn begin(host: &mut Host<'_>, cookie: u64, command: Command) {
    assert_eq!(host.command(cookie, &command), Ok(Pushed::Done));
}

pub fn next(host: &mut Host<'_>) -> Completion {
    wait("a command completes", || host.take().unwrap())
}

pub fn card(host: &mut Host<'_>) -> Vec<u8> {
    let at = host.card().layout.buffers;
    let length = call(host, Command::Publish { into: Body { region: 0, at, bytes: 1024 } }).unwrap().value;
    let mut card = vec![0; length as usize];
    host.memory().read(at, &mut card).unwrap();
    card
}

/// Introduces all devices to each other and to themselves, and returns the number of a communicator of all.
pub fn introduce<const N: usize>(hosts: &mut [Host<'_>; N]) -> [u32; N] {
    let cards: Vec<_> = hosts.iter_mut().map(card).collect();
    let mut comms = [0; N];
    for ((rank, host), comm) in (0..).zip(hosts).zip(&mut comms) {
        for (peer, card) in (0..).zip(&cards) {
            add_peer(host, peer, card);
        }
        let command = Command::AddCommunicator { context: 1, rank, size: N as u32, peers: Body::default() };
        *comm = call(host, command).unwrap().value;
    }
    comms
}

/// Adds a peer by its card.
pub fn add_peer(host: &mut Host<'_>, peer: u32, card: &[u8]) {
    let at = host.card().layout.buffers;
    host.memory().write(at, card).unwrap();
    let card = Body { region: 0, at, bytes: card.len() as u64 };
    call(host, Command::AddPeer { peer, card }).unwrap();
}

pub fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ at >> 8 ^ seed) as u8).collect()
}

#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn two_devices_exchange_messages_while_their_hosts_make_no_call() {
    Protocol::all().iter().for_each(|protocol| exchange(*protocol));
}

fn exchange(protocol: Protocol) {
    let dpus = Dpus::start(&format!("exchange-{protocol:?}"), 2, protocol);
    assert!(dpus.attach(0, 3).card().description().starts_with("towline firmware "));
    // The session of the first host ends as if it had died.
    dpus.memory(0)
        .word(towline_window::header::at::WANTED)
        .unwrap()
        .store(0, towline_window::atomics::Ordering::Release);
    let mut hosts = [dpus.attach(0, 7), dpus.attach(1, 8)];
    let comms = introduce(&mut hosts);
    let at = hosts[0].card().layout.buffers;
    for (number, length) in (0..).zip([0, 1, 100, 1024, 1025, 5000, 100_000, 1_000_000]) {
        for (from, to) in [(0, 1), (1, 0), (0, 0)] {
            let bytes = pattern(length, number as usize);
            hosts[from].memory().write(at, &bytes).unwrap();
            let body = Body { region: 0, at, bytes: length as u64 };
            let sink = Body { at: at + (4 << 20), ..body };
            let receive = Command::Receive { comm: comms[to], source: from as u32, tag: ANY, body: sink };
            let mode = Mode::Synchronous;
            let send = Command::Send { comm: comms[from], dest: to as u32, tag: number, mode, body };
            begin(&mut hosts[to], 20, receive);
            begin(&mut hosts[from], 10, send);
            let mut ends = if from == to {
                vec![next(&mut hosts[to]), next(&mut hosts[to])]
            } else {
                vec![next(&mut hosts[from]), next(&mut hosts[to])]
            };
            ends.sort_by_key(|completion| completion.cookie);
            assert_eq!(ends[0], Completion::new(10, Ok(Done::default())));
            let length = length as u64;
            let done = Done { rank: from as u32, tag: number, received: length, delivered: length, value: 0, word: 0 };
            assert_eq!(ends[1], Completion::new(20, Ok(done)));
            let mut into = vec![0; bytes.len()];
            hosts[to].memory().read(sink.at, &mut into).unwrap();
            assert!(into == bytes, "{length} bytes from {from} to {to} were changed");
        }
    }
    // Long messages in both directions at the same time.
    let long = Body { region: 0, at, bytes: 1_000_000 };
    let sinks = Body { at: at + (4 << 20), ..long };
    for (me, host) in hosts.iter_mut().enumerate() {
        host.memory().write(at, &pattern(1_000_000, me)).unwrap();
        begin(host, 20, Command::Receive { comm: comms[me], source: 1 - me as u32, tag: 77, body: sinks });
    }
    for (me, host) in hosts.iter_mut().enumerate() {
        let dest = 1 - me as u32;
        begin(host, 10, Command::Send { comm: comms[me], dest, tag: 77, mode: Mode::Standard, body: long });
    }
    for (me, host) in hosts.iter_mut().enumerate() {
        let ends = [next(host), next(host)];
        assert!(ends.iter().all(|end| end.result.is_ok()), "{ends:?}");
        let mut into = vec![0; 1_000_000];
        host.memory().read(sinks.at, &mut into).unwrap();
        assert!(into == pattern(1_000_000, 1 - me));
    }
    let heartbeat = hosts[0].check().unwrap();
    wait("the heartbeat changes", || (hosts[0].check() != Ok(heartbeat)).then_some(()));
}

/// The fault that the device of a host reports.
fn fault_of(host: &Host<'_>) -> Fault {
    wait("the host learns of a fault", || match host.check() {
        Err(DeviceError::Failed(fault)) => Some(fault),
        _ => None,
    })
}

/// The handler of a board's exceptions reports to the host. A process of board linux has no handler.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn an_exception_is_reported_to_the_host() {
    if !is_emulated() {
        return;
    }
    let mut dpus = Dpus::start("exception", 1, Protocol::Udp);
    let host = dpus.attach(0, 7);
    assert!(host.check().is_ok());
    let instruction = dpus.crash(0);
    let fault = fault_of(&host);
    let exception = fault.exception.expect("it was an exception");
    assert_eq!((fault.number, exception.instruction), (102, instruction), "{fault}");
    let refused = Attaching::new(dpus.memory(0), 8).unwrap_err();
    assert_eq!(refused, AttachError::Failed(fault));
    // A reset brings the device back.
    dpus.restart(0);
    assert!(dpus.attach(0, 9).check().is_ok());
}

/// The handler reads the text of the panic from an address that has none. On `virt-riscv64`, an exception follows.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_panic_of_a_driver_is_reported_to_the_host() {
    if !is_virtual() {
        return;
    }
    let mut dpus = Dpus::start("panic", 1, Protocol::Udp);
    let host = dpus.attach(0, 7);
    assert!(host.check().is_ok());
    dpus.panic(0);
    let fault = fault_of(&host);
    assert_eq!((fault.number, fault.exception), (101, None), "{fault}");
    dpus.wait(0);
    assert_eq!(fault_of(&host), fault, "an exception in the handler is not reported");
}

#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_device_that_is_reset_serves_its_host_again() {
    let mut dpus = Dpus::start("reset", 2, Protocol::Udp);
    let mut hosts = [dpus.attach(0, 7), dpus.attach(1, 8)];
    let comms = introduce(&mut hosts);
    let body = Body { region: 0, at: hosts[0].card().layout.buffers, bytes: 4 };
    let receive = |comm, source| Command::Receive { comm, source, tag: 5, body };
    // Once they have talked, the devices are connected. A device that never was is given up after a minute only.
    begin(&mut hosts[1], 4, receive(comms[1], 0));
    begin(&mut hosts[0], 5, Command::Send { comm: comms[0], dest: 1, tag: 5, mode: Mode::Synchronous, body });
    hosts.iter_mut().for_each(|host| assert!(next(host).result.is_ok()));
    begin(&mut hosts[0], 2, receive(comms[0], 1));
    begin(&mut hosts[1], 3, receive(comms[1], 0));
    dpus.restart(0);
    let [old, mut other] = hosts;
    wait("the host notices the reset", || (old.check() == Err(DeviceError::Restarted)).then_some(()));
    old.detach();
    // The other device loses its peer, and says so. If the reset takes long, nothing has answered it meanwhile.
    let end = next(&mut other);
    let why = [Failure::PeerFailed, Failure::Unreachable];
    assert!(why.map(|why| Completion { failed: 0, ..Completion::new(3, Err(why)) }).contains(&end), "{end:?}");
    let mut host = dpus.attach(0, 9);
    let card = card(&mut host);
    add_peer(&mut host, 0, &card);
    let command = Command::AddCommunicator { context: 1, rank: 0, size: 1, peers: Body::default() };
    let comm = call(&mut host, command).unwrap().value;
    begin(&mut host, 2, receive(comm, 0));
    let send = Command::Send { comm, dest: 0, tag: 5, mode: Mode::Standard, body: Body { at: body.at + 64, ..body } };
    begin(&mut host, 3, send);
    let mut ends = [next(&mut host), next(&mut host)];
    ends.sort_by_key(|completion| completion.cookie);
    assert!(ends[0].result.is_ok() && ends[1].result.is_ok(), "{ends:?}");
}

#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn devices_that_have_forgotten_each_other_meet_again() {
    let dpus = Dpus::start("again", 2, Protocol::Udp);
    let mut hosts = [dpus.attach(0, 7), dpus.attach(1, 8)];
    let mut comms = introduce(&mut hosts);
    let cards = hosts.each_mut().map(card);
    let body = Body { region: 0, at: hosts[0].card().layout.buffers, bytes: 4 };
    for turn in 0..10 {
        for (me, host) in hosts.iter_mut().enumerate() {
            begin(host, 2, Command::Receive { comm: comms[me], source: 1 - me as u32, tag: 5, body });
            let mode = Mode::Synchronous;
            begin(host, 3, Command::Send { comm: comms[me], dest: 1 - me as u32, tag: 5, mode, body });
        }
        for host in &mut hosts {
            let ends = [next(host), next(host)];
            assert!(ends.iter().all(|end| end.result.is_ok()), "{ends:?}");
        }
        for (me, host) in hosts.iter_mut().enumerate() {
            call(host, Command::DeletePeer { peer: 1 - me as u32 }).unwrap();
        }
        for (me, host) in hosts.iter_mut().enumerate() {
            add_peer(host, 1 - me as u32, &cards[1 - me]);
        }
        // A device that has heard of the end of the other one before it was deleted takes it for another process.
        for (rank, host) in (0..).zip(&mut hosts) {
            call(host, Command::DeleteCommunicator { comm: comms[rank as usize] }).unwrap();
            let command = Command::AddCommunicator { context: turn + 2, rank, size: 2, peers: Body::default() };
            comms[rank as usize] = call(host, command).unwrap().value;
        }
    }
}
