//! The suite for any [`Rail`]. Each check takes a fresh [`Setup`], and panics if the rail breaks the contract of
//! `towline_core::rail`. [`rail_suite!`](crate::rail_suite) makes tests of the checks.

use std::thread;
use std::time::Instant;

use towline_core::convertor::Span;
use towline_core::rail::atomics::{Atomic, AtomicFlags, AtomicOp};
use towline_core::rail::native::{KEY, Key, Local, Native, NativeError, Work};
use towline_core::rail::{COPIED, DeviceMemory, SingleCopy};
use towline_core::rail::{
    Capabilities, Cookie, Delivery, Endpoint, Event, Frame, HEAD, Lane, REMOTE_BUFFER_BYTES, Rail, RemoteBuffer,
    SendError, Sent, Shape,
};

use super::mesh::{Mesh, Received, Setup, peer};
use super::wait_limit::{SPAN, WaitLimit};
use crate::pattern::patterned;
use crate::random::Random;

/// Makes one test of each check of the suite, over rails of the given setup.
///
/// ```text
/// towline_host_tests::rail_suite!(MySetup::new());
/// towline_host_tests::rail_suite!(lossy OtherSetup::new()); // without the checks that send more than a lossy rail delivers
/// ```
#[macro_export]
macro_rules! rail_suite {
    (lossy $setup:expr) => {
        $crate::rail_suite! { @each $setup;
            b32_p34_attributes_keep_their_own_rules
            p6_b1_endpoints_lead_to_their_peer
            p6_b4_malformed_cards_are_refused
            p34_b50_frames_of_boundary_sizes_arrive_whole
            p34_b50_frames_above_the_limit_are_refused
            p26_headers_of_every_length_come_with_the_event
            b12_an_abandoned_grant_sends_nothing
            b9_held_frames_can_be_released_in_any_order
            p28_p29_short_sinks_are_not_overrun
            p28_bodies_are_written_only_to_the_sink
            p28_exposed_memory_can_be_read_until_the_peer_is_deleted
            p26_reads_return_exactly_the_received_bytes
            b17_copied_buffers_can_be_reused
            b17_a_rail_drains
            p30_frames_are_sent_while_one_is_held
            p7_b5_a_peer_can_be_deleted_and_added_again
            p6_b14_unknown_endpoints_are_unreachable
            p7_b14_a_departed_peer_is_unreachable_and_reported_lost_once
            b2_p10_an_idle_rail_reports_nothing
            p24_b40_unsupported_device_operations_are_refused
            an_armed_rail_loses_no_frame
        }
    };
    ($setup:expr) => {
        $crate::rail_suite! { lossy $setup }
        $crate::rail_suite! { @each $setup;
            b16_busy_reaches_the_sender_and_ends_with_polling
            control_frames_are_sent_while_bulk_is_full
            b14_b17_b33_a_body_left_in_place_is_reported_once
            p15_floods_both_ways_arrive_exactly_once
            p6_p15_floods_between_four_arrive_exactly_once
        }
    };
    (@each $setup:expr; $($check:ident)*) => {
        $(#[test]
        fn $check() {
            $crate::kit::rail::$check($setup);
        })*
    };
}

const LANES: [Lane; 3] = [Lane::Control, Lane::Eager, Lane::Bulk];
const TAG: u8 = 0x80;

/// The limits and flags are consistent.
pub fn b32_p34_attributes_keep_their_own_rules<S: Setup>(setup: S) {
    let mesh = Mesh::new(setup, 2);
    let own = mesh.attributes();
    assert!(!own.name.is_empty());
    assert!(own.capabilities.contains(Capabilities::SEND));
    assert!(own.bandwidth > 0 && own.frames_kept > 0);
    assert!(own.eager_limit as usize >= HEAD, "a header must fit the eager lane");
    assert!(own.rendezvous_eager_limit <= own.eager_limit);
    assert!(own.min_fragment <= own.max_send_size && own.max_send_size as usize > HEAD);
    assert!(!own.capabilities.contains(Capabilities::SINGLE_ADD_PROCS), "peers can be added at any time (B41)");
}

/// Capability bits and limits agree. An operation that a rail does not support is refused, and not silently dropped.
pub fn p24_b40_unsupported_device_operations_are_refused<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    let (own, can) = (mesh.attributes(), mesh.attributes().one_sided);
    // A rail that maps memory promises nothing for memory that it has not allocated.
    let says = |bit, does| assert!(can.at_once || own.capabilities.contains(bit) == does, "{bit:?}");
    says(Capabilities::PUT, can.put.limit != 0);
    says(Capabilities::GET, can.get.limit != 0);
    says(Capabilities::ATOMIC_OPS, !can.atomics.is_empty());
    says(Capabilities::ATOMIC_FOPS, !can.atomics.is_empty());
    let (to, mut byte) = (mesh.ends[0].endpoints[1], 0u8);
    let local = Local { base: &raw mut byte, len: 1, region: None };
    let add = Work::Atomic(Atomic::Op(AtomicOp::Add, 1), AtomicFlags::empty());
    let atomics = u64::from(!can.atomics.is_empty());
    for (work, limit) in [(Work::Put(local), can.put.limit), (Work::Get(local), can.get.limit), (add, atomics)] {
        // SAFETY: nothing is begun, since there is no such operation or no such key.
        let answer =
            unsafe { mesh.ends[0].rail.perform(to, &Native { work, key: Key([0xff; KEY]), offset: 0 }, Cookie(1)) };
        let wanted: &[NativeError] = match limit {
            0 => &[NativeError::NotAvailable],
            // It may not be connected to the peer yet.
            _ => &[NativeError::NotAvailable, NativeError::Unreachable, NativeError::Busy],
        };
        assert!(answer.is_err_and(|why| wanted.contains(&why)), "{work:?}: {answer:?}");
    }
    mesh.run_until_idle();
}

/// Among three ends, a frame arrives only at the end to which it was sent, with the receiver's name of the sender.
pub fn p6_b1_endpoints_lead_to_their_peer<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 3);
    let name = |from: usize, to: usize| (from * 3 + to) as u64;
    for from in 0..3 {
        for to in (0..3).filter(|to| *to != from) {
            mesh.send(from, to, Lane::Eager, TAG + to as u8, 8, &patterned(name(from, to), 40));
        }
    }
    mesh.until("two frames at each end", |mesh| mesh.ends.iter().all(|end| end.received.len() >= 2));
    mesh.run_until_idle();
    for to in 0..3 {
        assert_eq!(mesh.ends[to].received.len(), 2);
        for from in (0..3).filter(|from| *from != to) {
            let frame =
                mesh.ends[to].received.iter().find(|got| got.from == peer(from)).expect("one frame from each end");
            assert_eq!((frame.tag, &frame.bytes), (TAG + to as u8, &patterned(name(from, to), 40)));
        }
    }
}

/// A card that no rail published is an error, and does not change the rail.
pub fn p6_b4_malformed_cards_are_refused<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    let own = mesh.ends[1].rail.card().to_vec();
    assert!(mesh.ends[0].rail.add_peer(peer(2), &[]).is_err(), "an empty card");
    assert!(mesh.ends[0].rail.add_peer(peer(2), &own[..own.len() - 1]).is_err(), "a card cut short");
    assert!(mesh.ends[0].rail.add_peer(peer(2), &[0xff; 301]).is_err(), "a card that is far too long");
    exchange(&mut mesh, 0, 1);
    exchange(&mut mesh, 1, 0);
}

/// Every lane carries frames from 0 bytes up to its limit.
pub fn p34_b50_frames_of_boundary_sizes_arrive_whole<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    let longest = mesh.setup.longest_header();
    for lane in LANES {
        let limit = mesh.limit(lane);
        for (turn, len) in [0, 1, 7, 8, HEAD - 1, HEAD, HEAD + 1, limit / 2, limit - 1, limit].into_iter().enumerate() {
            let bytes = patterned(len as u64, len);
            let header = [0, len.min(longest), len.min(24)][turn % 3];
            mesh.send(0, 1, lane, TAG + turn as u8, header, &bytes);
            mesh.until("a frame of boundary size", |mesh| !mesh.ends[1].received.is_empty());
            let got = mesh.ends[1].received.remove(0);
            assert_eq!((got.from, got.tag, got.bytes.len()), (peer(0), TAG + turn as u8, len), "{lane:?}");
            assert!(got.bytes == bytes, "{lane:?} frame of {len} bytes differs");
        }
    }
    mesh.run_until_idle();
    assert!(mesh.ends[1].received.is_empty());
}

/// A frame above the limit of its lane, or a header longer than a head, is the caller's error and sends nothing.
pub fn p34_b50_frames_above_the_limit_are_refused<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    exchange(&mut mesh, 0, 1); // so that the rail is connected, and not only busy
    for lane in LANES {
        let limit = mesh.limit(lane) as u32;
        let to = mesh.ends[0].endpoints[1];
        let longest = mesh.setup.longest_header() as u8;
        for (header, len) in [(0, limit + 1), (longest, limit + 1), (0, u32::MAX), (longest + 1, limit)] {
            let answer = mesh.ends[0].rail.reserve(to, Shape { tag: TAG, lane, header, len });
            assert_eq!(answer.err(), Some(SendError::TooLong), "{lane:?} header {header} len {len}");
        }
    }
    mesh.run_until_idle();
    assert!(mesh.ends[1].received.is_empty());
}

/// Memory that a rail exposes can be read by the peer, in any part from its start, until the owner deletes the peer or
/// revokes it. Rails need not support this. A forged buffer is never read.
pub fn p28_exposed_memory_can_be_read_until_the_peer_is_deleted<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    exchange(&mut mesh, 0, 1); // some rails must connect first
    exchange(&mut mesh, 1, 0);
    let (data, mut into) = (patterned(5, 20_000), vec![0xee; 20_001]);
    let ([to, from], unknown) = ([mesh.ends[0].endpoints[1], mesh.ends[1].endpoints[0]], Endpoint(u32::MAX));
    assert_eq!(
        mesh.ends[0].rail.expose(unknown, &Span::of(&data)),
        None,
        "an unknown endpoint: nothing is exposed to it"
    );
    let mut read_exposed = |mesh: &mut Mesh<S>, from: Endpoint, exposed: &RemoteBuffer, len: usize| {
        into.fill(0xee);
        // SAFETY: only this function uses the sink, and not meanwhile.
        let fetched =
            unsafe { mesh.ends[1].rail.read_exposed(from, exposed, Span::contiguous(into.as_mut_ptr(), len)) };
        assert!(into[len..].iter().all(|byte| *byte == 0xee), "written beyond the sink");
        assert!(!fetched || into[..len] == data[..len], "{len} bytes differ");
        fetched
    };
    assert!(
        !read_exposed(&mut mesh, from, &RemoteBuffer([0xff; REMOTE_BUFFER_BYTES]), 100),
        "a forged buffer was read"
    );
    let Some(exposed) = mesh.ends[0].rail.expose(to, &Span::of(&data)) else { return };
    for len in [1, 4096, 19_999, 20_000] {
        assert!(read_exposed(&mut mesh, from, &exposed, len), "{len} bytes of an exposed buffer cannot be read");
    }
    assert!(!read_exposed(&mut mesh, unknown, &exposed, 100), "a buffer of an unknown peer was read");
    let can = [from, unknown].map(|from| mesh.ends[1].rail.read_limit(from));
    assert!(can[0] != 0 && can[1] == 0, "read limits for a known and an unknown peer: {can:?}");
    mesh.ends[0].rail.revoke_exposed();
    assert!(!read_exposed(&mut mesh, from, &exposed, 100), "a revoked buffer was read");
    let exposed =
        mesh.ends[0].rail.expose(to, &Span::of(&data)).expect("a rail can expose memory again after it revoked some");
    assert!(read_exposed(&mut mesh, from, &exposed, 20_000), "a buffer exposed after the revocation cannot be read");
    mesh.ends[0].rail.del_peer(to);
    assert!(!read_exposed(&mut mesh, from, &exposed, 100), "a buffer was read after its owner had deleted the peer");
}

/// The event contains at least the header, whatever its length and the length of the body.
pub fn p26_headers_of_every_length_come_with_the_event<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    let limit = mesh.limit(Lane::Eager);
    for header in 0..=mesh.setup.longest_header() {
        for body in [0, 1, 63, 200].into_iter().filter(|body| header + body <= limit) {
            let bytes = patterned((header * 1000 + body) as u64, header + body);
            mesh.send(0, 1, Lane::Eager, TAG, header, &bytes);
            let frame = mesh.frame(1);
            assert_eq!((frame.from, frame.tag, frame.len as usize), (peer(0), TAG, header + body));
            assert!(usize::from(frame.valid) >= header, "{} of a header of {header} bytes", frame.valid);
            assert_eq!(frame.head(), &bytes[..usize::from(frame.valid)]);
            mesh.ends[1].take_frame(&frame);
            mesh.until("the rest of a frame", |mesh| !mesh.ends[1].received.is_empty());
            assert_eq!(mesh.ends[1].received.remove(0).bytes, bytes, "header {header} body {body}");
        }
    }
}

/// A grant that is written to and then dropped has no effect.
pub fn b12_an_abandoned_grant_sends_nothing<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    for lane in LANES {
        exchange(&mut mesh, 0, 1);
        for (before, len) in [1, HEAD + 1, mesh.limit(lane)].into_iter().enumerate() {
            let to = mesh.ends[0].endpoints[1];
            for _ in 0..100 {
                let shape = Shape { tag: TAG + 1, lane, header: 0, len: len as u32 };
                mesh.until("an abandoned grant keeps no room", |mesh| match mesh.ends[0].rail.reserve(to, shape) {
                    Ok(mut grant) => {
                        grant.write(0, &patterned(9, len));
                        true
                    }
                    Err(error) => {
                        assert_eq!(error, SendError::Busy);
                        false
                    }
                });
            }
            mesh.send(0, 1, lane, TAG, 0, b"whole");
            mesh.until("the frame behind", |mesh| mesh.ends[1].received.len() > before);
        }
        mesh.run_until_idle();
        assert!(mesh.ends[1].received.iter().all(|got| got.tag == TAG && got.bytes == b"whole"));
        assert_eq!(mesh.ends[1].received.len(), 3);
        mesh.ends[1].received.clear();
    }
}

/// If the receiver does not poll, the sender gets `Busy`. All accepted frames arrive once, and later frames as well.
pub fn b16_busy_reaches_the_sender_and_ends_with_polling<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    for lane in LANES {
        exchange(&mut mesh, 0, 1);
        let len = mesh.limit(lane);
        let accepted = fill_lane(&mut mesh, lane, len);
        mesh.send(0, 1, lane, TAG, 8, &numbered(accepted, len));
        mesh.until("all that was accepted", |mesh| mesh.ends[1].received.len() as u64 > accepted);
        mesh.run_until_idle();
        check_numbered(&mut mesh.ends[1].received, accepted + 1);
    }
}

/// Bulk and eager frames fill their room, and a control frame still finds room.
pub fn control_frames_are_sent_while_bulk_is_full<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    exchange(&mut mesh, 0, 1);
    let (bulk, eager) = (mesh.limit(Lane::Bulk), mesh.limit(Lane::Eager));
    let accepted = fill_lane(&mut mesh, Lane::Bulk, bulk);
    let shape = Shape { tag: TAG + 1, lane: Lane::Eager, header: 8, len: eager as u32 };
    let eager_accepted = send_until_full(&mut mesh, shape, 1 << 20);
    let shape = Shape { tag: TAG + 2, lane: Lane::Control, header: 24, len: 24 };
    let refused = "bulk data keeps control frames from leaving";
    step_until(&mut mesh, 0, refused, |mesh| mesh.try_send(0, 1, shape, &patterned(3, 24)).is_ok());
    let all = accepted + eager_accepted + 1;
    mesh.until("all that was accepted", |mesh| mesh.ends[1].received.len() as u64 >= all);
    mesh.run_until_idle();
    let mut got = std::mem::take(&mut mesh.ends[1].received);
    assert_eq!(
        got.extract_if(.., |got| got.tag == TAG + 2).map(|got| got.bytes).collect::<Vec<_>>(),
        [patterned(3, 24)]
    );
    let mut got_eager = got.extract_if(.., |got| got.tag == TAG + 1).collect();
    check_numbered(&mut got_eager, eager_accepted);
    check_numbered(&mut got, accepted);
}

/// A receiver may hold as many frames as the rail says. Then the rail reports no further frame until one is released,
/// in any order.
pub fn b9_held_frames_can_be_released_in_any_order<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    // A link may report that a hello has arrived.
    let poll = |mesh: &mut Mesh<S>| mesh.poll(1).filter(|event| !matches!(event, Event::Silent(..)));
    let keep = mesh.attributes().frames_kept.min(64) as usize;
    let len = (HEAD + 40).min(mesh.limit(Lane::Eager));
    let mut random = Random::new(1);
    let (mut sent, mut seen) = (0, vec![]);
    let mut held: Vec<Frame> = vec![];
    for _ in 0..4 {
        while held.len() < keep {
            let shape = Shape { tag: TAG, lane: Lane::Eager, header: 8, len: len as u32 };
            if mesh.try_send(0, 1, shape, &numbered(sent, len)).is_ok() {
                sent += 1;
            }
            mesh.step(0);
            match poll(&mut mesh) {
                Some(Event::Frame(frame)) => held.push(frame),
                Some(event) => panic!("{event:?} is not expected here"),
                None => thread::yield_now(),
            }
        }
        if keep == mesh.attributes().frames_kept as usize {
            for _ in 0..200 {
                mesh.step(0);
                assert!(poll(&mut mesh).is_none(), "a frame more than frames_kept");
            }
        }
        random.shuffle(&mut held);
        let stay = random.below(keep as u64) as usize;
        for frame in held.drain(stay..) {
            assert_eq!(frame.len as usize, len);
            if random.chance(500) {
                // Reads without accepting further frames: the body of an eager frame arrives nevertheless.
                let mut bytes = vec![0; len];
                let mut wait_limit = WaitLimit::default();
                while mesh.ends[1].rail.read(frame.id, 0, &mut bytes) < len {
                    mesh.step(0);
                    assert!(poll(&mut mesh).is_none());
                    assert!(!wait_limit.expired(false), "a body did not arrive in time");
                }
                seen.push(Received { from: frame.from, tag: frame.tag, valid: frame.valid.into(), bytes });
            } else {
                let number = u64::from_le_bytes(frame.head()[..8].try_into().expect("a header of 8 bytes"));
                seen.push(Received { from: frame.from, tag: frame.tag, valid: 8, bytes: numbered(number, len) });
            }
            mesh.ends[1].rail.release(frame.id);
        }
    }
    for frame in held {
        mesh.ends[1].take_frame(&frame);
    }
    mesh.until("the rest", |mesh| mesh.ends[1].received.len() + seen.len() >= sent as usize);
    mesh.run_until_idle();
    seen.append(&mut mesh.ends[1].received);
    check_numbered(&mut seen, sent);
}

/// Bytes that do not fit a sink are dropped, and nothing is written behind it.
pub fn p28_p29_short_sinks_are_not_overrun<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    for lane in [Lane::Eager, Lane::Bulk] {
        let len = mesh.limit(lane).min(70_000);
        for sink in [0, 1, 3, len / 2, len - 9, len - 8] {
            let bytes = patterned(sink as u64, len);
            mesh.send(0, 1, lane, TAG, 8, &bytes);
            let mut room = vec![0xee; len + 64];
            let frame = mesh.frame(1);
            // SAFETY: the room outlives the wait for the delivery, and nothing else accesses it meanwhile.
            unsafe { deliver(&mut mesh, &frame, 8, Span::contiguous(room.as_mut_ptr(), sink)) };
            assert!(room[..sink] == bytes[8..8 + sink], "{lane:?} sink of {sink} bytes");
            assert!(room[sink..].iter().all(|byte| *byte == 0xee), "{lane:?} overrun behind {sink} bytes");
            exchange(&mut mesh, 0, 1);
        }
    }
}

/// A delivery from any offset into a larger sink writes exactly the rest of the frame.
pub fn p28_bodies_are_written_only_to_the_sink<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    for lane in [Lane::Eager, Lane::Bulk] {
        let len = mesh.limit(lane).min(70_000);
        for skip in [0, 1, 8, HEAD, HEAD + 1, len - 1, len] {
            let bytes = patterned(skip as u64, len);
            mesh.send(0, 1, lane, TAG, 8, &bytes);
            let mut room = vec![0xee; len + 64];
            let frame = mesh.frame(1);
            // SAFETY: the room outlives the wait for the delivery, and nothing else accesses it meanwhile.
            unsafe { deliver(&mut mesh, &frame, skip, Span::contiguous(room.as_mut_ptr(), room.len())) };
            assert!(room[..len - skip] == bytes[skip..], "{lane:?} from {skip}");
            assert!(room[len - skip..].iter().all(|byte| *byte == 0xee), "{lane:?} from {skip}: more than the frame");
        }
    }
}

/// Any part of a held frame can be read any number of times, and nothing beyond its end.
pub fn p26_reads_return_exactly_the_received_bytes<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    for lane in [Lane::Eager, Lane::Bulk] {
        let len = mesh.limit(lane).min(9000);
        let bytes = patterned(len as u64, len);
        mesh.send(0, 1, lane, TAG, 16, &bytes);
        let frame = mesh.frame(1);
        let mut part = vec![0; len + 10];
        let early = mesh.ends[1].rail.read(frame.id, 0, &mut part);
        assert!(early >= usize::from(frame.valid) && early <= len && part[..early] == bytes[..early]);
        assert!(mesh.read_all(1, &frame) == bytes);
        for (at, want) in [(0, 1), (0, len), (1, len), (HEAD - 1, 2), (HEAD, 7), (len - 1, 5), (len, 5), (len + 7, 5)] {
            part.fill(0xee);
            let count = mesh.ends[1].rail.read(frame.id, at, &mut part[..want]);
            assert_eq!(count, len.saturating_sub(at).min(want), "{want} bytes from {at}");
            assert!(part[..count] == bytes[at.min(len)..at.min(len) + count]);
            assert!(part[count..].iter().all(|byte| *byte == 0xee), "written behind what was read");
        }
        mesh.ends[1].rail.release(frame.id);
        exchange(&mut mesh, 0, 1);
    }
}

/// Either the answer or the event completes a send, and until then the body is not changed.
pub fn b14_b17_b33_a_body_left_in_place_is_reported_once<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    let limit = mesh.limit(Lane::Bulk);
    let may = mesh.attributes().capabilities.contains(Capabilities::SEND_INPLACE);
    let mut bodies: Vec<(Cookie, Vec<u8>)> = vec![];
    let (mut sent, mut in_place) = (0, 0);
    for len in [0, 1, 100, 4096, 4097, limit - 8, limit - 9, limit - 8, limit - 8].repeat(4) {
        let len = len.min(limit - 8);
        let mut bytes = numbered(sent, len + 8);
        let mut body = bytes.split_off(8);
        let cookie = mesh.ends[0].cookie();
        let to = mesh.ends[0].endpoints[1];
        let shape = Shape { tag: TAG, lane: Lane::Bulk, header: 8, len: len as u32 + 8 };
        let mut answer = Err(SendError::Busy);
        mesh.until("a frame is accepted", |mesh| {
            // SAFETY: the body stays unchanged until the answer, or in `bodies` until the event.
            answer = unsafe { mesh.ends[0].rail.send(to, shape, &bytes, Span::of(&body), cookie) };
            answer != Err(SendError::Busy)
        });
        sent += 1;
        match answer.expect("a known peer and a frame within the limits") {
            Sent::InPlace => {
                assert!(len as u64 > COPIED, "a body of {len} bytes must be copied");
                in_place += 1;
                bodies.push((cookie, body));
            }
            Sent::Done | Sent::Staged => body.fill(0xee),
        }
        if sent % 3 == 0 {
            scribble(&mut bodies, &mesh.ends[0].sent);
            mesh.round();
        }
    }
    assert!(may || in_place == 0, "in place without SEND_INPLACE");
    mesh.until("every body is given back", |mesh| {
        scribble(&mut bodies, &mesh.ends[0].sent);
        bodies.is_empty()
    });
    mesh.until("every frame", |mesh| mesh.ends[1].received.len() as u64 >= sent);
    mesh.run_until_idle();
    let mut cookies = mesh.ends[0].sent.clone();
    cookies.sort_by_key(|cookie| cookie.0);
    cookies.dedup();
    assert_eq!((cookies.len(), mesh.ends[0].sent.len()), (in_place, in_place), "one event for each body in place");
    check_numbered(&mut mesh.ends[1].received, sent);

    fn scribble(bodies: &mut Vec<(Cookie, Vec<u8>)>, sent: &[Cookie]) {
        for (_, mut body) in bodies.extract_if(.., |(cookie, _)| sent.contains(cookie)) {
            body.fill(0xee);
        }
    }
}

/// After `Done` and `Staged` the caller may reuse its buffer.
pub fn b17_copied_buffers_can_be_reused<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    for (lane, count) in [(Lane::Eager, 100), (Lane::Bulk, 20)] {
        let len = mesh.limit(lane);
        let mut buffer = vec![0; len];
        for number in 0..count {
            buffer.copy_from_slice(&numbered(number, len));
            mesh.send(0, 1, lane, TAG, 8, &buffer);
            buffer.fill(0xee);
        }
        mesh.until("all frames", |mesh| mesh.ends[1].received.len() as u64 >= count);
        check_numbered(&mut mesh.ends[1].received, count);
    }
}

/// The polls of the sender drain the rail, if the receiver accepts frames, and then the rail reports that it is
/// drained.
pub fn b17_a_rail_drains<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    let to = mesh.ends[0].endpoints[1];
    let len = mesh.limit(Lane::Bulk);
    for number in 0..40 {
        mesh.send(0, 1, Lane::Bulk, TAG, 8, &numbered(number, len));
    }
    mesh.until("the rail is drained", |mesh| mesh.ends[0].rail.drained(to));
    // From here on the sender is not polled any more.
    step_until(&mut mesh, 1, "a drained rail has not sent all frames", |mesh| mesh.ends[1].received.len() >= 40);
    check_numbered(&mut mesh.ends[1].received, 40);
}

/// A receiver answers each frame before it releases that frame.
pub fn p30_frames_are_sent_while_one_is_held<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    let len = mesh.limit(Lane::Eager);
    for number in 0..50 {
        mesh.send(0, 1, Lane::Eager, TAG, 8, &numbered(number, len));
        let frame = mesh.frame(1);
        let shape = Shape { tag: TAG + 1, lane: Lane::Eager, header: 8, len: len as u32 };
        // A step of the end that holds the frame gives no other one, but may free room.
        mesh.until("room for an answer while a frame is held", |mesh| {
            mesh.try_send(1, 0, shape, &numbered(number, len)).is_ok()
        });
        mesh.ends[1].take_frame(&frame);
    }
    mesh.until("all frames and answers", |mesh| mesh.ends.iter().all(|end| end.received.len() >= 50));
    mesh.run_until_idle();
    check_numbered(&mut mesh.ends[0].received, 50);
    check_numbered(&mut mesh.ends[1].received, 50);
}

/// Two ends send frames of all sizes on all lanes, as fast as they can.
pub fn p15_floods_both_ways_arrive_exactly_once<S: Setup>(setup: S) {
    flood(Mesh::new(setup, 2), 1500);
}

/// Four ends send to each other.
pub fn p6_p15_floods_between_four_arrive_exactly_once<S: Setup>(setup: S) {
    flood(Mesh::new(setup, 4), 200);
}

/// A peer is deleted with frames in flight and held, and added again. Later frames arrive.
pub fn p7_b5_a_peer_can_be_deleted_and_added_again<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 3);
    for turn in 0..4u64 {
        for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0)] {
            exchange(&mut mesh, from, to);
        }
        for number in 0..3 {
            let shape = Shape { tag: TAG, lane: Lane::Eager, header: 8, len: HEAD as u32 + 9 };
            let _ = mesh.try_send(0, 1, shape, &numbered(number, HEAD + 9));
            let _ = mesh.try_send(1, 0, shape, &numbered(number, HEAD + 9));
        }
        if turn % 2 == 1 {
            // The end that deletes the sender holds one of its frames.
            let frame = mesh.frame(0);
            assert_eq!(frame.from, peer(1));
        }
        let (one, other) = (mesh.ends[0].endpoints[1], mesh.ends[1].endpoints[0]);
        mesh.ends[0].rail.del_peer(one);
        mesh.ends[1].rail.del_peer(other);
        mesh.run_until_idle();
        mesh.ends.iter_mut().for_each(|end| end.received.clear());
        exchange(&mut mesh, 0, 2);
        exchange(&mut mesh, 2, 0);
        assert!(
            mesh.ends[0].received.iter().chain(&mesh.ends[1].received).all(|got| got.from == peer(2)),
            "a frame of a deleted peer arrived"
        );
        mesh.introduce(0, 1);
        mesh.introduce(1, 0);
        // Losses of the old peer do not matter, but the new one must not be lost.
        mesh.ends.iter_mut().for_each(|end| end.lost.clear());
    }
    exchange(&mut mesh, 0, 1);
    exchange(&mut mesh, 1, 0);
    assert!(mesh.ends.iter().all(|end| end.lost.is_empty() && end.pending() == 0));
}

/// Unknown or deleted endpoints are unreachable, and cause no panic.
pub fn p6_b14_unknown_endpoints_are_unreachable<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    exchange(&mut mesh, 0, 1);
    let shape = Shape { tag: TAG, lane: Lane::Eager, header: 0, len: 4 };
    for to in [Endpoint(u32::MAX), Endpoint(12_345), Endpoint(2)] {
        if to != mesh.ends[0].endpoints[1] {
            assert_eq!(mesh.ends[0].rail.reserve(to, shape).err(), Some(SendError::Unreachable), "{to:?}");
            mesh.ends[0].rail.del_peer(to);
            let _ = mesh.ends[0].rail.drained(to);
        }
    }
    let gone = mesh.ends[0].endpoints[1];
    mesh.ends[0].rail.del_peer(gone);
    assert_eq!(mesh.ends[0].rail.reserve(gone, shape).err(), Some(SendError::Unreachable), "a deleted peer");
    mesh.ends[0].rail.del_peer(gone);
}

/// When a peer has left, each other end reports its loss once, even if it sends nothing more, and reports no other loss.
/// Earlier frames of the peer come first.
pub fn p7_b14_a_departed_peer_is_unreachable_and_reported_lost_once<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 3);
    for (from, to) in [(0, 2), (2, 0), (1, 2), (2, 1), (0, 1), (1, 0)] {
        exchange(&mut mesh, from, to);
    }
    let left = mesh.ends.pop().expect("three ends");
    let can_be_lost = mesh.setup.leave(left.rail);
    let shape = |lane| Shape { tag: TAG, lane, header: 8, len: 40 };
    let bytes = patterned(1, 40);
    // End 0 goes on sending, and notices by that or by polling. End 1 only polls.
    let mut unreachable = false;
    for number in 0..10_000 {
        unreachable |= mesh.try_send(0, 2, shape(LANES[number % 3]), &bytes) == Err(SendError::Unreachable);
        if unreachable || !mesh.ends[0].lost.is_empty() {
            break;
        }
        mesh.step(0);
    }
    if !can_be_lost {
        assert!(!unreachable, "a peer that cannot be lost is never unreachable");
        return;
    }
    mesh.until("both ends report the loss", |mesh| mesh.ends.iter().all(|end| !end.lost.is_empty()));
    for _ in 0..2000 {
        mesh.round();
        for lane in LANES {
            let sent = mesh.try_send(0, 2, shape(lane), &bytes);
            assert_eq!(sent, Err(SendError::Unreachable), "a lost peer stays unreachable");
        }
    }
    for end in &mesh.ends {
        assert_eq!(end.lost.iter().map(|(lost, _)| *lost).collect::<Vec<_>>(), [peer(2)], "one peer, once");
    }
    exchange(&mut mesh, 0, 1);
    exchange(&mut mesh, 1, 0);
}

/// If nothing is sent, polling gives nothing, before traffic and after it.
pub fn b2_p10_an_idle_rail_reports_nothing<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    for _ in 0..2 {
        for _ in 0..500 {
            assert!(!mesh.round(), "an event without a cause");
        }
        exchange(&mut mesh, 0, 1);
        exchange(&mut mesh, 1, 0);
        mesh.run_until_idle();
    }
    assert!(mesh.ends.iter().all(|end| end.received.is_empty() && end.lost.is_empty()));
}

/// After `arm`, a frame that arrives is there for the next poll, and makes the wait handle ready if there is one.
pub fn an_armed_rail_loses_no_frame<S: Setup>(setup: S) {
    let mut mesh = Mesh::new(setup, 2);
    exchange(&mut mesh, 0, 1);
    exchange(&mut mesh, 1, 0);
    for (number, lane) in LANES.repeat(10).into_iter().enumerate() {
        mesh.run_until_idle();
        step_until(&mut mesh, 1, "an idle rail does not let its caller sleep", |mesh| mesh.ends[1].rail.arm());
        let len = [30, HEAD + 1, mesh.limit(lane)][number % 3];
        let shape = Shape { tag: TAG, lane, header: 8, len: len as u32 };
        let bytes = numbered(number as u64, len);
        // Only the sender is polled, since the receiver sleeps.
        step_until(&mut mesh, 0, "an idle rail accepts no frame", |mesh| mesh.try_send(0, 1, shape, &bytes).is_ok());
        // A frame that the network loses is sent again, which takes long on a busy machine.
        let until = Instant::now() + SPAN;
        while mesh.setup.ready(&mesh.ends[1].rail) == Some(false) {
            assert!(Instant::now() < until, "the sleeper is not woken");
            mesh.step(0);
        }
        mesh.until("the frame", |mesh| !mesh.ends[1].received.is_empty());
        assert!(mesh.ends[1].received.remove(0).bytes == bytes);
    }
}

/// Sends a few frames from one end to the other, and removes them.
fn exchange<S: Setup>(mesh: &mut Mesh<S>, from: usize, to: usize) {
    let already = mesh.ends[to].received.len();
    let sizes = [8, HEAD + 1, mesh.limit(Lane::Eager)];
    for (number, len) in sizes.into_iter().enumerate() {
        mesh.send(from, to, Lane::Eager, 0xc0, 8, &numbered(number as u64, len));
    }
    mesh.until("three frames", |mesh| {
        mesh.ends[to].received[already..].iter().filter(|got| got.tag == 0xc0 && got.from == peer(from)).count() >= 3
    });
    let mut mine =
        mesh.ends[to].received.extract_if(already.., |got| got.tag == 0xc0 && got.from == peer(from)).collect();
    check_numbered(&mut mine, 3);
}

/// Frame `number` of a sequence: its number, and then its pattern.
fn numbered(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = patterned(number, len);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Checks that these frames are the first `count` of a sequence, once each and unchanged. Removes them.
fn check_numbered(got: &mut Vec<Received>, count: u64) {
    let mut seen = vec![false; count as usize];
    for frame in got.drain(..) {
        let number = u64::from_le_bytes(frame.bytes[..8].try_into().expect("frames with a number"));
        assert!(number < count, "frame {number} of {count}");
        assert!(!std::mem::replace(&mut seen[number as usize], true), "frame {number} came twice");
        assert!(frame.bytes == numbered(number, frame.bytes.len()), "frame {number} was changed");
    }
    assert!(seen.iter().all(|seen| *seen), "{} of {count} frames came", seen.iter().filter(|seen| **seen).count());
}

/// Sends frames of `len` bytes from end 0 to end 1, which is not polled, until the lane is full. Returns their number.
fn fill_lane<S: Setup>(mesh: &mut Mesh<S>, lane: Lane, len: usize) -> u64 {
    let shape = Shape { tag: TAG, lane, header: 8, len: len as u32 };
    send_until_full(mesh, shape, (1 << 22).min((1 << 30) / len as u64))
}

/// Sends numbered frames until none is accepted. Returns the number of accepted ones.
fn send_until_full<S: Setup>(mesh: &mut Mesh<S>, shape: Shape, most: u64) -> u64 {
    let mut accepted = 0;
    loop {
        // The bytes are made once for all attempts, to save time: the receiver is not polled meanwhile, and must not seem
        // dead.
        let bytes = numbered(accepted, shape.len as usize);
        let taken = (0..300).any(|_| {
            let taken = mesh.try_send(0, 1, shape, &bytes).is_ok();
            if !taken {
                mesh.step(0);
                thread::yield_now();
            }
            taken
        });
        if !taken {
            return accepted;
        }
        accepted += 1;
        assert!(accepted < most, "{:?}: no back-pressure", shape.lane);
    }
}

/// Polls only one end until `done`. If this does not happen in time, `otherwise` says what that means.
fn step_until<S: Setup>(mesh: &mut Mesh<S>, end: usize, otherwise: &str, mut done: impl FnMut(&mut Mesh<S>) -> bool) {
    let mut wait_limit = WaitLimit::default();
    while !done(mesh) {
        let came = mesh.step(end);
        assert!(!wait_limit.expired(came), "{otherwise}");
    }
}

/// Delivers a frame that end 1 holds, and waits for the body.
///
/// # Safety
/// The sink's memory is writable until this returns, and nothing else accesses it.
unsafe fn deliver<S: Setup>(mesh: &mut Mesh<S>, frame: &Frame, skip: usize, sink: Span) {
    // SAFETY: the caller guarantees that the sink is valid until this returns, which is after the delivery.
    if unsafe { mesh.ends[1].rail.deliver(frame.id, skip, sink, Cookie(77)) } == Delivery::Done {
        return;
    }
    let mut wait_limit = WaitLimit::default();
    loop {
        mesh.step(0);
        match mesh.poll(1) {
            Some(Event::Delivered(Cookie(77))) => return,
            Some(Event::Silent(..)) | None => thread::yield_now(),
            Some(event) => panic!("{event:?} is not expected here"),
        }
        assert!(!wait_limit.expired(false), "a delivery did not complete in time");
    }
}

/// Every end sends `count` frames of all sizes and lanes to every other end, as fast as the rails accept them.
fn flood<S: Setup>(mut mesh: Mesh<S>, count: u64) {
    let ends = mesh.ends.len();
    let mut random = Random::new(count);
    let limits = LANES.map(|lane| mesh.limit(lane).min(40_000) as u64);
    let mut next = vec![0; ends * ends];
    let name = |from: usize, to: usize, number: u64| number << 16 | (from as u64) << 8 | to as u64;
    mesh.until("all are sent", |mesh| {
        for from in 0..ends {
            let to = random.below(ends as u64) as usize;
            let goal = if from == to { 0 } else { count };
            let next = &mut next[from * ends + to];
            for _ in 0..random.below(8) {
                if *next == goal {
                    break;
                }
                let lane = random.below(3) as usize;
                let len = 8 + random.length(limits[lane] - 8) as usize;
                let header = random.below(len.min(mesh.setup.longest_header()) as u64 + 1) as u8;
                let bytes = numbered(name(from, to, *next), len);
                let shape = Shape { tag: to as u8, lane: LANES[lane], header, len: len as u32 };
                match mesh.try_send(from, to, shape, &bytes) {
                    Ok(_) => *next += 1,
                    Err(SendError::Busy) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        next.iter().sum::<u64>() == count * (ends * (ends - 1)) as u64
    });
    let all = count as usize * (ends - 1);
    mesh.until("all have arrived", |mesh| mesh.ends.iter().all(|end| end.received.len() >= all));
    mesh.run_until_idle();
    for to in 0..ends {
        for from in (0..ends).filter(|from| *from != to) {
            let of = |got: &mut Received| got.from == peer(from);
            let mut got: Vec<_> = mesh.ends[to].received.extract_if(.., of).collect();
            for frame in &mut got {
                assert_eq!(usize::from(frame.tag), to, "a frame for another end");
                let named = u64::from_le_bytes(frame.bytes[..8].try_into().expect("frames with a number"));
                assert_eq!(named & 0xffff, name(from, to, 0), "a frame of another pair");
                assert!(frame.bytes == numbered(named, frame.bytes.len()), "a frame was changed");
                frame.bytes = numbered(named >> 16, 8);
            }
            check_numbered(&mut got, count);
        }
        assert!(mesh.ends[to].received.is_empty() && mesh.ends[to].pending() == 0 && mesh.ends[to].lost.is_empty());
    }
}
