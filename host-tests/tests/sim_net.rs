//! Tests of the simulated network: each fault happens, and is counted.

use towline_core::convertor::Span;
use towline_core::rail::{Cookie, Endpoint, Event, Lane, Lost, Peer, Rail, SendError, Sent, Shape};
use towline_core::time::Instant;
use towline_host_tests::sim::network::Net;
use towline_host_tests::sim::network::SimRail;
use towline_host_tests::sim::network::faults::{Counts, FOR_EVER, Faults, Outage, Partition, RailParams};
use towline_host_tests::{pattern::patterned, random::Random};

const FRAMES: u64 = 200;

/// Sends frames from node 0 to node 1, one each microsecond. Returns the frames that arrived, in order, with events and
/// counts.
fn traffic(faults: Faults) -> (Vec<Vec<u8>>, Vec<Event>, Counts) {
    traffic_by(RailParams::default(), faults)
}

fn traffic_by(params: RailParams, faults: Faults) -> (Vec<Vec<u8>>, Vec<Event>, Counts) {
    let params = RailParams { slots: 1000, ..params };
    let net = Net::new(2, vec![params], faults, Random::new(5));
    let (mut one, mut other) = (net.rails(0).remove(0), net.rails(1).remove(0));
    let to = one.add_peer(Peer(1), other.card()).expect("reachable");
    other.add_peer(Peer(0), one.card()).expect("reachable");
    let (mut got, mut rest) = (vec![], vec![]);
    for step in (0..FRAMES * 2).chain([1_000_000]) {
        let now = Instant::from_nanos(step * 1000);
        if step < FRAMES {
            send(&mut one, to, step);
        }
        while let Some(event) = other.poll(now) {
            match event {
                Event::Frame(frame) => got.push(frame.head().to_vec()),
                event => rest.push(event),
            }
        }
        rest.extend(one.poll(now));
    }
    assert_eq!(net.unreleased_frames(), 0);
    (got, rest, net.counts())
}

fn send(rail: &mut SimRail, to: towline_core::rail::Endpoint, name: u64) {
    let shape = Shape { tag: 0x80, lane: Lane::Eager, header: 8, len: 40 };
    let Ok(mut grant) = rail.reserve(to, shape) else { return };
    grant.write(0, &patterned(name, 40));
    let ticket = grant.finish();
    rail.commit(ticket);
}

fn all() -> Vec<Vec<u8>> {
    (0..FRAMES).map(|name| patterned(name, 40)).collect()
}

#[test]
fn without_faults_all_frames_arrive_in_order() {
    let (got, rest, counts) = traffic(Faults::default());
    assert_eq!(got, all());
    assert!(rest.is_empty());
    assert_eq!(counts, Counts { frames: FRAMES, bytes: FRAMES * 40, ..Counts::default() });
}

#[test]
fn jitter_reorders_frames() {
    let (mut got, _, counts) = traffic(Faults { jitter: 20_000, ..Faults::default() });
    assert_ne!(got, all());
    let mut sorted = all();
    sorted.sort();
    got.sort();
    assert_eq!(got, sorted);
    assert!(counts.reordered > 0);
}

#[test]
fn frames_are_dropped_duplicated_and_corrupted() {
    let (got, _, counts) = traffic_by(RailParams::default().datagrams(), Faults { drop: 100, ..Faults::default() });
    assert!(counts.dropped > 0);
    assert_eq!(got.len() as u64, FRAMES - counts.dropped);

    let (got, _, counts) =
        traffic_by(RailParams::default().datagrams(), Faults { duplicate: 100, ..Faults::default() });
    assert!(counts.duplicated > 0);
    assert_eq!(got.len() as u64, FRAMES + counts.duplicated);

    let (got, _, counts) = traffic_by(RailParams::default().datagrams(), Faults { corrupt: 100, ..Faults::default() });
    let changed = got.iter().zip(all()).filter(|(got, sent)| *got != sent).count() as u64;
    assert!(counts.corrupted > 0);
    assert_eq!(changed, counts.corrupted);
}

#[test]
fn partitions_delay_or_lose_frames() {
    let window = (20_000, 60_000);
    let partition = Partition { from: 1, to: 0, both: true, rail: None, window };
    let one = |partition| Faults { partitions: vec![partition], ..Faults::default() };
    let (got, _, counts) = traffic(one(partition));
    assert_eq!((got.len() as u64, counts.partitioned > 0, counts.one_way), (FRAMES, true, 0));
    let datagrams = RailParams::default().datagrams();
    let (got, _, counts) = traffic_by(datagrams, one(partition));
    assert_eq!((got.len() as u64, counts.partitioned), (FRAMES - 40, 40));
    // First the other direction only, then this one.
    let (got, ..) = traffic_by(datagrams, one(Partition { both: false, ..partition }));
    assert_eq!(got.len() as u64, FRAMES);
    let (got, _, counts) = traffic_by(datagrams, one(Partition { from: 0, to: 1, both: false, ..partition }));
    assert_eq!((got.len() as u64, counts.one_way), (FRAMES - 40, 40));
    let (got, ..) = traffic_by(datagrams, one(Partition { rail: Some(1), ..partition }));
    assert_eq!(got.len() as u64, FRAMES);
}

#[test]
fn a_stalled_rail_catches_up() {
    let (got, _, counts) = traffic(Faults { rail_stalls: vec![(1, 0, (10_000, 90_000))], ..Faults::default() });
    assert_eq!(got, all());
    assert!(counts.stalled_polls > 0);
}

#[test]
fn both_ends_report_a_death_once_and_nothing_after_it() {
    let (got, rest, counts) = traffic(Faults {
        outages: vec![Outage { node: 1, rail: None, window: (50_000, FOR_EVER) }],
        ..Faults::default()
    });
    assert_eq!((counts.cut, counts.outages), (1, 1));
    assert!(!got.is_empty() && (got.len() as u64) < FRAMES);
    let lost = rest.iter().filter(|event| matches!(event, Event::Lost(_, Lost::Broken))).count();
    assert_eq!((lost, rest.len()), (2, 2));
}

#[test]
fn a_body_left_in_place_is_read_late_and_not_after_the_peer_is_deleted() {
    let faults = Faults { in_place: 1000, ..Faults::default() };
    let net = Net::new(2, vec![RailParams::default()], faults, Random::new(5));
    let (mut one, mut other) = (net.rails(0).remove(0), net.rails(1).remove(0));
    let to = one.add_peer(Peer(1), other.card()).expect("reachable");
    other.add_peer(Peer(0), one.card()).expect("reachable");
    let mut body = [1u8; 5000];
    let shape = Shape { tag: 0x80, lane: Lane::Bulk, header: 2, len: 5002 };
    // SAFETY: the body outlives the rails' use of it. This test writes to it meanwhile, to see when it is read.
    let sent = unsafe { one.send(to, shape, &[0; 2], Span::of(&body), Cookie(9)) };
    assert_eq!(sent, Ok(Sent::InPlace));
    body.fill(2);
    one.del_peer(to);
    body.fill(3);
    let Some(Event::Frame(frame)) = other.poll(Instant::from_nanos(1_000_000)) else { panic!("no frame") };
    assert_eq!(frame.head()[2..], [2; 54], "read when the peer was deleted, at the latest");
    assert!(one.poll(Instant::from_nanos(2_000_000)).is_none(), "nothing is reported for a deleted peer");
    assert_eq!(one.reserve(to, shape).err(), Some(SendError::Unreachable));
}

/// Two ends that know each other, on a network with the given faults.
fn pair(params: RailParams, faults: Faults) -> (Net, SimRail, SimRail) {
    let net = Net::new(2, vec![params], faults, Random::new(5));
    let (mut one, mut other) = (net.rails(0).remove(0), net.rails(1).remove(0));
    one.add_peer(Peer(1), other.card()).expect("reachable");
    other.add_peer(Peer(0), one.card()).expect("reachable");
    (net, one, other)
}

fn frames(rail: &mut SimRail, now: u64) -> (usize, usize) {
    let events: Vec<_> = std::iter::from_fn(|| rail.poll(Instant::from_nanos(now))).collect();
    let lost = events.iter().filter(|event| matches!(event, Event::Lost(..))).count();
    (events.len() - lost, lost)
}

#[test]
fn a_broken_connection_is_made_again_after_the_outage() {
    let outages = vec![Outage { node: 1, rail: Some(0), window: (50_000, 200_000) }];
    let (net, mut one, mut other) = pair(RailParams::default(), Faults { outages, ..Faults::default() });
    send(&mut one, Endpoint(1), 1);
    assert_eq!(frames(&mut other, 40_000), (1, 0));
    send(&mut one, Endpoint(1), 2);
    net.advance(50_000); // it breaks
    for rail in [&mut other, &mut one] {
        assert_eq!(frames(rail, 150_000), (0, 1));
    }
    // This is too early: the loss is reported, and nothing arrives.
    let to = one.add_peer(Peer(1), other.card()).expect("local");
    send(&mut one, to, 3);
    assert_eq!((frames(&mut other, 199_000), frames(&mut one, 210_000)), ((0, 0), (0, 1)));
    let to = one.add_peer(Peer(1), other.card()).expect("local");
    send(&mut one, to, 4);
    assert_eq!(frames(&mut other, 300_000), (0, 0), "the sender is not known at this end yet");
    other.add_peer(Peer(0), one.card()).expect("local");
    assert_eq!(frames(&mut other, 300_000), (1, 0));
    assert_eq!(net.counts().reconnected, 2);
}

#[test]
fn a_closed_connection_is_reported_after_frames_in_flight() {
    let (_, mut one, mut other) = pair(RailParams::default(), Faults::default());
    send(&mut one, Endpoint(1), 1);
    one.del_peer(Endpoint(1));
    assert_eq!(frames(&mut other, 100_000), (1, 1));
}

#[test]
fn a_restarted_node_is_another_incarnation() {
    let (net, one, mut other) = pair(RailParams::default(), Faults::default());
    net.kill(0, false);
    drop(one);
    let mut one = net.revive(0).remove(0);
    let to = one.add_peer(Peer(1), other.card()).expect("local");
    send(&mut one, to, 1);
    assert_eq!(
        frames(&mut other, 100_000),
        (0, 1),
        "the other end still knows the earlier incarnation, and reports its loss"
    );
    other.add_peer(Peer(0), one.card()).expect("local");
    assert_eq!(frames(&mut other, 100_000), (1, 0));

    // Datagrams have no connections: those of another incarnation also arrive, if their sender is known.
    let (net, mut one, mut other) = pair(RailParams::default().datagrams(), Faults::default());
    send(&mut one, Endpoint(1), 1);
    net.kill(0, false);
    drop(one);
    let mut one = net.revive(0).remove(0);
    let to = one.add_peer(Peer(1), other.card()).expect("local");
    send(&mut one, to, 2);
    assert_eq!(frames(&mut other, 100_000), (2, 0));
    let counts = net.counts();
    assert_eq!((counts.killed, counts.revived), (1, 1));
}
