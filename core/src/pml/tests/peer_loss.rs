//! Rails that fail or are full at critical moments: which memory is still in use, and which frames are still to be sent.

use std::boxed::Box;
use std::vec::Vec;

use zerocopy::IntoBytes;

use super::basic::{WIDE, bytes, memory};
use crate::arena::Arena;
use crate::convertor::Span;
use crate::pml::matching::Pattern;
use crate::pml::*;
use crate::rail::testing::{Answer, Scripted, rails};
use crate::rail::{Endpoint, Event, Lane, Lost, Peer, Rail, Shape, Unreachable};
use crate::time::Instant;
use crate::wire;

type Engine = Pml<'static, [Scripted; 2]>;

/// Two engines with two rails between them.
fn pair(config: Config, tune: fn(usize, usize, &mut Scripted)) -> [Engine; 2] {
    let mut ends = [rails(2), rails(2)].map(Vec::into_iter);
    let mut engines = [0, 1].map(|at| {
        let mut rails = [0, 1].map(|index: usize| ends[index].next().unwrap());
        rails.iter_mut().enumerate().for_each(|(index, rail)| tune(at, index, rail));
        let bytes = config.bytes(&rails.each_ref().map(Rail::attributes));
        Pml::new(config, &mut Arena::new(memory(bytes)), rails).unwrap()
    });
    let params = [engines[0].params(), engines[1].params()];
    add(&mut engines[0], 1, &params[1]);
    add(&mut engines[1], 0, &params[0]);
    engines
}

fn add(engine: &mut Engine, peer: u32, params: &[u8]) {
    let reach =
        |_: usize, rail: &mut Scripted| -> Result<_, Unreachable> { rail.add_peer(Peer(peer), &peer.to_le_bytes()) };
    engine.add_peer(Peer(peer), params, reach).unwrap();
}

fn turn(engines: &mut [Engine], times: u32) {
    for _ in 0..times {
        engines.iter_mut().for_each(|engine| {
            engine.progress(Instant::ZERO);
        });
    }
}

fn send(engine: &mut Engine, to: u32, tag: u32, mode: Mode, data: &'static [u8]) -> Sending {
    // SAFETY: the memory is there forever.
    unsafe { engine.isend(Peer(to), 1, tag, mode, Span::of(data)) }.unwrap()
}

fn recv(engine: &mut Engine, tag: u32, into: &mut [u8]) -> Request {
    let pattern = Pattern { context: 1, source: crate::pml::matching::ANY, tag };
    // SAFETY: the tests keep their buffers until the end.
    unsafe { engine.irecv(pattern, Span::contiguous(into.as_mut_ptr(), into.len())) }.unwrap()
}

fn recv_from(engine: &mut Engine, source: u32, tag: u32, into: &mut [u8]) -> Request {
    let pattern = Pattern { context: 1, source, tag };
    // SAFETY: the tests keep their buffers until the end.
    unsafe { engine.irecv(pattern, Span::contiguous(into.as_mut_ptr(), into.len())) }.unwrap()
}

fn data(len: usize) -> &'static [u8] {
    Box::leak(bytes(len, 3).into_boxed_slice())
}

/// First fragments come on rail 1 with 60 bytes of payload, which arrive slowly; answers go on rail 0.
fn slow_bodies(at: usize, index: usize, rail: &mut Scripted) {
    rail.attributes.latency = if at == 0 { 10 - index as u32 } else { index as u32 };
    rail.attributes.eager_limit = 128;
    rail.attributes.rendezvous_eager_limit = 60;
    rail.script.borrow_mut().slow_delivery = at == 1;
}

#[test]
fn p7_a_receive_is_not_over_while_a_rail_writes_to_its_memory() {
    let mut engines = pair(WIDE, slow_bodies);
    let mut into = [0; 200];
    let receive = recv(&mut engines[1], 1, &mut into);
    engines[1].rails()[0].script.borrow_mut().always = Some(Answer::Unreachable); // it is down, and was not reported yet
    let _ = send(&mut engines[0], 1, 1, Mode::Standard, data(200));
    turn(&mut engines, 10);
    assert_eq!(engines[1].rails()[1].coming(), 1);
    assert_eq!(engines[1].test(receive), None);
    engines[1].rails()[1].script.borrow_mut().slow_delivery = false;
    turn(&mut engines, 10);
    assert_eq!(engines[1].rails()[1].coming(), 0);
    engines[1].rails()[0].script.borrow_mut().events.push_back(Event::Lost(Peer(0), Lost::Broken));
    turn(&mut engines, 1);
    assert_eq!(engines[1].test(receive), Some(Err(Failure::PeerFailed(Peer(0)))));
}

/// A peer guesses the handle of a receive that waits for the bytes of its first fragment and has sent no ack. The peer must not
/// make a rail write bytes for which the receive has not asked.
#[test]
fn p22_p7_fragments_without_an_ack_touch_nothing() {
    let mut engines = pair(WIDE, slow_bodies);
    let _ = send(&mut engines[0], 1, 1, Mode::Standard, data(200));
    turn(&mut engines, 10);
    let mut into = [0; 200];
    let receive = recv(&mut engines[1], 1, &mut into);
    let shape = Shape { tag: crate::ptl::TAG, lane: Lane::Bulk, header: 28, len: 128 };
    let rail = &mut engines[0].rails_mut()[0];
    let mut grant = rail.reserve(Endpoint(1), shape).unwrap();
    grant.write(0, wire::Fragment::new(receive.to_bits(), 100).as_bytes());
    let ticket = grant.finish();
    rail.commit(ticket);
    turn(&mut engines, 10);
    assert_eq!((engines[1].counters().stale, [0, 1].map(|rail| engines[1].rails()[rail].coming())), (1, [0, 1]));
    engines[1].rails().iter().for_each(|rail| rail.script.borrow_mut().slow_delivery = false);
    turn(&mut engines, 20);
    assert!(matches!(engines[1].test(receive), Some(Ok(_))));
    assert_eq!(into, *data(200));
}

/// A matched probe took a message whose payload was still arriving when its sender was lost: its receive must not report the
/// message as whole.
#[test]
fn m13_p7_a_matched_message_that_never_arrived_whole_is_not_received() {
    let mut engines = pair(WIDE, slow_bodies);
    let _ = send(&mut engines[0], 1, 1, Mode::Standard, data(100));
    turn(&mut engines, 10);
    assert_eq!(engines[1].rails()[1].coming(), 1);
    let (message, _) = engines[1].improbe(Pattern { context: 1, source: 0, tag: 1 }).unwrap().unwrap();
    engines[1].rails()[0].script.borrow_mut().events.push_back(Event::Lost(Peer(0), Lost::Broken));
    turn(&mut engines[1..], 1);
    let mut into = [0; 100];
    // SAFETY: the buffer lives to the end of the test.
    let receive = unsafe { engines[1].imrecv(message, Span::contiguous(into.as_mut_ptr(), 100)) }.unwrap();
    turn(&mut engines[1..], 1);
    assert_eq!(engines[1].test(receive), Some(Err(Failure::PeerFailed(Peer(0)))));
    assert_eq!(engines[1].used(), [0; 3]);
}

/// As above, for a long message whose sender has ended normally.
#[test]
fn m13_p7_a_matched_message_of_a_peer_that_ended_says_so() {
    let mut engines = pair(WIDE, |_, _, _| {});
    let _ = send(&mut engines[0], 1, 1, Mode::Standard, data(3000));
    turn(&mut engines, 10);
    let (message, _) = engines[1].improbe(Pattern { context: 1, source: 0, tag: 1 }).unwrap().unwrap();
    engines[1].lose_peer(Peer(0), Lost::Closed);
    let mut into = [0; 3000];
    // SAFETY: the buffer lives to the end of the test.
    let receive = unsafe { engines[1].imrecv(message, Span::contiguous(into.as_mut_ptr(), 3000)) }.unwrap();
    let closed = Failure::PeerClosed { peer: Peer(0), tag: 1, bytes: None };
    assert_eq!(engines[1].test(receive), Some(Err(closed)));
    assert_eq!(engines[1].used(), [0; 3]);
}

/// A peer that is lost and comes back has all of its credit: its earlier messages that were not received take none of it.
#[test]
fn p7_m6_frames_of_a_restarted_peer_are_received_after_its_loss() {
    let config = Config { unexpected: 8, units: 8, ..WIDE }; // two for each peer
    let mut engines = pair(config, |_, _, _| {});
    for tag in [1, 2] {
        let _ = send(&mut engines[0], 1, tag, Mode::Standard, data(10));
    }
    turn(&mut engines, 10);
    assert_eq!(engines[1].used()[1], 2);
    engines[1].rails()[0].script.borrow_mut().events.push_back(Event::Lost(Peer(0), Lost::Closed));
    turn(&mut engines[1..], 1);
    engines[0].del_peer(Peer(1));
    let params = [engines[0].params(), engines[1].params()];
    add(&mut engines[0], 1, &params[1]);
    add(&mut engines[1], 0, &params[0]);
    for tag in [3, 4] {
        let _ = send(&mut engines[0], 1, tag, Mode::Standard, data(10));
    }
    turn(&mut engines, 10);
    assert_eq!(engines[1].counters().credit_violations, 0);
    for tag in [3, 4] {
        let mut into = [0; 10];
        let receive = recv(&mut engines[1], tag, &mut into);
        assert!(matches!(engines[1].test(receive), Some(Ok(_))));
    }
    turn(&mut engines, 10);
    assert_eq!(engines[1].used(), [0; 3]);
}

/// As above, for messages that were refused before their sender was deleted, and whose refusals could not be sent.
#[test]
fn p7_m6_a_refusal_for_a_lost_peer_is_no_credit_of_its_successor() {
    let mut engines = pair(Config { unexpected: 8, units: 8, ..WIDE }, |_, _, _| {});
    let _ = send(&mut engines[0], 1, 1, Mode::Synchronous, data(10));
    turn(&mut engines, 10);
    engines[1].rails().iter().for_each(|rail| rail.script.borrow_mut().always = Some(Answer::Busy));
    engines[1].purge(1);
    assert_eq!(engines[1].used()[1], 1);
    engines[1].del_peer(Peer(0));
    let params = engines[0].params();
    add(&mut engines[1], 0, &params);
    assert_eq!(engines[1].used(), [0; 3]);
    turn(&mut engines[1..], 1);
    let peer = engines[1].peers[0];
    assert_eq!((peer.granted.owed, peer.granted.kept_envelopes, peer.granted.kept_units), (0, 0, 0));
}

/// A caller that goes to sleep must have nothing left to send: free room in a rail does not wake it.
#[test]
fn p27_no_sleep_while_a_notice_or_an_ask_waits_for_room() {
    let mut engines = pair(Config { unexpected: 0, units: 0, ..WIDE }, |_, _, _| {});
    let full =
        |engine: &Engine, always| engine.rails().iter().for_each(|rail| rail.script.borrow_mut().always = always);
    let mut into = [0; 10];
    let receive = recv(&mut engines[1], 1, &mut into);
    full(&engines[0], Some(Answer::Busy));
    let _ = send(&mut engines[0], 1, 1, Mode::Standard, data(10));
    turn(&mut engines, 3);
    assert!(!engines[0].arm()); // the notice
    full(&engines[0], None);
    full(&engines[1], Some(Answer::Busy));
    turn(&mut engines, 3);
    assert!(engines[0].arm());
    assert!(!engines[1].arm()); // the ask
    full(&engines[1], None);
    turn(&mut engines, 10);
    assert!(matches!(engines[1].test(receive), Some(Ok(_))));
    // A receive that was posted since the last progress is to be asked for as well.
    let _ = send(&mut engines[0], 1, 2, Mode::Standard, data(10));
    turn(&mut engines, 10);
    assert!(engines[1].arm());
    let _ = recv(&mut engines[1], 3, &mut into);
    assert!(!engines[1].arm());
}

/// However many messages wait for room, a full link is tried once in each round. A link with room carries them all meanwhile, and
/// the full one does its share again afterwards.
#[test]
fn p15_p23_a_full_link_is_asked_once_in_a_round() {
    let mut engines = pair(WIDE, |_, _, _| {});
    let mut into = [[0; 2000]; 5];
    let receives: Vec<_> = into.iter_mut().map(|into| recv(&mut engines[1], 1, into)).collect();
    let sends: Vec<_> = (0..5).map(|_| send(&mut engines[0], 1, 1, Mode::Standard, data(2000))).collect();
    let script = |engines: &[Engine; 2], rail: usize| engines[0].rails()[rail].script.clone();
    let answer = |engines: &[Engine; 2], rail, always| script(engines, rail).borrow_mut().always = always;
    (0..2).for_each(|rail| answer(&engines, rail, Some(Answer::Busy)));
    turn(&mut engines, 10); // all are asked for by now
    let (acks, busy) = (engines[1].counters().acks_sent, engines[0].counters().busy);
    turn(&mut engines, 10);
    assert_eq!((acks, engines[0].counters().busy - busy), (5, 2 * 10));
    // One link has room.
    answer(&engines, 1, None);
    let busy = engines[0].counters().busy;
    turn(&mut engines[..1], 1);
    let sent = |engines: &[Engine; 2], rail| script(engines, rail).borrow().log.len();
    let (first, second) = (sent(&engines, 0), sent(&engines, 1));
    assert!(second - first >= 10, "{first} {second}");
    assert!(engines[0].counters().busy - busy <= 2);
    // Both links have room.
    answer(&engines, 0, None);
    turn(&mut engines, 50);
    let carried = (sent(&engines, 0) - first, sent(&engines, 1) - second);
    assert!(carried.0 >= 20 && carried.1 >= 20, "{carried:?}");
    assert!(receives.into_iter().all(|receive| matches!(engines[1].test(receive), Some(Ok(_)))));
    for sending in sends {
        let Sending::Pending(request) = sending else { panic!("longer than a fragment") };
        assert!(matches!(engines[0].test(request), Some(Ok(_))));
    }
    assert!(into.iter().all(|into| into[..] == *data(2000)));
}

/// One message of a lost peer can never be completed. The messages before it are still received. Those behind it are dropped, so
/// that they do not take its place.
#[test]
fn m10_p7_no_message_takes_the_place_of_one_that_was_lost() {
    let mut engines = pair(Config { first_sequence: u32::MAX.into(), ..WIDE }, slow_bodies);
    engines[1].rails().iter().for_each(|rail| rail.script.borrow_mut().slow_delivery = false);
    for len in [1, 2000, 2] {
        let _ = send(&mut engines[0], 1, 1, Mode::Standard, data(len));
    }
    turn(&mut engines, 10);
    assert_eq!(engines[1].used()[1], 3);
    engines[1].rails()[0].script.borrow_mut().events.push_back(Event::Lost(Peer(0), Lost::Broken));
    turn(&mut engines[1..], 1);
    let mut into = [0; 2000];
    let receive = recv_from(&mut engines[1], 0, 1, &mut into);
    assert!(matches!(engines[1].test(receive), Some(Ok(status)) if status.received == 1));
    let receive = recv_from(&mut engines[1], 0, 1, &mut into);
    assert_eq!(engines[1].test(receive), Some(Err(Failure::PeerFailed(Peer(0)))));
    assert_eq!(engines[1].used(), [0; 3]);
}

#[test]
fn p7_b10_the_reason_of_a_loss_is_known_until_the_peer_rejoins() {
    for why in [Lost::Closed, Lost::Broken, Lost::TimedOut, Lost::Misbehaved, Lost::Stalled, Lost::NoRoom] {
        let mut engines = pair(WIDE, |_, _, _| {});
        let params = engines[1].params();
        assert_eq!(engines[0].why_lost(Peer(1)), None);
        engines[0].rails_mut()[0].script.borrow_mut().events.push_back(Event::Lost(Peer(1), why));
        engines[0].progress(Instant::ZERO);
        assert_eq!(engines[0].why_lost(Peer(1)), Some(why));
        engines[0].lose_peer(Peer(1), Lost::Broken);
        assert_eq!(engines[0].why_lost(Peer(1)), Some(why), "the first reason stays");
        add(&mut engines[0], 1, &params);
        assert_eq!(engines[0].why_lost(Peer(1)), None);
    }
}

#[test]
fn p7_operations_with_a_peer_that_ended_normally_say_so_with_tag_and_length() {
    let mut engines = pair(WIDE, |_, _, _| {});
    let params = engines[1].params();
    let held = send(&mut engines[0], 1, 5, Mode::Synchronous, data(3000));
    let Sending::Pending(held) = held else { panic!("{held:?}") };
    let mut into = [0; 10];
    let receive = recv_from(&mut engines[0], 1, 6, &mut into);
    engines[0].lose_peer(Peer(1), Lost::Closed);
    let closed = |tag, bytes| Some(Err(Failure::PeerClosed { peer: Peer(1), tag, bytes }));
    assert_eq!(engines[0].test(held), closed(5, Some(3000)));
    assert_eq!(engines[0].test(receive), closed(6, None));
    let late = recv_from(&mut engines[0], 1, 7, &mut into);
    assert_eq!(engines[0].test(late), closed(7, None));
    // SAFETY: an empty span stands for no memory.
    let mut late = || unsafe { engines[0].isend(Peer(1), 1, 8, Mode::Standard, Span::EMPTY) };
    assert_eq!(late(), Err(Refusal::PeerClosed(Peer(1))));
    add(&mut engines[0], 1, &params);
    let _ = send(&mut engines[0], 1, 8, Mode::Standard, data(1));
}
