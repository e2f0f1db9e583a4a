//! Every message that waits for room gets it in its turn. Bounds are in steps; in a step each side polls once.

use std::vec;
use std::vec::Vec;

use super::basic::{Engine, WIDE, bytes, engines, from, memory, over, pending, recv, send, step};
use crate::convertor::Span;
use crate::pml::*;
use crate::rail::Peer;
use crate::rail::testing::{Answer, rails};
use crate::time::Instant;

/// Two engines of which the first streams a message of `len` bytes to the other and uses all slots of the rail; the requests of
/// the send and of the receive.
fn stream(config: Config, len: usize) -> (Vec<Engine>, Request, Request) {
    let mut engines = engines(2, config, 8, 512);
    let whole = recv(&mut engines[1], from(0, 1), memory(len));
    let sending = pending(send(&mut engines[0], 1, 1, Mode::Standard, memory(len)));
    while engines[0].counters().fragments_sent == 0 {
        step(&mut engines);
    }
    engines[0].progress(Instant::ZERO); // which takes the free slot
    (engines, sending, whole)
}

/// A short message finds the rail full, while a long one streams by it and takes each slot that becomes free.
#[test]
fn p13_p27_held_back_sends_do_not_wait_for_a_stream() {
    let (mut engines, sending, whole) = stream(WIDE, 400_000);
    let (short, mut small) = (bytes(16, 2), [0; 16]);
    let other = recv(&mut engines[1], from(0, 2), &mut small);
    let _ = pending(send(&mut engines[0], 1, 2, Mode::Standard, &short));
    let came = (0..100).find(|_| {
        step(&mut engines);
        engines[1].test(other).is_some()
    });
    assert!(came.is_some_and(|step| step < 20), "{came:?}");
    assert_eq!((engines[0].test(sending), engines[1].test(whole)), (None, None), "the stream was over before");
}

/// Many messages are held back for lack of room, and a stream has its turns nevertheless.
#[test]
fn p13_a_stream_does_not_wait_for_held_back_sends() {
    let (mut engines, _, whole) = stream(Config { unexpected: 1024, units: 1024, ..WIDE }, 40_000);
    let (short, mut small) = (bytes(16, 2), [0; 16]);
    let held: Vec<_> = (0..200).map(|_| pending(send(&mut engines[0], 1, 2, Mode::Standard, &short))).collect();
    for _ in 0..200 {
        let _ = recv(&mut engines[1], from(0, 2), &mut small);
    }
    for _ in 0..2000 {
        step(&mut engines);
        if engines[1].test(whole).is_some() {
            break;
        }
    }
    assert_eq!(engines[0].test(*held.last().unwrap()), None, "the stream came after all that was held back");
}

/// The rail has one free slot at a time, for the first message that is tried. Each peer with held-back messages has its turn.
#[test]
fn p13_peers_take_turns_at_a_rail_without_room() {
    let mut engines = over(rails(4), WIDE);
    let script = engines[0].rails()[0].script.clone();
    script.borrow_mut().always = Some(Answer::Busy);
    let data = bytes(32, 1);
    let (mut held, mut left) = (vec![], [0; 4]);
    for _ in 0..40 {
        for to in 1..4 {
            // SAFETY: the data lives to the end of the test.
            let sending = unsafe { engines[0].isend(Peer(to), 1, to, Mode::Standard, Span::of(&data)) };
            held.push((to as usize, pending(sending.unwrap())));
        }
        script.borrow_mut().answers.push_back(Answer::Pass);
        engines[0].progress(Instant::ZERO);
        script.borrow_mut().answers.clear();
        held.retain(|(to, request)| {
            let over = engines[0].test(*request).is_some();
            left[*to] += i32::from(over);
            !over
        });
        step(&mut engines[1..]);
    }
    assert!(left[1..].iter().all(|left| *left > 30 / 3), "{left:?} have left");
}

/// The answers to a flood of messages take all slots of the rail, including those that data may use. A message of this side gets
/// a slot nevertheless.
#[test]
fn p13_p15_control_frames_leave_room_for_messages() {
    let mut engines = engines(2, Config { requests: 64, ..WIDE }, 4, 512);
    let data = bytes(8, 1);
    let (mut into, mut mine) = ([0; 8], [0; 8]);
    let (mut floods, mut coming) = (vec![], vec![]);
    let mut wanted = None;
    for round in 0..400 {
        // SAFETY: the buffers live to the end of the test; no code reads the received bytes.
        unsafe {
            while floods.len() < 16 {
                let sending = engines[1].isend(Peer(0), 1, 1, Mode::Synchronous, Span::EMPTY);
                floods.push(pending(sending.unwrap()));
            }
            while coming.len() < 16 {
                coming.push(engines[0].irecv(from(1, 1), Span::contiguous(into.as_mut_ptr(), 8)).unwrap());
            }
        }
        // The answering side is faster than the reader of the answers, so answers pile up.
        for _ in 0..3 {
            engines[0].progress(Instant::ZERO);
        }
        if round == 100 {
            let receive = recv(&mut engines[1], from(0, 2), &mut mine);
            wanted = Some((receive, pending(send(&mut engines[0], 1, 2, Mode::Standard, &data))));
        }
        engines[1].progress(Instant::ZERO);
        floods.retain(|request| engines[1].test(*request).is_none());
        coming.retain(|request| engines[0].test(*request).is_none());
        if wanted.is_some_and(|(receive, _)| engines[1].test(receive).is_some()) {
            assert!(round < 130, "only at step {round}");
            assert!(engines[0].counters().finishes_sent > 20, "no flood");
            return;
        }
    }
    panic!("in vain: {:?}", engines[0].counters());
}

/// Each control frame leaves in its turn, although there are always messages that wait for room.
#[test]
fn p13_p15_messages_leave_room_for_control_frames() {
    let mut engines = engines(2, Config { requests: 64, ..WIDE }, 4, 512);
    let data = bytes(8, 1);
    let (mut into, mut mine) = ([0; 8], [0; 8]);
    let (mut floods, mut coming) = (vec![], vec![]);
    let _ = recv(&mut engines[0], from(1, 9), &mut mine);
    let mut asked = None;
    for round in 0..400 {
        // SAFETY: as above.
        unsafe {
            while floods.len() < 30 {
                if let Sending::Pending(request) =
                    engines[0].isend(Peer(1), 1, 1, Mode::Standard, Span::of(&data)).unwrap()
                {
                    floods.push(request);
                }
            }
            while coming.len() < 30 {
                coming.push(engines[1].irecv(from(0, 1), Span::contiguous(into.as_mut_ptr(), 8)).unwrap());
            }
        }
        if round == 100 {
            asked = Some(pending(send(&mut engines[1], 0, 9, Mode::Synchronous, &data)));
        }
        step(&mut engines);
        floods.retain(|request| engines[0].test(*request).is_none());
        coming.retain(|request| engines[1].test(*request).is_none());
        if asked.is_some_and(|asked| engines[1].test(asked).is_some()) {
            assert!(round < 130, "only at step {round}");
            assert!(engines[0].counters().busy > 50, "no flood");
            return;
        }
    }
    panic!("in vain: {:?}", engines[0].counters());
}
