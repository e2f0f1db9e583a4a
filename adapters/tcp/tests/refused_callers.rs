//! Callers that do not belong to the job are refused and counted, and have no other effect.

mod common;

use std::io::Write;

use common::*;
use towline_core::rail::Endpoint;
use towline_core::time::Duration;
use towline_crypt::{Handshake, MESSAGE};
use towline_tcp::hello::{HELLO, Hello, PROOF, Role, Transcript};
use towline_tcp::{JobKey, Rail};

/// Checks that two ranks exchange frames.
fn exchange(world: &mut World, endpoints: &[Vec<Endpoint>]) {
    world.send(0, endpoints[0][1], b"there");
    world.send(1, endpoints[1][0], b"and back");
    world.until("a frame each way", |world| world.observed.iter().all(|seen| !seen.is_empty()));
    world.assert_no_peer_lost();
}

#[test]
fn a_port_scan_is_counted_and_the_job_goes_on() {
    let (mut world, endpoints) = World::with_peers(vec![rail(0), rail(1)]);
    for _ in 0..20 {
        drop(connect(&world.rails[0]));
    }
    world.until("all are refused", |world| world.rails[0].counters().refused_silent == 20);
    exchange(&mut world, &endpoints);
    assert_eq!(world.rails[0].counters().refused(), 20);
}

#[test]
fn foreign_bytes_are_refused_at_once() {
    let (mut world, endpoints) = World::with_peers(vec![rail(0), rail(1)]);
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 200], b"towl-tcq", &[0xFF; 1]] {
        let mut stream = connect(&world.rails[0]);
        stream.write_all(garbage).unwrap();
        assert_closed(&mut world, &mut stream);
    }
    assert_eq!(world.rails[0].counters().refused_foreign, 4);
    exchange(&mut world, &endpoints);
}

#[test]
fn misdirected_hellos_are_refused() {
    let (mut world, endpoints) = World::with_peers(vec![rail(0), rail(1)]);
    let peer = ManualPeer::new(7);
    let changes: [fn(&mut Hello); 5] = [
        |it| it.identity.job += 1,
        |it| it.link += 1,
        |it| it.identity.to += 1,
        |it| it.identity.to_instance += 1,
        |it| it.identity.from = it.identity.to,
    ];
    for change in changes {
        let mut hello = peer.hello(&world.rails[0]);
        change(&mut hello);
        let mut stream = connect(&world.rails[0]);
        stream.write_all(&hello.encode()).unwrap();
        assert_closed(&mut world, &mut stream);
    }
    assert_eq!(world.rails[0].counters().refused_misdirected, 5);
    for (at, value) in [(10, 2), (10, 9), (14, 1)] {
        let mut hello = peer.hello(&world.rails[0]).encode();
        hello[at] = value;
        let mut stream = connect(&world.rails[0]);
        stream.write_all(&hello).unwrap();
        assert_closed(&mut world, &mut stream);
    }
    assert_eq!(world.rails[0].counters().refused_malformed, 3);
    let mut hello = peer.hello(&world.rails[0]).encode();
    hello[8] = 77;
    let mut stream = connect(&world.rails[0]);
    stream.write_all(&hello).unwrap();
    assert_closed(&mut world, &mut stream);
    assert_eq!(world.rails[0].counters().refused_version, 1);
    exchange(&mut world, &endpoints);
}

#[test]
fn a_caller_without_the_key_is_refused() {
    let (mut world, endpoints) = World::with_peers(vec![rail(0), rail(1)]);
    let peer = ManualPeer { key: JobKey::new([8; 32]), ..ManualPeer::new(1) };
    let (mut stream, transcript) = peer.begin_handshake(&mut world, 0);
    stream.write_all(&transcript.proof(&peer.key, Role::Initiator)).unwrap();
    assert_closed(&mut world, &mut stream);
    assert_eq!(world.rails[0].counters().refused_key, 1);
    exchange(&mut world, &endpoints);
}

/// An observer gets no connection with recorded messages: not with the acceptor's own proof, and not with the proof of an earlier
/// connection.
#[test]
fn proofs_can_be_neither_reflected_nor_replayed() {
    let mut world = World::new(vec![rail(0)]);
    let peer = ManualPeer::new(1);
    let (mut stream, transcript) = peer.begin_handshake(&mut world, 0);
    let mirrored = transcript.proof(&key(), Role::Acceptor);
    stream.write_all(&mirrored).unwrap();
    assert_closed(&mut world, &mut stream);
    assert_eq!(world.rails[0].counters().refused_key, 1, "reflected");

    let (mut stream, transcript) = peer.begin_handshake(&mut world, 0);
    let recorded = transcript.proof(&key(), Role::Initiator);
    stream.write_all(&recorded).unwrap();
    let (mut stream, _) = peer.begin_handshake(&mut world, 0); // the same hello, byte for byte
    stream.write_all(&recorded).unwrap();
    assert_closed(&mut world, &mut stream);
    assert_eq!(world.rails[0].counters().refused_key, 2, "replayed");
}

/// An observer can replay the key exchange message of a recorded hello, also in other hellos, and each answer costs a
/// Diffie-Hellman computation. Only a limited number is answered in a second. Ranks connect nevertheless.
#[test]
fn replayed_key_exchanges_are_answered_at_a_limited_rate() {
    let mut setting = config(0);
    setting.encrypt = towline_tcp::Encrypt::Always;
    let mut world = World::new(vec![Rail::new(setting).unwrap()]);
    let peer = ManualPeer::new(1);
    let is_answered = |world: &mut World, keys: [u8; MESSAGE], nonce: u8| {
        let encrypt = towline_tcp::Encrypt::Always;
        let hello = Hello { encrypted: true, encrypt, keys, nonce: [nonce; 32], ..peer.hello(&world.rails[0]) };
        let mut stream = connect(&world.rails[0]);
        stream.write_all(&hello.encode()).unwrap();
        read_exactly::<{ HELLO + PROOF }>(world, &mut stream).is_some()
    };
    let (_, recorded) = Handshake::begin(key().bytes()).unwrap();
    let answers = (0..300).filter(|nonce| is_answered(&mut world, recorded, *nonce as u8)).count();
    let refused = world.rails[0].counters().refused_replayed;
    assert_eq!((answers, refused), (1 + 50, 249), "all in one second of the test's time");
    world.now = world.now + Duration::from_secs(2);
    assert!(is_answered(&mut world, recorded, 0), "a second later");
    assert!(is_answered(&mut world, Handshake::begin(key().bytes()).unwrap().1, 0), "a new message");
}

/// An observer can replay a hello with another encryption setting. That does not count as a mismatch of the rank that sent it.
#[test]
fn an_encryption_mismatch_counts_only_after_the_proof() {
    let mut world = World::new(vec![rail(0)]);
    let peer = ManualPeer::new(1);
    let hello = Hello { encrypted: true, ..peer.hello(&world.rails[0]) };
    let mut stream = connect(&world.rails[0]);
    stream.write_all(&hello.encode()).unwrap();
    read_exactly::<{ HELLO + PROOF }>(&mut world, &mut stream).expect("an answer with its setting");
    stream.write_all(&[0; PROOF]).unwrap();
    assert_closed(&mut world, &mut stream);
    let counters = world.rails[0].counters();
    assert_eq!((counters.refused_encryption, counters.refused_key), (0, 1));

    let mut stream = connect(&world.rails[0]);
    stream.write_all(&hello.encode()).unwrap();
    let answer: [u8; HELLO + PROOF] = read_exactly(&mut world, &mut stream).expect("an answer with its setting");
    let transcript = Transcript { initiator: hello.encode(), acceptor: *answer.first_chunk().unwrap() };
    stream.write_all(&transcript.proof(&key(), Role::Initiator)).unwrap();
    assert_closed(&mut world, &mut stream);
    assert_eq!(world.rails[0].counters().refused_encryption, 1, "the rank itself");
}

/// A rail refuses a listener that does not prove the key, and sends it nothing that would let it in elsewhere.
#[test]
fn an_acceptor_without_the_key_is_refused() {
    let mut world = World::new(vec![rail(0)]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = ManualPeer::new(1);
    let card = peer.card(&[listener.local_addr().unwrap()], &world.rails[0]);
    let peer = towline_core::rail::Peer(1);
    let to = towline_core::rail::Rail::add_peer(&mut world.rails[0], peer, &card).unwrap();
    assert_eq!(try_send(&mut world.rails[0], to, b"x"), Ok(false));
    world.round();
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_millis(1))).unwrap();
    let hello = read_exactly::<HELLO>(&mut world, &mut stream).expect("a hello");
    let mut back = hello;
    back[10] = 2; // role
    for (from, to) in [(24, 28), (28, 24), (25, 29), (29, 25)] {
        back[to] = hello[from];
    }
    back[32..40].copy_from_slice(&hello[40..48]);
    back[40..48].copy_from_slice(&hello[32..40]);
    stream.write_all(&back).unwrap();
    stream.write_all(&[0; PROOF]).unwrap();
    assert_closed(&mut world, &mut stream);
    world.until("the loss of the peer", |world| !world.observed[0].is_empty());
    assert_eq!(world.observed[0], [Observed::Lost(peer, towline_core::rail::Lost::Broken)]);
}

#[test]
fn a_slow_caller_is_refused_at_the_deadline() {
    let (mut world, endpoints) = World::with_peers(vec![rail(0), rail(1)]);
    let hello = ManualPeer::new(1).hello(&world.rails[0]).encode();
    let mut stream = connect(&world.rails[0]);
    for byte in &hello[..4] {
        stream.write_all(&[*byte]).unwrap();
        world.round();
        world.now = world.now + Duration::from_secs(1);
    }
    world.until("it is accepted", |world| world.rails[0].counters().accepted == 1);
    assert_eq!(world.rails[0].counters().refused(), 0);
    let deadline = towline_core::rail::Rail::poll_at(&world.rails[0]).expect("a deadline");
    world.now = deadline;
    assert_closed(&mut world, &mut stream);
    assert_eq!(world.rails[0].counters().refused_slow, 1);
    exchange(&mut world, &endpoints);
}

/// With more silent callers than may be pending, a rank of the job waits in the kernel's queue and is accepted after the
/// deadline.
#[test]
fn a_flood_of_silent_callers_does_not_lock_the_job_out() {
    let limited = |rank| {
        let mut config = config(rank);
        config.pending_inbound = 4;
        towline_tcp::Rail::new(config).unwrap()
    };
    let (mut world, endpoints) = World::with_peers(vec![limited(0), rail(1)]);
    let silent: Vec<_> = (0..12).map(|_| connect(&world.rails[0])).collect();
    world.until("as many are accepted as may be pending", |world| world.rails[0].counters().accepted == 4);
    assert_eq!(try_send(&mut world.rails[1], endpoints[1][0], b"let me in"), Ok(false));
    for _ in 0..50 {
        world.round();
        assert!(world.rails[0].counters().accepted == 4, "more are accepted than may be pending");
    }
    for (refused, accepted) in [(4, 8), (8, 12), (12, 13)] {
        world.now = world.now + Duration::from_secs(6);
        world.until("the next callers have their turn", |world| {
            let counters = world.rails[0].counters();
            (counters.refused_slow, counters.accepted) == (refused, accepted)
        });
    }
    exchange(&mut world, &endpoints);
    drop(silent);
}
