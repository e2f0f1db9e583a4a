//! Another session beside the one that there is: with hellos lost, doubled, late, and sent again by others.

mod common;

use std::net::UdpSocket;

use common::KEY;
use common::tapped::Tapped;
use towline_core::rail::{Lane, Lost, Peer, Rail as _};
use towline_net::Encrypt;
use towline_udp::datagram::{Datagram, read};
use towline_udp::hello::{Hello, Stage};

const MODES: [Encrypt; 2] = [Encrypt::Off, Encrypt::Always];

fn hello(bytes: &[u8]) -> Option<Hello> {
    let Ok(Datagram::Hello(hello)) = read(bytes) else { return None };
    Hello::decode(hello, &KEY).ok()
}

fn established(tapped: &Tapped) -> [u64; 2] {
    [0, 1].map(|own: usize| tapped.pair.rails[own].counters().established)
}

/// One message each way, which arrives.
fn exchange(tapped: &mut Tapped) {
    let before = [0, 1].map(|own: usize| tapped.pair.got[own].len());
    tapped.send(0, b"still there?");
    tapped.send(1, b"yes, and you?");
    tapped.until("an exchange", |it| (0..2).all(|own| it.pair.got[own].len() > before[own]));
    assert!(tapped.pair.lost.iter().all(Vec::is_empty));
}

fn settle(tapped: &mut Tapped) {
    for _ in 0..2000 {
        tapped.relay();
    }
}

/// Each number that rail `from` sends, in turns with the other's.
fn traffic(tapped: &mut Tapped, count: u32) -> Vec<Vec<u8>> {
    let sent: Vec<Vec<u8>> = (0..count).map(|number| number.to_le_bytes().repeat(10)).collect();
    for bytes in &sent {
        tapped.send(0, bytes);
        tapped.send(1, bytes);
        tapped.relay();
    }
    sent
}

#[test]
fn a_renewal_under_traffic_loses_nothing() {
    let mut tapped = Tapped::met_with(|config| {
        config.encrypt = Encrypt::Always;
        config.renew_after_datagrams = 50;
    });
    let sent = traffic(&mut tapped, 1000);
    tapped.until("all", |it| it.pair.got.iter().all(|got| got.len() == sent.len()));
    assert_eq!(tapped.pair.got, [sent.clone(), sent]);
    assert!(established(&tapped).iter().all(|count| *count > 5), "{:?}", established(&tapped));
    for rail in &tapped.pair.rails {
        assert_eq!(rail.counters().dropped(), 0, "{:?}", rail.counters());
    }
}

/// Whichever hello it is that is lost, also several times in a row, the old keys go on until the new ones are proved.
#[test]
fn a_renewal_whose_hellos_are_lost_goes_on_and_loses_nothing() {
    for stage in [Stage::Calls, Stage::Knows, Stage::Up] {
        let mut tapped = Tapped::met_with(|config| {
            config.encrypt = Encrypt::Always;
            config.renew_after_datagrams = 50;
        });
        fn loses(tapped: &mut Tapped, stage: Stage, bytes: &[u8]) -> bool {
            let is_it = hello(bytes).is_some_and(|hello| hello.stage == stage);
            tapped.lost += u32::from(is_it);
            is_it && tapped.lost % 5 < 3 // then two in a row come: a call and its answer
        }
        tapped.loses = Some(match stage {
            Stage::Calls => |it, _, bytes| loses(it, Stage::Calls, bytes),
            Stage::Knows => |it, _, bytes| loses(it, Stage::Knows, bytes),
            Stage::Up => |it, _, bytes| loses(it, Stage::Up, bytes),
        });
        let sent = traffic(&mut tapped, 300);
        tapped.until("all", |it| it.pair.got.iter().all(|got| got.len() == sent.len()));
        assert_eq!(tapped.pair.got, [sent.clone(), sent], "{stage:?}");
        tapped.until("new keys", |it| established(it).iter().all(|count| *count > 1));
        exchange(&mut tapped);
        for rail in &tapped.pair.rails {
            assert_eq!(rail.counters().dropped(), 0, "{:?}", rail.counters());
        }
    }
}

/// The peer has forgotten us, and its goodbye was lost: it is met again, though the last hello is lost several times. Nor does it
/// say good-bye any more, once it knows us again, to what we go on to send.
#[test]
fn a_peer_that_forgot_us_unheard_is_met_again() {
    for encrypt in MODES {
        let mut tapped = Tapped::met(encrypt);
        let card = tapped.pair.rails[1].card().to_vec();
        let mut there = towline_udp::card::decode(&card).unwrap();
        assert_eq!(there.addresses.len(), 1);
        there.addresses[0].port = tapped.sockets[0].local_addr().unwrap().port();
        let to = tapped.pair.to[0];
        tapped.pair.rails[0].del_peer(to);
        tapped.hear(0); // and does not pass on
        tapped.pair.to[0] = tapped.pair.rails[0].add_peer(Peer(7), &towline_udp::card::encode(&there, true)).unwrap();
        let start = tapped.pair.now();
        while tapped.pair.now().since(start).as_nanos() < 120_000_000 {
            let _ = tapped.pair.try_send(1, Lane::Eager, b"still there?");
            tapped.relay();
        }
        let told = tapped.pair.rails[0].counters();
        assert!(told.dropped_unproved > 0 && told.byes_repeated == 0, "{encrypt}: {told:?}");
        tapped.loses = Some(|it, _, bytes| {
            let is_last = hello(bytes).is_some_and(|hello| hello.stage == Stage::Up);
            it.lost += u32::from(is_last);
            is_last && it.lost < 6
        });
        tapped.send(0, b"me again");
        tapped.until("it", |it| it.pair.got[1].len() == 1);
        exchange(&mut tapped);
        assert_eq!(established(&tapped), [2, 2], "{encrypt}");
    }
}

/// The peer has forgotten us, and its goodbye was lost: what we send it is answered by another one, now and then.
#[test]
fn p7_a_peer_that_forgot_us_unheard_says_so_again_when_it_is_spoken_to() {
    for encrypt in MODES {
        let mut tapped = Tapped::met(encrypt);
        let to = tapped.pair.to[0];
        tapped.pair.rails[0].del_peer(to);
        assert_eq!(tapped.hear(0).len(), 1, "which nobody passes on");
        let start = tapped.pair.now();
        let mut sent = 0;
        while tapped.pair.lost[1].is_empty() {
            let _ = tapped.pair.try_send(1, Lane::Eager, b"still there?");
            sent += 1;
            assert!(sent < 400_000, "{encrypt}: {:?}", tapped.pair.rails[0].counters());
            tapped.relay();
        }
        assert_eq!(tapped.pair.lost[1], [Lost::Closed], "{encrypt}");
        let took = tapped.pair.now().since(start).as_nanos();
        let repeated = tapped.pair.rails[0].counters().byes_repeated;
        assert!(repeated >= 1 && repeated <= took / 100_000_000 + 1, "{encrypt}: {repeated}");
    }
}

/// Somebody has heard all hellos, and sends them again from elsewhere; what is answered is passed on to the other end, for as
/// long as anything is said.
#[test]
fn who_sends_hellos_again_brings_no_session_about_and_does_not_get_in_the_way() {
    for encrypt in MODES {
        let mut tapped = Tapped::met(encrypt);
        exchange(&mut tapped);
        let between = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        between.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        let before = established(&tapped);
        let recorded: Vec<(usize, Vec<u8>)> = (0..2)
            .flat_map(|from| tapped.heard[from].iter().map(move |bytes| (from, bytes.clone())))
            .filter(|(_, bytes)| hello(bytes).is_some())
            .collect();
        assert!(recorded.len() >= 4);
        let mut said_last = 0;
        for (from, bytes) in recorded {
            between[from].send_to(&bytes, tapped.pair.rails[1 - from].address()).unwrap();
            said_last = 0;
            for _ in 0..3000 {
                tapped.relay();
                // What comes to the socket by which `from` is played is said to `from`.
                for played in 0..2 {
                    let mut bytes = [0; 2000];
                    while let Ok(len) = between[played].recv(&mut bytes) {
                        said_last += 1;
                        assert!(hello(&bytes[..len]).is_some(), "no frames come this way");
                        between[1 - played].send_to(&bytes[..len], tapped.pair.rails[played].address()).unwrap();
                    }
                }
            }
            assert!(said_last <= 2, "{encrypt}: they go on: {said_last}");
        }
        assert_eq!(established(&tapped), before, "{encrypt}");
        exchange(&mut tapped);
        let mut bytes = [0; 2000];
        assert!(between.iter().all(|socket| socket.recv(&mut bytes).is_err()), "{said_last}: no frames come this way");
    }
}

/// Hellos that the network doubles, and brings when the session has long been there.
#[test]
fn doubled_and_late_hellos_bring_no_session_about() {
    for encrypt in MODES {
        let mut tapped = Tapped::met(encrypt);
        settle(&mut tapped);
        let before = established(&tapped);
        for from in 0..2 {
            for bytes in tapped.heard[from].clone().into_iter().filter(|bytes| hello(bytes).is_some()) {
                tapped.pass(from, &bytes);
                tapped.pass(from, &bytes);
                settle(&mut tapped);
            }
        }
        assert_eq!(established(&tapped), before, "{encrypt}");
        exchange(&mut tapped);
        settle(&mut tapped);
        let said = tapped.heard.iter().flatten().filter(|bytes| hello(bytes).is_some()).count();
        settle(&mut tapped);
        let now = tapped.heard.iter().flatten().filter(|bytes| hello(bytes).is_some()).count();
        assert_eq!(said, now, "silence follows");
    }
}

/// Hellos of older sessions, while a new one is being made under traffic.
#[test]
fn old_hellos_do_not_disturb_a_renewal() {
    let mut tapped = Tapped::met_with(|config| {
        config.encrypt = Encrypt::Always;
        config.renew_after_datagrams = 50;
    });
    let mut sent = 0u32;
    while established(&tapped).iter().any(|count| *count < 4) {
        assert!(sent < 2000, "no new session");
        for from in 0..2 {
            tapped.send(from, &sent.to_le_bytes().repeat(10));
            let old: Vec<_> = tapped.heard[from].iter().filter(|bytes| hello(bytes).is_some()).cloned().collect();
            tapped.pass(from, &old[sent as usize % old.len()]);
        }
        tapped.relay();
        sent += 1;
    }
    settle(&mut tapped);
    exchange(&mut tapped);
    assert!(tapped.pair.got.iter().all(|got| got.len() == sent as usize + 1), "nothing is lost");
}
