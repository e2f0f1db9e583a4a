//! Frames that arrive late, when the window has moved on. They say nothing about the numbers that have taken the places of the
//! old ones.

use super::mesh::{Mesh, bytes};
use super::wire::Faults;
use crate::rail::*;
use std::vec;

const MILLISECOND: u64 = 1_000_000;

/// An acknowledgement that is late by a whole window has numbers whose places in the ring belong to other numbers by now.
#[test]
fn p15_b34_a_late_acknowledgement_acknowledges_no_later_frames() {
    for window in [4, 64, 256] {
        let mut mesh = Mesh::new(2, 1, Faults::default(), |config| config.window = window);
        let count = u64::from(window.max(64)) + 4;
        for number in 0..count {
            mesh.send(0, 1, Lane::Eager, &bytes(number, 30));
        }
        mesh.settle();
        mesh.faults(|faults| faults.silent = true);
        assert!(mesh.try_send(0, 1, Lane::Eager, &bytes(count, 30)).is_ok());
        let at = mesh.ends[0].to[1].0;
        assert!(mesh.ends[0].link.take_ack(at, 2, 2, &[1 << 2], true), "of number 4, which was sent");
        assert_eq!(mesh.ends[0].link.used(), [1, 0], "window {window}");
        mesh.faults(|faults| faults.silent = false);
        mesh.settle();
        mesh.check(0, 1, (0..=count).collect());
    }
}

/// All frames in flight are lost, and no frames follow. The first is sent again after one time-out, and the others when it is
/// acknowledged.
#[test]
fn p15_frames_that_were_lost_at_once_are_sent_again_at_once() {
    let mut mesh = Mesh::new(2, 1, Faults::default(), |_| {});
    for number in 0..100 {
        mesh.send(0, 1, Lane::Eager, &bytes(number, 30));
    }
    mesh.settle();
    mesh.faults(|faults| faults.silent = true);
    for number in 100..130 {
        assert!(mesh.try_send(0, 1, Lane::Bulk, &bytes(number, 30)).is_ok());
    }
    mesh.run_for(MILLISECOND);
    mesh.faults(|faults| faults.silent = false);
    let since = mesh.now;
    mesh.settle();
    mesh.check(0, 1, (0..130).collect());
    let took = mesh.now - since;
    assert!(took < 30 * MILLISECOND, "{took} ns, timeouts last {} ms", 5);
}

/// A frame migrates twice over the same link. The delivery that is awaited is the one that its first arrival began, not the
/// frame that has just arrived.
#[test]
fn p14_a_frame_that_migrated_here_twice_is_delivered_to_the_first_sink() {
    let mut mesh = Mesh::new(2, 1, Faults::default(), |_| {});
    mesh.send(0, 1, Lane::Eager, &bytes(0, 30));
    mesh.settle();
    let origin = Origin { link: 200, number: 5 };
    let frame = bytes(77, 3000);
    let moved = |mesh: &mut Mesh| {
        let shape = Shape { tag: frame[0] | 0x80, lane: Lane::Bulk, header: 8, len: frame.len() as u32 };
        let end = &mut mesh.ends[0];
        // SAFETY: such a body is copied.
        unsafe {
            let body = crate::convertor::Span::of(&frame[8..]);
            end.link.send_migrated(end.to[1], origin, shape, &frame[..8], body, None).unwrap();
        }
    };
    // Two deliveries are pending when the link breaks, for other links to finish.
    mesh.faults(|faults| faults.late_body = 1000);
    mesh.poll(0); // so that the wire knows the time
    assert!(mesh.try_send(0, 1, Lane::Bulk, &bytes(1, 3000)).is_ok());
    moved(&mut mesh);
    mesh.until("both are pending", |mesh| mesh.ends[1].pending.len() == 2);
    mesh.shared.borrow_mut().cut(0, 1);
    mesh.until("both are told", |mesh| mesh.ends.iter().all(|end| end.reports.len() == 1));
    let (to, from) = (mesh.ends[0].to[1], mesh.ends[1].to[0]);
    let first = mesh.ends[0].link.next_unacked(to).unwrap().origin;
    mesh.ends[0].link.migrated(to, first);
    assert_eq!(mesh.ends[0].link.next_unacked(to).unwrap().origin, origin);
    mesh.ends[0].link.migrated(to, origin);
    // One is finished. The other frame comes back to this link, and takes the place of the first among the records.
    assert!(matches!(mesh.ends[1].link.claim(from, first), Some(Claim::Awaited { .. })));
    mesh.until("it is back", |mesh| mesh.ends.iter().all(|end| end.reports.len() == 2));
    moved(&mut mesh);
    let claim = loop {
        mesh.now += 100;
        mesh.poll(0);
        let now = crate::time::Instant::from_nanos(mesh.now);
        if let Some(Event::Migrated(..)) = mesh.ends[1].link.poll(now) {
            break mesh.ends[1].link.claim(from, origin);
        }
    };
    assert!(matches!(claim, Some(Claim::Awaited { .. })), "{claim:?}");
    mesh.ends[1].pending.clear();
}

/// A frame is reserved before the link goes down, and committed after that.
#[test]
fn p15_b34_a_frame_that_is_committed_to_a_link_that_is_down_is_sent_once_when_it_is_up() {
    let mut mesh = Mesh::new(2, 1, Faults::default(), |_| {});
    mesh.send(0, 1, Lane::Eager, &bytes(0, 30));
    mesh.settle();
    let (to, frame) = (mesh.ends[0].to[1], bytes(1, 30));
    let shape = Shape { tag: frame[0] | 0x80, lane: Lane::Eager, header: 8, len: 30 };
    let mut grant = mesh.ends[0].link.reserve(to, shape).unwrap();
    grant.write(0, &frame);
    let ticket = grant.finish();
    mesh.shared.borrow_mut().cut(0, 1);
    mesh.until("it is down", |mesh| mesh.ends.iter().all(|end| end.reports.len() == 1));
    mesh.ends[0].link.commit(ticket);
    mesh.until("it is back", |mesh| mesh.ends.iter().all(|end| end.reports.len() == 2));
    mesh.settle();
    mesh.check(0, 1, vec![0, 1]);
}

/// If a long body was refused because the rail below has no room, its checksum would have to be computed again at each
/// attempt.
#[test]
fn p15_b34_a_long_body_is_taken_though_the_rail_below_is_busy_and_no_other_after_it() {
    let mut mesh = Mesh::new(2, 1, Faults::default(), |_| {});
    mesh.send(0, 1, Lane::Eager, &bytes(0, 30));
    mesh.settle();
    mesh.faults(|faults| faults.busy = 1000);
    let frame = bytes(1, 9000);
    let shape = Shape { tag: frame[0] | 0x80, lane: Lane::Bulk, header: 8, len: 9000 };
    let (to, body, cookie) = (mesh.ends[0].to[1], frame[8..].to_vec().into_boxed_slice(), 1 << 40);
    let mut give = || {
        let link = &mut mesh.ends[0].link;
        // SAFETY: the body is kept until its completion is reported.
        unsafe { link.send(to, shape, &frame[..8], crate::convertor::Span::of(&body), Cookie(cookie)) }
    };
    assert_eq!([give(), give()], [Ok(Sent::InPlace), Err(SendError::Busy)]);
    mesh.ends[0].in_place.insert(cookie, body);
    mesh.run_for(MILLISECOND);
    mesh.faults(|faults| faults.busy = 0);
    mesh.settle();
    mesh.check(0, 1, vec![0, 1]);
}
