//! The part of the suite for matching transports that checks the engine below: rails, schedule, credit, order, and
//! frames of dishonest peers. See [`mtl`](super::mtl).

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use towline_core::convertor::{Layout, Span};
use towline_core::mtl::{Failure, Mode, Sending, Source, Tag};
use towline_core::pml::{Config, rdma};
use towline_core::pool::Handle;
use towline_core::rail::{Lane, Peer, Rail, SendError, Shape};
use towline_core::wire::{self, Kind};
use zerocopy::IntoBytes;

use super::fake_accelerator::FakeAccelerator;
use super::mesh::Setup;
use super::nodes::{CONFIG, World};
use super::wait_limit::WaitLimit;
use crate::pattern::patterned;
use crate::random::Random;
use crate::sim::buffer::Buffer;

/// With several rails, one call of progress handles what has arrived on each.
pub fn p10_one_progress_call_polls_all_rails<S: Setup>(setup: S) {
    let mut world = World::with_links(setup, 2, 3, CONFIG, |_, attributes| attributes.latency = 5);
    connect(&mut world, 0..3);
    let before = firsts(&world);
    let data = [[1; 8], [2; 8], [3; 8]];
    let sends = [0, 1, 2].map(|at| world.isend(0, 1, at as u32, Mode::Standard, &data[at]));
    for (at, sending) in sends.into_iter().enumerate() {
        world.finish_send(0, sending).expect("it is sent");
        let mut room = [0; 8];
        let receive = world.irecv(1, Source::Any, Tag::Any, &mut room);
        world.finish(1, receive).expect("it is received");
        assert_eq!(room, data[at]);
    }
    assert!(firsts(&world).iter().zip(&before).all(|(now, before)| now - before == 1));
    world.assert_all_released();
}

/// Sends messages until each of these links has carried a first fragment. Until then some links are not connected, and
/// other links take their place.
fn connect<S: Setup>(world: &mut World<S>, links: Range<usize>) {
    let mut wait_limit = WaitLimit::default();
    while firsts(world)[links.clone()].contains(&0) {
        assert!(!wait_limit.expired(false), "a link does not connect: {:?}", firsts(world));
        world.exchange(0, 1, 0, &[1, 2, 3]);
    }
}

/// Number of first fragments that node 1 received, by link.
fn firsts<S: Setup>(world: &World<S>) -> Vec<usize> {
    world.logs[1].iter().map(|log| log.borrow().firsts()).collect()
}

/// The numbers of first fragments on the rails of lowest latency differ by at most one. Other rails carry none.
pub fn p12_first_fragments_go_round_the_rails_of_lowest_latency<S: Setup>(setup: S) {
    let mut world = World::with_links(setup, 2, 4, CONFIG, |link, attributes| {
        attributes.latency = [20, 10, 10, 10][link];
    });
    connect(&mut world, 1..4);
    let refused = |world: &World<S>| world.logs[0].iter().map(|log| log.borrow().busy_firsts).sum::<u64>();
    let (before, refused_before) = (firsts(&world), refused(&world));
    for number in 0..50 {
        let len = if number % 5 == 0 { 40_000 } else { number * 3 };
        world.exchange(0, 1, number as u32, &patterned(number as u64, len));
    }
    let firsts: Vec<_> = firsts(&world).iter().zip(&before).map(|(now, before)| now - before).collect();
    assert_eq!(firsts[0], 0, "a rail of higher latency carries no first fragment");
    assert_eq!(firsts.iter().sum::<usize>(), 50);
    let (least, most) = (firsts[1..].iter().min(), firsts[1..].iter().max());
    // A fragment that finds no room goes to the next rail.
    let skew = 1 + 2 * (refused(&world) - refused_before) as usize;
    assert!(most.zip(least).is_some_and(|(most, least)| most - least <= skew), "{firsts:?}");
    world.assert_all_released();
}

/// The bytes of later fragments are proportional to the bandwidths, within one fragment, unless a rail was full.
pub fn p13_fragments_are_distributed_by_bandwidth<S: Setup>(setup: S) {
    const SHARES: [u64; 3] = [100, 200, 500];
    // Without devices, since the bytes that they move are no fragments.
    let config = Config { rdma: rdma::Config::OFF, ..CONFIG };
    let mut world = World::with_links(setup, 2, 3, config, |link, attributes| {
        attributes.bandwidth = SHARES[link] as u32;
        attributes.latency = 1;
    });
    connect(&mut world, 0..3);
    let fragment = world.nodes[0].pml().rails().0[0].attributes().max_send_size;
    let busy = |world: &World<S>| world.logs[0].iter().map(|log| log.borrow().busy).sum::<u64>();
    let busy_before = busy(&world);
    let data = patterned(1, fragment as usize * 16);
    world.exchange(0, 1, 9, &data);
    let bytes: Vec<u64> = world.logs[1].iter().map(|log| log.borrow().bulk()).collect();
    assert!(bytes.iter().all(|bytes| *bytes > 0), "a rail carried no fragment: {bytes:?}");
    let sum: u64 = bytes.iter().sum();
    assert!(sum >= data.len() as u64 - 4096);
    if busy(&world) == busy_before {
        for (bytes, share) in bytes.iter().zip(SHARES) {
            let fair = sum * share / SHARES.iter().sum::<u64>();
            assert!(bytes.abs_diff(fair) <= u64::from(fragment), "{bytes} of {sum} bytes in place of {fair}");
        }
    }
    world.assert_all_released();
}

/// Rails refuse frames again and again. The rest of a message follows after the part that was queued.
pub fn p20_p23_refused_frames_resume_where_they_were<S: Setup>(setup: S) {
    let mut world = World::with_links(setup, 2, 2, CONFIG, |_, _| {});
    let mut random = Random::new(20);
    for number in 0..30 {
        let len = random.length(60_000) as usize;
        let data = patterned(number, len);
        let mut room = vec![0; len];
        let receive = world.irecv(1, Source::Rank(0), Tag::Is(1), &mut room);
        let sending = world.isend(0, 1, 1, Mode::Standard, &data);
        let mut outcome = None;
        let logs = world.logs.clone();
        world.until("it is received", |world| {
            for log in logs.iter().flatten() {
                log.borrow_mut().refuse = random.below(4) as u32;
            }
            outcome = world.nodes[1].test(receive);
            outcome.is_some()
        });
        world.logs.iter().flatten().for_each(|log| log.borrow_mut().refuse = 0);
        let status = outcome.and_then(Result::ok).expect("it is received");
        assert_eq!((status.received, status.delivered), (len as u64, len as u64));
        assert!(room == data, "{len}");
        world.finish_send(0, sending).expect("it is sent");
    }
    let counters = world.nodes[0].counters();
    assert!(counters.busy > 0);
    world.assert_all_released();
}

/// Synchronous sends of several lengths wait for the match.
pub fn p21_synchronous_sends_wait_for_the_match<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    for len in [0, 1, 100, 512, 513, 20_000] {
        let (data, mut room) = (patterned(1, len), vec![0; len]);
        let Sending::Pending(request) = world.isend(0, 1, 1, Mode::Synchronous, &data) else {
            panic!("a synchronous send completed before its match")
        };
        world.run_until_idle();
        assert_eq!(world.nodes[0].test(request), None, "{len}");
        let receive = world.irecv(1, Source::Any, Tag::Any, &mut room);
        world.finish(0, request).expect("matched");
        world.finish(1, receive).expect("it is received");
        assert!(room == data);
    }
    world.assert_all_released();
}

/// Acks, fragments, finishes and rejects with forged handles are counted, and change nothing.
pub fn p22_forged_handles_have_no_effect<S: Setup>(setup: S) {
    let mut world = World::new(setup, 3, CONFIG);
    world.exchange(0, 1, 1, &[1]);
    world.exchange(2, 1, 1, &[1]);
    // Node 1 waits with a posted receive and a synchronous send to node 0, and with no fragment outstanding.
    let (mut room, data) = (vec![0x55; 4000], patterned(1, 4000));
    let receive = world.irecv(1, Source::Rank(0), Tag::Is(8), &mut room);
    let Sending::Pending(sending) = world.isend(1, 0, 8, Mode::Synchronous, &data) else {
        panic!("a synchronous send completed before its match")
    };
    world.run_until_idle();
    let handles = [receive.to_bits(), sending.to_bits(), Handle::NONE.to_bits(), 0, u64::MAX, 1 << 32 | 5];
    let mut forged = 0;
    for bits in handles {
        let handle = Handle::from_bits(bits);
        let mut fragment = wire::Fragment::new(bits, 0).as_bytes().to_vec();
        fragment.extend([0xee; 100]);
        inject(&mut world, 2, 1, Lane::Bulk, &fragment);
        inject(&mut world, 2, 1, Lane::Control, wire::Ack::new(bits, handle, u64::MAX).as_bytes());
        inject(&mut world, 2, 1, Lane::Control, wire::Finish::new(bits).as_bytes());
        inject(&mut world, 2, 1, Lane::Control, wire::Reject::new(bits, wire::Reason::NotReady).as_bytes());
        forged += 4;
    }
    world.until("all of them are seen", |world| world.nodes[1].counters().stale >= forged);
    assert_eq!(world.nodes[1].counters().stale, forged);
    assert_eq!(world.nodes[1].test(receive), None);
    assert_eq!(world.nodes[1].test(sending), None);
    assert!(room.iter().all(|byte| *byte == 0x55));
    // Traffic goes on.
    let answer = patterned(2, 4000);
    let out = world.isend(0, 1, 8, Mode::Standard, &answer);
    world.finish(1, receive).expect("it is received");
    world.finish_send(0, out).expect("it is sent");
    assert!(room == answer);
    let mut room = vec![0; 4000];
    let receive = world.irecv(0, Source::Rank(1), Tag::Is(8), &mut room);
    world.finish(0, receive).expect("it is received");
    world.finish(1, sending).expect("matched");
    assert!(room == data);
}

/// Messages stay in order when the sequence numbers wrap at 16, 32 and 64 bits, in both directions at once.
pub fn p25_sequence_numbers_wrap<S: Setup>(setup: S) {
    // A setup can be used only once, and the 32 bits of the wire matter most: at the end of 64 bits both halves wrap.
    let config = Config { first_sequence: u64::MAX - 5, ..CONFIG };
    let mut world = World::with_links(setup, 2, 2, config, |_, attributes| attributes.latency = 3);
    wrap(&mut world);
    for node in 0..2 {
        assert!(world.nodes[node].counters().eager_sent > 0);
    }
    world.assert_all_released();
}

fn wrap<S: Setup>(world: &mut World<S>) {
    for number in 0..30u32 {
        let len = [10, 3000, 0][number as usize % 3];
        let data = [patterned(number.into(), len), patterned(u64::from(number) + 100, len)];
        let sends =
            [world.isend(0, 1, number, Mode::Standard, &data[0]), world.isend(1, 0, number, Mode::Standard, &data[1])];
        for to in 0..2 {
            let mut room = vec![0; len];
            let receive = world.irecv(to, Source::Any, Tag::Any, &mut room);
            assert_eq!(world.finish(to, receive).expect("it is received").tag, number);
            assert!(room == data[1 - to]);
        }
        for (from, sending) in sends.into_iter().enumerate() {
            world.finish_send(from, sending).expect("it is sent");
        }
    }
}

/// Messages of all sizes between three nodes over two rails are received by source in the order in which they were
/// sent.
pub fn p27_messages_between_many_nodes_stay_in_order<S: Setup>(setup: S) {
    let mut world = World::with_links(setup, 3, 2, Config { requests: 400, ..CONFIG }, |_, attributes| {
        attributes.latency = 3;
    });
    let own = world.own;
    let mut random = Random::new(27);
    let data: Vec<Vec<u8>> = (0..60).map(|number| patterned(number, random.length(20_000) as usize)).collect();
    let mut sends = vec![];
    for bytes in &data {
        for from in 0..3 {
            for to in (0..3).filter(|to| own || from != *to) {
                sends.push((from, world.isend(from, to, 1, Mode::Standard, bytes)));
            }
        }
        world.round();
    }
    for bytes in &data {
        for to in 0..3 {
            for from in (0..3).filter(|from| own || to != *from as usize) {
                let mut room = vec![0; 20_001];
                let receive = world.irecv(to, Source::Rank(from), Tag::Is(1), &mut room);
                let status = world.finish(to, receive).expect("it is received");
                assert_eq!(status.received, bytes.len() as u64, "a later message came first");
                assert!(room[..bytes.len()] == *bytes);
            }
        }
    }
    for (from, sending) in sends {
        world.finish_send(from, sending).expect("it is sent");
    }
    world.assert_all_released();
}

/// Far more messages of one tag than the receiver has room for, and then the message that it waits for.
pub fn p27_a_flood_before_the_wanted_message<S: Setup>(setup: S) {
    let config = Config { unexpected: 6, units: 3, requests: 300, ..CONFIG };
    let mut world = World::new(setup, 2, config);
    let data: Vec<Vec<u8>> = (0..200).map(|number| patterned(number, number as usize * 7)).collect();
    let sends: Vec<_> = data.iter().map(|bytes| world.isend(0, 1, 1, Mode::Standard, bytes)).collect();
    let wanted = patterned(999, 700);
    let last = world.isend(0, 1, 2, Mode::Standard, &wanted);
    let mut room = vec![0; 700];
    let receive = world.irecv(1, Source::Any, Tag::Is(2), &mut room);
    world.finish(1, receive).expect("the flood is held back, and the receiver asks for the wanted message");
    assert!(room == wanted);
    let used = world.nodes[1].pml().used();
    assert!(used[1] <= 7 && used[2] <= 3, "envelopes or units beyond the limit: {used:?}");
    world.finish_send(0, last).expect("it is sent");
    for (bytes, sending) in data.iter().zip(sends) {
        let mut room = vec![0; bytes.len()];
        let receive = world.irecv(1, Source::Any, Tag::Any, &mut room);
        assert_eq!(world.finish(1, receive).expect("it is received").received, bytes.len() as u64);
        assert!(room == *bytes);
        world.finish_send(0, sending).expect("it is sent");
    }
    world.assert_all_released();
}

/// The last message is received first, with one envelope for all peers together.
pub fn p27_reverse_order_with_a_single_envelope<S: Setup>(setup: S) {
    let config = Config { unexpected: 1, units: 1, requests: 64, ..CONFIG };
    let mut world = World::new(setup, 3, config);
    let data: Vec<Vec<u8>> = (0..30).map(|number| patterned(number, number as usize * 50)).collect();
    let mut sends = vec![];
    for (tag, bytes) in data.iter().enumerate() {
        sends.push((0, world.isend(0, 2, tag as u32, Mode::Standard, bytes)));
        sends.push((1, world.isend(1, 2, tag as u32, Mode::Standard, bytes)));
    }
    world.run_until_idle();
    for (tag, bytes) in data.iter().enumerate().rev() {
        for from in [1, 0] {
            let mut room = vec![0; bytes.len()];
            let receive = world.irecv(2, Source::Rank(from), Tag::Is(tag as u32), &mut room);
            world.finish(2, receive).expect("the receiver asks for the message");
            assert!(room == *bytes);
        }
    }
    for (from, sending) in sends {
        world.finish_send(from, sending).expect("it is sent");
    }
    world.assert_all_released();
}

/// No credit at all: every message is held back at its sender, and is sent when the receiver asks for it.
const HELD: Config = Config { unexpected: 0, units: 0, ..CONFIG };

/// A message that a probe for one tag has fetched does not match a receive of any tag while earlier messages exist.
pub fn p27_m12_an_answer_kept_for_a_probe_does_not_overtake<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, HELD);
    let comm = world.world[1];
    let data = [patterned(1, 20), patterned(2, 20)];
    let sends = [1, 2].map(|tag| world.isend(0, 1, tag, Mode::Standard, &data[tag as usize - 1]));
    world.until("a probe finds the second", |world| {
        world.nodes[1].iprobe(comm, Source::Any, Tag::Is(2)).is_some_and(|found| found.tag == 2)
    });
    let mut first = None;
    world.until("a probe finds the first", |world| {
        first = world.nodes[1].iprobe(comm, Source::Rank(0), Tag::Any);
        first.is_some()
    });
    assert_eq!(first.map(|found| found.tag), Some(1), "the message that was probed for overtook an earlier one");
    world.until("a probe finds the second again", |world| {
        world.nodes[1].iprobe(comm, Source::Any, Tag::Is(2)).is_some()
    });
    for (tag, data) in [(1, &data[0]), (2, &data[1])] {
        let mut room = vec![0; 20];
        let receive = world.irecv(1, Source::Any, Tag::Any, &mut room);
        assert_eq!(world.finish(1, receive).expect("it is received").tag, tag, "a later message came first");
        assert!(room == *data);
    }
    for sending in sends {
        world.finish_send(0, sending).expect("it is sent");
    }
    world.assert_all_released();
}

/// A receive of one tag asks for its message and is cancelled. The answer must not match a receive of any tag that was
/// posted meanwhile, since another message comes first there.
pub fn p27_an_answer_goes_to_no_wider_receive<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, HELD);
    let data = [patterned(1, 20), patterned(2, 20)];
    let mut rooms = [vec![0; 20], vec![0; 20]];
    let [room, other] = &mut rooms;
    let narrow = world.irecv(1, Source::Rank(0), Tag::Is(2), room);
    let sends = [1, 2].map(|tag| world.isend(0, 1, tag, Mode::Standard, &data[tag as usize - 1]));
    world.until("the answer leaves", |world| world.nodes[0].counters().answers_sent > 0);
    if world.nodes[1].cancel(narrow) {
        assert_eq!(world.finish(1, narrow), Err(Failure::Cancelled));
        let wide = world.irecv(1, Source::Any, Tag::Any, other);
        assert_eq!(world.finish(1, wide).expect("it is received").tag, 1, "a later message came first");
        let again = world.irecv(1, Source::Any, Tag::Is(2), room);
        assert_eq!(world.finish(1, again).expect("it is received").tag, 2);
    } else {
        // The answer arrived before the cancellation.
        world.finish(1, narrow).expect("it is received");
        let wide = world.irecv(1, Source::Any, Tag::Any, other);
        assert_eq!(world.finish(1, wide).expect("it is received").tag, 1);
    }
    assert!(rooms[0] == data[1] && rooms[1] == data[0]);
    for sending in sends {
        world.finish_send(0, sending).expect("it is sent");
    }
    world.assert_all_released();
}

/// Receives without a held message, and held messages without a receive: each receive asks once, then the nodes are
/// quiet. The one pair that matches is found.
pub fn p27_unsuccessful_asks_stop<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, HELD);
    let data = patterned(1, 20);
    let mut rooms: Vec<Vec<u8>> = (0..6).map(|_| vec![0; 20]).collect();
    let receives: Vec<_> = rooms
        .iter_mut()
        .enumerate()
        .map(|(tag, room)| world.irecv(1, Source::Rank(0), Tag::Is(tag as u32), room))
        .collect();
    let sends = [20, 21, 5, 22].map(|tag| world.isend(0, 1, tag, Mode::Standard, &data));
    world.finish(1, receives[5]).expect("found among the others");
    world.run_until_idle();
    let asked = world.nodes[1].counters().asks_sent;
    assert!(asked < 100, "{asked} asks for five receives");
    for receive in &receives[..5] {
        assert!(world.nodes[1].cancel(*receive));
        assert_eq!(world.finish(1, *receive), Err(Failure::Cancelled));
    }
    for _ in 0..3 {
        let mut room = vec![0; 20];
        let receive = world.irecv(1, Source::Any, Tag::Any, &mut room);
        assert!(world.finish(1, receive).expect("it is received").tag >= 20);
    }
    for sending in sends {
        world.finish_send(0, sending).expect("it is sent");
    }
    world.assert_all_released();
}

/// Messages between buffers with gaps, of any two layouts.
pub fn p28_strided_memory_is_packed_and_gaps_are_left_alone<S: Setup>(setup: S) {
    let mut world = World::with_links(setup, 2, 2, CONFIG, |_, _| {});
    let mut random = Random::new(28);
    for number in 0..60 {
        let len = [6, 8, 48, 600, 4800, 30_000][number % 6] + number / 6 * 24;
        let bytes = patterned(number as u64, len);
        let (mut out, mut into) = (Buffer::any(len, &mut random), Buffer::any(len, &mut random));
        out.fill(&bytes);
        let (comms, spans) = ((world.world[0], world.world[1]), (out.span(), into.span()));
        // SAFETY: the rooms stay until both operations are over.
        let (receive, sending) = unsafe {
            let receive = world.nodes[1].irecv(comms.1, Source::Any, Tag::Any, spans.1).expect("accepted");
            (receive, world.nodes[0].isend(comms.0, 1, 1, Mode::Standard, spans.0).expect("accepted"))
        };
        world.finish(1, receive).expect("it is received");
        world.finish_send(0, sending).expect("it is sent");
        let mut got = vec![];
        into.take(len, &mut got);
        assert!(got == bytes, "{len}");
        assert!(into.intact(len), "gaps were written to");
    }
    world.assert_all_released();
}

/// A truncated receive reports the sent and the delivered length, and nothing is written behind the buffer.
pub fn p29_truncation_reports_both_lengths<S: Setup>(setup: S) {
    let mut world = World::with_links(setup, 2, 2, CONFIG, |_, _| {});
    for len in [1, 40, 512, 513, 5000, 90_000] {
        for room in [0, 1, len / 2, len - 1].into_iter().filter(|room| *room < len) {
            for late in [false, true] {
                let data = patterned(len as u64, len);
                let mut memory = vec![0xaa; room + 100];
                let early = (!late).then(|| world.irecv(1, Source::Any, Tag::Any, &mut memory[..room]));
                let sending = world.isend(0, 1, 1, Mode::Standard, &data);
                if late {
                    world.run_until_idle();
                }
                let receive = early.unwrap_or_else(|| world.irecv(1, Source::Any, Tag::Any, &mut memory[..room]));
                let Err(Failure::Truncated(status)) = world.finish(1, receive) else { panic!("not truncated: {len}") };
                assert_eq!((status.received, status.delivered), (len as u64, room as u64));
                world.finish_send(0, sending).expect("a truncation is no failure of the send");
                assert!(memory[..room] == data[..room] && memory[room..].iter().all(|byte| *byte == 0xaa));
            }
        }
    }
    world.exchange(0, 1, 1, &patterned(1, 90_000));
    world.assert_all_released();
}

/// Messages of several lengths from and to memory that only an accelerator can access, expected or unexpected, whole or
/// truncated, with gaps.
pub fn b38_accelerator_memory_is_copied_only_by_the_accelerator<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    let kinds = [(true, false), (false, true), (true, true)];
    for (len, late) in [0, 1, 100, 513, 5000, 70_000].into_iter().flat_map(|len| [(len, false), (len, true)]) {
        for (far_source, far_sink) in kinds {
            let far = FakeAccelerator::default();
            let (mut data, mut into) = (patterned(len, len as usize), vec![0xaa; len as usize * 2 + 2]);
            let room = len - len / 5;
            let source = Layout::bytes(len).expect("it is short").on(&far).expect("it is on none yet");
            let sink = Layout::vector(room, 1, 2).expect("it is short").on(&far).expect("it is on none yet");
            // SAFETY: the layouts fit their memory, and outlive both operations.
            let (source, sink) = unsafe {
                let source = Span::laid_out(FakeAccelerator::name(data.as_mut_ptr()), &source);
                (source, Span::laid_out(FakeAccelerator::name(into.as_mut_ptr()), &sink))
            };
            let mut plain = vec![0; room as usize];
            let source = if far_source { source } else { Span::of(&data) };
            let sink = if far_sink { sink } else { Span::contiguous(plain.as_mut_ptr(), plain.len()) };
            let early = (!late).then(|| world.irecv_span(1, Source::Rank(0), Tag::Is(1), sink));
            let sending = world.isend_span(0, 1, 1, Mode::Standard, source);
            if late {
                world.run_until_idle();
            }
            let receive = early.unwrap_or_else(|| world.irecv_span(1, Source::Rank(0), Tag::Is(1), sink));
            let status = match world.finish(1, receive) {
                Ok(status) | Err(Failure::Truncated(status)) => status,
                Err(failure) => panic!("{failure}"),
            };
            world.finish_send(0, sending).expect("it is sent");
            assert_eq!((status.received, status.delivered), (len, room));
            if far_sink {
                plain = into.iter().copied().step_by(2).take(room as usize).collect();
                let gaps = into.iter().skip(1).step_by(2).chain(&into[room as usize * 2..]);
                assert!(gaps.copied().all(|byte| byte == 0xaa), "{len}: a gap was written to");
            } else {
                assert!(into.iter().all(|byte| *byte == 0xaa), "bytes were written to memory that is not the sink");
            }
            assert!(plain == data[..room as usize], "{len}: the bytes differ");
            let least = room * (u64::from(far_source) + u64::from(far_sink));
            assert!(far.copied.load(Relaxed) >= least, "{len}: some bytes were not copied by the accelerator");
        }
    }
    world.assert_all_released();
}

/// After a completion the next send can begin at once, also while other operations are in progress.
pub fn p30_a_completion_is_followed_by_the_next_send<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    let long = patterned(1, 100_000);
    let mut big = vec![0; 100_000];
    let background = world.irecv(1, Source::Rank(0), Tag::Is(1), &mut big);
    let sending = world.isend(0, 1, 1, Mode::Standard, &long);
    let mut room = [0; 8];
    for number in 0..100u64 {
        let (from, to) = if number % 2 == 0 { (0, 1) } else { (1, 0) };
        let bytes = number.to_le_bytes();
        let receive = world.irecv(to, Source::Rank(from as u32), Tag::Is(2), &mut room);
        let ping = world.isend(from, to, 2, Mode::Standard, &bytes);
        world.finish(to, receive).expect("it is received");
        world.finish_send(from, ping).expect("it is sent");
        assert_eq!(room, bytes);
    }
    world.finish(1, background).expect("it is received");
    world.finish_send(0, sending).expect("it is sent");
    assert!(big == long);
    world.assert_all_released();
}

/// After thousands of messages of all kinds all pools are unused again.
pub fn p32_pools_return_to_where_they_were<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, Config { requests: 8, unexpected: 8, units: 8, ..CONFIG });
    let data = patterned(1, 2000);
    let mut room = vec![0; 2000];
    for number in 0..3000usize {
        let len = [0, 30, 600, 2000][number % 4];
        let mode = [Mode::Standard, Mode::Synchronous, Mode::Complete][number % 3];
        let sending = world.isend(0, 1, 1, mode, &data[..len]);
        if number % 2 == 0 {
            world.round();
        }
        let receive = world.irecv(1, Source::Any, Tag::Any, &mut room);
        assert_eq!(world.finish(1, receive).expect("it is received").received, len as u64);
        world.finish_send(0, sending).expect("it is sent");
    }
    world.assert_all_released();
    for log in world.logs.iter().flatten() {
        let log = log.borrow();
        assert_eq!(
            log.pending_reports,
            [0, 0],
            "bodies left in place, and pending deliveries, whose end was not reported"
        );
        assert_eq!(log.released, log.arrived.len() as u64, "every frame is released");
    }
}

/// Frames with other versions, unknown kinds, wrong header lengths or other tags are counted and dropped, and traffic
/// goes on.
pub fn p33_malformed_frames_are_counted_and_dropped<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    world.exchange(0, 1, 1, &[1]);
    let ack = wire::Ack::new(1, Handle::NONE, 2);
    let long = [wire::Finish::new(1).as_bytes(), &[0; 90]].concat();
    let frames: [&[u8]; 7] = [&[], &[0x11], &[0x21; 24], &[0x1f; 60], &[0xff; 300], &ack.as_bytes()[..20], &long];
    for bytes in frames {
        inject(&mut world, 0, 1, Lane::Eager, bytes);
    }
    world.until("all of them are seen", |world| world.nodes[1].counters().malformed >= 7);
    send_raw(&mut world, 0, 1, Lane::Eager, 0x99, &[1; 200]);
    world.until("it is seen", |world| world.nodes[1].counters().unknown_tags >= 1);
    assert_eq!(world.nodes[1].counters().malformed, 7);
    world.exchange(0, 1, 1, &patterned(1, 20_000));
    world.exchange(1, 0, 1, &patterned(2, 20_000));
    let log = world.logs[1][0].borrow();
    assert_eq!(log.released, log.arrived.len() as u64, "a dropped frame is released");
}

/// Messages with lengths around the eager limit, the unit, the largest fragment, and twice the largest fragment.
pub fn p34_b50_messages_around_every_limit_arrive_whole<S: Setup>(setup: S) {
    let mut world = World::new(setup, 2, CONFIG);
    let attributes = *world.nodes[0].pml().rails().0[0].attributes();
    let header = size_of::<wire::Match>() as u32;
    let eager = (attributes.eager_limit - header).min(CONFIG.unit_bytes);
    let fragment = attributes.max_send_size - size_of::<wire::Fragment>() as u32;
    let marks = [0, 1, 32, eager, attributes.eager_limit, attributes.rendezvous_eager_limit, fragment, 2 * fragment];
    for mark in marks {
        for len in [mark.saturating_sub(1), mark, mark + 1] {
            let before: usize = world.logs[1].iter().map(|log| log.borrow().count(Kind::Rendezvous)).sum();
            world.exchange(0, 1, 1, &patterned(len.into(), len as usize));
            let after: usize = world.logs[1].iter().map(|log| log.borrow().count(Kind::Rendezvous)).sum();
            assert_eq!(after - before, usize::from(len > eager), "the protocol changes exactly at {eager}: {len}");
        }
    }
    let log = world.logs[0][0].borrow();
    for (lane, len) in &log.sent {
        let limit = if *lane == Lane::Bulk { attributes.max_send_size } else { attributes.eager_limit };
        assert!(*len <= limit, "a frame of {len} bytes on {lane:?}");
    }
    drop(log);
    world.assert_all_released();
}

/// A wrapping rail sees every frame on both sides, and does not change the engine's behaviour.
pub fn p35_a_wrapping_rail_sees_every_frame<S: Setup>(setup: S) {
    let mut world = World::with_links(setup, 2, 2, CONFIG, |_, _| {});
    for number in 0..20 {
        world.exchange(0, 1, 1, &patterned(number, number as usize * 700));
        world.exchange(1, 0, 1, &patterned(number, number as usize * 70));
    }
    world.assert_all_released();
    for link in 0..2 {
        for (from, to) in [(0, 1), (1, 0)] {
            let (sent, arrived) = (world.logs[from][link].borrow(), world.logs[to][link].borrow());
            let mut out: Vec<u32> = sent.sent.iter().map(|frame| frame.1).collect();
            let mut came: Vec<u32> = arrived.arrived.iter().map(|frame| frame.1).collect();
            out.sort_unstable();
            came.sort_unstable();
            assert_eq!(out, came, "link {link} from {from} to {to}");
            assert!(sent.peers.iter().any(|known| known.0 == Peer(to as u32)));
        }
    }
}

/// Sends a frame with the engine's tag from one node to another, bypassing its engine.
fn inject<S: Setup>(world: &mut World<S>, from: usize, to: usize, lane: Lane, bytes: &[u8]) {
    send_raw(world, from, to, lane, towline_core::ptl::TAG, bytes);
}

fn send_raw<S: Setup>(world: &mut World<S>, from: usize, to: usize, lane: Lane, tag: u8, bytes: &[u8]) {
    let known = world.logs[from][0].borrow().peers.iter().rfind(|known| known.0 == Peer(to as u32)).copied();
    let endpoint = known.expect("the nodes know each other").1;
    world.until("a frame is accepted", |world| {
        let rail = &mut world.nodes[from].pml().rails_mut().0[0];
        let header = bytes.len().min(20) as u8;
        match rail.reserve(endpoint, Shape { tag, lane, header, len: bytes.len() as u32 }) {
            Ok(mut grant) => {
                grant.write(0, bytes);
                let ticket = grant.finish();
                rail.commit(ticket);
                true
            }
            Err(error) => {
                assert_eq!(error, SendError::Busy);
                false
            }
        }
    });
}
