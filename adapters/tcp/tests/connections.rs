//! How connections between ranks of the job are made and end.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;

use common::*;
use towline_core::rail::{GiveUp, Liveness, Lost, Peer, Rail as _, SendError, Unreachable};
use towline_core::time::Duration;
use towline_tcp::framing::{GOODBYE, encode};
use towline_tcp::{Rail, hello::VERDICT};

/// An address at which nobody listens. Nobody else gets the port while the socket exists.
fn dead_address() -> (socket2::Socket, std::net::SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

fn random(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize
}

#[test]
fn a_connection_is_made_on_first_use_and_not_before() {
    let (mut world, endpoints) = World::with_peers(vec![rail(0), rail(1)]);
    for _ in 0..20 {
        world.round();
    }
    assert_eq!(world.rails[0].counters().attempts + world.rails[1].counters().attempts, 0);
    assert_eq!(world.rails[0].poll_at(), None);
    assert_eq!(try_send(&mut world.rails[0], endpoints[0][1], b"first"), Ok(false), "busy while it connects");
    assert!(world.rails[0].poll_at().is_some() && !world.rails[0].arm(), "a poll is due");
    world.send(0, endpoints[0][1], b"first");
    world.until("the frame", |world| world.observed[1] == [Observed::Frame(Peer(0), b"first".to_vec())]);
    assert_eq!((world.rails[0].counters().established, world.rails[1].counters().established), (1, 1));
}

/// The time of a rank that sleeps goes on, so a caller that comes after a long sleep has as long as any other to say who it is.
#[test]
fn a_caller_that_comes_after_a_long_sleep_has_time_to_speak() {
    let (mut world, _) = World::with_peers(vec![rail(0), rail(1)]);
    let sleep = |world: &mut World| {
        world.poll(1);
        world.rails[1].arm()
    };
    for _ in 0..3 {
        assert!(sleep(&mut world));
        world.now = world.now + Duration::from_secs(3600);
    }
    let mut stream = connect(&world.rails[1]);
    let limit = Limit::new();
    while sleep(&mut world) {
        limit.check(format_args!("the caller is accepted"));
    }
    for _ in 0..3 {
        sleep(&mut world);
    }
    let ended = stream.read(&mut [0]).map_err(|error| error.kind());
    assert!(matches!(ended, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)), "{ended:?}");
}

/// Both sides request a connection at the same time. Whatever the order of polls, one connection is left, and the end of the
/// other one is never taken for the loss of the peer.
#[test]
fn p6_simultaneous_connects_end_with_one_connection() {
    let mut simultaneous = 0;
    for turn in 0..60u64 {
        let limit = Limit::new();
        let (mut world, endpoints) = World::with_peers(vec![rail(0), rail(1)]);
        let mut seed = turn;
        let mut done = [false; 2];
        loop {
            limit.check(format_args!("turn {turn}: {:?}", world.observed));
            let at = random(&mut seed) % 2;
            // In some turns one side starts much earlier.
            if random(&mut seed) % 64 >= turn as usize {
                done[at] = done[at] || try_send(&mut world.rails[at], endpoints[at][1 - at], &[at as u8; 9]).unwrap();
            }
            for _ in 0..random(&mut seed) % 3 {
                world.poll(at);
            }
            if done == [true; 2] && world.observed.iter().all(|seen| !seen.is_empty()) {
                break;
            }
        }
        for _ in 0..30 {
            world.round();
        }
        assert_eq!(world.observed[0], [Observed::Frame(Peer(1), vec![1; 9])], "turn {turn}");
        assert_eq!(world.observed[1], [Observed::Frame(Peer(0), vec![0; 9])], "turn {turn}");
        let counters = [world.rails[0].counters(), world.rails[1].counters()];
        assert!(counters.iter().all(|it| it.established == 1 && it.lost == 0), "turn {turn}: {counters:?}");
        simultaneous += u32::from(counters.iter().all(|it| it.attempts == 1));
    }
    assert!(simultaneous > 10, "both sides attempted in {simultaneous} turns only");
}

/// The attempt of the lower rank fails. Then the higher rank's attempt, which waited, is accepted.
#[test]
fn a_waiting_connection_is_accepted_when_the_own_attempt_fails() {
    let mut world = World::new(vec![rail(0)]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = silent.local_addr().unwrap();
    let peer = ManualPeer::new(5);
    let card = peer.card(&[dead], &world.rails[0]);
    let to = world.rails[0].add_peer(Peer(5), &card).unwrap();
    assert_eq!(try_send(&mut world.rails[0], to, b"mine"), Ok(false));
    world.round();
    let (mut stream, transcript) = peer.begin_handshake(&mut world, 0);
    stream.write_all(&transcript.proof(&peer.key, towline_tcp::hello::Role::Initiator)).unwrap();
    for _ in 0..40 {
        world.round();
    }
    assert_eq!(world.rails[0].counters().established, 0, "it waits while the attempt of rank 0 may succeed");
    let (theirs, _) = silent.accept().unwrap();
    drop((theirs, silent)); // the attempt of rank 0 ends before rank 0 has sent its proof
    let verdict = read_exactly::<VERDICT>(&mut world, &mut stream).expect("a verdict");
    assert_eq!(transcript.read_verdict(&peer.key, &verdict), Some(towline_tcp::hello::Verdict::Accepted));
    world.send(0, to, b"mine");
    assert!(read_exactly::<12>(&mut world, &mut stream).is_some_and(|frame| frame[8..] == *b"mine"));
    world.assert_no_peer_lost();
}

#[test]
fn a_connection_from_a_rank_that_is_not_added_yet_waits() {
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
    world.until("the frame", |world| world.observed[1] == [Observed::Frame(Peer(0), b"early".to_vec())]);
    world.assert_no_peer_lost();
}

#[test]
fn after_a_dead_address_the_next_is_tried_and_after_the_last_one_the_peer_is_lost() {
    let mut world = World::new(vec![rail(0), rail(1)]);
    let (_reserved, dead) = dead_address();
    let mut card = card(&world.rails[1]);
    let alive = card.addresses[0];
    card.addresses = vec![towline_net::card::CardAddress { port: dead.port(), ..alive }, alive];
    let to = world.rails[0].add_peer(Peer(1), &card.encode()).unwrap();
    let back = world.rails[0].card().to_vec();
    world.rails[1].add_peer(Peer(0), &back).unwrap();
    world.send(0, to, b"by the second");
    world.until("the frame", |world| !world.observed[1].is_empty());
    assert_eq!(world.rails[0].counters().attempts_failed, 1);
    world.assert_no_peer_lost();

    let mut world = World::new(vec![rail(0)]);
    let card = ManualPeer::new(3).card(&[dead], &world.rails[0]);
    let to = world.rails[0].add_peer(Peer(3), &card).unwrap();
    assert_eq!(try_send(&mut world.rails[0], to, b"x"), Ok(false));
    world.until("the loss of the peer", |world| !world.observed[0].is_empty());
    assert_eq!(world.observed[0], [Observed::Lost(Peer(3), Lost::Broken)]);
    assert_eq!(try_send(&mut world.rails[0], to, b"x"), Err(SendError::Unreachable));
}

#[test]
fn a_peer_that_never_answers_is_lost_at_the_deadline() {
    let mut world = World::new(vec![rail(0)]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let card = ManualPeer::new(3).card(&[silent.local_addr().unwrap()], &world.rails[0]);
    let to = world.rails[0].add_peer(Peer(3), &card).unwrap();
    assert_eq!(try_send(&mut world.rails[0], to, b"x"), Ok(false));
    for _ in 0..30 {
        world.round();
    }
    assert!(world.observed[0].is_empty());
    // The rail waits for a peer that computes, as long as configured and no longer.
    let (start, mut wakes) = (world.now, 0);
    while world.observed[0].is_empty() {
        world.now = world.rails[0].poll_at().expect("a deadline");
        (0..10).for_each(|_| world.round());
        wakes += 1;
        assert!(wakes < 5, "too many wake-ups");
    }
    assert_eq!(world.now.since(start), Duration::from_secs(120));
    assert_eq!(world.observed[0], [Observed::Lost(Peer(3), Lost::TimedOut)]);
}

#[test]
fn a_peer_without_a_common_network_is_refused_when_it_is_added() {
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
        let (mut world, endpoints) = World::with_peers(vec![linked(0), linked(1)]);
        world.send(0, endpoints[0][1], &[link; 100]);
        world.until("the frame", |world| world.observed[1] == [Observed::Frame(Peer(0), vec![link; 100])]);
    }
}

#[test]
fn twelve_ranks_exchange_frames_with_each_other() {
    let (mut world, endpoints) = World::with_peers((0..12).map(rail).collect());
    for (from, row) in endpoints.iter().enumerate() {
        for to in (0..12).filter(|to| *to != from) {
            world.send(from, row[to], &[from as u8, to as u8]);
        }
    }
    world.until("all frames", |world| world.observed.iter().all(|seen| seen.len() == 11));
    for to in 0..12 {
        let mut from: Vec<u8> = vec![];
        for seen in &world.observed[to] {
            let Observed::Frame(peer, bytes) = seen else { panic!("{seen:?}") };
            assert_eq!(bytes[..], [peer.0 as u8, to as u8]);
            from.push(bytes[0]);
        }
        from.sort();
        from.dedup();
        assert_eq!(from.len(), 11);
    }
    world.assert_no_peer_lost();
}

#[test]
fn an_orderly_end_is_distinguished_from_a_failure() {
    // A rank that finishes: its last frames arrive, then its goodbye.
    let (mut world, endpoints) = World::with_peers(vec![rail(0), rail(1)]);
    world.send(0, endpoints[0][1], b"last frame");
    world.until("the frame", |world| !world.observed[1].is_empty());
    world.observed[1].clear();
    world.send(1, endpoints[1][0], &[1; 5000]); // never read by the rank that finishes
    world.send(0, endpoints[0][1], &[7; 3000]);
    drop(world.rails.remove(0));
    let seen = world.observed.remove(1);
    assert!(seen.is_empty());
    world.observed = vec![seen];
    world.until("the end", |world| world.observed[0].len() == 2);
    assert_eq!(world.observed[0], [Observed::Frame(Peer(0), vec![7; 3000]), Observed::Lost(Peer(0), Lost::Closed)]);
    assert_eq!(try_send(&mut world.rails[0], endpoints[1][0], b"x"), Err(SendError::Unreachable));

    // A rank that gives up a peer which is still there.
    let (mut world, endpoints) = World::with_peers(vec![rail(0), rail(1)]);
    world.send(0, endpoints[0][1], b"last frame");
    world.until("the frame", |world| !world.observed[1].is_empty());
    assert!(world.rails[0].give_up(endpoints[0][1], GiveUp::Peer));
    world.until("the end", |world| world.observed[1].len() == 2);
    assert_eq!(world.observed[1][1], Observed::Lost(Peer(0), Lost::Broken));

    // A process that fails, one that sends malformed bytes, one that ends in the middle of a frame, and one that says goodbye.
    for (last, why) in [
        (&[][..], Lost::Broken),
        (&[1; 8][..], Lost::Misbehaved),
        (&encode(9, TAG, 9)[..], Lost::Broken),
        (&GOODBYE[..], Lost::Closed),
    ] {
        let mut world = World::new(vec![rail(0)]);
        let peer = ManualPeer::new(2);
        let card = peer.card(&[address(&world.rails[0])], &world.rails[0]);
        world.rails[0].add_peer(Peer(2), &card).unwrap();
        let mut stream = peer.join(&mut world, 0);
        stream.write_all(&[&encode(3, TAG, 0)[..], b"abc", last].concat()).unwrap();
        drop(stream);
        world.until("the end", |world| world.observed[0].len() == 2);
        assert_eq!(world.observed[0], [Observed::Frame(Peer(2), b"abc".to_vec()), Observed::Lost(Peer(2), why)]);
        assert_eq!(world.rails[0].counters().lost, 1);
    }
}
