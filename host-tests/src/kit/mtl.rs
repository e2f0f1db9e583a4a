//! The suite for any matching transport over any rails. Each check takes a fresh [`Setup`], and panics if the contract
//! is broken. [`matching_suite!`](crate::matching_suite) makes tests of the checks.

use towline_core::convertor::Span;
use towline_core::mtl::{Failure, Group, Mode, Mtl, Refusal, Request, Sending, Source, Tag};
use towline_core::pml::Config;
use towline_core::rail::{Peer, Rail, Unreachable};

use super::mesh::Setup;
use super::nodes::{CONFIG, Engine, World};
pub use super::pml::*;
use super::recorder::Recorder;
use crate::pattern::patterned;

/// Makes one test of each check of the suite, over rails of the given setup.
///
/// ```text
/// towline_host_tests::matching_suite!(MySetup::new());
/// ```
#[macro_export]
macro_rules! matching_suite {
    ($setup:expr) => {
        $crate::matching_suite! { @device each $setup }
        $crate::matching_suite! { @ each $setup;
            m1_m2_nothing_is_sent_before_peers_are_added
            m4_an_engine_without_peers_releases_everything
            m5_one_unreachable_peer_undoes_the_whole_call
            m6_p7_a_peer_can_be_deleted_and_added_again
            m14_cancel_removes_unmatched_receives
            p10_one_progress_call_polls_all_rails
            p12_first_fragments_go_round_the_rails_of_lowest_latency
            p13_fragments_are_distributed_by_bandwidth
            p20_p23_refused_frames_resume_where_they_were
            p22_forged_handles_have_no_effect
            p25_sequence_numbers_wrap
            p27_m12_an_answer_kept_for_a_probe_does_not_overtake
            p27_an_answer_goes_to_no_wider_receive
            p27_unsuccessful_asks_stop
            b38_accelerator_memory_is_copied_only_by_the_accelerator
            p32_pools_return_to_where_they_were
            p33_malformed_frames_are_counted_and_dropped
            p34_b50_messages_around_every_limit_arrive_whole
            p35_a_wrapping_rail_sees_every_frame
        }
    };
    // The checks that hold for a device, too, which is not seen on the rails and has limits of its own.
    ($setup:expr, by a device) => {
        $crate::matching_suite! { @device each $setup }
    };
    ($setup:expr, by the firmware) => {
        $crate::matching_suite! { @device ignored $setup }
    };
    (@device $tests:ident $setup:expr) => {
        $crate::matching_suite! { @ $tests $setup;
            m6_nodes_that_have_forgotten_each_other_meet_again
            m7_buffers_can_be_reused_after_completion
            m8_send_modes_complete_as_specified
            m8_a_ready_send_without_a_receive_fails
            m9_blocking_and_nonblocking_calls_agree
            m10_wildcards_match_the_first_message_sent
            m11_a_request_is_a_word_and_completes_once
            m12_a_probed_message_stays_first
            m13_a_matched_message_matches_no_other_receive
            m14_a_received_message_is_not_cancelled
            m15_early_messages_wait_for_their_communicator
            m15_deleting_a_communicator_fails_its_senders
            m16_limits_are_enforced
            p21_synchronous_sends_wait_for_the_match
            p27_messages_between_many_nodes_stay_in_order
            p27_a_flood_before_the_wanted_message
            p27_reverse_order_with_a_single_envelope
            p28_strided_memory_is_packed_and_gaps_are_left_alone
            p29_truncation_reports_both_lengths
            p30_a_completion_is_followed_by_the_next_send
        }
    };
    (@ ignored $setup:expr; $($check:ident)*) => {
        $(#[test]
        #[ignore = "needs the firmware; scripts/firmware runs it"]
        fn $check() {
            $crate::kit::mtl::$check($setup);
        })*
    };
    (@ each $setup:expr; $($check:ident)*) => {
        $(#[test]
        fn $check() {
            $crate::kit::mtl::$check($setup);
        })*
    };
}

const MODES: [Mode; 5] = [Mode::Standard, Mode::Buffered, Mode::Synchronous, Mode::Ready, Mode::Complete];

/// Setup is local: cards and parameters exist, and no frame was sent.
pub fn m1_m2_nothing_is_sent_before_peers_are_added<S: Setup>(setup: S) {
    let mut world = World::unconnected(setup, 2, 1, CONFIG, |_, _| {});
    for _ in 0..500 {
        assert_eq!(world.round(), 0);
    }
    let comm = world.world[0];
    // SAFETY: nothing is sent, so nothing of the empty span is kept.
    let refused = unsafe { world.nodes[0].isend(comm, 1, 1, Mode::Standard, Span::EMPTY) };
    assert_eq!(refused, Err(Refusal::NoPeer(Peer(1))));
    assert!(!world.cards(0)[0].is_empty());
    let logs = world.logs.iter().flatten();
    assert!(
        logs.map(|log| log.borrow()).all(|log| log.sent.is_empty() && log.peers.is_empty() && log.arrived.is_empty())
    );
}

/// An engine can be set up and dropped. Memory that is too small is an error.
pub fn m4_an_engine_without_peers_releases_everything<S: Setup>(setup: S) {
    let mut world = World::unconnected(setup, 2, 1, CONFIG, |_, _| {});
    for node in &mut world.nodes {
        assert_eq!(node.pml().used(), [0, 0, 0]);
    }
    for node in world.nodes {
        assert_eq!(node.finalize().0.len(), 1, "`finalize` returns the rails");
    }
    assert!(world.logs.iter().flatten().all(|log| log.borrow().sent.is_empty()));
    let little = Box::leak(Box::new([0u8; 64]));
    let none: Result<Engine<S::Rail>, _> =
        Mtl::new(CONFIG, 1, &mut towline_core::arena::Arena::new(little), super::nodes::Links(vec![], None));
    assert!(none.is_err());
}

/// All peers are added or none: peers before the unreachable one are deleted again, and can be added later.
pub fn m5_one_unreachable_peer_undoes_the_whole_call<S: Setup>(setup: S) {
    let mut world = World::unconnected(setup, 3, 1, CONFIG, |_, _| {});
    let cards: Vec<_> = (0..3).map(|node| world.cards(node)).collect();
    let params: Vec<_> = world.nodes.iter().map(|node| node.params()).collect();
    let others = |node: usize| [Peer((node as u32 + 1) % 3), Peer((node as u32 + 2) % 3)];
    let reach = |bad: Option<Peer>| {
        let cards = &cards;
        move |peer: Peer, link: usize, rail: &mut Recorder<S::Rail>| match bad {
            Some(bad) if bad == peer => Err(Unreachable::NoNetwork),
            _ => rail.add_peer(peer, &cards[peer.0 as usize][link]),
        }
    };
    let params = |peer: Peer| &params[peer.0 as usize][..];
    let added = world.nodes[0].add_peers(&others(0), params, reach(Some(Peer(2))));
    assert_eq!(added, Err((Peer(2), Unreachable::NoNetwork)));
    for to in 1..3 {
        let comm = world.world[0];
        // SAFETY: nothing is sent, so nothing of the empty span is kept.
        let refused = unsafe { world.nodes[0].isend(comm, to, 1, Mode::Standard, Span::EMPTY) };
        assert_eq!(refused, Err(Refusal::NoPeer(Peer(to))), "the failed call must remove every peer that it had added");
    }
    for node in 0..3 {
        world.nodes[node].add_peers(&others(node), params, reach(None)).expect("all can be reached");
    }
    world.exchange(0, 1, 1, &patterned(1, 3000));
    world.exchange(2, 0, 1, &patterned(2, 3000));
    world.assert_all_released();
}

/// A peer is deleted with operations in progress: they fail, everything is released, and the peer can be added again.
pub fn m6_p7_a_peer_can_be_deleted_and_added_again<S: Setup>(setup: S) {
    let mut world = World::new(setup, 3, CONFIG);
    world.exchange(0, 1, 1, &patterned(1, 100));
    let (long, mut room) = (patterned(2, 200_000), vec![0; 100]);
    let sends = [Mode::Synchronous, Mode::Standard].map(|mode| world.isend(0, 1, 2, mode, &long));
    let receive = world.irecv(0, Source::Rank(1), Tag::Is(9), &mut room);
    world.round();
    world.nodes[0].del_peer(Peer(1));
    world.nodes[1].del_peer(Peer(0));
    for sending in sends {
        assert_eq!(world.finish_send(0, sending), Err(Failure::PeerFailed(Peer(1))));
    }
    assert_eq!(world.finish(0, receive), Err(Failure::PeerFailed(Peer(1))));
    world.exchange(0, 2, 3, &patterned(3, 5000));
    world.run_until_idle();
    for node in &mut world.nodes {
        assert_eq!(node.pml().used(), [0, 0, 0]);
    }
    world.introduce(0, 1).expect("a deleted peer can be added again");
    world.introduce(1, 0).expect("a deleted peer can be added again");
    world.exchange(0, 1, 4, &patterned(4, 50_000));
    world.exchange(1, 0, 4, &patterned(5, 50_000));
}

/// Two nodes forget each other and add each other again, in all orders and with polls between the steps.
pub fn m6_nodes_that_have_forgotten_each_other_meet_again<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    for turn in 0..24_usize {
        let polls = |world: &mut World<S>, bit: usize| {
            for _ in 0..(turn >> bit & 1) * 3 {
                world.round();
            }
        };
        let (first, second) = if turn % 3 == 0 { (1, 0) } else { (0, 1) };
        let data = patterned(turn as u64, 4 + turn * 100);
        let mut rooms = [vec![0; data.len()], vec![0; data.len()]];
        let [one, other] = &mut rooms;
        let receives =
            [world.irecv(0, Source::Rank(1), Tag::Is(5), one), world.irecv(1, Source::Rank(0), Tag::Is(5), other)];
        let sends = [0, 1].map(|node| world.isend(node, 1 - node, 5, Mode::Synchronous, &data));
        for (node, (receive, sending)) in receives.into_iter().zip(sends).enumerate() {
            world.finish(node, receive).expect("it is received");
            world.finish_send(node, sending).expect("it is sent");
        }
        assert!(rooms[0] == data && rooms[1] == data, "turn {turn}");
        world.nodes[first].del_peer(Peer(second as u32));
        polls(&mut world, 1);
        world.nodes[second].del_peer(Peer(first as u32));
        polls(&mut world, 2);
        world.introduce(first, second).expect("a deleted peer can be added again");
        polls(&mut world, 3);
        world.introduce(second, first).expect("a deleted peer can be added again");
        polls(&mut world, 4);
        // Who has heard of the end of the other one before it was deleted takes it for another process.
        for node in 0..2 {
            let before = world.world[node];
            world.nodes[node].del_comm(before);
            let made = world.nodes[node].add_comm(turn as u32 + 2, Group::World { size: 2 }, node as u32);
            world.world[node] = made.expect("room for a communicator");
        }
    }
}

/// After a send has completed its buffer is free. After a receive has completed nothing writes to its buffer.
pub fn m7_buffers_can_be_reused_after_completion<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    let long = world.logs.len() * 40_000;
    for mode in MODES {
        for len in [0, 1, 100, 513, 5000, long] {
            let bytes = patterned(len as u64, len);
            let (mut data, mut room) = (bytes.clone(), vec![0; len]);
            let receive = world.irecv(1, Source::Rank(0), Tag::Is(5), &mut room);
            world.confirm_posted(1);
            let sending = world.isend(0, 1, 5, mode, &data);
            world.finish_send(0, sending).expect("it is sent");
            data.fill(0xee);
            world.finish(1, receive).expect("it is received");
            assert!(room == bytes, "{mode:?} {len}");
            room.fill(0x11);
            world.exchange(0, 1, 6, &[1, 2, 3]);
            assert!(room.iter().all(|byte| *byte == 0x11), "the buffer was written to after the receive had completed");
        }
    }
    world.assert_all_released();
}

/// Standard and buffered sends of short messages complete without a receive, synchronous ones only with it.
pub fn m8_send_modes_complete_as_specified<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    let data = patterned(1, 40);
    for mode in [Mode::Standard, Mode::Buffered, Mode::Complete] {
        let sending = world.isend(0, 1, 1, mode, &data);
        world.finish_send(0, sending).expect("a short message needs no receive");
    }
    let Sending::Pending(waits) = world.isend(0, 1, 2, Mode::Synchronous, &data) else {
        panic!("a synchronous send cannot be over before its match")
    };
    world.run_until_idle();
    assert_eq!(world.nodes[0].test(waits), None, "no match yet");
    let mut room = vec![0; 40];
    for _ in 0..3 {
        let receive = world.irecv(1, Source::Any, Tag::Is(1), &mut room);
        world.finish(1, receive).expect("it is there");
    }
    world.run_until_idle();
    assert_eq!(world.nodes[0].test(waits), None, "another tag is no match");
    let receive = world.irecv(1, Source::Any, Tag::Is(2), &mut room);
    world.finish(1, receive).expect("it is there");
    world.finish(0, waits).expect("matched");
    let receive = world.irecv(1, Source::Any, Tag::Is(3), &mut room);
    world.confirm_posted(1);
    let sending = world.isend(0, 1, 3, Mode::Ready, &data);
    world.finish_send(0, sending).expect("the receive is posted");
    world.finish(1, receive).expect("it is received");
    world.assert_all_released();
}

/// A ready send without a posted receive fails, and nothing remains of the message.
pub fn m8_a_ready_send_without_a_receive_fails<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    let data = patterned(1, 6000);
    for len in [0, 10, 6000] {
        let sending = world.isend(0, 1, 1, Mode::Ready, &data[..len]);
        assert_eq!(world.finish_send(0, sending), Err(Failure::NotReady(Peer(1))), "{len}");
    }
    let comm = world.world[1];
    assert_eq!(world.nodes[1].iprobe(comm, Source::Any, Tag::Any), None);
    world.exchange(0, 1, 1, &data);
    world.assert_all_released();
}

/// Blocking calls give the same results as nonblocking ones.
pub fn m9_blocking_and_nonblocking_calls_agree<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    let (comms, mut clock) = ((world.world[0], world.world[1]), world.now());
    for len in [0, 30, 20_000] {
        let data = patterned(len as u64, len);
        let mut room = vec![0; len + 5];
        let receive = world.irecv(1, Source::Rank(0), Tag::Is(4), &mut room);
        let (setup, first, second) = world.pair();
        // SAFETY: a panic in here ends the test, and its memory is not used again.
        let sent = unsafe {
            first.send(comms.0, 1, 4, Mode::Synchronous, &data, || {
                clock = setup.now();
                second.progress(clock);
                clock
            })
        };
        sent.expect("it is sent");
        let one = world.finish(1, receive).expect("it is received");
        assert!(room[..len] == data);

        let mut room = vec![0; len + 5];
        let sending = world.isend(0, 1, 4, Mode::Standard, &data);
        let (setup, first, second) = world.pair();
        // SAFETY: as above.
        let received = unsafe {
            second.recv(comms.1, Source::Any, Tag::Any, &mut room, || {
                clock = setup.now();
                first.progress(clock);
                clock
            })
        };
        assert_eq!(received.expect("it is received"), one);
        world.finish_send(0, sending).expect("it is sent");
        assert!(room[..len] == data);
    }
    world.assert_all_released();
}

/// Receives from any source with any tag get the messages of each sender in order, and none with a reserved tag.
pub fn m10_wildcards_match_the_first_message_sent<S: Setup>(setup: S) {
    let mut world = World::new(setup, 3, CONFIG);
    let data: Vec<Vec<u8>> = (0..40u64).map(|number| patterned(number, 16 + number as usize * 37)).collect();
    for late in [false, true] {
        let mut sends = vec![];
        let send = |world: &mut World<S>, sends: &mut Vec<_>| {
            for (number, bytes) in data.iter().enumerate() {
                let from = 1 + number % 2;
                let tag = [5, 3, 9][number % 3] + number as u32 * 10;
                sends.push((from, world.isend(from, 0, tag, Mode::Standard, bytes)));
            }
        };
        if late {
            send(&mut world, &mut sends);
            world.run_until_idle();
        }
        let mut rooms: Vec<Vec<u8>> = (0..40).map(|_| vec![0; 4000]).collect();
        let receives: Vec<Request> = rooms.iter_mut().map(|room| world.irecv(0, Source::Any, Tag::Any, room)).collect();
        if !late {
            send(&mut world, &mut sends);
        }
        let mut last = [None; 3];
        for (receive, room) in receives.into_iter().zip(&rooms) {
            let status = world.finish(0, receive).expect("it is received");
            let number = status.tag / 10;
            let before = last[status.peer.0 as usize].replace(number);
            assert!(before < Some(number), "message {number} of peer {} was overtaken", status.peer.0);
            assert!(room[..status.delivered as usize] == data[number as usize]);
        }
        for (from, sending) in sends {
            world.finish_send(from, sending).expect("it is sent");
        }
    }
    // Tags in the upper half match only receives that name them.
    let mut room = vec![0; 8];
    let any = world.irecv(0, Source::Any, Tag::Any, &mut room);
    world.exchange(1, 0, 0x8000_0000, &[1]);
    world.exchange(1, 0, 0xffff_fffe, &[2]);
    assert_eq!(world.nodes[0].test(any), None);
    let sending = world.isend(1, 0, 0x7fff_ffff, Mode::Standard, &[3]);
    assert_eq!(world.finish(0, any).expect("it is received").tag, 0x7fff_ffff);
    world.finish_send(1, sending).expect("it is sent");
    world.assert_all_released();
}

/// A request is one word. After its end the word is invalid, also when the slot is used again.
pub fn m11_a_request_is_a_word_and_completes_once<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    let (mut room, data) = (vec![0; 100], patterned(1, 100));
    let mut old = vec![];
    for _ in 0..200 {
        let receive = world.irecv(1, Source::Rank(0), Tag::Is(1), &mut room);
        let word = receive.to_bits();
        assert!(!old.contains(&word));
        assert_eq!(Request::from_bits(word), receive);
        let sending = world.isend(0, 1, 1, Mode::Standard, &data);
        world.finish(1, Request::from_bits(word)).expect("it is received");
        world.finish_send(0, sending).expect("it is sent");
        old.push(word);
        for word in &old {
            assert_eq!(world.nodes[1].test(Request::from_bits(*word)), Some(Err(Failure::NoRequest)));
            assert!(!world.nodes[1].cancel(Request::from_bits(*word)));
        }
    }
    for word in [0, 1, u64::MAX, 1 << 32, u64::from(u32::MAX)] {
        assert_eq!(world.nodes[1].test(Request::from_bits(word)), Some(Err(Failure::NoRequest)));
    }
    world.assert_all_released();
}

/// A probed message stays where it is, and the next receive gets it.
pub fn m12_a_probed_message_stays_first<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    let comm = world.world[1];
    let data = [patterned(1, 30), patterned(2, 9000), vec![]];
    let sends: Vec<_> = (0..3).map(|at| world.isend(0, 1, 7 + at as u32, Mode::Standard, &data[at])).collect();
    assert_eq!(world.nodes[1].iprobe(comm, Source::Rank(0), Tag::Is(70)), None);
    for (at, data) in data.iter().enumerate() {
        let mut found = None;
        world.until("a probe finds it", |world| {
            found = world.nodes[1].iprobe(comm, Source::Any, Tag::Any);
            found.is_some()
        });
        let found = found.expect("just seen");
        assert_eq!((found.peer, found.tag, found.len), (Peer(0), 7 + at as u32, data.len() as u64));
        assert_eq!(
            world.nodes[1].iprobe(comm, Source::Any, Tag::Any),
            Some(found),
            "a probe leaves the message in place"
        );
        let mut room = vec![0; data.len()];
        let receive = world.irecv(1, Source::Any, Tag::Any, &mut room);
        let status = world.finish(1, receive).expect("it is received");
        assert_eq!((status.tag, status.received), (found.tag, found.len));
        assert!(room == *data);
    }
    for sending in sends {
        world.finish_send(0, sending).expect("it is sent");
    }
    world.assert_all_released();
}

/// A matched probe removes the message: no receive and no probe matches it, and `imrecv` receives it at any time.
pub fn m13_a_matched_message_matches_no_other_receive<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    let comm = world.world[1];
    for len in [0, 40, 30_000] {
        let data = [patterned(1, len), patterned(2, len)];
        let sends = [world.isend(0, 1, 3, Mode::Standard, &data[0]), world.isend(0, 1, 3, Mode::Standard, &data[1])];
        let mut taken = None;
        world.until("a probe takes it", |world| {
            taken = world.nodes[1].improbe(comm, Source::Any, Tag::Is(3)).expect("a request is free");
            taken.is_some()
        });
        let (message, found) = taken.expect("just seen");
        assert_eq!(found.len, len as u64);
        let mut rooms = [vec![0; len], vec![0; len]];
        let [first, second] = &mut rooms;
        let other = world.irecv(1, Source::Any, Tag::Any, second);
        world.finish(1, other).expect("the second message");
        world.run_until_idle();
        assert_eq!(world.nodes[1].iprobe(comm, Source::Any, Tag::Any), None);
        let sink = Span::contiguous(first.as_mut_ptr(), first.len());
        // SAFETY: the room stays until the receive is over.
        let receive = unsafe { world.nodes[1].imrecv(message, sink) }.expect("a request is free");
        let status = world.finish(1, receive).expect("the first message");
        assert_eq!((status.peer, status.tag, status.received), (Peer(0), 3, len as u64));
        assert!(rooms == data, "{len}");
        for sending in sends {
            world.finish_send(0, sending).expect("it is sent");
        }
    }
    world.assert_all_released();
}

/// A receive without a match can be cancelled. A receive that has matched completes as usual. A send is no receive.
pub fn m14_cancel_removes_unmatched_receives<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    let data = patterned(1, 5000);
    let mut rooms = [vec![0; 5000], vec![0; 5000]];
    let [one, other] = &mut rooms;
    let unmatched = world.irecv(1, Source::Any, Tag::Any, one);
    assert!(world.nodes[1].cancel(unmatched));
    assert!(!world.nodes[1].cancel(unmatched), "a receive is cancelled only once");
    assert_eq!(world.finish(1, unmatched), Err(Failure::Cancelled));
    let receive = world.irecv(1, Source::Any, Tag::Any, other);
    let sending = world.isend(0, 1, 1, Mode::Synchronous, &data);
    if let Sending::Pending(request) = sending {
        assert!(!world.nodes[0].cancel(request), "this cancels only receives");
    }
    let logs = world.logs[1].clone();
    world.until("the first fragment is there", |_| logs.iter().any(|log| log.borrow().firsts() > 0));
    assert!(!world.nodes[1].cancel(receive), "a matched receive cannot be cancelled");
    world.finish(1, receive).expect("it is received");
    world.finish_send(0, sending).expect("it is sent");
    assert!(
        rooms[1] == data && rooms[0].iter().all(|byte| *byte == 0),
        "nothing is written to the buffer of a cancelled receive"
    );
    world.assert_all_released();
}

/// A receive that has its message cannot be cancelled, and a receive without a match can.
pub fn m14_a_received_message_is_not_cancelled<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    let data = patterned(1, 5000);
    let mut rooms = [vec![0; 5000], vec![0; 5000]];
    let [one, other] = &mut rooms;
    let unmatched = world.irecv(1, Source::Any, Tag::Is(2), one);
    let receive = world.irecv(1, Source::Any, Tag::Any, other);
    let sending = world.isend(0, 1, 1, Mode::Synchronous, &data);
    world.finish_send(0, sending).expect("it has matched");
    assert!(!world.nodes[1].cancel(receive), "a matched receive cannot be cancelled");
    world.finish(1, receive).expect("it is received");
    assert!(world.nodes[1].cancel(unmatched));
    assert_eq!(world.nodes[1].test(unmatched), Some(Err(Failure::Cancelled)), "it ends at once");
    assert!(rooms[1] == data && rooms[0].iter().all(|byte| *byte == 0));
    world.assert_all_released();
}

/// Messages for a communicator that does not exist yet are kept, in order.
pub fn m15_early_messages_wait_for_their_communicator<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    let table: &'static [u32] = &[1, 0];
    let early = world.nodes[0].add_comm(9, Group::Table(table), 1).expect("room for a communicator");
    assert!(world.nodes[0].add_comm(9, Group::Table(table), 1).is_err(), "a context belongs to one communicator only");
    let data = [patterned(1, 50), patterned(2, 8000), patterned(3, 50)];
    let sends: Vec<_> = data
        .iter()
        // SAFETY: the data stay until the sends are over. Rank 0 of this communicator is node 1.
        .map(|bytes| unsafe { world.nodes[0].isend(early, 0, 4, Mode::Standard, Span::of(bytes)) }.expect("accepted"))
        .collect();
    world.run_until_idle();
    let comm = world.world[1];
    assert_eq!(world.nodes[1].iprobe(comm, Source::Any, Tag::Any), None, "the message belongs to another communicator");
    let late = world.nodes[1].add_comm(9, Group::Table(table), 0).expect("room for a communicator");
    assert_eq!(world.nodes[1].rank(late), Some(0));
    assert_eq!(world.nodes[1].rank_of(late, Peer(0)), Some(1));
    for bytes in &data {
        let mut room = vec![0; bytes.len()];
        let sink = Span::contiguous(room.as_mut_ptr(), room.len());
        // SAFETY: the room stays until the receive is over.
        let receive = unsafe { world.nodes[1].irecv(late, Source::Rank(1), Tag::Any, sink) }.expect("accepted");
        let status = world.finish(1, receive).expect("it was kept");
        assert_eq!((status.peer, status.received), (Peer(0), bytes.len() as u64));
        assert!(room == *bytes);
    }
    for sending in sends {
        world.finish_send(0, sending).expect("it is sent");
    }
    world.nodes[0].del_comm(early);
    world.nodes[1].del_comm(late);
    // SAFETY: nothing is sent.
    let refused = unsafe { world.nodes[0].isend(early, 0, 4, Mode::Standard, Span::EMPTY) };
    assert_eq!(refused, Err(Refusal::Invalid), "the communicator is deleted");
    world.assert_all_released();
}

/// Deleting a communicator fails sends that still wait, and cancels posted receives.
pub fn m15_deleting_a_communicator_fails_its_senders<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    let comms = [0, 1].map(|node| {
        world.nodes[node].add_comm(5, Group::World { size: 2 }, node as u32).expect("room for a communicator")
    });
    let data = patterned(1, 30_000);
    let sends = [(40, 4), (30_000, 6)].map(|(len, tag)| {
        // SAFETY: the data stay until the sends are over.
        unsafe { world.nodes[0].isend(comms[0], 1, tag, Mode::Standard, Span::of(&data[..len])) }.expect("accepted")
    });
    let mut room = [0; 4];
    let sink = Span::contiguous(room.as_mut_ptr(), room.len());
    // SAFETY: the room stays until the receive is over.
    let receive = unsafe { world.nodes[1].irecv(comms[1], Source::Any, Tag::Is(99), sink) }.expect("accepted");
    // A message that arrives after the deletion would wait for the next communicator with this number.
    for tag in [4, 6] {
        world
            .until("the message arrives", |world| world.nodes[1].iprobe(comms[1], Source::Any, Tag::Is(tag)).is_some());
    }
    world.nodes[1].del_comm(comms[1]);
    assert_eq!(world.finish(1, receive), Err(Failure::Cancelled));
    let [short, long] = sends;
    world.finish_send(0, short).expect("a short message needs no receive");
    let refused = world.finish_send(0, long);
    assert!(matches!(refused, Err(Failure::NoCommunicator(status)) if status.peer == Peer(1)), "{refused:?}");
    world.exchange(0, 1, 4, &data);
    world.assert_all_released();
}

/// Invalid ranks, tags and communicators are refused, and also a request beyond the limit.
pub fn m16_limits_are_enforced<S: Setup>(setup: S) {
    let limits = Engine::<S::Rail>::ATTRIBUTES;
    assert_eq!((limits.max_tag, limits.max_context, limits.request_bytes), (0x7fff_ffff, u32::MAX, 8));
    let config = Config { requests: 3, ..CONFIG };
    let mut world = World::new(setup, 2, config);
    let comm = world.world[0];
    let engine = &mut world.nodes[0];
    // SAFETY: nothing is sent or received, so nothing of the empty spans is kept.
    unsafe {
        assert_eq!(engine.isend(comm, 2, 1, Mode::Standard, Span::EMPTY), Err(Refusal::Invalid));
        assert_eq!(engine.isend(comm, 1, u32::MAX, Mode::Standard, Span::EMPTY), Err(Refusal::Invalid));
        assert_eq!(engine.irecv(comm, Source::Rank(2), Tag::Any, Span::EMPTY), Err(Refusal::Invalid));
        assert_eq!(engine.irecv(comm, Source::Any, Tag::Is(u32::MAX), Span::EMPTY), Err(Refusal::Invalid));
    }
    assert_eq!(engine.iprobe(comm, Source::Rank(7), Tag::Any), None);
    assert!(engine.add_comm(70, Group::World { size: 2 }, 2).is_err(), "the own rank is not in the group");
    let mut rooms = [[0; 8]; 4];
    let [a, b, c, d] = &mut rooms;
    let receives = [a, b, c].map(|room| world.irecv(0, Source::Any, Tag::Any, room));
    let sink = Span::contiguous(d.as_mut_ptr(), d.len());
    // SAFETY: it is refused, so nothing of the room is kept.
    let refused = unsafe { world.nodes[0].irecv(comm, Source::Any, Tag::Any, sink) };
    assert_eq!(refused, Err(Refusal::Busy));
    for receive in receives {
        assert!(world.nodes[0].cancel(receive));
        assert_eq!(world.nodes[0].test(receive), Some(Err(Failure::Cancelled)));
    }
    world.exchange(1, 0, 1, &[1, 2, 3]);
    world.assert_all_released();
}
