//! The order in which rings are polled: no ring starves, maintenance comes when it is promised, and a reader that holds all
//! frames gets no more of them.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec};
use towline_core::convertor::Span;
use towline_core::rail::{
    Cookie, Endpoint, Event, FastPath as _, Frame, Lane, Lost, Peer, Rail as _, SendError, Sent, Shape,
};
use towline_core::time::Instant;
use towline_sm::{Config, Rail};

/// The rails of `ranks` ranks, in order. All of them can send to rank 0, which has added them.
fn star(ranks: u32, set: impl Fn(&mut Config)) -> Vec<Rail> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let job = u64::from(std::process::id()) << 32 | u64::from(NEXT.fetch_add(1, Ordering::Relaxed));
    let open = |rank| {
        let mut config = Config::new(job, rank, ranks);
        set(&mut config);
        Rail::open(config).unwrap()
    };
    let mut rails: Vec<Rail> = (0..ranks).map(open).collect();
    let (hub, others) = rails.split_first_mut().unwrap();
    for (other, rank) in others.iter_mut().zip(1..) {
        assert_eq!(hub.add_peer(Peer(rank), other.card()), Ok(Endpoint(rank - 1)));
        assert_eq!(other.add_peer(Peer(0), hub.card()), Ok(Endpoint(0)));
    }
    rails
}

fn send(rail: &mut Rail, bytes: &[u8]) -> Result<Sent, SendError> {
    let header = bytes.len().min(20);
    let shape = Shape { tag: 0x42, lane: Lane::Eager, header: header as u8, len: bytes.len() as u32 };
    // SAFETY: the body outlives the call, and this rail copies.
    unsafe { rail.send(Endpoint(0), shape, &bytes[..header], Span::of(&bytes[header..]), Cookie(0)) }
}

fn frame(rail: &mut Rail) -> Option<Frame> {
    match rail.poll(Instant::ZERO)? {
        Event::Frame(frame) => Some(frame),
        event => panic!("{event:?}"),
    }
}

#[test]
fn p10_a_ring_is_polled_however_busy_another_is() {
    for (most_held, len) in [(1, 400), (2, 400), (16, 400), (16, 8)] {
        let mut rails = star(4, |config| config.frames_kept = most_held);
        let [hub, one, two, three] = &mut rails[..] else { panic!() };
        let message = vec![7; len];
        // All rings exist, and are active.
        for rail in [&mut *one, &mut *two, &mut *three] {
            send(rail, b"hello").unwrap();
        }
        let mut hellos = 0;
        while hellos < 3 {
            hellos += u32::from(frame(hub).is_some());
        }
        // Two of them are never empty: the hub holds as many frames as it may, then releases all.
        let mut received = [0; 4];
        let mut held = Vec::new();
        send(three, b"and I?").unwrap();
        for _ in 0..4000 {
            while send(one, &message).is_ok() {}
            while send(two, &message).is_ok() {}
            let Some(got) = frame(hub) else {
                held.drain(..).for_each(|id| hub.release(id));
                continue;
            };
            received[got.from.0 as usize] += 1;
            held.push(got.id);
        }
        assert_eq!(received[3], 1, "{most_held} held, {len} bytes: {received:?}");
        assert!(received[1] >= 500 && received[2] >= 500, "{most_held} held, {len} bytes: {received:?}");
    }
}

#[test]
fn p32_the_loss_of_a_peer_does_not_exceed_the_held_frames() {
    let mut rails = star(3, |config| config.frames_kept = 1);
    let leaving = rails.pop().unwrap();
    let [hub, one] = &mut rails[..] else { panic!() };
    send(one, &[1; 400]).unwrap();
    send(one, &[2; 400]).unwrap();
    let first = frame(hub).unwrap();
    drop(leaving);
    let lost = (0..10_000).find_map(|_| hub.poll(Instant::from_nanos(u64::MAX / 2)));
    assert!(matches!(lost, Some(Event::Lost(Peer(2), Lost::Closed))));
    assert!(frame(hub).is_none(), "one frame is held, and no more are allowed");
    hub.release(first.id);
    let second = frame(hub).unwrap();
    let mut bytes = [0; 400];
    assert_eq!(hub.read(second.id, 0, &mut bytes), 400);
    assert_eq!(bytes, [2; 400]);
}

fn readable(rail: &mut Rail) -> bool {
    let fd = rail.wait_fd().unwrap();
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&at_once)) == Ok(1)
}

#[test]
fn b39_the_first_poll_after_sleep_ends_it() {
    let mut rails = star(2, |_| {});
    let [hub, one] = &mut rails[..] else { panic!() };
    hub.wait_fd().unwrap();
    // This holds for any number of polls since the last maintenance.
    for polls in 0..300 {
        send(one, b"come").unwrap();
        while frame(hub).is_none() {}
        for _ in 0..polls {
            assert!(frame(hub).is_none());
        }
        while !hub.arm() {
            assert!(frame(hub).is_none());
        }
        assert!(!readable(hub));
        send(one, b"wake").unwrap();
        assert!(readable(hub));
        assert_eq!(frame(hub).unwrap().head(), b"wake");
        assert!(!readable(hub), "the poll has emptied the pipe");
    }
}

/// What an engine gets, which looks at the fast paths before it polls: bytes of a frame.
fn fast(rail: &mut Rail) -> Option<usize> {
    if let Some(short) = rail.poll_short(0x42) {
        return Some(24 + short.body.len());
    }
    if rail.is_idle() {
        return None;
    }
    if let Some(eager) = rail.poll_eager(0x42) {
        return Some(24 + eager.body.len());
    }
    let frame = frame(rail)?;
    rail.release(frame.id);
    Some(frame.len as usize)
}

/// The same for a module of the BTL.
fn fast_copy(rail: &mut Rail) -> Option<usize> {
    if let Some(copied) = rail.poll_copied(0xff, &mut [0; 100]) {
        return Some(copied.len as usize);
    }
    if rail.is_idle() {
        return None;
    }
    let frame = frame(rail)?;
    rail.release(frame.id);
    Some(frame.len as usize)
}

#[test]
fn b39_the_fast_paths_do_not_leave_out_what_the_first_poll_after_sleep_does() {
    let mut rails = star(2, |_| {});
    let [hub, one] = &mut rails[..] else { panic!() };
    hub.wait_fd().unwrap();
    for round in 0..1200 {
        let bytes = [7; 100];
        let len = [30, 100][round % 2];
        let fast = if round < 600 { fast } else { fast_copy };
        let round = round % 600;
        send(one, &bytes[..len]).unwrap();
        while fast(hub).is_none() {}
        (0..round / 2).for_each(|_| assert_eq!(fast(hub), None));
        while !hub.arm() {
            assert_eq!(fast(hub), None);
        }
        send(one, &bytes[..len]).unwrap();
        assert!(readable(hub));
        assert_eq!(fast(hub), Some(len));
        assert!(!readable(hub), "the poll has emptied the pipe");
    }
}

#[test]
fn p10_frames_of_the_fast_paths_do_not_keep_other_rings_waiting() {
    for len in [30, 100] {
        let mut rails = star(3, |config| config.eager_ring_bytes = 1 << 20);
        let [hub, one, two] = &mut rails[..] else { panic!() };
        let bytes = [7; 100];
        for rail in [&mut *one, &mut *two] {
            send(rail, &bytes[..len]).unwrap();
            while fast(hub).is_none() {}
        }
        while send(one, &bytes[..len]).is_ok() {}
        send(two, &bytes[..50]).unwrap();
        let mut turns = 0;
        while fast(hub) != Some(50) {
            turns += 1;
        }
        assert!(turns < 1000, "{turns} frames of {len} bytes came first");
    }
}

#[test]
fn b10_a_peer_that_closed_is_reported_by_the_first_poll_after_sleep() {
    for polls in 0..300 {
        let mut rails = star(2, |_| {});
        let leaving = rails.pop().unwrap();
        let hub = &mut rails[0];
        for _ in 0..polls {
            assert!(frame(hub).is_none());
        }
        assert!(hub.arm());
        drop(leaving);
        let event = hub.poll(Instant::ZERO);
        assert!(matches!(event, Some(Event::Lost(Peer(1), Lost::Closed))), "after {polls} polls");
    }
}
