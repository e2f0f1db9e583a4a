//! The listings of operations in progress and of messages that were not received.

use std::vec::Vec;

use super::basic::{WIDE, bytes, engines, from, pending, recv, send, settle};
use crate::pml::matching::{ANY, INTERNAL_TAGS};
use crate::pml::{InProgress, Kind, Mode, Stage, Unreceived};
use crate::rail::Peer;

/// The unreceived messages of an engine, the shortest first.
fn unreceived(engine: &super::basic::Engine) -> Vec<(u32, u32, u64, bool)> {
    let mut all: Vec<_> =
        engine.unreceived().map(|Unreceived { peer, tag, bytes, taken, .. }| (peer.0, tag, bytes, taken)).collect();
    all.sort_by_key(|it| it.2);
    all
}

#[test]
fn each_operation_in_progress_is_listed_with_its_peer_tag_and_bytes_until_it_is_over() {
    let mut engines = engines(2, WIDE, 8, 512);
    let (long, mut into) = (bytes(3000, 1), [[0u8; 4000]; 3]);
    assert_eq!(engines[0].operations().count(), 0);
    let [a, b, c] = &mut into;
    let exact = recv(&mut engines[0], from(1, 7), a);
    let wild = recv(&mut engines[0], from(ANY, ANY), b);
    let waiting = pending(send(&mut engines[0], 1, 9, Mode::Synchronous, &long));
    settle(&mut engines);
    let of = |engine: &super::basic::Engine, request| {
        engine.operations().find(|it| it.request == request).expect("it is in progress")
    };
    let posted = InProgress {
        request: exact,
        kind: Kind::Receive,
        stage: Stage::Unmatched,
        peer: Some(Peer(1)),
        context: 1,
        tag: Some(7),
        bytes: 4000,
        moved: 0,
    };
    assert_eq!(of(&engines[0], exact), posted);
    assert_eq!(of(&engines[0], wild), InProgress { request: wild, peer: None, tag: None, ..posted });
    let sent = of(&engines[0], waiting);
    assert_eq!((sent.kind, sent.stage), (Kind::SynchronousSend, Stage::Unmatched));
    assert_eq!((sent.peer, sent.tag, sent.bytes), (Some(Peer(1)), Some(9), 3000));
    assert_eq!(engines[0].operations().count(), 3);

    // The match ends the wait: the operation is over, and its outcome is not taken yet.
    let received = recv(&mut engines[1], from(0, 9), c);
    settle(&mut engines);
    assert!(engines[0].operations().all(|it| it.request != waiting));
    assert_eq!(engines[1].operations().count(), 0);
    engines[1].test(received).unwrap().unwrap();
    engines[0].test(waiting).unwrap().unwrap();
    assert!(engines[0].cancel(wild) && engines[0].cancel(exact));
    assert_eq!(engines[0].operations().count(), 0);
}

#[test]
fn a_send_without_credit_is_listed_as_held() {
    let config = crate::pml::Config { unexpected: 4, units: 4, ..WIDE };
    let mut engines = engines(2, config, 8, 512);
    let data = bytes(8, 1);
    let sends: Vec<_> = (0..20).map(|_| send(&mut engines[0], 1, 1, Mode::Standard, &data)).collect();
    settle(&mut engines);
    let held: Vec<_> = engines[0].operations().collect();
    assert!(!held.is_empty() && held.len() < sends.len());
    assert!(held.iter().all(|it| (it.kind, it.stage, it.peer) == (Kind::Send, Stage::Held, Some(Peer(1)))));
    let arrived = engines[1].unreceived().count();
    assert_eq!(arrived + held.len(), sends.len());
}

#[test]
fn each_message_without_a_receive_is_listed_until_it_is_received() {
    let mut engines = engines(3, WIDE, 8, 512);
    let long = bytes(3000, 1);
    let short = send(&mut engines[1], 0, 3, Mode::Standard, &long[..10]);
    assert_eq!(short, crate::pml::Sending::Complete);
    let waiting = pending(send(&mut engines[2], 0, 4, Mode::Standard, &long));
    settle(&mut engines);
    assert_eq!(unreceived(&engines[0]), [(1, 3, 10, false), (2, 4, 3000, false)]);
    assert!(engines[0].unreceived().all(|message| !message.is_internal() && message.context == 1));

    let (message, _) = engines[0].improbe(from(1, 3)).unwrap().unwrap();
    assert_eq!(unreceived(&engines[0]), [(1, 3, 10, true), (2, 4, 3000, false)]);
    let mut into = [0u8; 3000];
    // SAFETY: the buffer lives to the end of the test.
    let first =
        unsafe { engines[0].imrecv(message, crate::convertor::Span::contiguous(into.as_mut_ptr(), 10)) }.unwrap();
    settle(&mut engines);
    engines[0].test(first).unwrap().unwrap();
    assert_eq!(unreceived(&engines[0]), [(2, 4, 3000, false)]);
    let second = recv(&mut engines[0], from(2, ANY), &mut into);
    settle(&mut engines);
    engines[0].test(second).unwrap().unwrap();
    engines[2].test(waiting).unwrap().unwrap();
    assert_eq!(unreceived(&engines[0]), []);

    let internal = send(&mut engines[1], 0, INTERNAL_TAGS + 1, Mode::Standard, &long[..1]);
    assert_eq!(internal, crate::pml::Sending::Complete);
    settle(&mut engines);
    assert!(engines[0].unreceived().all(|message| message.is_internal()));
    assert_eq!(engines[0].unreceived().count(), 1);
}

#[test]
fn peers_to_which_a_message_was_sent_are_known() {
    let mut engines = engines(3, WIDE, 8, 512);
    let data = bytes(8, 1);
    assert!((0..3).all(|peer| !engines[0].has_sent(Peer(peer))));
    assert_eq!(send(&mut engines[0], 1, 3, Mode::Standard, &data), crate::pml::Sending::Complete);
    settle(&mut engines);
    assert_eq!([0, 1, 2].map(|peer| engines[0].has_sent(Peer(peer))), [false, true, false]);
    assert!(!engines[1].has_sent(Peer(0)), "it has only received");
}
