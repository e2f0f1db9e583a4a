//! Messages that are held back for want of credit: who asks whom, and that it ends.

use std::vec::Vec;

use super::matching::{ANY, Pattern};
use super::tests::{WIDE, bytes, engines, finish, from, pending, recv, send, settle};
use super::*;
use crate::time::Instant;

/// No envelope for anybody: every message is held back.
const NONE: Config = Config { unexpected: 0, units: 0, ..WIDE };

/// A receive that nothing can match must not keep two engines talking for ever.
#[test]
fn p27_nobody_asks_twice_for_what_is_not_there() {
    let mut engines = engines(2, NONE, 8, 512);
    let (data, mut into) = (bytes(10, 1), [0; 10]);
    let held = pending(send(&mut engines[0], 1, 5, Mode::Standard, &data));
    let other = recv(&mut engines[1], from(0, 9), &mut into);
    settle(&mut engines);
    assert_eq!((engines[1].counters().asks_sent, engines[0].counters().notices_sent), (1, 1));
    assert!(engines[0].arm() && engines[1].arm());
    // What is held back from now on is told of.
    let wanted = pending(send(&mut engines[0], 1, 9, Mode::Standard, &data));
    finish(&mut engines, 1, other).unwrap();
    finish(&mut engines, 0, wanted).unwrap();
    let other = recv(&mut engines[1], from(0, 5), &mut into);
    finish(&mut engines, 1, other).unwrap();
    finish(&mut engines, 0, held).unwrap();
}

#[test]
fn m12_p27_a_probe_finds_what_is_held_back_although_a_receive_waits_for_another() {
    let mut engines = engines(2, NONE, 8, 512);
    let (data, mut into) = (bytes(10, 1), [0; 10]);
    let held = pending(send(&mut engines[0], 1, 5, Mode::Standard, &data));
    let other = recv(&mut engines[1], from(0, 9), &mut into);
    let found = (0..100).find_map(|_| {
        settle(&mut engines);
        engines[1].iprobe(from(0, 5))
    });
    assert_eq!(found.map(|envelope| envelope.tag), Some(5));
    let mut five = [0; 10];
    let receive = recv(&mut engines[1], from(0, 5), &mut five);
    finish(&mut engines, 1, receive).unwrap();
    finish(&mut engines, 0, held).unwrap();
    assert!(engines[1].cancel(other));
}

/// While an answer is kept for a probe its sender holds everything back, and must say so: with credit and without.
#[test]
fn p27_what_is_held_back_behind_a_kept_answer_reaches_its_receive() {
    for config in [NONE, Config { unexpected: 4, units: 4, ..WIDE }] {
        let mut engines = engines(2, config, 8, 512);
        let (data, mut into) = (bytes(10, 1), [0; 10]);
        // Uses up the credit, so that the next is held back.
        let filler = (config.unexpected != 0).then(|| send(&mut engines[0], 1, 1, Mode::Standard, &data));
        let held = pending(send(&mut engines[0], 1, 5, Mode::Standard, &data));
        let other = recv(&mut engines[1], from(0, 9), &mut into);
        let found = (0..100).find_map(|_| {
            settle(&mut engines);
            engines[1].iprobe(from(0, 5))
        });
        assert!(found.is_some());
        if let Some(filler) = filler {
            let mut into = [0; 10];
            let receive = recv(&mut engines[1], from(0, 1), &mut into);
            finish(&mut engines, 1, receive).unwrap();
            settle(&mut engines); // the credit is back
            if let Sending::Pending(request) = filler {
                finish(&mut engines, 0, request).unwrap();
            }
        }
        let behind = send(&mut engines[0], 1, 9, Mode::Standard, &data);
        finish(&mut engines, 1, other).unwrap();
        if let Sending::Pending(request) = behind {
            finish(&mut engines, 0, request).unwrap();
        }
        let mut five = [0; 10];
        let receive = recv(&mut engines[1], from(0, 5), &mut five);
        finish(&mut engines, 1, receive).unwrap();
        finish(&mut engines, 0, held).unwrap();
    }
}

/// Probes for several things in turn, with more or less progress between them, for a message that only one of them
/// finds: it is found, whatever the rhythm.
#[test]
fn m12_p27_probes_in_turn_do_not_take_each_others_answer() {
    let only = |tag| from(0, tag);
    let loops: [(&[Pattern], u32); 6] = [
        (&[only(4), only(5)], 4),
        (&[only(4), only(5)], 5),
        (&[only(4), only(5), only(6)], 6),
        (&[from(ANY, ANY), only(5)], 5),
        (&[only(5), from(0, ANY), from(ANY, 7)], 5),
        (&[from(ANY, 3), only(4), Pattern { context: 9, source: 0, tag: 5 }], 3),
    ];
    for (patterns, tag) in loops {
        for rhythm in 0..6 {
            let mut engines = engines(3, NONE, 8, 512);
            let data = bytes(10, 1);
            let before = pending(send(&mut engines[0], 1, 0x8000_0000, Mode::Standard, &data));
            let held = pending(send(&mut engines[0], 1, tag, Mode::Standard, &data));
            settle(&mut engines);
            let step = |engines: &mut Vec<_>, times| {
                for _ in 0..times {
                    engines.iter_mut().for_each(|engine: &mut super::tests::Engine| {
                        engine.progress(Instant::ZERO);
                    });
                }
            };
            let found = (0..20_000).any(|_| {
                step(&mut engines, u32::from(rhythm == 0));
                patterns.iter().any(|pattern| {
                    step(&mut engines, rhythm);
                    engines[1].iprobe(*pattern).is_some()
                })
            });
            assert!(found, "{patterns:?} {rhythm}");
            for tag in [tag, 0x8000_0000] {
                let mut into = [0; 10];
                let receive = recv(&mut engines[1], from(ANY, tag), &mut into);
                finish(&mut engines, 1, receive).unwrap();
            }
            finish(&mut engines, 0, before).unwrap();
            finish(&mut engines, 0, held).unwrap();
        }
    }
}

/// Two peers have what is looked for, there is one spare envelope, and only one of the two is what the program wants.
#[test]
fn m12_p27_probes_of_two_peers_in_turn_find_both() {
    for (wanted, rhythm) in [(0, 0), (0, 1), (0, 2), (0, 3), (2, 0), (2, 1), (2, 2), (2, 3)] {
        let mut engines = engines(3, NONE, 8, 512);
        let data = bytes(10, 1);
        let sends = [0, 2].map(|at: usize| (at, pending(send(&mut engines[at], 1, 4, Mode::Standard, &data))));
        settle(&mut engines);
        let found = (0..20_000).any(|_| {
            [0, 2].into_iter().any(|source| {
                for _ in 0..rhythm.max(u32::from(source == 0)) {
                    engines.iter_mut().for_each(|engine| {
                        engine.progress(Instant::ZERO);
                    });
                }
                engines[1].iprobe(from(source, 4)).is_some() && source == wanted
            })
        });
        assert!(found, "{wanted} {rhythm}");
        for (at, request) in sends {
            let mut into = [0; 10];
            let receive = recv(&mut engines[1], from(at as u32, 4), &mut into);
            finish(&mut engines, 1, receive).unwrap();
            finish(&mut engines, at, request).unwrap();
        }
    }
}

/// A probe that nobody repeats leaves its answer behind: other probes get through all the same.
#[test]
fn m12_p27_an_answer_that_nobody_looks_for_any_more_gives_way() {
    let mut engines = engines(2, NONE, 8, 512);
    let data = bytes(10, 1);
    let sends = [4, 5].map(|tag| pending(send(&mut engines[0], 1, tag, Mode::Standard, &data)));
    settle(&mut engines);
    assert_eq!(engines[1].iprobe(from(0, 5)), None); // asked for, and never again
    let found = (0..100_000).any(|_| {
        engines.iter_mut().for_each(|engine| {
            engine.progress(Instant::ZERO);
        });
        engines[1].iprobe(from(0, 4)).is_some()
    });
    assert!(found);
    for (tag, request) in [5, 4].into_iter().zip(sends.into_iter().rev()) {
        let mut into = [0; 10];
        let receive = recv(&mut engines[1], from(0, tag), &mut into);
        finish(&mut engines, 1, receive).unwrap();
        finish(&mut engines, 0, request).unwrap();
    }
}

/// Refusals that one peer has no room for must not stand in the way of another peer's.
#[test]
fn p27_refusals_for_a_peer_that_does_not_listen_hold_up_nobody_else() {
    let mut engines = engines(3, Config { requests: 64, ..WIDE }, 4, 512);
    let data = bytes(10, 1);
    let mut sends = Vec::new();
    for at in [2usize, 0] {
        for _ in 0..12 {
            sends.push((at, pending(send(&mut engines[at], 1, 4, Mode::Synchronous, &data))));
        }
        settle(&mut engines);
    }
    engines[1].purge(1);
    for _ in 0..100 {
        engines[1].progress(Instant::ZERO);
        engines[2].progress(Instant::ZERO);
    }
    for (at, request) in sends.into_iter().filter(|(at, _)| *at == 2) {
        assert_eq!(engines[at].test(request), Some(Err(Failure::NoCommunicator(crate::btl::Peer(1)))));
    }
    settle(&mut engines);
    assert_eq!(engines[1].used(), [0; 3]);
}
