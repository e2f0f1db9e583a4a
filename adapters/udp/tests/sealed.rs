//! Encrypted datagrams, with somebody on the way who reads along, changes, repeats and mixes up.

mod common;

use common::tapped::Tapped;
use towline_core::rail::{Lost, Rail as _};
use towline_net::Encrypt;
use towline_udp::hello::HELLO;

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

#[test]
fn who_reads_along_sees_nothing_of_what_is_said() {
    let message: Vec<u8> = (0..9000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (encrypt, seen) in [(Encrypt::Always, false), (Encrypt::Off, true), (Encrypt::BetweenHosts, true)] {
        let mut tapped = Tapped::met(encrypt);
        tapped.send(0, &message);
        tapped.send(0, b"a short one");
        tapped.until("the messages", |it| it.pair.got[1].len() == 2);
        assert_eq!(tapped.pair.got[1], [message.clone(), b"a short one".to_vec()], "{encrypt}");
        let said: Vec<u8> = tapped.heard[0].iter().filter(|it| it.len() != HELLO).flatten().copied().collect();
        assert!(said.len() >= message.len());
        let parts = message.chunks(16).filter(|part| contains(&said, part)).count();
        assert_eq!(parts > 500, seen, "{encrypt}: {parts} parts of the message are to be seen");
        assert_eq!(contains(&said, b"a short one"), seen, "{encrypt}");
    }
}

#[test]
fn a_changed_bit_is_noticed_wherever_it_is_and_the_peer_stays() {
    let mut tapped = Tapped::met(Encrypt::Always);
    let caught = tapped.caught(&[7; 40]);
    for bit in 0..caught.len() * 8 {
        let mut changed = caught.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let before = tapped.pair.rails[1].counters().dropped();
        tapped.pass(0, &changed);
        tapped.until("it to be dropped", |it| it.pair.rails[1].counters().dropped() == before + 1);
        assert!(tapped.pair.got[1].is_empty(), "bit {bit}");
    }
    for len in 0..caught.len() {
        tapped.pass(0, &caught[..len]);
    }
    for _ in 0..1000 {
        tapped.relay();
    }
    assert!(tapped.pair.got[1].is_empty(), "cut short");
    tapped.pass(0, &caught);
    tapped.until("the message as it was", |it| it.pair.got[1] == [[7; 40]]);
    assert!(tapped.pair.lost[1].is_empty());
}

/// In any order each comes once.
#[test]
fn what_is_sent_again_is_dropped_and_counted() {
    let mut tapped = Tapped::met(Encrypt::Always);
    let caught: Vec<Vec<u8>> = (0..50u8).map(|number| tapped.caught(&[number; 70])).collect();
    for bytes in caught.iter().rev().chain(&caught) {
        tapped.pass(0, bytes);
        tapped.relay();
    }
    tapped.until("them to be dropped", |it| it.pair.rails[1].counters().dropped_again == 50);
    let expected: Vec<Vec<u8>> = (0..50u8).rev().map(|number| vec![number; 70]).collect();
    assert_eq!(tapped.pair.got[1], expected);
}

#[test]
fn what_is_not_sealed_is_not_taken_from_who_seals() {
    let mut open = Tapped::met(Encrypt::Off);
    let plain = open.caught(b"as of old");
    let mut tapped = Tapped::met(Encrypt::Always);
    let before = tapped.pair.rails[1].counters().dropped_unproved;
    tapped.pass(0, &plain);
    tapped.until("it to be dropped", |it| it.pair.rails[1].counters().dropped_unproved == before + 1);
    assert!(tapped.pair.got[1].is_empty());
}

/// The same message twice, and in two sessions, looks different each time.
#[test]
fn the_same_message_never_looks_the_same() {
    let mut seen: Vec<Vec<u8>> = vec![];
    for _ in 0..2 {
        let mut tapped = Tapped::met(Encrypt::Always);
        for _ in 0..2 {
            let caught = tapped.caught(&[7; 300]);
            assert!(!seen.iter().any(|other| other[16..] == caught[16..]));
            seen.push(caught);
        }
    }
}

#[test]
fn a_goodbye_is_sealed_too() {
    let mut tapped = Tapped::met(Encrypt::Always);
    let to = tapped.pair.to[0];
    tapped.pair.rails[0].del_peer(to);
    tapped.until("the goodbye", |it| it.pair.lost[1] == [Lost::Closed]);
    assert!(tapped.heard[0].iter().all(|it| matches!(it[0], b'E' | b'H')));
}

#[test]
fn who_encrypts_and_who_does_not_refuse_each_other_and_say_why() {
    for encrypts in 0..2 {
        let mut tapped = Tapped::new(|config| {
            config.encrypt = if config.rank == encrypts { Encrypt::Always } else { Encrypt::Off };
        });
        assert!(tapped.pair.try_send(0, towline_core::rail::Lane::Eager, b"not yet").is_err());
        tapped.until("the refusal", |it| it.pair.lost.iter().all(|lost| lost == &[Lost::Broken]));
        assert!(tapped.pair.rails.iter().all(|rail| rail.counters().refused_encryption >= 1));
        assert!(tapped.pair.got.iter().all(Vec::is_empty));
    }
}

/// On one host `between-hosts` is the same as `off`, and these two get on.
#[test]
fn settings_that_come_to_the_same_here_get_on() {
    let mut tapped = Tapped::new(|config| {
        config.encrypt = if config.rank == 0 { Encrypt::BetweenHosts } else { Encrypt::Off };
    });
    tapped.send(0, b"hello");
    tapped.until("the message", |it| it.pair.got[1] == [b"hello"]);
}
