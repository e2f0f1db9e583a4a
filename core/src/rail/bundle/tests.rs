//! Bundles over links that fail when a test says so.

use super::*;
use crate::arena::Arena;
use crate::convertor::Span;
use crate::error::Blame;
use crate::rail::testing::link::{Link, LinkFailure, Net, links};
use crate::rail::*;
use crate::time::Instant;
use std::string::ToString;
use std::{cell::RefCell, rc::Rc, vec, vec::Vec};

type TestBundle = Bundle<'static, Link, Vec<Link>>;

const CONFIG: Config = Config { peers: 2, deliveries: 8 };

fn bundle_of(links: Vec<Link>) -> Result<TestBundle, BundleError> {
    let block = vec![0; CONFIG.bytes(&links)].leak();
    Bundle::new(links, CONFIG, &mut Arena::new(block))
}

/// Two bundles of `counts` links that know each other, and their endpoints of each other.
fn pair(counts: [usize; 2]) -> (Rc<RefCell<Net>>, [TestBundle; 2], [Endpoint; 2]) {
    let (net, ends) = links(counts[0].max(counts[1]));
    let mut counts = counts.into_iter();
    let mut bundles = ends.map(|mut links| {
        links.truncate(counts.next().unwrap());
        bundle_of(links).unwrap()
    });
    let cards = [0, 1].map(|end: usize| bundles[end].card().to_vec());
    let mut cards = cards.iter().rev();
    let to = bundles.each_mut().map(|bundle| bundle.add_peer(Peer(5), cards.next().unwrap()).unwrap());
    (net, bundles, to)
}

fn shape(lane: Lane, len: u32) -> Shape {
    Shape { tag: 0x99, lane, header: 8, len }
}

/// Sends a frame through a grant.
fn give(bundle: &mut TestBundle, to: Endpoint, lane: Lane, bytes: &[u8]) -> Result<(), SendError> {
    let mut grant = bundle.reserve(to, shape(lane, bytes.len() as u32))?;
    grant.write(0, bytes);
    let ticket = grant.finish();
    bundle.commit(ticket);
    Ok(())
}

fn poll(bundle: &mut TestBundle) -> Option<Event> {
    bundle.poll(Instant::ZERO)
}

/// Polls both ends until the second one reports a frame, and returns its head.
fn next_frame(bundles: &mut [TestBundle; 2]) -> Vec<u8> {
    for _ in 0..1000 {
        assert!(poll(&mut bundles[0]).is_none());
        if let Some(Event::Frame(frame)) = poll(&mut bundles[1]) {
            assert_eq!(frame.from, Peer(5));
            return frame.head().to_vec();
        }
    }
    panic!("no frame has arrived");
}

fn sent(bundle: &TestBundle) -> Vec<u32> {
    bundle.links().iter().map(Link::sent).collect()
}

#[test]
fn p12_p13_short_frames_use_the_first_link_and_bulk_uses_all() {
    let (_, mut bundles, to) = pair([3, 3]);
    for name in 0..3u8 {
        give(&mut bundles[0], to[0], Lane::Eager, &[name; 20]).unwrap();
        assert_eq!(next_frame(&mut bundles), [name; 20]);
    }
    assert_eq!(sent(&bundles[0]), [3, 0, 0]);
    for name in 0..3u8 {
        give(&mut bundles[0], to[0], Lane::Bulk, &[name; 20]).unwrap();
        assert_eq!(next_frame(&mut bundles), [name; 20]);
    }
    assert_eq!(sent(&bundles[0]), [4, 1, 1]);
    // A frame that the first link has no room for goes by the next one.
    bundles[0].links_mut()[0].window = 0;
    give(&mut bundles[0], to[0], Lane::Eager, &[9; 20]).unwrap();
    assert_eq!(next_frame(&mut bundles), [9; 20]);
    assert_eq!(sent(&bundles[0]), [4, 2, 1]);
}

#[test]
fn p34_the_smallest_limits_count_since_any_link_may_carry_a_frame() {
    let (_, mut bundles, to) = pair([3, 3]);
    let own = *bundles[0].attributes();
    assert_eq!((own.eager_limit, own.max_send_size, own.latency, own.frames_kept), (90, 160, 20, 48));
    assert!(!own.capabilities.contains(Capabilities::FAILOVER_SUPPORT));
    assert_eq!(give(&mut bundles[0], to[0], Lane::Eager, &[1; 91]), Err(SendError::TooLong));
    assert_eq!(give(&mut bundles[0], to[0], Lane::Bulk, &[1; 161]), Err(SendError::TooLong));
    assert_eq!(give(&mut bundles[0], to[0], Lane::Eager, &[1; 90]), Ok(()));
}

#[test]
fn b14_a_body_in_place_is_reported_when_another_link_has_copied_it() {
    let (net, mut bundles, to) = pair([2, 2]);
    bundles[0].links_mut()[1].copied = u64::MAX;
    let (header, body) = ([1; 8], [2; 100]);
    // SAFETY: the body outlives the bundle.
    let answer = unsafe { bundles[0].send(to[0], shape(Lane::Bulk, 108), &header, Span::of(&body), Cookie(77)) };
    assert_eq!(answer, Ok(Sent::InPlace));
    net.borrow_mut().fail_link(0, LinkFailure::CLEAN);
    assert!(!bundles[0].drained(to[0]));
    let event = poll(&mut bundles[0]);
    assert!(matches!(event, Some(Event::Sent(Cookie(77)))), "{event:?}");
    assert_eq!(bundles[0].counters(), Counters { links_down: 1, frames_migrated: 1, ..Counters::default() });
    assert_eq!(next_frame(&mut bundles)[..8], header);
}

#[test]
fn p14_frames_migrate_in_later_polls_when_the_other_links_were_full() {
    let (net, mut bundles, to) = pair([2, 2]);
    let window = bundles[0].links()[0].window as u8;
    for name in 0..2 * window {
        give(&mut bundles[0], to[0], Lane::Eager, &[name; 20]).unwrap();
    }
    assert_eq!(give(&mut bundles[0], to[0], Lane::Eager, &[99; 20]), Err(SendError::Busy));
    net.borrow_mut().fail_link(0, LinkFailure::CLEAN);
    assert!(poll(&mut bundles[0]).is_none());
    assert_eq!(bundles[0].counters().frames_migrated, 0, "the other link is full");
    let mut got: Vec<u8> = (0..2 * window).map(|_| next_frame(&mut bundles)[0]).collect();
    got.sort_unstable();
    assert_eq!(got, (0..2 * window).collect::<Vec<_>>());
    assert_eq!(bundles[0].counters().frames_migrated, u64::from(window));
    net.borrow_mut().restore(0);
    (0..40).for_each(|_| bundles.iter_mut().for_each(|bundle| assert!(poll(bundle).is_none())));
    assert_eq!(bundles[0].counters().links_up, 1);
    assert!(bundles[0].drained(to[0]));
    give(&mut bundles[0], to[0], Lane::Eager, &[98; 20]).unwrap();
    assert_eq!(next_frame(&mut bundles), [98; 20]);
}

#[test]
fn p7_b14_a_peer_is_lost_once_when_its_last_link_is_down() {
    let (net, mut bundles, to) = pair([2, 2]);
    let failure = LinkFailure { refuses_sends: true, ..LinkFailure::CLEAN };
    net.borrow_mut().fail_link(1, failure);
    assert!(poll(&mut bundles[0]).is_none());
    give(&mut bundles[0], to[0], Lane::Bulk, &[1; 20]).unwrap();
    net.borrow_mut().fail_link(0, failure);
    assert_eq!(give(&mut bundles[0], to[0], Lane::Eager, &[1; 20]), Err(SendError::Busy), "it is not reported yet");
    let event = poll(&mut bundles[0]);
    assert!(matches!(event, Some(Event::Lost(Peer(5), Lost::TimedOut))), "{event:?}");
    assert!(poll(&mut bundles[0]).is_none());
    assert_eq!(give(&mut bundles[0], to[0], Lane::Eager, &[1; 20]), Err(SendError::Unreachable));
    bundles[0].del_peer(to[0]);
    bundles[0].del_peer(to[0]);
    let card = bundles[1].card().to_vec();
    assert_eq!(bundles[0].add_peer(Peer(6), &card), Ok(to[0]), "it can be added again");
}

#[test]
fn b4_sides_with_other_numbers_of_links_use_those_that_both_have() {
    for (own, others) in [(3, 2), (2, 3)] {
        let (_, mut bundles, to) = pair([own, others]);
        for name in 0..6u8 {
            give(&mut bundles[0], to[0], Lane::Bulk, &[name; 20]).unwrap();
            assert_eq!(next_frame(&mut bundles), [name; 20]);
        }
        assert_eq!(sent(&bundles[0])[..2], [3, 3]);
    }
}

#[test]
fn a_bundle_needs_links_and_says_so() {
    let why = bundle_of(vec![]).err().unwrap();
    assert_eq!((why, why.blame()), (BundleError::Count(0), Blame::Caller));
    let mut two = links(2).1.into_iter().next().unwrap();
    two[1].attributes.capabilities -= Capabilities::FAILOVER_SUPPORT;
    let why = bundle_of(two).err().unwrap();
    assert_eq!(why, BundleError::NoLink(1));
    assert!(why.to_string().contains("rail 1") && why.to_string().contains("wrap it"));
    let two = links(2).1.into_iter().next().unwrap();
    for room in 0..CONFIG.bytes(&two) / 2 {
        let why = Bundle::new(links(2).1.into_iter().next().unwrap(), CONFIG, &mut Arena::new(vec![0; room].leak()));
        assert_eq!(why.err().unwrap().blame(), Blame::Resource);
    }
}
