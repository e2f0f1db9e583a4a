//! Datagrams that do not belong to the job are counted, dropped and not answered.

mod common;

use std::net::UdpSocket;
use std::os::fd::{AsFd as _, AsRawFd, FromRawFd, OwnedFd};

use common::{KEY, Pair, config};
use towline_core::rail::{Lane, Lost, Peer, Rail as _, SendError, Unreachable};
use towline_net::Identity;
use towline_udp::card::{decode, encode};
use towline_udp::datagram::{Content, PREFIX, prefix_start};
use towline_udp::hello::{HELLO, Hello, Stage};
use towline_udp::{Encrypt, JobKey, Rail};

fn foreign_socket(pair: &Pair) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(pair.rails[0].address()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Closes a socket for all senders, as the end of its process does. Its port stays reserved, so that no other program gets it:
/// the socket accepts datagrams only from itself.
fn close_port(socket: OwnedFd) -> UdpSocket {
    let socket = UdpSocket::from(socket);
    socket.connect(socket.local_addr().unwrap()).unwrap();
    socket
}

/// A hello from rank 1 to rank 0 with a wrong challenge.
fn hello(pair: &Pair) -> Hello {
    let [to, from] = [0, 1].map(|own: usize| decode(pair.rails[own].card()).unwrap());
    Hello {
        link: to.link,
        stage: Stage::Verified,
        signs: false,
        encrypted: false,
        encrypt: Encrypt::Off,
        identity: Identity {
            job: to.job,
            from: from.rank,
            to: to.rank,
            from_instance: from.instance,
            to_instance: to.instance,
        },
        index: 0,
        nonce: [1; 16],
        echo: [2; 16],
        keys: [0; 48],
    }
}

#[test]
fn foreign_datagrams_are_counted_dropped_and_not_answered() {
    let mut pair = Pair::connected(|_| {});
    let socket = foreign_socket(&pair);
    let good = hello(&pair);
    let identity = good.identity;
    let plain =
        |content: Content, index: u32, proof: u8| [&prefix_start(content, index)[..], &[proof; 8], b"frame"].concat();
    let frame = Content::Frame { tag: 0x80, header: 2 };
    let datagrams: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 9000],
        [b"F\x01", &[0; 30][..]].concat(),
        plain(frame, 0, 0)[..PREFIX - 1].to_vec(),
        plain(Content::Frame { tag: 1, header: 6 }, 0, 0),
        plain(frame, 0, 0x5a),
        plain(frame, u32::MAX, 0x5a),
        plain(Content::Goodbye, 0, 0x5a)[..PREFIX].to_vec(),
        good.encode(&JobKey::new([0; 32])).to_vec(),
        Hello { identity: Identity { job: identity.job + 1, ..identity }, ..good }.encode(&KEY).to_vec(),
        Hello { identity: Identity { from: 77, ..identity }, ..good }.encode(&KEY).to_vec(),
        Hello { identity: Identity { to_instance: 1, ..identity }, ..good }.encode(&KEY).to_vec(),
        Hello { link: 9, ..good }.encode(&KEY).to_vec(),
        vec![],
    ];
    let before = *pair.rails[0].counters();
    for bytes in &datagrams {
        socket.send(bytes).unwrap();
    }
    pair.until("all of them", |pair| pair.rails[0].counters().dropped() - before.dropped() == datagrams.len() as u64);
    let after = *pair.rails[0].counters();
    let counts = [
        after.dropped_foreign - before.dropped_foreign,
        after.dropped_version - before.dropped_version,
        after.dropped_malformed - before.dropped_malformed,
        after.dropped_unauthenticated - before.dropped_unauthenticated,
        after.dropped_key - before.dropped_key,
        after.dropped_misdirected - before.dropped_misdirected,
    ];
    assert_eq!(counts, [2, 1, 3, 3, 1, 4]);
    pair.settle();
    assert!(socket.recv(&mut [0; 100]).is_err(), "nothing is answered");
    assert!(pair.got.iter().all(Vec::is_empty));
    pair.assert_connected();
}

/// A hello from another address may be a replay. It is answered by a challenge, and its content is not used before the challenge
/// is answered.
#[test]
fn a_replayed_hello_is_answered_and_changes_nothing() {
    let mut pair = Pair::connected(|_| {});
    let socket = foreign_socket(&pair);
    let before = *pair.rails[0].counters();
    let answers = |pair: &mut Pair, hellos: &[Hello]| {
        // Hellos from other addresses than the peer's are answered once in a millisecond.
        let start = pair.now();
        while pair.now().since(start).as_nanos() < 2_000_000 {
            pair.settle();
        }
        hellos.iter().for_each(|hello| assert_eq!(socket.send(&hello.encode(&KEY)).unwrap(), HELLO));
        pair.settle();
        let mut answers = vec![];
        let mut bytes = [0; 200];
        while let Ok(len) = socket.recv(&mut bytes) {
            answers.push(Hello::decode(bytes[..len].try_into().unwrap(), &KEY).unwrap());
        }
        (answers, pair.now().since(start).as_nanos() / 1_000_000)
    };
    let good = hello(&pair);
    let challenge = Hello { stage: Stage::Challenge, echo: [0; 16], ..good };
    for (sent, count) in [
        (challenge, 1),                                 // its sender may have forgotten its session
        (Hello { stage: Stage::Challenge, ..good }, 0), // it echoes a challenge that was not sent
        (Hello { stage: Stage::Verified, ..good }, 1),
        (Hello { stage: Stage::Established, ..good }, 0), // an established end needs no answer
    ] {
        let (answers, _) = answers(&mut pair, &[sent]);
        assert_eq!(answers.len(), count, "{:?}", sent.stage);
        assert!(answers.iter().all(|answer| answer.stage == Stage::Challenge && answer.echo == [1; 16]));
    }
    let (answers, milliseconds) = answers(&mut pair, &[challenge; 200]);
    assert!(!answers.is_empty() && answers.len() as u64 <= milliseconds + 1, "{} answers", answers.len());
    assert_eq!(pair.rails[0].counters().established, before.established);
    pair.assert_connected();
}

/// A peer that removes this rail says goodbye. Once both have added each other again, they establish a new session.
#[test]
fn a_peer_that_removed_this_rail_gets_a_new_session() {
    let mut pair = Pair::connected(|_| {});
    let card = pair.rails[0].card().to_vec();
    pair.rails[1].del_peer(pair.to[1]);
    pair.until("the goodbye", |pair| !pair.lost[0].is_empty());
    assert_eq!(pair.lost[0], [Lost::Closed]);
    assert_eq!(pair.try_send(0, Lane::Eager, b"x"), Err(SendError::Unreachable));
    pair.to[1] = pair.rails[1].add_peer(Peer(7), &card).unwrap();
    // The rail that lost the peer has to add it again too.
    let card = pair.rails[1].card().to_vec();
    pair.rails[0].del_peer(pair.to[0]);
    pair.to[0] = pair.rails[0].add_peer(Peer(7), &card).unwrap();
    pair.lost = Default::default();
    pair.assert_connected();
}

/// A process that is killed says no goodbye, but its port is closed. The next frame to it shows that.
#[test]
fn a_killed_peer_is_lost_after_its_last_frames() {
    let mut pair = Pair::connected(|_| {});
    for number in 0..50u8 {
        pair.try_send(1, Lane::Bulk, &[number; 100]).unwrap();
    }
    while !pair.rails[1].drained(pair.to[1]) {
        let now = pair.now();
        let _ = pair.rails[1].poll(now);
    }
    let spare = Rail::new(config(9)).unwrap();
    let killed = std::mem::replace(&mut pair.rails[1], spare);
    // SAFETY: the rail is forgotten, so this is the only owner of its socket.
    let _reserved = close_port(unsafe { OwnedFd::from_raw_fd(killed.as_raw_fd()) });
    std::mem::forget(killed);
    pair.send(0, b"are you there?");
    pair.until("its loss", |pair| !pair.lost[0].is_empty());
    assert_eq!(pair.lost[0], [Lost::Broken]);
    assert_eq!(pair.got[0].len(), 50, "its frames come first");
    assert_eq!(pair.try_send(0, Lane::Eager, b"x"), Err(SendError::Unreachable));
    pair.settle();
    assert_eq!(pair.lost[0].len(), 1, "once");
}

/// A peer without a session whose port is closed: the rail does not wait for it.
#[test]
fn a_peer_whose_port_is_closed_is_lost_without_waiting() {
    let mut rail = Rail::new(config(0)).unwrap();
    let ended = Rail::new(config(1)).unwrap();
    let card = ended.card().to_vec();
    let _reserved = close_port(ended.as_fd().try_clone_to_owned().unwrap());
    drop(ended);
    let mut pair = Pair::new(|_| {});
    std::mem::swap(&mut pair.rails[0], &mut rail);
    pair.to[0] = pair.rails[0].add_peer(Peer(7), &card).unwrap();
    assert_eq!(pair.try_send(0, Lane::Eager, b"x"), Err(SendError::Busy));
    pair.until("its loss", |pair| !pair.lost[0].is_empty());
    assert_eq!(pair.lost[0], [Lost::Broken]);
}

#[test]
fn a_peer_that_does_not_answer_is_lost_in_time() {
    let mut pair = Pair::new(|config| config.connect_timeout = std::time::Duration::from_millis(30));
    assert_eq!(pair.try_send(0, Lane::Eager, b"x"), Err(SendError::Busy));
    while pair.lost[0].is_empty() {
        pair.poll(0); // the other does not poll
    }
    assert_eq!(pair.lost[0], [Lost::TimedOut]);
}

#[test]
fn cards_of_others_are_refused() {
    let mut rail = Rail::new(config(0)).unwrap();
    let other = Rail::new(config(1)).unwrap();
    let card = decode(other.card()).unwrap();
    let mut changed = |change: fn(&mut towline_net::card::Card)| {
        let mut card = card.clone();
        change(&mut card);
        rail.add_peer(Peer(1), &encode(&card, false)).err()
    };
    assert_eq!(changed(|card| card.job += 1), Some(Unreachable::BadCard));
    assert_eq!(changed(|card| card.link += 1), Some(Unreachable::BadCard));
    assert_eq!(changed(|card| card.rank = 0), Some(Unreachable::NoNetwork), "itself");
    assert_eq!(changed(|card| card.host = !card.host), Some(Unreachable::NoNetwork), "another host's loopback");
    assert_eq!(changed(|card| card.addresses.clear()), Some(Unreachable::NoNetwork));
    assert_eq!(changed(|_| {}), None);
    assert_eq!(changed(|_| {}), Some(Unreachable::BadCard), "a rank that was added before");
}

/// The rail itself detects a changed bit of a datagram with a MAC.
#[test]
fn datagrams_with_a_mac_cannot_be_changed() {
    for (sign, passes) in [(Some(false), true), (Some(true), false), (None, true)] {
        let mut pair = Pair::connected(|config| config.sign = sign);
        let before = *pair.rails[1].counters();
        // A socket of the test, from which the rail accepts datagrams with the right proof.
        let tap = UdpSocket::bind("127.0.0.1:0").unwrap();
        tap.set_nonblocking(true).unwrap();
        let frame = intercept(&mut pair, &tap);
        let mut changed = frame.clone();
        *changed.last_mut().unwrap() ^= 1;
        for (bytes, counts) in [(&frame, true), (&changed, passes)] {
            let got = pair.got[1].len();
            tap.send_to(bytes, pair.rails[1].address()).unwrap();
            pair.settle();
            assert_eq!(pair.got[1].len() == got + 1, counts, "{sign:?}");
        }
        let dropped = pair.rails[1].counters().dropped_unauthenticated - before.dropped_unauthenticated;
        assert_eq!(dropped == 0, passes);
    }
}

/// A datagram with a frame from rank 0 to rank 1, which publishes the address of `tap` now.
fn intercept(pair: &mut Pair, tap: &UdpSocket) -> Vec<u8> {
    // The two ranks make their session through the tap.
    let far = Rail::new({
        let mut config = config(1);
        config.advertise = Some(tap.local_addr().unwrap());
        config.sign = pair.rails[1].config().sign;
        config
    });
    pair.rails[0].del_peer(pair.to[0]);
    let old = std::mem::replace(&mut pair.rails[1], far.unwrap());
    drop(old);
    let cards = [0, 1].map(|own: usize| pair.rails[own].card().to_vec());
    pair.to = [0, 1].map(|own: usize| pair.rails[own].add_peer(Peer(7), &cards[1 - own]).unwrap());
    let near = pair.rails[0].address();
    let mut bytes = vec![0; 1 << 16];
    loop {
        let sent = pair.try_send(0, Lane::Eager, b"a frame").is_ok();
        for _ in 0..50 {
            pair.poll(0);
            pair.poll(1);
            let Ok((len, from)) = tap.recv_from(&mut bytes) else { continue };
            let to = if from == near { pair.rails[1].address() } else { near };
            if bytes[0] == b'F' {
                bytes.truncate(len);
                return bytes;
            }
            tap.send_to(&bytes[..len], to).unwrap();
        }
        assert!(!sent || bytes[0] != 0, "no datagram comes through the tap");
    }
}
