//! Batches: how many frames one system call sends and receives.

mod common;

use common::Pair;
use towline_core::rail::{Lane, SendError};

fn bodies(count: u8, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|at| vec![at; len]).collect()
}

/// Checks that these frames, committed in a row, are sent by `sends` calls. Returns the number of calls that received them.
fn in_calls(pair: &mut Pair, bodies: &[Vec<u8>], sends: u64) -> u64 {
    pair.settle();
    let before = [0, 1].map(|own| *pair.rails[own].counters());
    for body in bodies {
        pair.try_send(0, Lane::Bulk, body).expect("room");
    }
    pair.until("all frames", |pair| pair.got[1].len() == bodies.len());
    let mut got = std::mem::take(&mut pair.got[1]);
    got.sort();
    let mut sent = bodies.to_vec();
    sent.sort();
    assert!(got == sent, "frames differ");
    let after = [0, 1].map(|own| *pair.rails[own].counters());
    assert_eq!(after[0].sends - before[0].sends, sends, "calls that sent");
    assert_eq!(after[0].frames_sent - before[0].frames_sent, bodies.len() as u64);
    after[1].receives - before[1].receives
}

#[test]
fn equal_frames_in_a_row_are_sent_and_received_by_one_call() {
    let mut pair = Pair::connected(|_| {});
    let mut frames = bodies(40, 1000);
    frames.push(vec![40; 300]); // the last may be shorter
    assert_eq!(in_calls(&mut pair, &frames, 1), 1, "coalesced by the kernel");
    in_calls(&mut pair, &bodies(30, 57), 1);
}

#[test]
fn frames_of_all_lengths_are_sent_by_one_call_as_several_messages() {
    let mut pair = Pair::connected(|_| {});
    let frames: Vec<_> = (1..40).map(|at| vec![at; usize::from(at) * 30]).collect();
    in_calls(&mut pair, &frames, 1);
}

#[test]
fn a_kernel_without_segmentation_gets_a_message_for_each_frame() {
    let mut pair = Pair::connected(|config| config.segmentation = false);
    in_calls(&mut pair, &bodies(40, 1000), 1);
}

#[test]
fn a_full_message_is_sent_without_a_poll() {
    let mut pair = Pair::connected(|_| {});
    let len = pair.rails[0].datagram_bytes() as usize - 16;
    let fit = 65_507 / (len + 16);
    pair.settle();
    for body in bodies(fit as u8, len) {
        pair.try_send(0, Lane::Bulk, &body).expect("room");
    }
    while pair.got[1].len() < fit {
        pair.poll(1); // the sender is not polled
    }
}

/// Short frames are sent at once, but not each of a flood by a call of its own.
#[test]
fn a_few_short_frames_are_sent_at_once() {
    let mut pair = Pair::connected(|config| config.frames_at_once = 3);
    pair.settle();
    for _ in 0..10 {
        pair.try_send(0, Lane::Eager, b"short").expect("room");
    }
    while pair.got[1].len() < 3 {
        pair.poll(1);
    }
    for _ in 0..100 {
        pair.poll(1);
    }
    assert_eq!(pair.got[1].len(), 3);
    pair.until("the others", |pair| pair.got[1].len() == 10);
}

/// Bulk frames that wait fill only their part of the staging.
#[test]
fn control_frames_have_room_of_their_own() {
    let mut pair = Pair::connected(|config| config.pacing_megabytes_per_second = 1);
    let body = vec![1; pair.rails[0].datagram_bytes() as usize - 16];
    let mut sent = 0;
    while pair.try_send(0, Lane::Bulk, &body).is_ok() {
        sent += 1;
        assert!(sent < 100, "no back-pressure");
    }
    assert_eq!(pair.try_send(0, Lane::Eager, &body), Err(SendError::Busy));
    pair.try_send(0, Lane::Control, b"control").expect("room of its own");
    pair.until("all", |pair| pair.got[1].len() == sent + 1);
    assert!(pair.got[1].contains(&b"control".to_vec()));
}

/// Pacing limits the bytes that are sent per second, and `poll_at` returns when more may be sent.
#[test]
fn pacing_holds_frames_back_until_their_time() {
    use towline_core::rail::Rail as _;
    use towline_core::time::{Duration, Instant};

    let mut pair = Pair::connected(|config| config.pacing_megabytes_per_second = 10);
    // In the time of the test: ten thousand bytes per millisecond.
    let mut now = pair.now() + Duration::from_secs(1);
    let _ = pair.rails[0].poll(now);
    for _ in 0..8 {
        pair.try_send(0, Lane::Bulk, &[5; 10_000 - 16]).expect("room");
    }
    let mut times = vec![];
    while !pair.rails[0].drained(pair.to[0]) {
        let _ = pair.rails[0].poll(now);
        times.push(now);
        now = pair.rails[0].poll_at().unwrap_or(now);
    }
    let took = times.last().copied().unwrap_or(Instant::ZERO).since(times[0]);
    assert!((5_000_000..8_000_000).contains(&took.as_nanos()), "{took:?} for 80,000 bytes, 10,000 of them at once");
    pair.until("all", |pair| pair.got[1].len() == 8);
}
