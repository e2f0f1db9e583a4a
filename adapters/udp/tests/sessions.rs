//! New sessions beside the present one, with hellos that are lost, duplicated, late or replayed; and goodbyes that are lost.

mod common;

use std::net::UdpSocket;

use common::relayed::Relayed;
use common::{KEY, Limit};
use towline_core::rail::{Lane, Lost, Peer, Rail as _};
use towline_net::Encrypt;
use towline_udp::datagram::{Datagram, read};
use towline_udp::hello::{Hello, Stage};

const MODES: [Encrypt; 2] = [Encrypt::Off, Encrypt::Always];

fn hello(bytes: &[u8]) -> Option<Hello> {
    let Ok(Datagram::Hello(hello)) = read(bytes) else { return None };
    Hello::decode(hello, &KEY).ok()
}

fn established(relayed: &Relayed) -> [u64; 2] {
    [0, 1].map(|own: usize| relayed.pair.rails[own].counters().established)
}

/// Checks that a frame arrives each way.
fn exchange(relayed: &mut Relayed) {
    let before = [0, 1].map(|own: usize| relayed.pair.got[own].len());
    relayed.send(0, b"still there?");
    relayed.send(1, b"yes, and you?");
    relayed.until("an exchange", |it| (0..2).all(|own| it.pair.got[own].len() > before[own]));
    assert!(relayed.pair.lost.iter().all(Vec::is_empty));
}

fn settle(relayed: &mut Relayed) {
    for _ in 0..2000 {
        relayed.relay();
    }
}

/// Sends this many frames each way, in turns, and returns them.
fn traffic(relayed: &mut Relayed, count: u32) -> Vec<Vec<u8>> {
    let sent: Vec<Vec<u8>> = (0..count).map(|number| number.to_le_bytes().repeat(10)).collect();
    for bytes in &sent {
        relayed.send(0, bytes);
        relayed.send(1, bytes);
        relayed.relay();
    }
    sent
}

#[test]
fn a_renewal_under_traffic_loses_nothing() {
    let mut relayed = Relayed::connected_with(|config| {
        config.encrypt = Encrypt::Always;
        config.renew_after_datagrams = 50;
    });
    let sent = traffic(&mut relayed, 1000);
    relayed.until("all", |it| it.pair.got.iter().all(|got| got.len() == sent.len()));
    assert_eq!(relayed.pair.got, [sent.clone(), sent]);
    assert!(established(&relayed).iter().all(|count| *count > 5), "{:?}", established(&relayed));
    for rail in &relayed.pair.rails {
        assert_eq!(rail.counters().dropped(), 0, "{:?}", rail.counters());
    }
}

/// Whichever hello is lost, also several times in a row, the old keys are used until the new ones are confirmed.
#[test]
fn a_renewal_whose_hellos_are_lost_succeeds_and_loses_nothing() {
    for stage in [Stage::Challenge, Stage::Verified, Stage::Established] {
        let mut relayed = Relayed::connected_with(|config| {
            config.encrypt = Encrypt::Always;
            config.renew_after_datagrams = 50;
        });
        fn loses(relayed: &mut Relayed, stage: Stage, bytes: &[u8]) -> bool {
            let is_it = hello(bytes).is_some_and(|hello| hello.stage == stage);
            relayed.lost += u32::from(is_it);
            is_it && relayed.lost % 5 < 3 // then two in a row arrive: a hello and its answer
        }
        relayed.loses = Some(match stage {
            Stage::Challenge => |it, _, bytes| loses(it, Stage::Challenge, bytes),
            Stage::Verified => |it, _, bytes| loses(it, Stage::Verified, bytes),
            Stage::Established => |it, _, bytes| loses(it, Stage::Established, bytes),
        });
        let sent = traffic(&mut relayed, 300);
        relayed.until("all", |it| it.pair.got.iter().all(|got| got.len() == sent.len()));
        assert_eq!(relayed.pair.got, [sent.clone(), sent], "{stage:?}");
        relayed.until("new keys", |it| established(it).iter().all(|count| *count > 1));
        exchange(&mut relayed);
        for rail in &relayed.pair.rails {
            assert_eq!(rail.counters().dropped(), 0, "{:?}", rail.counters());
        }
    }
}

/// The peer has removed this rail and added it again, and its goodbye was lost: they establish a new session, although the last
/// hello is lost several times. The peer does not repeat the goodbye once it has added this rail again.
#[test]
fn a_peer_whose_goodbye_was_lost_gets_a_new_session() {
    for encrypt in MODES {
        let mut relayed = Relayed::connected(encrypt);
        let card = relayed.pair.rails[1].card().to_vec();
        let mut there = towline_udp::card::decode(&card).unwrap();
        assert_eq!(there.addresses.len(), 1);
        there.addresses[0].port = relayed.sockets[0].local_addr().unwrap().port();
        let to = relayed.pair.to[0];
        relayed.pair.rails[0].del_peer(to);
        relayed.take(0); // the goodbye is lost
        relayed.pair.to[0] = relayed.pair.rails[0].add_peer(Peer(7), &towline_udp::card::encode(&there, true)).unwrap();
        let (start, limit) = (relayed.pair.now(), Limit::new());
        // Longer than the interval of goodbyes, and until a frame has arrived, although this thread may be late.
        while relayed.pair.now().since(start).as_nanos() < 120_000_000
            || relayed.pair.rails[0].counters().dropped_unauthenticated == 0
        {
            let _ = relayed.pair.try_send(1, Lane::Eager, b"still there?");
            relayed.relay();
            limit.check(format_args!("{encrypt}: {:?}", relayed.pair.rails[0].counters()));
        }
        let counters = relayed.pair.rails[0].counters();
        assert_eq!(counters.goodbyes_repeated, 0, "{encrypt}: {counters:?}");
        relayed.loses = Some(|it, _, bytes| {
            let is_last = hello(bytes).is_some_and(|hello| hello.stage == Stage::Established);
            it.lost += u32::from(is_last);
            is_last && it.lost < 6
        });
        relayed.send(0, b"me again");
        relayed.until("the frame", |it| it.pair.got[1].len() == 1);
        exchange(&mut relayed);
        assert_eq!(established(&relayed), [2, 2], "{encrypt}");
    }
}

/// The peer has removed this rail, and its goodbye was lost: frames to it are answered by the goodbye again, at a limited rate.
#[test]
fn p7_a_lost_goodbye_is_repeated() {
    for encrypt in MODES {
        let mut relayed = Relayed::connected(encrypt);
        let to = relayed.pair.to[0];
        relayed.pair.rails[0].del_peer(to);
        assert_eq!(relayed.take(0).len(), 1, "the goodbye, which is lost");
        let start = relayed.pair.now();
        let limit = Limit::new();
        while relayed.pair.lost[1].is_empty() {
            let _ = relayed.pair.try_send(1, Lane::Eager, b"still there?");
            limit.check(format_args!("{encrypt}: {:?}", relayed.pair.rails[0].counters()));
            relayed.relay();
        }
        assert_eq!(relayed.pair.lost[1], [Lost::Closed], "{encrypt}");
        let took = relayed.pair.now().since(start).as_nanos();
        let repeated = relayed.pair.rails[0].counters().goodbyes_repeated;
        assert!(repeated >= 1 && repeated <= took / 100_000_000 + 1, "{encrypt}: {repeated}");
    }
}

/// An attacker replays all hellos from another address, and passes the answers on to the other end, as long as there are any.
#[test]
fn replayed_hellos_make_no_session_and_give_an_attacker_no_path() {
    for encrypt in MODES {
        let mut relayed = Relayed::connected(encrypt);
        exchange(&mut relayed);
        let between = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        between.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        let before = established(&relayed);
        let recorded: Vec<(usize, Vec<u8>)> = (0..2)
            .flat_map(|from| relayed.recorded[from].iter().map(move |bytes| (from, bytes.clone())))
            .filter(|(_, bytes)| hello(bytes).is_some())
            .collect();
        assert!(recorded.len() >= 4);
        let mut answers = 0;
        for (from, bytes) in recorded {
            between[from].send_to(&bytes, relayed.pair.rails[1 - from].address()).unwrap();
            answers = 0;
            for _ in 0..3000 {
                relayed.relay();
                // Answers to the attacker are sent to the rail whose hellos it replays.
                for played in 0..2 {
                    let mut bytes = [0; 2000];
                    while let Ok(len) = between[played].recv(&mut bytes) {
                        answers += 1;
                        assert!(hello(&bytes[..len]).is_some(), "no frames take this path");
                        between[1 - played].send_to(&bytes[..len], relayed.pair.rails[played].address()).unwrap();
                    }
                }
            }
            assert!(answers <= 2, "{encrypt}: answers without end: {answers}");
        }
        assert_eq!(established(&relayed), before, "{encrypt}");
        exchange(&mut relayed);
        let mut bytes = [0; 2000];
        assert!(between.iter().all(|socket| socket.recv(&mut bytes).is_err()), "{answers}: no frames take this path");
    }
}

/// Hellos that the network duplicates, and delivers long after the session was established.
#[test]
fn duplicated_and_late_hellos_make_no_session() {
    for encrypt in MODES {
        let mut relayed = Relayed::connected(encrypt);
        settle(&mut relayed);
        let before = established(&relayed);
        for from in 0..2 {
            for bytes in relayed.recorded[from].clone().into_iter().filter(|bytes| hello(bytes).is_some()) {
                relayed.pass(from, &bytes);
                relayed.pass(from, &bytes);
                settle(&mut relayed);
            }
        }
        assert_eq!(established(&relayed), before, "{encrypt}");
        exchange(&mut relayed);
        settle(&mut relayed);
        let before = relayed.recorded.iter().flatten().filter(|bytes| hello(bytes).is_some()).count();
        settle(&mut relayed);
        let now = relayed.recorded.iter().flatten().filter(|bytes| hello(bytes).is_some()).count();
        assert_eq!(before, now, "hellos without end");
    }
}

/// Hellos of older sessions, while a new one is being made under traffic.
#[test]
fn old_hellos_do_not_disturb_a_renewal() {
    let mut relayed = Relayed::connected_with(|config| {
        config.encrypt = Encrypt::Always;
        config.renew_after_datagrams = 50;
    });
    let mut sent = 0u32;
    while established(&relayed).iter().any(|count| *count < 4) {
        assert!(sent < 2000, "no new session");
        for from in 0..2 {
            relayed.send(from, &sent.to_le_bytes().repeat(10));
            let old: Vec<_> = relayed.recorded[from].iter().filter(|bytes| hello(bytes).is_some()).cloned().collect();
            relayed.pass(from, &old[sent as usize % old.len()]);
        }
        relayed.relay();
        sent += 1;
    }
    settle(&mut relayed);
    exchange(&mut relayed);
    assert!(relayed.pair.got.iter().all(|got| got.len() == sent as usize + 1), "a frame is lost");
}
