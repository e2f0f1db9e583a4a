//! Two processes: checked data in both directions, with sleep in between, and the death of one.
#![cfg(not(loom))]

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant as Clock};

use towline_core::convertor::Span;
use towline_core::rail::{Cookie, Endpoint, Event, Frame, Lane, Lost, Peer, Rail as _, SendError, Shape};
use towline_core::time::Instant;
use towline_sm::{Config, Rail};

const MESSAGES: usize = 4000;

fn wait_for_event(rail: &mut Rail) {
    rail.wait(Some(Duration::from_millis(250)));
}

fn send(rail: &mut Rail, to: Endpoint, lane: Lane, bytes: &[u8]) -> bool {
    let shape = Shape { tag: 0x99, lane, header: 0, len: bytes.len() as u32 };
    // SAFETY: the body outlives the call, and this rail copies.
    match unsafe { rail.send(to, shape, &[], Span::of(bytes), Cookie(0)) } {
        Ok(_) => true,
        Err(SendError::Busy) => false,
        Err(error) => panic!("{error}"),
    }
}

fn message(number: usize) -> (Lane, Vec<u8>) {
    let (lane, len) = match number % 5 {
        0 => (Lane::Bulk, 16_000),
        1 => (Lane::Eager, 8 + number % 4000),
        2 => (Lane::Control, 30),
        _ => (Lane::Eager, 8 + number % 48),
    };
    let mut bytes: Vec<u8> = (0..len).map(|at| (at * 3 + number) as u8).collect();
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
    (lane, bytes)
}

/// Sends all messages and receives all of the other process's; checks their numbers and bytes.
fn exchange(rail: &mut Rail, to: Endpoint, clock: Clock) {
    let (mut sent, mut got) = (0, vec![false; MESSAGES]);
    let mut missing = MESSAGES;
    while sent < MESSAGES || missing > 0 {
        let mut idle = true;
        if sent < MESSAGES {
            let (lane, bytes) = message(sent);
            if send(rail, to, lane, &bytes) {
                sent += 1;
                idle = false;
            }
        }
        match rail.poll(now(clock)) {
            Some(Event::Frame(frame)) => {
                check(rail, &frame, &mut got);
                missing -= 1;
                idle = false;
            }
            Some(event) => panic!("{event:?}"),
            None => {}
        }
        if idle {
            wait_for_event(rail);
        }
        assert!(clock.elapsed() < Duration::from_secs(300), "sent {sent}, missing {missing}");
    }
}

fn check(rail: &mut Rail, frame: &Frame, got: &mut [bool]) {
    let number = u64::from_le_bytes(frame.head()[..8].try_into().unwrap()) as usize;
    let mut bytes = vec![0; frame.len as usize];
    if frame.is_whole() {
        bytes.copy_from_slice(frame.head());
    } else {
        // SAFETY: the sink is ours, and this rail delivers at once.
        unsafe { rail.deliver(frame.id, 0, Span::contiguous(bytes.as_mut_ptr(), bytes.len()), Cookie(0)) };
    }
    assert!(!std::mem::replace(&mut got[number], true), "message {number} came twice");
    assert!(bytes == message(number).1, "message {number}");
}

fn now(clock: Clock) -> Instant {
    Instant::from_nanos(clock.elapsed().as_nanos() as u64)
}

fn child(job: u64, role: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "the_other_process", "--nocapture", "--ignored"])
        .env("TOWLINE_SM_TEST", format!("{job} {role}"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// Opens rank 0, starts the other process as rank 1, and exchanges cards with it: ours through its standard input, its own
/// through a file.
fn connect(role: &str) -> (Rail, Endpoint, Child, Clock) {
    let clock = Clock::now();
    let job = 0x7E57_0000_0000 | u64::from(std::process::id()) << 4 | role.len() as u64;
    let mut rail = Rail::open(Config::new(job, 0, 2)).unwrap();
    let path = card_path(job);
    let _ = std::fs::remove_file(&path); // of an earlier process with the same number, which was killed
    let mut child = child(job, role);
    child.stdin.take().unwrap().write_all(rail.card()).unwrap();
    let card = loop {
        match std::fs::read(&path) {
            Ok(card) => break card,
            Err(_) => std::thread::yield_now(),
        }
        assert!(clock.elapsed() < Duration::from_secs(300) && child.try_wait().unwrap().is_none());
    };
    let _ = std::fs::remove_file(&path);
    let to = rail.add_peer(Peer(1), &card).unwrap();
    (rail, to, child, clock)
}

fn card_path(job: u64) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("towline-card-{job:x}"))
}

#[test]
#[ignore = "started by the other tests as their second process"]
fn the_other_process() {
    let Ok(role) = std::env::var("TOWLINE_SM_TEST") else { return };
    let (job, role) = role.split_once(' ').unwrap();
    let job = job.parse().unwrap();
    let clock = Clock::now();
    let mut card = Vec::new();
    std::io::stdin().read_to_end(&mut card).unwrap();
    let mut rail = Rail::open(Config::new(job, 1, 2)).unwrap();
    if role.contains("pipe") {
        rail.wait_fd().unwrap();
    }
    let to = rail.add_peer(Peer(0), &card).unwrap();
    let path = card_path(job);
    std::fs::write(path.with_extension("new"), rail.card()).unwrap();
    std::fs::rename(path.with_extension("new"), &path).unwrap();
    if role == "die" {
        while rail.poll(now(clock)).is_none() {
            wait_for_event(&mut rail);
        }
        assert!(send(&mut rail, to, Lane::Eager, b"last frame"));
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
    }
    exchange(&mut rail, to, clock);
    // Stay until the other process has received everything: it closes first.
    loop {
        match rail.poll(now(clock)) {
            Some(Event::Lost(Peer(0), Lost::Closed)) => break,
            Some(event) => panic!("{event:?}"),
            None => wait_for_event(&mut rail),
        }
    }
}

#[test]
fn b15_checked_data_in_both_directions_with_sleep_on_a_futex() {
    let (mut rail, to, mut child, clock) = connect("futex");
    exchange(&mut rail, to, clock);
    drop(rail);
    assert!(child.wait().unwrap().success());
}

#[test]
fn b39_checked_data_in_both_directions_with_sleep_on_a_pipe() {
    let (mut rail, to, mut child, clock) = connect("pipe");
    exchange(&mut rail, to, clock);
    drop(rail);
    assert!(child.wait().unwrap().success());
}

#[test]
fn b10_the_death_of_a_peer_is_reported_after_its_frames() {
    let (mut rail, to, mut child, clock) = connect("die");
    assert!(send(&mut rail, to, Lane::Eager, b"now"));
    let mut received = Vec::new();
    loop {
        match rail.poll(now(clock)) {
            Some(Event::Frame(frame)) => received.extend_from_slice(frame.head()),
            Some(Event::Lost(Peer(1), Lost::Broken)) => break,
            Some(event) => panic!("{event:?}"),
            None => wait_for_event(&mut rail),
        }
        assert!(clock.elapsed() < Duration::from_secs(300));
    }
    assert_eq!(received, b"last frame");
    child.wait().unwrap();
}
