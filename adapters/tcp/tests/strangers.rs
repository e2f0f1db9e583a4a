//! Callers that do not belong to the job: refused, counted, and otherwise without effect.

mod common;

use std::io::Write;

use common::*;
use towline_core::rail::Endpoint;
use towline_core::time::Duration;
use towline_crypt::{Handshake, MESSAGE};
use towline_tcp::hello::{HELLO, Hello, PROOF, Role, Transcript};
use towline_tcp::{JobKey, Rail};

/// Two ranks that talk, before and after.
fn talk(world: &mut World, endpoints: &[Vec<Endpoint>]) {
    world.send(0, endpoints[0][1], b"there");
    world.send(1, endpoints[1][0], b"and back");
    world.until("a frame each way", |world| world.seen.iter().all(|seen| !seen.is_empty()));
    world.assert_nobody_lost();
}

#[test]
fn a_port_scan_is_counted_and_the_job_goes_on() {
    let (mut world, endpoints) = World::acquainted(vec![rail(0), rail(1)]);
    for _ in 0..20 {
        drop(connect(&world.rails[0]));
    }
    world.until("all are refused", |world| world.rails[0].counters().refused_silent == 20);
    talk(&mut world, &endpoints);
    assert_eq!(world.rails[0].counters().refused(), 20);
}

#[test]
fn garbage_is_refused_at_its_first_bytes() {
    let (mut world, endpoints) = World::acquainted(vec![rail(0), rail(1)]);
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 200], b"towl-tcq", &[0xFF; 1]] {
        let mut stream = connect(&world.rails[0]);
        stream.write_all(garbage).unwrap();
        closed(&mut world, &mut stream);
    }
    assert_eq!(world.rails[0].counters().refused_foreign, 4);
    talk(&mut world, &endpoints);
}

#[test]
fn hellos_that_mean_somebody_else_are_refused() {
    let (mut world, endpoints) = World::acquainted(vec![rail(0), rail(1)]);
    let hand = Hand::new(7);
    let changes: [fn(&mut Hello); 5] =
        [|it| it.job += 1, |it| it.link += 1, |it| it.to += 1, |it| it.to_instance += 1, |it| it.from = it.to];
    for change in changes {
        let mut hello = hand.hello(&world.rails[0]);
        change(&mut hello);
        let mut stream = connect(&world.rails[0]);
        stream.write_all(&hello.encode()).unwrap();
        closed(&mut world, &mut stream);
    }
    assert_eq!(world.rails[0].counters().refused_stray, 5);
    for (at, value) in [(10, 2), (10, 9), (14, 1)] {
        let mut hello = hand.hello(&world.rails[0]).encode();
        hello[at] = value;
        let mut stream = connect(&world.rails[0]);
        stream.write_all(&hello).unwrap();
        closed(&mut world, &mut stream);
    }
    assert_eq!(world.rails[0].counters().refused_malformed, 3);
    let mut hello = hand.hello(&world.rails[0]).encode();
    hello[8] = 77;
    let mut stream = connect(&world.rails[0]);
    stream.write_all(&hello).unwrap();
    closed(&mut world, &mut stream);
    assert_eq!(world.rails[0].counters().refused_version, 1);
    talk(&mut world, &endpoints);
}

#[test]
fn a_caller_without_the_key_is_refused() {
    let (mut world, endpoints) = World::acquainted(vec![rail(0), rail(1)]);
    let hand = Hand { key: JobKey::new([8; 32]), ..Hand::new(1) };
    let (mut stream, transcript) = hand.greet(&mut world, 0);
    stream.write_all(&transcript.proof(&hand.key, Role::Initiator)).unwrap();
    closed(&mut world, &mut stream);
    assert_eq!(world.rails[0].counters().refused_key, 1);
    talk(&mut world, &endpoints);
}

/// What a listener on the wire heard does not let it in: neither the acceptor's own proof, nor that of an earlier call.
#[test]
fn proofs_can_be_neither_reflected_nor_replayed() {
    let mut world = World::new(vec![rail(0)]);
    let hand = Hand::new(1);
    let (mut stream, transcript) = hand.greet(&mut world, 0);
    let mirrored = transcript.proof(&key(), Role::Acceptor);
    stream.write_all(&mirrored).unwrap();
    closed(&mut world, &mut stream);
    assert_eq!(world.rails[0].counters().refused_key, 1, "reflected");

    let (mut stream, transcript) = hand.greet(&mut world, 0);
    let heard = transcript.proof(&key(), Role::Initiator);
    stream.write_all(&heard).unwrap();
    let (mut stream, _) = hand.greet(&mut world, 0); // the same hello, byte for byte
    stream.write_all(&heard).unwrap();
    closed(&mut world, &mut stream);
    assert_eq!(world.rails[0].counters().refused_key, 2, "replayed");
}

/// Who has heard the question for keys of a hello can ask it again, in other hellos too, and each answer costs a
/// Diffie-Hellman: so many in a second, and no more. Ranks join all the same.
#[test]
fn a_recorded_question_for_keys_is_not_answered_without_end() {
    let mut setting = config(0);
    setting.encrypt = towline_tcp::Encrypt::Always;
    let mut world = World::new(vec![Rail::new(setting).unwrap()]);
    let hand = Hand::new(1);
    let asks = |world: &mut World, keys: [u8; MESSAGE], nonce: u8| {
        let encrypt = towline_tcp::Encrypt::Always;
        let hello = Hello { encrypted: true, encrypt, keys, nonce: [nonce; 32], ..hand.hello(&world.rails[0]) };
        let mut stream = connect(&world.rails[0]);
        stream.write_all(&hello.encode()).unwrap();
        hear::<{ HELLO + PROOF }>(world, &mut stream).is_some()
    };
    let (_, recorded) = Handshake::begin(key().bytes()).unwrap();
    let answers = (0..300).filter(|nonce| asks(&mut world, recorded, *nonce as u8)).count();
    let refused = world.rails[0].counters().refused_again;
    assert_eq!((answers, refused), (1 + 50, 249), "the test's clock stands still");
    world.now = world.now + Duration::from_secs(2);
    assert!(asks(&mut world, recorded, 0), "a second later");
    assert!(asks(&mut world, Handshake::begin(key().bytes()).unwrap().1, 0), "a new question");
}

/// Who has heard a hello can say it again with another setting: that is not held against the rank whose it was.
#[test]
fn who_has_not_proved_itself_does_not_count_as_a_rank_of_another_setting() {
    let mut world = World::new(vec![rail(0)]);
    let hand = Hand::new(1);
    let hello = Hello { encrypted: true, ..hand.hello(&world.rails[0]) };
    let mut stream = connect(&world.rails[0]);
    stream.write_all(&hello.encode()).unwrap();
    hear::<{ HELLO + PROOF }>(&mut world, &mut stream).expect("its setting is told");
    stream.write_all(&[0; PROOF]).unwrap();
    closed(&mut world, &mut stream);
    let counters = world.rails[0].counters();
    assert_eq!((counters.refused_encryption, counters.refused_key), (0, 1));

    let mut stream = connect(&world.rails[0]);
    stream.write_all(&hello.encode()).unwrap();
    let answer: [u8; HELLO + PROOF] = hear(&mut world, &mut stream).expect("its setting is told");
    let transcript = Transcript { initiator: hello.encode(), acceptor: *answer.first_chunk().unwrap() };
    stream.write_all(&transcript.proof(&key(), Role::Initiator)).unwrap();
    closed(&mut world, &mut stream);
    assert_eq!(world.rails[0].counters().refused_encryption, 1, "the rank itself");
}

/// A rail does not believe a listener that cannot prove the key, and tells it nothing that would let it in elsewhere.
#[test]
fn an_acceptor_without_the_key_is_not_believed() {
    let mut world = World::new(vec![rail(0)]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hand = Hand::new(1);
    let card = hand.card(&[listener.local_addr().unwrap()], &world.rails[0]);
    let peer = towline_core::rail::Peer(1);
    let to = towline_core::rail::Rail::add_peer(&mut world.rails[0], peer, &card).unwrap();
    assert_eq!(try_send(&mut world.rails[0], to, b"x"), Ok(false));
    world.round();
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_millis(1))).unwrap();
    let hello = hear::<HELLO>(&mut world, &mut stream).expect("a hello");
    let mut back = hello;
    back[10] = 2; // role
    for (from, to) in [(24, 28), (28, 24), (25, 29), (29, 25)] {
        back[to] = hello[from];
    }
    back[32..40].copy_from_slice(&hello[40..48]);
    back[40..48].copy_from_slice(&hello[32..40]);
    stream.write_all(&back).unwrap();
    stream.write_all(&[0; PROOF]).unwrap();
    closed(&mut world, &mut stream);
    world.until("the peer is given up", |world| !world.seen[0].is_empty());
    assert_eq!(world.seen[0], [Seen::Lost(peer, towline_core::rail::Lost::Broken)]);
}

#[test]
fn a_slow_drip_is_cut_off_at_the_deadline() {
    let (mut world, endpoints) = World::acquainted(vec![rail(0), rail(1)]);
    let hello = Hand::new(1).hello(&world.rails[0]).encode();
    let mut stream = connect(&world.rails[0]);
    for byte in &hello[..4] {
        stream.write_all(&[*byte]).unwrap();
        world.round();
        world.now = world.now + Duration::from_secs(1);
    }
    world.until("it is taken", |world| world.rails[0].counters().accepted == 1);
    assert_eq!(world.rails[0].counters().refused(), 0);
    let deadline = towline_core::rail::Rail::poll_at(&world.rails[0]).expect("a deadline");
    world.now = deadline;
    closed(&mut world, &mut stream);
    assert_eq!(world.rails[0].counters().refused_slow, 1);
    talk(&mut world, &endpoints);
}

/// More silent callers than may be pending: a rank of the job waits in the kernel's queue, and gets in at the deadline.
#[test]
fn a_flood_of_silent_callers_does_not_lock_the_job_out() {
    let limited = |rank| {
        let mut config = config(rank);
        config.pending_inbound = 4;
        towline_tcp::Rail::new(config).unwrap()
    };
    let (mut world, endpoints) = World::acquainted(vec![limited(0), rail(1)]);
    let silent: Vec<_> = (0..12).map(|_| connect(&world.rails[0])).collect();
    world.until("as many are taken as may be", |world| world.rails[0].counters().accepted == 4);
    assert_eq!(try_send(&mut world.rails[1], endpoints[1][0], b"let me in"), Ok(false));
    for _ in 0..50 {
        world.round();
        assert!(world.rails[0].counters().accepted == 4, "no more than may be");
    }
    for _ in 0..4 {
        world.now = world.now + Duration::from_secs(6);
        for _ in 0..50 {
            world.round();
        }
    }
    assert_eq!(world.rails[0].counters().refused_slow, 12);
    talk(&mut world, &endpoints);
    drop(silent);
}
