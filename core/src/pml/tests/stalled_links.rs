//! Links that make no progress or have little room: no frame is sent without need meanwhile, and nothing waits forever.

use std::vec;
use std::vec::Vec;

use super::basic::{WIDE, bytes};
use super::failover::{Cables, Pair};
use crate::pml::*;
use crate::rail::testing::link::LinkFailure;

/// An answer that has overtaken earlier messages is sent back. While these are on a link that stands still, nothing changes. The
/// two sides must not exchange asks and answers at the speed of the other link meanwhile.
#[test]
fn p27_p14_an_answer_that_comes_too_early_is_sent_back_once() {
    let mut pair = Pair::<Cables>::new(Config { unexpected: 8, units: 8, ..WIDE }, 2, None);
    let data = bytes(10, 1);
    // First fragments take the links in turn: the other link carries the second message, and everything except the third.
    pair.topology.net.borrow_mut().stalled = Some((1, 1));
    let sends: Vec<_> = (0..3).map(|tag| pair.send(0, tag, Mode::Standard, &data)).collect();
    assert_eq!(sends[..2], [Sending::Complete; 2]);
    let Sending::Pending(held) = sends[2] else { panic!("there is credit for two") };
    let mut into = [[0; 10]; 3];
    let [first, second, third] = &mut into;
    let third = pair.recv(1, 0, 2, third);
    pair.turns(1_000);
    let counts = |pair: &Pair<Cables>| {
        let [ours, theirs] = [0, 1].map(|at| *pair.engines[at].counters());
        [theirs.asks_sent, ours.answers_sent, theirs.rejects_sent]
    };
    assert!(counts(&pair).iter().all(|count| *count <= 1), "{:?}", counts(&pair));
    assert!(pair.engines[1].arm(), "there is nothing to do until the message comes");
    pair.topology.net.borrow_mut().stalled = None;
    for (tag, into) in [(0, first), (1, second)] {
        let receive = pair.recv(1, 0, tag, into);
        assert_eq!(pair.finish(1, receive).map(|status| status.delivered), Ok(10));
    }
    assert!(pair.finish(1, third).is_ok() && pair.finish(0, held).is_ok());
    assert_eq!(into, [[0; 10]; 3].map(|_| <[u8; 10]>::try_from(&data[..]).unwrap()));
    pair.assert_clean("in the end");
}

/// A stream takes all room that a link gets, and has more bytes than there is room for. Frames that another link could not
/// deliver go first.
#[test]
fn p14_migrated_frames_do_not_wait_for_streams() {
    const LONG: usize = 60_000;
    let mut pair = Pair::<Cables>::new(WIDE, 2, None);
    let (data, mut into) = (bytes(LONG, 9), vec![0; LONG]);
    let receive = pair.recv(1, 0, 1, &mut into);
    let Sending::Pending(send) = pair.send(0, 1, Mode::Standard, &data) else { panic!("longer than a frame") };
    pair.turns(20);
    pair.fail_link(1, LinkFailure::CLEAN);
    while pair.engines[0].counters().links_down == 0 {
        pair.turn();
    }
    assert!(pair.engines[0].rails().0[1].unfinished() > 0, "it was in use");
    let before = pair.engines[0].counters().fragments_sent;
    while pair.engines[0].counters().fragments_sent < before + 40 {
        pair.turn();
    }
    assert!(pair.engines[0].counters().frames_migrated > 0);
    assert_eq!(pair.engines[0].rails().0[1].unfinished(), 0);
    assert!(pair.finish(1, receive).is_ok() && pair.finish(0, send).is_ok() && into == data);
}

/// When a link goes down, a frame is sent on a link that was not used yet: otherwise this side would not notice that the peer
/// cannot be reached by that link either.
#[test]
fn p14_a_link_that_was_never_used_is_tried_when_another_goes_down() {
    let mut pair = Pair::<Cables>::new(WIDE, 2, None);
    let sent = |pair: &Pair<Cables>| [0, 1].map(|at| pair.engines[at].rails().0[1].sent());
    pair.turns(50);
    assert_eq!(sent(&pair), [0, 0]);
    pair.fail_link(0, LinkFailure::CLEAN);
    pair.turns(50);
    assert_eq!(sent(&pair), [1, 1]);
}
