//! Encrypted datagrams, with a man in the middle who reads, changes, repeats and reorders them.

mod common;

use common::relayed::Relayed;
use towline_core::rail::{Lost, Rail as _};
use towline_net::Encrypt;
use towline_udp::hello::HELLO;

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

#[test]
fn an_observer_sees_no_plain_text() {
    let message: Vec<u8> = (0..9000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (encrypt, seen) in [(Encrypt::Always, false), (Encrypt::Off, true), (Encrypt::BetweenHosts, true)] {
        let mut relayed = Relayed::connected(encrypt);
        relayed.send(0, &message);
        relayed.send(0, b"a short one");
        relayed.until("the messages", |it| it.pair.got[1].len() == 2);
        assert_eq!(relayed.pair.got[1], [message.clone(), b"a short one".to_vec()], "{encrypt}");
        let sent: Vec<u8> = relayed.recorded[0].iter().filter(|it| it.len() != HELLO).flatten().copied().collect();
        assert!(sent.len() >= message.len());
        let parts = message.chunks(16).filter(|part| contains(&sent, part)).count();
        assert_eq!(parts > 500, seen, "{encrypt}: {parts} parts of the message are visible");
        assert_eq!(contains(&sent, b"a short one"), seen, "{encrypt}");
    }
}

#[test]
fn a_changed_bit_is_detected_wherever_it_is_and_the_peer_stays() {
    let mut relayed = Relayed::connected(Encrypt::Always);
    let datagram = relayed.intercept(&[7; 40]);
    for bit in 0..datagram.len() * 8 {
        let mut changed = datagram.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let before = relayed.pair.rails[1].counters().dropped();
        relayed.pass(0, &changed);
        relayed.until("the drop", |it| it.pair.rails[1].counters().dropped() == before + 1);
        assert!(relayed.pair.got[1].is_empty(), "bit {bit}");
    }
    for len in 0..datagram.len() {
        relayed.pass(0, &datagram[..len]);
    }
    for _ in 0..1000 {
        relayed.relay();
    }
    assert!(relayed.pair.got[1].is_empty(), "truncated");
    relayed.pass(0, &datagram);
    relayed.until("the original message", |it| it.pair.got[1] == [[7; 40]]);
    assert!(relayed.pair.lost[1].is_empty());
}

/// Each datagram is accepted once, in any order.
#[test]
fn replayed_datagrams_are_dropped_and_counted() {
    let mut relayed = Relayed::connected(Encrypt::Always);
    let datagrams: Vec<Vec<u8>> = (0..50u8).map(|number| relayed.intercept(&[number; 70])).collect();
    for bytes in datagrams.iter().rev().chain(&datagrams) {
        relayed.pass(0, bytes);
        relayed.relay();
    }
    relayed.until("the drops", |it| it.pair.rails[1].counters().dropped_replayed == 50);
    let expected: Vec<Vec<u8>> = (0..50u8).rev().map(|number| vec![number; 70]).collect();
    assert_eq!(relayed.pair.got[1], expected);
}

#[test]
fn plain_datagrams_are_refused_in_an_encrypted_session() {
    let mut open = Relayed::connected(Encrypt::Off);
    let plain = open.intercept(b"plain text");
    let mut relayed = Relayed::connected(Encrypt::Always);
    let before = relayed.pair.rails[1].counters().dropped_unauthenticated;
    relayed.pass(0, &plain);
    relayed.until("the drop", |it| it.pair.rails[1].counters().dropped_unauthenticated == before + 1);
    assert!(relayed.pair.got[1].is_empty());
}

/// The same message looks different in two sessions, and each time in one session.
#[test]
fn the_same_message_never_looks_the_same() {
    let mut seen: Vec<Vec<u8>> = vec![];
    for _ in 0..2 {
        let mut relayed = Relayed::connected(Encrypt::Always);
        for _ in 0..2 {
            let datagram = relayed.intercept(&[7; 300]);
            assert!(!seen.iter().any(|other| other[16..] == datagram[16..]));
            seen.push(datagram);
        }
    }
}

#[test]
fn a_goodbye_is_encrypted_too() {
    let mut relayed = Relayed::connected(Encrypt::Always);
    let to = relayed.pair.to[0];
    relayed.pair.rails[0].del_peer(to);
    relayed.until("the goodbye", |it| it.pair.lost[1] == [Lost::Closed]);
    assert!(relayed.recorded[0].iter().all(|it| matches!(it[0], b'E' | b'H')));
}

#[test]
fn ranks_of_which_one_encrypts_refuse_each_other_and_report_why() {
    for encrypts in 0..2 {
        let mut relayed = Relayed::new(|config| {
            config.encrypt = if config.rank == encrypts { Encrypt::Always } else { Encrypt::Off };
        });
        assert!(relayed.pair.try_send(0, towline_core::rail::Lane::Eager, b"not yet").is_err());
        relayed.until("the refusal", |it| it.pair.lost.iter().all(|lost| lost == &[Lost::Broken]));
        assert!(relayed.pair.rails.iter().all(|rail| rail.counters().refused_encryption >= 1));
        assert!(relayed.pair.got.iter().all(Vec::is_empty));
    }
}

/// On one host `between-hosts` has the same result as `off`, so the two establish a session.
#[test]
fn settings_with_the_same_result_connect() {
    let mut relayed = Relayed::new(|config| {
        config.encrypt = if config.rank == 0 { Encrypt::BetweenHosts } else { Encrypt::Off };
    });
    relayed.send(0, b"hello");
    relayed.until("the message", |it| it.pair.got[1] == [b"hello"]);
}
