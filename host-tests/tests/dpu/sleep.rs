//! Devices and hosts that sleep as often as they can, and that nothing but the doorbell, the network and the timers of the engine wake: the longest
//! sleep is longer than a test may last.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use towline_core::convertor::Span;
use towline_core::pml::offload::Offload as _;
use towline_dpu::matching::Matching;
use towline_dpu::{Comm, Mode, Options, Source, Tag, Transport};
use towline_window::atomics::Ordering;
use towline_window::doorbell::{HOST_PIPE, PIPE};
use towline_window::header::at;
use towline_window::host::DeviceError;

use crate::asleep::{SLEEPY, has_rung, wait_asleep};
use crate::processes::{Dpus, Protocol, wait};

/// Rounds of a test, and how many more there may be until a side has slept often enough: how often it finds nothing to do depends on the
/// machine.
const ROUNDS: u32 = 3000;
const MOST: u32 = 100 * ROUNDS;
/// How often a side has to sleep.
const SLEEPS: u32 = ROUNDS / 10;

/// Sleepy devices.
fn sleepy(name: &str, count: usize) -> Dpus {
    Dpus::start_with(name, count, Protocol::Udp, &SLEEPY)
}

fn open(dpus: &Dpus, number: usize) -> Transport {
    let (file, offset) = dpus.place(number);
    Transport::open_at(&file, offset, Options::default()).unwrap()
}

/// How often the device has slept. The number counts begins and ends.
fn sleeps(dpus: &Dpus, number: usize) -> u32 {
    sleep_of(dpus, number) / 2
}

/// The number of the device's sleep, which is odd while it sleeps.
fn sleep_of(dpus: &Dpus, number: usize) -> u32 {
    u32::from_le(dpus.memory(number).word(at::DEVICE_SLEEPS).unwrap().load(Ordering::Relaxed))
}

/// Computes for a while, which is shorter or longer than the device needs to fall asleep.
fn compute(number: u32) {
    for _ in 0..number.wrapping_mul(2_654_435_761) >> 19 {
        std::hint::spin_loop();
    }
}

fn introduce<const N: usize>(transports: &mut [Transport; N]) -> [Comm; N] {
    let cards = transports.each_mut().map(|transport| transport.card().unwrap());
    let peers: Vec<u32> = (0..N as u32).collect();
    let mut rank = 0;
    transports.each_mut().map(|transport| {
        peers.iter().zip(&cards).for_each(|(peer, card)| transport.add_peer(*peer, card).unwrap());
        rank += 1;
        transport.add_comm(1, &peers, rank - 1).unwrap()
    })
}

#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_sleepy_device_misses_no_command() {
    let dpus = sleepy("sleepy", 1);
    for _ in 0..3 {
        // The device wakes for the begin and for the end of a session, too.
        let mut transports = [open(&dpus, 0)];
        let [comm] = introduce(&mut transports);
        let [transport] = &mut transports;
        let before = sleeps(&dpus, 0);
        for round in 0..MOST {
            if round >= ROUNDS && sleeps(&dpus, 0) - before > SLEEPS {
                break;
            }
            compute(round);
            // A command that the caller waits for: the device has nothing else to do.
            assert_eq!(transport.count(0).unwrap().1, 0);
        }
        assert!(sleeps(&dpus, 0) - before > SLEEPS, "it slept only {} times", sleeps(&dpus, 0) - before);
        for round in 0..ROUNDS / 10 {
            // Many commands, so that the rings are full and the device waits for slots.
            let (mut sent, mut received) = (vec![0; 256], vec![0; 256]);
            sent.iter_mut().zip(0..).for_each(|(word, at)| *word = round + at);
            let mut requests = Vec::new();
            for (from, into) in sent.iter().zip(&mut received) {
                if from % 32 == 0 {
                    compute(*from);
                }
                let bytes = Span::of(zerocopy::IntoBytes::as_bytes(from));
                let sink = Span::contiguous(std::ptr::from_mut(into).cast(), 4);
                // SAFETY: the words outlive the operations.
                requests.push(unsafe { transport.irecv(comm, Source::Rank(0), Tag::Is(round), sink) }.unwrap());
                // SAFETY: as above.
                requests.push(unsafe { transport.isend(comm, 0, round, Mode::Standard, bytes) }.unwrap());
            }
            for request in requests {
                transport.wait(request).unwrap();
            }
            assert_eq!(received, sent);
        }
    }
}

#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn sleepy_devices_exchange_messages() {
    let dpus = sleepy("sleepy-pair", 2);
    let mut transports = [open(&dpus, 0), open(&dpus, 1)];
    let comms = introduce(&mut transports);
    for round in 0..MOST {
        if round >= ROUNDS && sleeps(&dpus, 0) > SLEEPS && sleeps(&dpus, 1) > SLEEPS {
            break;
        }
        compute(round);
        let (me, other) = ((round & 1) as usize, 1 - (round & 1) as usize);
        let mut answer = [0; 1];
        let sink = Span::contiguous((&raw mut answer).cast(), 4);
        // SAFETY: the words outlive the operations.
        let (received, sent) = unsafe {
            let received = transports[other].irecv(comms[other], Source::Rank(me as u32), Tag::Is(5), sink).unwrap();
            let question = Span::of(zerocopy::IntoBytes::as_bytes(&round));
            (received, transports[me].isend(comms[me], other as u32, 5, Mode::Synchronous, question).unwrap())
        };
        assert_eq!(transports[other].wait(received).unwrap().received, 4);
        transports[me].wait(sent).unwrap();
        assert_eq!(answer, [round]);
    }
    assert!(sleeps(&dpus, 0) > SLEEPS && sleeps(&dpus, 1) > SLEEPS);
}

/// The device may ring when its host is awake by something else already.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_late_bell_does_not_end_the_sleeps_of_a_host_without_operations() {
    let dpus = sleepy("late-bell", 1);
    let (file, _) = dpus.place(0);
    let mut matching = Matching::new(open(&dpus, 0));
    let mut pipe = file.into_os_string();
    pipe.push(HOST_PIPE);
    let mut pipe = OpenOptions::new().write(true).open(pipe).unwrap();
    for _ in 0..2 {
        pipe.write_all(&[0]).unwrap();
        assert!(has_rung(matching.bell(), 0) && matching.arm());
        assert!(!has_rung(matching.bell(), 0));
    }
}

#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_host_that_sleeps_misses_no_completion_of_a_sleepy_device() {
    let dpus = sleepy("sleepy-host", 1);
    for _ in 0..3 {
        let mut transports = [open(&dpus, 0)];
        let [comm] = introduce(&mut transports);
        let [transport] = &mut transports;
        let mut slept = 0;
        for round in 0..MOST {
            if round >= ROUNDS && slept > SLEEPS {
                break;
            }
            compute(round);
            let mut answer = [0; 1];
            let sink = Span::contiguous((&raw mut answer).cast(), 4);
            // SAFETY: the words outlive the operations.
            let (received, sent) = unsafe {
                let received = transport.irecv(comm, Source::Rank(0), Tag::Is(5), sink).unwrap();
                let question = Span::of(zerocopy::IntoBytes::as_bytes(&round));
                (received, transport.isend(comm, 0, 5, Mode::Synchronous, question).unwrap())
            };
            slept += wait_asleep(transport, received) + wait_asleep(transport, sent);
            assert_eq!(answer, [round]);
        }
        assert!(slept > SLEEPS, "it slept only {slept} times");
    }
}

/// Waits until an idle device sleeps and nothing wakes it. Meanwhile another one executes commands, before each of which it was asleep, too.
/// Returns the number of the sleep.
fn settle(dpus: &Dpus, idle: usize, (other, host): (usize, &mut Transport)) -> u32 {
    for _ in 0..500 {
        let sleep = sleep_of(dpus, idle);
        for _ in 0..50 {
            wait("the other device sleeps", || (sleep_of(dpus, other) & 1 != 0).then_some(()));
            host.card().unwrap();
        }
        if sleep & 1 != 0 && sleep == sleep_of(dpus, idle) {
            return sleep;
        }
    }
    panic!("the idle device wakes again and again");
}

/// Each request of an interrupt is taken back. Otherwise the device would wake at once.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn an_idle_device_sleeps_until_something_arrives() {
    let dpus = sleepy("idle", 2);
    let (_host, mut other) = (open(&dpus, 0), open(&dpus, 1));
    let (file, _) = dpus.place(0);
    let mut pipe = file.into_os_string();
    pipe.push(PIPE);
    let mut pipe = OpenOptions::new().write(true).open(pipe).unwrap();
    let mut sleep = settle(&dpus, 0, (1, &mut other));
    for round in 0..8 {
        // The port of a process is not known here. Its peers wake it in another test.
        match round % 4 {
            0 if dpus.are_virtual() => dpus.send_unknown_frame(0),
            1 => pipe.write_all(&[0; 100]).unwrap(),
            _ => pipe.write_all(&[0]).unwrap(),
        }
        wait("the device wakes", || (sleep_of(&dpus, 0) != sleep).then_some(()));
        sleep = settle(&dpus, 0, (1, &mut other));
    }
}

/// The time ends the sleep of a device with the usual settings, so that its host sees heartbeats.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_sleeping_device_shows_heartbeats() {
    let dpus = Dpus::start("heartbeats", 1, Protocol::Udp);
    let _host = open(&dpus, 0);
    let heartbeat = || dpus.memory(0).word(at::HEARTBEAT).unwrap().load(Ordering::Acquire);
    for _ in 0..3 {
        let sleep = wait("the device sleeps", || Some(sleep_of(&dpus, 0)).filter(|sleep| sleep & 1 != 0));
        let before = heartbeat();
        wait("the device wakes", || (sleep_of(&dpus, 0) != sleep && heartbeat() != before).then_some(()));
    }
}

/// Whoever may use the window of a process may use its pipes, whatever the process gives to other files. `towline dpu up` makes those of
/// other boards.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn the_pipes_have_the_rights_of_the_window() {
    if std::env::var("TOWLINE_FIRMWARE_BOARD").is_ok_and(|board| board != "linux") {
        return;
    }
    let mut dpus = Dpus::start("rights", 1, Protocol::Udp);
    let host = dpus.attach(0, 7);
    let (window, _) = dpus.place(0);
    let pipes = [PIPE, HOST_PIPE].map(|suffix| {
        let mut pipe = window.clone().into_os_string();
        pipe.push(suffix);
        pipe
    });
    pipes.iter().for_each(|pipe| fs::remove_file(pipe).unwrap());
    // The rights of the group and of others are usually not given to new files.
    fs::set_permissions(&window, Permissions::from_mode(0o666)).unwrap();
    dpus.restart(0);
    wait("the device has started again", || (host.check() == Err(DeviceError::Restarted)).then_some(()));
    for pipe in pipes {
        assert_eq!(fs::metadata(pipe).unwrap().mode() & 0o777, 0o666);
    }
}
