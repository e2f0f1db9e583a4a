//! Messages that are held back for lack of credit: when the receiver asks for them, and that the asks end.

use std::vec::Vec;

use super::basic::{Engine, WIDE, bytes, engines, finish, from, pending, recv, send, settle};
use crate::convertor::Span;
use crate::pml::matching::{ANY, Pattern};
use crate::pml::offload::ANNOUNCEMENT_TAG;
use crate::pml::requests::state::Outcome;
use crate::pml::*;
use crate::rail::Peer;
use crate::time::Instant;

/// No peer has credit for an envelope, so every message is held back.
const NONE: Config = Config { unexpected: 0, units: 0, ..WIDE };

/// Two engines must not exchange asks and replies forever about a receive that no message can match.
#[test]
fn p27_an_ask_that_found_nothing_is_not_repeated() {
    let mut engines = engines(2, NONE, 8, 512);
    let (data, mut into) = (bytes(10, 1), [0; 10]);
    let held = pending(send(&mut engines[0], 1, 5, Mode::Standard, &data));
    let other = recv(&mut engines[1], from(0, 9), &mut into);
    settle(&mut engines);
    assert_eq!((engines[1].counters().asks_sent, engines[0].counters().notices_sent), (1, 1));
    assert!(engines[0].arm() && engines[1].arm());
    // Messages that are held back from now on bring a notice.
    let wanted = pending(send(&mut engines[0], 1, 9, Mode::Standard, &data));
    finish(&mut engines, 1, other).unwrap();
    finish(&mut engines, 0, wanted).unwrap();
    let other = recv(&mut engines[1], from(0, 5), &mut into);
    finish(&mut engines, 1, other).unwrap();
    finish(&mut engines, 0, held).unwrap();
}

/// The asks also end if a program probes again and again, for one message or for several in turn.
#[test]
fn m12_p27_probes_that_find_nothing_ask_seldom() {
    for (tags, most, sleeps) in [(&[9][..], 2, true), (&[9, 8, 7], 60, false)] {
        let mut engines = engines(2, NONE, 8, 512);
        let (data, mut into) = (bytes(10, 1), [0; 10]);
        let held = pending(send(&mut engines[0], 1, 5, Mode::Standard, &data));
        let mut slept = 0;
        for turn in 0..3000 {
            assert_eq!(engines[1].iprobe(from(0, tags[turn % tags.len()])), None);
            slept += u32::from(sleeps && engines[1].arm());
            engines.iter_mut().for_each(|engine| {
                engine.progress(Instant::ZERO);
            });
        }
        let asks = engines[1].counters().asks_sent;
        assert!((1..=most).contains(&asks), "{tags:?}: {asks} asks");
        assert!(!sleeps || slept > 2900, "slept {slept} times of 3000");
        // A message that is held back from now on is found nevertheless.
        let wanted = pending(send(&mut engines[0], 1, tags[0], Mode::Standard, &data));
        let found = (0..2000).any(|turn| {
            engines.iter_mut().for_each(|engine| {
                engine.progress(Instant::ZERO);
            });
            engines[1].iprobe(from(0, tags[turn % tags.len()])).is_some()
        });
        assert!(found, "{tags:?}");
        for (tag, request) in [(tags[0], wanted), (5, held)] {
            let receive = recv(&mut engines[1], from(0, tag), &mut into);
            finish(&mut engines, 1, receive).unwrap();
            finish(&mut engines, 0, request).unwrap();
        }
    }
}

#[test]
fn m12_p27_a_probe_finds_a_held_back_message_although_a_receive_waits_for_another() {
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

/// While an answer is kept for a probe, its sender holds everything back, and must send a notice: with credit and without.
#[test]
fn p27_a_message_held_back_behind_a_kept_answer_reaches_its_receive() {
    for config in [NONE, Config { unexpected: 4, units: 4, ..WIDE }] {
        let mut engines = engines(2, config, 8, 512);
        let (data, mut into) = (bytes(10, 1), [0; 10]);
        // This message uses up the credit, so the next one is held back.
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

/// A program probes for several messages in turn, with more or less progress between the probes. Only one of the messages exists.
/// It is found, however much progress there is.
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
                    engines.iter_mut().for_each(|engine: &mut Engine| {
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

/// Two peers hold back messages that a probe wants. There is one envelope for probes, and the program wants the message of only
/// one of the peers.
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

/// The answer for a probe that is not repeated stays in its envelope. Other probes find their messages nevertheless.
#[test]
fn m12_p27_an_answer_that_no_probe_looks_for_any_more_is_sent_back() {
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

/// Takes the message with a tag by a matched probe.
fn take(engines: &mut [Engine], at: usize, tag: u32) -> Message {
    let taken = (0..100_000).find_map(|_| {
        engines.iter_mut().for_each(|engine| {
            engine.progress(Instant::ZERO);
        });
        engines[at].improbe(from(ANY, tag)).unwrap()
    });
    let Some((message, envelope)) = taken else { panic!("tag {tag} is never found") };
    assert_eq!(envelope.tag, tag);
    message
}

fn recv_taken(engine: &mut Engine, message: Message, into: &mut [u8]) -> Result<Request, (Refusal, Message)> {
    // SAFETY: the tests keep their buffers until the end.
    unsafe { engine.imrecv(message, Span::contiguous(into.as_mut_ptr(), into.len())) }
}

/// With one envelope for probes, matched probes take as many messages as there are requests, before any of them is received. Some
/// of the messages have credit.
#[test]
fn m13_p27_matched_probes_take_more_messages_than_there_are_envelopes_for_probes() {
    for config in [NONE, Config { unexpected: 8, units: 8, ..WIDE }] {
        assert_eq!(config.probes, 1);
        let mut engines = engines(2, config, 8, 512);
        let data: Vec<_> = (0..30u8).map(|i| bytes(5 + 40 * i as usize, i)).collect();
        let sends: Vec<_> = (0..).zip(&data).map(|(tag, m)| send(&mut engines[0], 1, tag, Mode::Standard, m)).collect();
        let order = || (0..30).map(|i| i * 7 % 30); // in scattered order
        let mut taken: Vec<_> = order().map(|tag| (tag, take(&mut engines, 1, tag as u32))).collect();
        taken.reverse();
        // A message that was found and not taken keeps its place.
        let more = send(&mut engines[0], 1, 99, Mode::Standard, &data[3]);
        let found = (0..1000).find_map(|_| {
            settle(&mut engines);
            engines[1].iprobe(from(0, 99))
        });
        assert!(found.is_some());
        for (tag, message) in taken {
            let mut into = bytes(data[tag].len(), 255);
            let receive = recv_taken(&mut engines[1], message, &mut into).unwrap();
            finish(&mut engines, 1, receive).unwrap();
            assert_eq!(into, data[tag]);
        }
        let mut into = bytes(data[3].len(), 255);
        let receive = recv(&mut engines[1], from(ANY, ANY), &mut into);
        finish(&mut engines, 1, receive).unwrap();
        for sending in sends.into_iter().chain([more]) {
            if let Sending::Pending(request) = sending {
                finish(&mut engines, 0, request).unwrap();
            }
        }
        settle(&mut engines);
        assert_eq!((engines[0].used(), engines[1].used()), ([0; 3], [0; 3]));
    }
}

/// If there is no free request, a matched probe reports that, and the message stays where it is.
#[test]
fn m13_p27_a_matched_probe_without_a_request_is_refused_and_takes_nothing() {
    let mut engines = engines(2, Config { requests: 4, ..NONE }, 8, 512);
    let data = bytes(10, 1);
    let mut sends: Vec<_> = (0..4).map(|tag| pending(send(&mut engines[0], 1, tag, Mode::Standard, &data))).collect();
    let mut taken: Vec<_> = (0..4).map(|tag| take(&mut engines, 1, tag)).collect();
    let mut into = [0; 10];
    let first = recv_taken(&mut engines[1], taken.remove(0), &mut into).unwrap(); // has its request
    settle(&mut engines);
    finish(&mut engines, 0, sends.remove(0)).unwrap();
    sends.push(pending(send(&mut engines[0], 1, 9, Mode::Standard, &data)));
    for _ in 0..1000 {
        settle(&mut engines[..]);
        if engines[1].iprobe(from(0, 9)).is_some() {
            break;
        }
    }
    assert_eq!(engines[1].improbe(from(0, 9)), Err(Refusal::Busy));
    assert!(engines[1].iprobe(from(0, 9)).is_some());
    finish(&mut engines, 1, first).unwrap();
    taken.push(take(&mut engines, 1, 9));
    for message in taken {
        let receive = recv_taken(&mut engines[1], message, &mut into).unwrap();
        finish(&mut engines, 1, receive).unwrap();
        assert_eq!(into, data[..]);
    }
    for request in sends {
        finish(&mut engines, 0, request).unwrap();
    }
    settle(&mut engines);
    assert_eq!((engines[0].used(), engines[1].used()), ([0; 3], [0; 3]));
}

/// A matched probe took a message, and then its sender was lost: the receive reports the failure. After the peer was deleted, the
/// message does not exist any more.
#[test]
fn m13_p7_a_held_back_message_that_was_taken_ends_with_its_sender() {
    for deleted in [false, true] {
        let mut engines = engines(2, NONE, 8, 512);
        let data = bytes(10, 1);
        let _ = send(&mut engines[0], 1, 5, Mode::Standard, &data);
        let message = take(&mut engines, 1, 5);
        engines[1].drop_peer(0, deleted, Outcome::PeerFailed);
        let receive = recv_taken(&mut engines[1], message, &mut [0; 10]);
        if deleted {
            assert!(matches!(receive, Err((Refusal::Invalid, _))));
        } else {
            assert_eq!(engines[1].test(receive.unwrap()), Some(Err(Failure::PeerFailed(crate::rail::Peer(0)))));
        }
        assert_eq!(engines[1].used(), [0; 3]);
    }
}

/// The receive for each ask is found in a few steps, however many receives are posted, for this peer, for others and for any.
#[test]
#[cfg(feature = "indexes")]
fn p27_the_next_ask_is_found_in_few_steps() {
    let mut engines = engines(3, Config { requests: 1000, ..NONE }, 64, 512);
    let data = bytes(10, 1);
    let held = pending(send(&mut engines[0], 1, 5000, Mode::Standard, &data));
    let mut into = [[0; 10]; 901];
    let (last, into) = into.split_last_mut().unwrap();
    let patterns = (0..).map(|tag| from([0, 2, ANY][tag as usize % 3], tag));
    let receives: Vec<_> = patterns.zip(into).map(|(p, into)| recv(&mut engines[1], p, into)).collect();
    settle(&mut engines);
    let all = *engines[1].counters();
    assert_eq!(all.asks_sent, 600); // those that the sender could satisfy
    // At most the steps of one walk through all receives, and a few steps for each ask.
    assert!(all.ask_steps < 600 * 40, "{} steps for {} asks", all.ask_steps, all.asks_sent);
    // One more receive is found as quickly.
    let wanted = recv(&mut engines[1], from(ANY, 5000), last);
    finish(&mut engines, 1, wanted).unwrap();
    finish(&mut engines, 0, held).unwrap();
    let more = *engines[1].counters();
    assert!(more.ask_steps - all.ask_steps <= 100 * (more.asks_sent - all.asks_sent), "{more:?}");
    // The next ask learns that nothing is held back any more.
    let mut into = [0; 10];
    let vain = recv(&mut engines[1], from(0, 5001), &mut into);
    settle(&mut engines);
    assert!(engines[1].cancel(vain));
    let _ = engines[1].test(vain);
    // When no peer holds messages back, the order is dropped after as many operations as building it took steps.
    for _ in 0..30_000 {
        let receive = recv(&mut engines[1], from(2, 7), &mut into);
        assert!(engines[1].cancel(receive));
        let _ = engines[1].test(receive);
    }
    assert!(!engines[1].posting_order.kept && !engines[1].slow_receives);
    for receive in receives {
        assert!(engines[1].cancel(receive));
        let _ = engines[1].test(receive);
    }
    settle(&mut engines);
    assert_eq!((engines[0].used(), engines[1].used()), ([0; 3], [0; 3]));
}

/// An order in which `count` messages are taken: that of the sends, the reverse, or a random one.
fn orders(count: u32) -> [Vec<u32>; 3] {
    let mut random: Vec<u32> = (0..count).collect();
    let mut state = 7u32;
    for at in (1..count as usize).rev() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        random.swap(at, (state >> 8) as usize % (at + 1));
    }
    [(0..count).collect(), (0..count).rev().collect(), random]
}

/// All entries that two engines have looked at in searches.
fn steps(engines: &[Engine]) -> u64 {
    engines
        .iter()
        .map(|engine| {
            let counters = engine.counters();
            counters.ask_steps + counters.answer_steps + engine.matcher().counters().steps
        })
        .sum()
}

/// Sends that are held back are found in constant time, whatever the order in which their receives are posted: one after the
/// other, or all before the first is complete; by tag, or by communicator with any tag.
#[test]
#[cfg(feature = "indexes")]
fn m10_p27_held_back_messages_are_found_in_few_steps_in_any_order() {
    for (config, mode) in [(NONE, Mode::Standard), (NONE, Mode::Synchronous), (WIDE, Mode::Standard)] {
        for (at_once, by_tag) in [(false, true), (true, true), (false, false)] {
            let most = |count: u32| {
                let steps = orders(count).map(|order| {
                    let mut engines = engines(2, Config { requests: count + 2, ..config }, 64, 512);
                    let data = bytes(10, 1);
                    let pattern = |one: u32| Pattern { context: one, source: 0, tag: if by_tag { 5 } else { ANY } };
                    let mut sends: Vec<_> = Vec::new();
                    for context in 0..count {
                        // SAFETY: the data stays until the end.
                        let sent = unsafe { engines[0].isend(Peer(1), context, 5, mode, Span::of(&data)) };
                        sends.extend(match sent.unwrap() {
                            Sending::Pending(request) => Some(request),
                            Sending::Complete => None,
                        });
                    }
                    settle(&mut engines);
                    let before = steps(&engines);
                    let mut into = std::vec![[0; 10]; count as usize];
                    let mut receives = Vec::new();
                    for (context, into) in order.into_iter().zip(&mut into) {
                        let receive = recv(&mut engines[1], pattern(context), into);
                        if at_once {
                            receives.push(receive);
                        } else {
                            finish(&mut engines, 1, receive).unwrap();
                        }
                    }
                    for receive in receives {
                        finish(&mut engines, 1, receive).unwrap();
                    }
                    for request in sends {
                        finish(&mut engines, 0, request).unwrap();
                    }
                    assert!(into.iter().all(|into| *into == data[..]));
                    settle(&mut engines);
                    assert_eq!((engines[0].used(), engines[1].used()), ([0; 3], [0; 3]));
                    steps(&engines) - before
                });
                steps.into_iter().max().unwrap() as f64 / f64::from(count)
            };
            let (few, many) = (most(100), most(3000));
            assert!(many <= 2.0 * few.max(4.0), "{mode:?} {at_once} {by_tag}: {few} and {many} steps for each message");
        }
    }
}

/// Refusals to a peer whose rail has no room must not delay the refusals to another peer.
#[test]
fn p27_refusals_for_a_peer_that_does_not_poll_delay_no_other_peer() {
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
        let refused = Status { peer: crate::rail::Peer(1), tag: 4, received: 10, delivered: 10 };
        assert_eq!(engines[at].test(request), Some(Err(Failure::NoCommunicator(refused))));
    }
    settle(&mut engines);
    assert_eq!(engines[1].used(), [0; 3]);
}

/// Credit comes back in time, however small the share: when half of it is owed. So no sender has to hold messages back.
#[test]
fn p27_credit_returns_before_a_sender_runs_out_of_it() {
    for share in [1, 2, 3, 8] {
        let mut engines = engines(2, Config { unexpected: 4 * share, units: 4 * share, ..WIDE }, 8, 512);
        let (data, mut into) = (bytes(10, 1), [0; 10]);
        for round in 0..48 {
            let receive = recv(&mut engines[1], from(0, 1), &mut into);
            let body = if round % 3 == 0 { &data[..0] } else { &data[..] };
            assert_eq!(
                send(&mut engines[0], 1, 1, Mode::Standard, body),
                Sending::Complete,
                "round {round} of {share}"
            );
            assert_eq!(finish(&mut engines, 1, receive).unwrap().received, body.len() as u64);
            settle(&mut engines);
        }
        let (sender, receiver) = (engines[0].counters(), engines[1].counters());
        assert_eq!((sender.notices_sent, u64::from(share.div_ceil(2)) * receiver.credits_sent), (0, 48));
    }
}

/// Messages without payload take no unit, even if none is left. Those with payload go on as long as there are units.
#[test]
fn p27_units_are_for_messages_with_payload() {
    let mut engines = engines(2, Config { unexpected: 48, units: 8, ..WIDE }, 16, 512);
    let data = bytes(10, 1);
    let lens = [0, 0, 0, 10, 0, 10, 0, 0];
    for len in lens {
        assert_eq!(send(&mut engines[0], 1, 1, Mode::Standard, &data[..len]), Sending::Complete);
    }
    let without_unit = pending(send(&mut engines[0], 1, 1, Mode::Standard, &data));
    assert_eq!(send(&mut engines[0], 1, 1, Mode::Standard, &data[..0]), Sending::Complete);
    settle(&mut engines);
    assert_eq!(engines[1].used(), [0, 10, 2]);
    for len in lens.into_iter().chain([10, 0]) {
        let mut into = [0; 10];
        let receive = recv(&mut engines[1], from(0, 1), &mut into);
        assert_eq!(finish(&mut engines, 1, receive).unwrap().received, len as u64);
        assert_eq!(into[..len], data[..len]);
    }
    finish(&mut engines, 0, without_unit).unwrap();
    assert_eq!((engines[0].used(), engines[1].used()), ([0; 3], [0; 3]));
}

/// A process that ends still learns that the device of another one has failed.
#[test]
fn an_engine_that_takes_no_further_messages_takes_announcements() {
    let mut engines = engines(2, WIDE, 4, 512);
    let announced = |engine: &mut Engine| engine.iprobe(from(0, ANNOUNCEMENT_TAG)).is_some();
    let _ = send(&mut engines[0], 1, ANNOUNCEMENT_TAG, Mode::Standard, &[1; 16]);
    settle(&mut engines);
    engines[1].refuse_unexpected(100..200);
    assert!(announced(&mut engines[1]), "one that has arrived before");
    let (message, _) = engines[1].improbe(from(0, ANNOUNCEMENT_TAG)).unwrap().unwrap();
    let mut into = [0; 16];
    let receive = recv_taken(&mut engines[1], message, &mut into).unwrap();
    finish(&mut engines, 1, receive).unwrap();
    let _ = send(&mut engines[0], 1, ANNOUNCEMENT_TAG, Mode::Standard, &[2; 16]);
    settle(&mut engines);
    assert!(announced(&mut engines[1]), "one that arrives later");
}

/// A receiver that takes no further messages refuses those that nobody has received, and those that come: their senders learn
/// it, do not wait for credit, and are told which message it was. Messages that are excepted, or whose receive is posted, arrive.
#[test]
fn m6_an_engine_that_takes_no_further_messages_refuses_them() {
    let mut engines = engines(2, Config { requests: 64, ..WIDE }, 4, 512);
    let (long, short) = (bytes(5000, 1), bytes(10, 2));
    let early = pending(send(&mut engines[0], 1, 4, Mode::Standard, &long));
    let _ = send(&mut engines[0], 1, 5, Mode::Standard, &short);
    let mut into = bytes(10, 0);
    let posted = recv(&mut engines[1], from(0, 6), &mut into);
    settle(&mut engines);
    engines[1].refuse_unexpected(100..200);
    let late = pending(send(&mut engines[0], 1, 7, Mode::Synchronous, &short));
    let matched = pending(send(&mut engines[0], 1, 6, Mode::Synchronous, &short));
    // More than the credit.
    let many: Vec<_> = (0..40).map(|_| send(&mut engines[0], 1, 8, Mode::Standard, &short)).collect();
    settle(&mut engines);
    for (request, tag, bytes) in [(early, 4, 5000), (late, 7, 10)] {
        let status = Status { peer: crate::rail::Peer(1), tag, received: bytes, delivered: bytes };
        assert_eq!(engines[0].test(request), Some(Err(Failure::NoCommunicator(status))));
    }
    assert!(matches!(engines[0].test(matched), Some(Ok(_))));
    assert!(matches!(engines[1].test(posted), Some(Ok(status)) if status.tag == 6));
    for sent in many {
        if let Sending::Pending(request) = sent {
            assert!(matches!(engines[0].test(request), Some(Ok(_))), "a sender waits for credit");
        }
    }
    assert_eq!((engines[0].used(), engines[1].used()), ([0; 3], [0; 3]));
    let refused = engines[1].refused_messages().unwrap();
    let largest =
        RefusedMessages { count: 43, largest: 5000, peer: crate::rail::Peer(0), tag: 4, context: 1, ..refused };
    assert_eq!(refused, largest);
    assert!(refused.bytes >= 5000);
    let kept = pending(send(&mut engines[0], 1, 100, Mode::Synchronous, &short));
    settle(&mut engines);
    assert_eq!(engines[0].test(kept), None);
    let receive = recv(&mut engines[1], from(0, 100), &mut into);
    settle(&mut engines);
    assert!(matches!((engines[0].test(kept), engines[1].test(receive)), (Some(Ok(_)), Some(Ok(_)))));
}

/// A send that is held back can be cancelled: the first of several, one in the middle and the last, also the one for which the
/// peer asks next. The peer never gets it, and the others arrive in order. A send that has left, or is announced, goes on.
#[test]
fn m14_a_send_is_cancelled_until_it_leaves() {
    for mode in [Mode::Standard, Mode::Synchronous, Mode::Complete] {
        for asked in [false, true] {
            let mut engines = engines(2, Config { requests: 256, ..NONE }, 8, 512);
            let data: Vec<_> = (0..6).map(|seed| bytes(10, seed)).collect();
            let sends: Vec<_> = data.iter().map(|data| pending(send(&mut engines[0], 1, 5, mode, data))).collect();
            let mut early = [0; 10];
            let other = recv(&mut engines[1], from(0, 9), &mut early);
            if asked {
                settle(&mut engines);
            }
            for at in [0, 3, 5] {
                assert!(engines[0].cancel_send(sends[at]));
                assert!(!engines[0].cancel_send(sends[at]), "twice");
                assert_eq!(engines[0].test(sends[at]), Some(Err(Failure::Cancelled)));
                assert!(!engines[0].cancel_send(sends[at]), "a request that is over");
            }
            assert!(!engines[1].cancel_send(other), "a receive");
            for at in [1, 2, 4] {
                let mut into = [0; 10];
                let receive = recv(&mut engines[1], from(0, if at == 2 { ANY } else { 5 }), &mut into);
                finish(&mut engines, 1, receive).unwrap();
                assert_eq!(into, data[at][..]);
                finish(&mut engines, 0, sends[at]).unwrap();
            }
            assert!(engines[1].iprobe(from(0, ANY)).is_none());
            settle(&mut engines);
            assert!(engines[1].iprobe(from(0, ANY)).is_none());
            assert!(engines[1].cancel(other));
            let _ = engines[1].test(other);
            settle(&mut engines);
            assert_eq!((engines[0].used(), engines[1].used()), ([0; 3], [0; 3]));
            // All held-back sends were cancelled, so the next message is not behind any.
            let last = pending(send(&mut engines[0], 1, 7, mode, &data[0]));
            assert!(engines[0].cancel_send(last));
            let _ = engines[0].test(last);
            let mut into = [0; 10];
            let receive = recv(&mut engines[1], from(0, 8), &mut into);
            let next = pending(send(&mut engines[0], 1, 8, mode, &data[1]));
            finish(&mut engines, 1, receive).unwrap();
            finish(&mut engines, 0, next).unwrap();
        }
    }
    // With credit: announced at once.
    let mut engines = engines(2, WIDE, 8, 512);
    let data = bytes(3000, 1);
    for mode in [Mode::Standard, Mode::Synchronous, Mode::Ready] {
        let mut into = std::vec![0; 3000];
        let receive = recv(&mut engines[1], from(0, 1), &mut into);
        let announced = pending(send(&mut engines[0], 1, 1, mode, &data));
        assert!(!engines[0].cancel_send(announced));
        finish(&mut engines, 1, receive).unwrap();
        finish(&mut engines, 0, announced).unwrap();
        assert_eq!(into, data);
    }
}

/// The answer to an ask cannot be cancelled while the peer decides. If the peer sends it back, it can.
#[test]
fn m14_an_answer_that_was_sent_back_can_be_cancelled() {
    let mut engines = engines(2, NONE, 8, 512);
    let (data, mut into) = (bytes(10, 1), [0; 10]);
    let held = pending(send(&mut engines[0], 1, 5, Mode::Standard, &data));
    let receive = recv(&mut engines[1], from(0, 5), &mut into);
    // Until the answer is out and the receiver has not seen it.
    while engines[0].counters().answers_sent == 0 {
        engines[1].progress(Instant::ZERO);
        engines[0].progress(Instant::ZERO);
    }
    assert!(!engines[0].cancel_send(held));
    assert!(engines[1].cancel(receive)); // so the answer goes back
    let _ = engines[1].test(receive);
    settle(&mut engines);
    assert!(engines[0].cancel_send(held));
    assert_eq!(engines[0].test(held), Some(Err(Failure::Cancelled)));
    settle(&mut engines);
    assert_eq!((engines[0].used(), engines[1].used()), ([0; 3], [0; 3]));
}
