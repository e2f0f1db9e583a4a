//! Frames in a stream: however the stream is cut, they arrive as they were sent.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use common::*;
use towline_core::convertor::{Layout, Span};
use towline_core::rail::{Cookie, Delivery, Event, Frame, HEAD, Lane, Lost, Peer, Rail as _, Sent, Shape};
use towline_tcp::framing::encode;

/// A rail, and the stream of a peer whose bytes the test writes itself.
fn pair() -> (World, TcpStream) {
    pair_with(rail(0))
}

fn pair_with(rail: towline_tcp::Rail) -> (World, TcpStream) {
    let mut world = World::new(vec![rail]);
    let peer = ManualPeer::new(2);
    let card = peer.card(&[address(&world.rails[0])], &world.rails[0]);
    world.rails[0].add_peer(Peer(2), &card).unwrap();
    let stream = peer.join(&mut world, 0);
    (world, stream)
}

/// Polls until there is an event.
fn event(world: &mut World) -> Event {
    let limit = Limit::new();
    loop {
        if let Some(event) = world.rails[0].poll(world.now) {
            return event;
        }
        limit.check(format_args!("an event"));
    }
}

fn frame(world: &mut World) -> Frame {
    match event(world) {
        Event::Frame(frame) => frame,
        other => panic!("{other:?}"),
    }
}

/// Polls for a while, in which no event may come.
fn assert_no_event(world: &mut World) {
    for _ in 0..300 {
        assert!(world.rails[0].poll(world.now).is_none());
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// A frame is reported once its header has arrived, wherever the stream is cut, and its body is read into the sink.
#[test]
fn p26_header_split_at_each_byte() {
    const HEADER: usize = 24;
    let body = bytes(500);
    let whole = [&encode(500, TAG, HEADER as u8)[..], &body].concat();
    let (mut world, mut stream) = pair();
    for cut in 0..=8 + HEADER + 40 {
        stream.write_all(&whole[..cut]).unwrap();
        if cut < 8 + HEADER {
            assert_no_event(&mut world);
            stream.write_all(&whole[cut..8 + HEADER]).unwrap();
        }
        let frame = frame(&mut world);
        let here = cut.max(8 + HEADER) - 8;
        assert_eq!((frame.len, usize::from(frame.valid)), (500, here.min(HEAD)), "cut at {cut}");
        assert_eq!(frame.head(), &body[..here.min(HEAD)]);
        let mut sink = vec![0; 500 - HEADER];
        let span = Span::contiguous(sink.as_mut_ptr(), sink.len());
        // SAFETY: the sink lives until the delivery is reported, below.
        let delivery = unsafe { world.rails[0].deliver(frame.id, HEADER, span, Cookie(cut as u64)) };
        assert_eq!(delivery, Delivery::Pending);
        assert_no_event(&mut world);
        stream.write_all(&whole[8 + here..]).unwrap();
        assert!(matches!(event(&mut world), Event::Delivered(Cookie(cookie)) if cookie == cut as u64));
        assert!(sink == body[HEADER..], "cut at {cut}");
    }
}

#[test]
fn p26_short_frames_split_at_each_byte_arrive_whole() {
    let body = bytes(HEAD);
    let whole = [&encode(HEAD as u32, TAG, 3)[..], &body].concat();
    let (mut world, mut stream) = pair();
    for cut in 0..whole.len() {
        stream.write_all(&whole[..cut]).unwrap();
        assert_no_event(&mut world);
        stream.write_all(&whole[cut..]).unwrap();
        let frame = frame(&mut world);
        assert!(frame.is_whole() && frame.head() == body);
    }
}

#[test]
fn many_short_frames_arrive_in_one_read_in_order() {
    let (mut world, mut stream) = pair();
    let mut all = vec![];
    for at in 0..5000u32 {
        all.extend_from_slice(&encode(4, TAG, 4));
        all.extend_from_slice(&at.to_le_bytes());
    }
    stream.write_all(&all).unwrap();
    for at in 0..5000u32 {
        assert_eq!(frame(&mut world).head(), at.to_le_bytes());
    }
    assert_no_event(&mut world);
}

/// A frame is released before its body has arrived: its bytes are dropped, and the next frame is found.
#[test]
fn p29_the_body_of_a_released_frame_is_dropped() {
    let (mut world, mut stream) = pair();
    let body = bytes(300_000);
    for here in [20, 57, 5000] {
        stream.write_all(&encode(300_000, TAG, 16)).unwrap();
        stream.write_all(&body[..here]).unwrap();
        let held = frame(&mut world);
        world.rails[0].release(held.id);
        assert_no_event(&mut world);
        std::thread::scope(|scope| {
            let rest = &body[here..];
            let mut writer = stream.try_clone().unwrap();
            scope.spawn(move || {
                writer.write_all(rest).unwrap();
                writer.write_all(&encode(2, TAG, 0)).unwrap();
                writer.write_all(b"ok").unwrap();
            });
            assert_eq!(frame(&mut world).head(), b"ok");
        });
    }
}

/// A sink may be shorter than the body, and a part of the body may be skipped before it has arrived.
#[test]
fn p28_p29_a_sink_gets_its_part_of_the_body_and_no_more() {
    let body = bytes(100_000);
    let whole = [&encode(100_000, TAG, 16)[..], &body, &encode(2, TAG, 0)[..], b"ok"].concat();
    let (mut world, mut stream) = pair();
    for (skip, room) in [(16, 10), (16, 99_984), (90_000, 5000), (99_999, 1), (100_000, 7), (50_000, 0)] {
        stream.write_all(&whole[..8 + 40]).unwrap();
        let held = frame(&mut world);
        let mut sink = vec![0xEE; room + 8];
        let span = Span::contiguous(sink.as_mut_ptr(), room);
        // SAFETY: the sink lives until the delivery is reported, below.
        let delivery = unsafe { world.rails[0].deliver(held.id, skip, span, Cookie(1)) };
        assert_eq!(delivery, Delivery::Pending);
        std::thread::scope(|scope| {
            let (rest, mut writer) = (&whole[48..], stream.try_clone().unwrap());
            scope.spawn(move || writer.write_all(rest).unwrap());
            assert!(matches!(event(&mut world), Event::Delivered(Cookie(1))));
            assert_eq!(frame(&mut world).head(), b"ok");
        });
        let got = room.min(100_000 - skip);
        assert!(sink[..got] == body[skip..skip + got], "skip {skip}, room {room}");
        assert!(sink[got..].iter().all(|byte| *byte == 0xEE), "overrun");
    }
}

/// Sinks with gaps, of short runs and of long ones: each byte arrives in its place, and the gaps do not change.
#[test]
fn p28_sinks_with_gaps_are_filled_and_the_gaps_untouched() {
    let (mut world, mut stream) = pair();
    for (count, block, stride) in
        [(500_u64, 7_usize, 9_usize), (60, 5000, 5003), (3, 100_000, 100_001), (40, 4096, 9000)]
    {
        let len = count as usize * block;
        let body = bytes(16 + len);
        let layout = Layout::vector(count, block as u64, stride as i64).unwrap();
        let mut memory = vec![0xEE; count as usize * stride];
        // SAFETY: the layout lives to the end of the turn, in which the span is used.
        let span = unsafe { Span::laid_out(memory.as_mut_ptr(), &layout) };
        stream.write_all(&encode(body.len() as u32, TAG, 16)).unwrap();
        stream.write_all(&body[..100]).unwrap();
        let held = frame(&mut world);
        // SAFETY: the memory lives until the delivery is reported, below.
        let delivery = unsafe { world.rails[0].deliver(held.id, 16, span, Cookie(4)) };
        assert_eq!(delivery, Delivery::Pending);
        std::thread::scope(|scope| {
            let (rest, mut writer) = (&body[100..], stream.try_clone().unwrap());
            scope.spawn(move || {
                writer.write_all(rest).unwrap();
                writer.write_all(&[&encode(2, TAG, 0)[..], b"ok"].concat()).unwrap();
            });
            assert!(matches!(event(&mut world), Event::Delivered(Cookie(4))));
            assert_eq!(frame(&mut world).head(), b"ok");
        });
        for (at, byte) in memory.iter().enumerate() {
            let (row, column) = (at / stride, at % stride);
            let expected = if column < block { body[16 + row * block + column] } else { 0xEE };
            assert_eq!(*byte, expected, "byte {at} of {count} blocks of {block}");
        }
    }
}

/// Long bodies that follow each other take one read each. The read takes the next header too, and the body arrives in its sink.
#[test]
fn p29_a_long_body_takes_one_read() {
    const FRAMES: usize = 4;
    const LEN: usize = 33_000;
    let mut config = config(0);
    config.socket_receive_buffer_bytes = Some(208 * 1024); // so that all bytes arrive before the first read
    let (mut world, mut stream) = pair_with(towline_tcp::Rail::new(config).unwrap());
    let body = bytes(LEN);
    stream.write_all(&[&encode(LEN as u32, TAG, 16)[..], &body].concat().repeat(FRAMES)).unwrap();
    stream.write_all(&[&encode(2, TAG, 0)[..], b"ok"].concat()).unwrap();
    let mut unread = 1;
    while unread != 0 {
        // SAFETY: the request writes an integer to its argument: how many bytes have not arrived yet.
        assert_eq!(unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &mut unread) }, 0);
        std::thread::yield_now();
    }
    let before = world.rails[0].counters().reads;
    for _ in 0..FRAMES {
        let held = frame(&mut world);
        let mut sink = vec![0; LEN - 16];
        let span = Span::contiguous(sink.as_mut_ptr(), sink.len());
        // SAFETY: the sink lives until the delivery is reported, below.
        if unsafe { world.rails[0].deliver(held.id, 16, span, Cookie(0)) } == Delivery::Pending {
            assert!(matches!(event(&mut world), Event::Delivered(_)));
        }
        assert!(sink == body[16..]);
    }
    assert_eq!(frame(&mut world).head(), b"ok");
    let reads = world.rails[0].counters().reads - before;
    assert_eq!(reads, FRAMES as u64, "the first read takes a body and the beginning of the next one");
}

/// A control frame overtakes bulk frames that wait, but not the one that was sent in part.
#[test]
fn control_frames_go_between_bulk_frames() {
    let narrow = |rank| {
        let mut config = config(rank);
        config.socket_send_buffer_bytes = Some(64 * 1024);
        config.socket_receive_buffer_bytes = Some(64 * 1024);
        towline_tcp::Rail::new(config).unwrap()
    };
    let (mut world, endpoints) = World::with_peers(vec![narrow(0), narrow(1)]);
    world.send(0, endpoints[0][1], b"connect");
    world.until("they are connected", |world| !world.observed[1].is_empty());
    let body = bytes(1 << 20);
    for bulk in 0..3 {
        let shape = Shape { tag: TAG, lane: Lane::Bulk, header: 1, len: 1 << 20 };
        let rest = Span::of(&body[1..]);
        // SAFETY: the body lives to the end of the test.
        let sent = unsafe { world.rails[0].send(endpoints[0][1], shape, &[bulk], rest, Cookie(bulk.into())) };
        assert_eq!(sent, Ok(Sent::InPlace));
    }
    let shape = Shape { tag: TAG, lane: Lane::Control, header: 1, len: 60 };
    // SAFETY: the body lives to the end of the test.
    let sent = unsafe { world.rails[0].send(endpoints[0][1], shape, &[9], Span::of(&body[1..60]), Cookie(9)) };
    assert_eq!(sent, Ok(Sent::Staged));
    world.observed[1].clear();
    world.until("all frames", |world| world.observed[1].len() == 4);
    let mut order = vec![];
    for seen in &world.observed[1] {
        let Observed::Frame(_, got) = seen else { panic!("{seen:?}") };
        assert!(got[1..] == body[1..got.len()]);
        order.push(got[0]);
    }
    assert_eq!(order, [0, 9, 1, 2]);
}

/// A peer is lost in the middle of a body: the loss is its last event, and its sink is not written to afterwards.
#[test]
fn a_loss_is_the_last_event_of_a_peer() {
    let (mut world, mut stream) = pair();
    stream.write_all(&encode(10_000, TAG, 16)).unwrap();
    stream.write_all(&bytes(600)).unwrap();
    let held = frame(&mut world);
    let mut sink = vec![0; 10_000];
    let span = Span::contiguous(sink.as_mut_ptr(), sink.len());
    // SAFETY: the sink lives until the loss is reported, below.
    assert_eq!(unsafe { world.rails[0].deliver(held.id, 16, span, Cookie(3)) }, Delivery::Pending);
    stream.write_all(&bytes(2000)).unwrap();
    drop(stream);
    assert!(matches!(event(&mut world), Event::Lost(Peer(2), Lost::Broken)));
    drop(sink);
    assert_no_event(&mut world);
    assert_eq!(world.rails[0].read(held.id, 0, &mut [0; 9]), 0);
    world.rails[0].release(held.id);
    assert_no_event(&mut world);
}

/// A ticket holds for the latest grant only: after another frame has taken its room, the ticket sends nothing.
#[test]
fn a_stale_ticket_sends_nothing() {
    let (mut world, endpoints) = World::with_peers(vec![rail(0), rail(1)]);
    world.send(0, endpoints[0][1], b"connect");
    world.until("they are connected", |world| !world.observed[1].is_empty());
    world.observed[1].clear();
    let body = bytes(100_000);
    for (len, lane) in [(50_usize, Lane::Eager), (100_000, Lane::Bulk)] {
        let shape = Shape { tag: TAG, lane, header: 8, len: 8 };
        let mut grant = world.rails[0].reserve(endpoints[0][1], shape).unwrap();
        grant.write(0, b"too late");
        let stale = grant.finish();
        let shape = Shape { tag: TAG, lane, header: 1, len: len as u32 };
        // SAFETY: the body lives to the end of the test.
        let sent = unsafe { world.rails[0].send(endpoints[0][1], shape, &[1], Span::of(&body[1..len]), Cookie(0)) };
        assert!(sent.is_ok());
        world.rails[0].commit(stale);
        world.send(0, endpoints[0][1], b"last");
        world.until("both frames", |world| world.observed[1].len() == 2);
        assert!(
            matches!(&world.observed[1][0], Observed::Frame(_, got) if got.len() == len && got[1..] == body[1..len])
        );
        assert_eq!(world.observed[1][1], Observed::Frame(Peer(0), b"last".to_vec()));
        world.observed[1].clear();
    }
}
