//! How connections come and go between ranks of the job.

mod common;

use std::io::Write;
use std::net::TcpListener;

use common::*;
use towline_core::rail::{GiveUp, Liveness, Lost, Peer, Rail as _, SendError, Unreachable};
use towline_core::time::Duration;
use towline_tcp::framing::{GOODBYE, encode};
use towline_tcp::{Rail, hello::VERDICT};

fn small_dice(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize
}

#[test]
fn a_connection_is_made_on_first_use_and_not_before() {
    let (mut world, endpoints) = World::acquainted(vec![rail(0), rail(1)]);
    for _ in 0..20 {
        world.round();
    }
    assert_eq!(world.rails[0].counters().attempts + world.rails[1].counters().attempts, 0);
    assert_eq!(world.rails[0].poll_at(), None);
    assert_eq!(try_send(&mut world.rails[0], endpoints[0][1], b"first"), Ok(false), "busy while it connects");
    assert!(world.rails[0].poll_at().is_some() && !world.rails[0].arm(), "a poll is due");
    world.send(0, endpoints[0][1], b"first");
    world.until("the frame", |world| world.seen[1] == [Seen::Frame(Peer(0), b"first".to_vec())]);
    assert_eq!((world.rails[0].counters().established, world.rails[1].counters().established), (1, 1));
}

/// All orders of polls after both sides asked for a connection at the same time end with one connection, and the end of
/// the other is never taken for the peer's.
#[test]
fn p6_simultaneous_connects_end_with_one_connection() {
    let mut met = 0;
    for turn in 0..60u64 {
        let (mut world, endpoints) = World::acquainted(vec![rail(0), rail(1)]);
        let mut seed = turn;
        let mut done = [false; 2];
        for _ in 0..100_000 {
            let at = small_dice(&mut seed) % 2;
            // Some turns give one side a long start.
            if small_dice(&mut seed) % 64 >= turn as usize {
                done[at] = done[at] || try_send(&mut world.rails[at], endpoints[at][1 - at], &[at as u8; 9]).unwrap();
            }
            for _ in 0..small_dice(&mut seed) % 3 {
                world.poll(at);
            }
            if done == [true; 2] && world.seen.iter().all(|seen| !seen.is_empty()) {
                break;
            }
        }
        for _ in 0..30 {
            world.round();
        }
        assert_eq!(world.seen[0], [Seen::Frame(Peer(1), vec![1; 9])], "turn {turn}");
        assert_eq!(world.seen[1], [Seen::Frame(Peer(0), vec![0; 9])], "turn {turn}");
        let counters = [world.rails[0].counters(), world.rails[1].counters()];
        assert!(counters.iter().all(|it| it.established == 1 && it.lost == 0), "turn {turn}: {counters:?}");
        met += u32::from(counters.iter().all(|it| it.attempts == 1));
    }
    assert!(met > 10, "both sides tried in {met} turns only");
}

/// The lower rank's own attempt leads nowhere; the higher rank's, which waited for it, is taken then.
#[test]
fn a_parked_attempt_is_taken_when_the_own_one_fails() {
    let mut world = World::new(vec![rail(0)]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = silent.local_addr().unwrap();
    let hand = Hand::new(5);
    let card = hand.card(&[dead], &world.rails[0]);
    let to = world.rails[0].add_peer(Peer(5), &card).unwrap();
    assert_eq!(try_send(&mut world.rails[0], to, b"mine"), Ok(false));
    world.round();
    let (mut stream, transcript) = hand.greet(&mut world, 0);
    stream.write_all(&transcript.proof(&hand.key, towline_tcp::hello::Role::Initiator)).unwrap();
    for _ in 0..40 {
        world.round();
    }
    assert_eq!(world.rails[0].counters().established, 0, "it is parked while our own attempt may succeed");
    let (theirs, _) = silent.accept().unwrap();
    drop((theirs, silent)); // our attempt ends before we proved anything
    let verdict = hear::<VERDICT>(&mut world, &mut stream).expect("a verdict");
    assert_eq!(transcript.read_verdict(&hand.key, &verdict), Some(towline_tcp::hello::Verdict::Accepted));
    world.send(0, to, b"mine");
    assert!(hear::<12>(&mut world, &mut stream).is_some_and(|frame| frame[8..] == *b"mine"));
    world.assert_nobody_lost();
}

#[test]
fn a_call_that_comes_before_the_peer_is_added_waits() {
    let mut world = World::new(vec![rail(0), rail(1)]);
    let cards = [world.rails[0].card().to_vec(), world.rails[1].card().to_vec()];
    let to = world.rails[0].add_peer(Peer(1), &cards[1]).unwrap();
    assert_eq!(try_send(&mut world.rails[0], to, b"early"), Ok(false));
    for _ in 0..60 {
        world.round();
    }
    assert_eq!(world.rails[1].counters().established, 0);
    world.rails[1].add_peer(Peer(0), &cards[0]).unwrap();
    world.send(0, to, b"early");
    world.until("the frame", |world| world.seen[1] == [Seen::Frame(Peer(0), b"early".to_vec())]);
    world.assert_nobody_lost();
}

#[test]
fn a_dead_address_leads_to_the_next_and_the_last_one_to_an_error() {
    let mut world = World::new(vec![rail(0), rail(1)]);
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap(); // closed again at once
    let mut card = card(&world.rails[1]);
    let alive = card.addresses[0];
    card.addresses = vec![towline_net::card::CardAddress { port: dead.port(), ..alive }, alive];
    let to = world.rails[0].add_peer(Peer(1), &card.encode()).unwrap();
    let back = world.rails[0].card().to_vec();
    world.rails[1].add_peer(Peer(0), &back).unwrap();
    world.send(0, to, b"by the second");
    world.until("the frame", |world| !world.seen[1].is_empty());
    assert_eq!(world.rails[0].counters().attempts_failed, 1);
    world.assert_nobody_lost();

    let mut world = World::new(vec![rail(0)]);
    let card = Hand::new(3).card(&[dead], &world.rails[0]);
    let to = world.rails[0].add_peer(Peer(3), &card).unwrap();
    assert_eq!(try_send(&mut world.rails[0], to, b"x"), Ok(false));
    world.until("the peer is given up", |world| !world.seen[0].is_empty());
    assert_eq!(world.seen[0], [Seen::Lost(Peer(3), Lost::Broken)]);
    assert_eq!(try_send(&mut world.rails[0], to, b"x"), Err(SendError::Unreachable));
}

#[test]
fn a_peer_that_never_answers_is_given_up_at_the_deadline() {
    let mut world = World::new(vec![rail(0)]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let card = Hand::new(3).card(&[silent.local_addr().unwrap()], &world.rails[0]);
    let to = world.rails[0].add_peer(Peer(3), &card).unwrap();
    assert_eq!(try_send(&mut world.rails[0], to, b"x"), Ok(false));
    for _ in 0..30 {
        world.round();
    }
    assert!(world.seen[0].is_empty());
    // A peer that computes is waited for, as long as was configured and no longer.
    let (start, mut wakes) = (world.now, 0);
    while world.seen[0].is_empty() {
        world.now = world.rails[0].poll_at().expect("a deadline");
        (0..10).for_each(|_| world.round());
        wakes += 1;
        assert!(wakes < 5, "few wakes for nothing");
    }
    assert_eq!(world.now.since(start), Duration::from_secs(120));
    assert_eq!(world.seen[0], [Seen::Lost(Peer(3), Lost::TimedOut)]);
}

#[test]
fn no_common_network_is_said_when_the_peer_is_added() {
    let mut rail = rail(0);
    let mut other = card(&rail);
    other.rank = 1;
    other.host ^= 1;
    assert_eq!(rail.add_peer(Peer(1), &other.encode()), Err(Unreachable::NoNetwork), "loopback of another host");
    other.host ^= 1;
    other.link += 1;
    assert_eq!(rail.add_peer(Peer(1), &other.encode()), Err(Unreachable::BadCard), "another link");
    let own = rail.card().to_vec();
    assert_eq!(rail.add_peer(Peer(0), &own), Err(Unreachable::NoNetwork), "itself");
}

#[test]
fn three_links_are_three_rails() {
    for link in 0..3 {
        let linked = |rank| {
            let mut config = config(rank);
            config.link = link;
            Rail::new(config).unwrap()
        };
        let (mut world, endpoints) = World::acquainted(vec![linked(0), linked(1)]);
        world.send(0, endpoints[0][1], &[link; 100]);
        world.until("the frame", |world| world.seen[1] == [Seen::Frame(Peer(0), vec![link; 100])]);
    }
}

#[test]
fn twelve_ranks_all_talk_to_all() {
    let (mut world, endpoints) = World::acquainted((0..12).map(rail).collect());
    for (from, row) in endpoints.iter().enumerate() {
        for to in (0..12).filter(|to| *to != from) {
            world.send(from, row[to], &[from as u8, to as u8]);
        }
    }
    world.until("all frames", |world| world.seen.iter().all(|seen| seen.len() == 11));
    for to in 0..12 {
        let mut from: Vec<u8> = vec![];
        for seen in &world.seen[to] {
            let Seen::Frame(peer, bytes) = seen else { panic!("{seen:?}") };
            assert_eq!(bytes[..], [peer.0 as u8, to as u8]);
            from.push(bytes[0]);
        }
        from.sort();
        from.dedup();
        assert_eq!(from.len(), 11);
    }
    world.assert_nobody_lost();
}

#[test]
fn an_orderly_end_is_told_from_an_accident() {
    // A rank that finishes: what it sent last arrives, then its goodbye.
    let (mut world, endpoints) = World::acquainted(vec![rail(0), rail(1)]);
    world.send(0, endpoints[0][1], b"last words");
    world.until("they talk", |world| !world.seen[1].is_empty());
    world.seen[1].clear();
    world.send(1, endpoints[1][0], &[1; 5000]); // never read by the one that leaves
    world.send(0, endpoints[0][1], &[7; 3000]);
    drop(world.rails.remove(0));
    let seen = world.seen.remove(1);
    assert!(seen.is_empty());
    world.seen = vec![seen];
    world.until("the end", |world| world.seen[0].len() == 2);
    assert_eq!(world.seen[0], [Seen::Frame(Peer(0), vec![7; 3000]), Seen::Lost(Peer(0), Lost::Closed)]);
    assert_eq!(try_send(&mut world.rails[0], endpoints[1][0], b"x"), Err(SendError::Unreachable));

    // One that has given the other up, which is there nevertheless.
    let (mut world, endpoints) = World::acquainted(vec![rail(0), rail(1)]);
    world.send(0, endpoints[0][1], b"last words");
    world.until("they talk", |world| !world.seen[1].is_empty());
    assert!(world.rails[0].give_up(endpoints[0][1], GiveUp::Peer));
    world.until("the end", |world| world.seen[1].len() == 2);
    assert_eq!(world.seen[1][1], Seen::Lost(Peer(0), Lost::Broken));

    // A process that is gone, one that speaks nonsense, and one that ends in the middle of a frame.
    for (last, why) in [
        (&[][..], Lost::Broken),
        (&[1; 8][..], Lost::Misbehaved),
        (&encode(9, TAG, 9)[..], Lost::Broken),
        (&GOODBYE[..], Lost::Closed),
    ] {
        let mut world = World::new(vec![rail(0)]);
        let hand = Hand::new(2);
        let card = hand.card(&[address(&world.rails[0])], &world.rails[0]);
        world.rails[0].add_peer(Peer(2), &card).unwrap();
        let mut stream = hand.join(&mut world, 0);
        stream.write_all(&[&encode(3, TAG, 0)[..], b"abc", last].concat()).unwrap();
        drop(stream);
        world.until("the end", |world| world.seen[0].len() == 2);
        assert_eq!(world.seen[0], [Seen::Frame(Peer(2), b"abc".to_vec()), Seen::Lost(Peer(2), why)]);
        assert_eq!(world.rails[0].counters().lost, 1);
    }
}
