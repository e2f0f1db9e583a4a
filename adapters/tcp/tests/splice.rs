//! Long bodies with a checksum are sent through a pipe, as the sender's pages. Whatever part of them the kernel accepts at once,
//! the stream is the same as with copies.

mod common;

use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;

use common::*;
use towline_core::convertor::Span;
use towline_core::rail::{Cookie, Endpoint, Event, Lane, Lost, Peer, Rail as _, SendError, Sent, Shape};
use towline_tcp::framing::encode;
use towline_tcp::{Config, Encrypt, Rail};

/// A rail with a pipe of a few pages and a small send buffer, so that both are full in the middle of bodies.
fn narrow(change: impl Fn(&mut Config)) -> Rail {
    let mut config = config(0);
    config.pipe_bytes = 16 * 1024;
    config.splice_from_bytes = 8 * 1024;
    config.socket_send_buffer_bytes = Some(16 * 1024);
    change(&mut config);
    Rail::new(config).unwrap()
}

/// A rail, and the streams of peers that read when the test does.
fn with_peers(rail: Rail, count: u32) -> (World, Vec<(Endpoint, TcpStream)>) {
    let mut world = World::new(vec![rail]);
    let join = |rank| {
        let peer = ManualPeer::new(rank);
        let card = peer.card(&[address(&world.rails[0])], &world.rails[0]);
        let endpoint = world.rails[0].add_peer(Peer(rank), &card).unwrap();
        (endpoint, peer.join(&mut world, 0))
    };
    let peers = (1..=count).map(join).collect();
    (world, peers)
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + seed) as u8).collect()
}

/// Sends a body with a checksum and a header of 5 bytes, and returns the frame as it travels.
fn send(rail: &mut Rail, to: Endpoint, body: &[u8], cookie: u64) -> Result<(Sent, Vec<u8>), SendError> {
    let shape = Shape { tag: TAG, lane: Lane::Bulk, header: 5, len: body.len() as u32 + 5 };
    // SAFETY: the bodies live to the end of the test.
    let sent = unsafe { rail.send_summed(to, shape, b"first", Span::of(body), Cookie(cookie)) }?;
    Ok((sent, [&encode(shape.len, TAG, 5)[..], b"first", body].concat()))
}

/// Reads the expected bytes while the rail is polled; `completed` are the cookies of its completions.
fn expect(world: &mut World, stream: &mut TcpStream, expected: &[u8], completed: &mut Vec<u64>) {
    stream.set_nonblocking(true).unwrap();
    let (mut got, mut limit) = (vec![], Limit::new());
    let mut room = [0; 3000];
    while got.len() < expected.len() {
        if let Some(Event::Sent(cookie)) = world.rails[0].poll(world.now) {
            completed.push(cookie.0);
        }
        let wanted = (expected.len() - got.len()).min(room.len());
        match stream.read(&mut room[..wanted]) {
            Ok(count) => {
                assert_ne!(count, 0, "the end after {} bytes", got.len());
                got.extend_from_slice(&room[..count]);
                limit = Limit::new();
            }
            Err(_) => limit.check(format_args!("{} of {} bytes", got.len(), expected.len())),
        }
    }
    assert!(
        got == expected,
        "first difference at {:?}",
        got.iter().zip(expected).position(|(one, other)| one != other)
    );
}

/// Bodies at any place in a page and of any length, with short frames in between: all bytes arrive in order.
#[test]
fn bodies_are_sent_in_parts_and_no_frame_gets_between() {
    let (mut world, mut peers) = with_peers(narrow(|_| {}), 1);
    let (to, stream) = &mut peers[0];
    let memory = bytes(400_000, 3);
    let (mut expected, mut awaited, mut completed) = (vec![], vec![], vec![]);
    let cuts = [(0, 300_000), (1, 8192), (4095, 8193), (77, 12_345), (4096, 65_536), (333, 8191), (10, 399_990)];
    for (cookie, (from, len)) in cuts.into_iter().enumerate() {
        let (sent, frame) = send(&mut world.rails[0], *to, &memory[from..][..len], cookie as u64).expect("room");
        expected.extend_from_slice(&frame);
        if sent == Sent::InPlace {
            awaited.push(cookie as u64);
        }
        assert!(try_send(&mut world.rails[0], *to, &[cookie as u8; 20]).unwrap());
        expected.extend_from_slice(&[&encode(20, TAG, 8)[..], &[cookie as u8; 20]].concat());
    }
    assert!(awaited.len() >= cuts.len() - 1, "the kernel accepts few bodies at once: {awaited:?}");
    expect(&mut world, stream, &expected, &mut completed);
    world.until("all completions", |world| world.rails[0].drained(*to));
    completed.extend(std::iter::from_fn(|| world.rails[0].poll(world.now)).filter_map(|event| match event {
        Event::Sent(cookie) => Some(cookie.0),
        _ => None,
    }));
    assert!(
        completed.len() <= awaited.len() && completed.iter().zip(&awaited).all(|(one, other)| one == other),
        "{completed:?}"
    );
    let counters = world.rails[0].counters();
    // The rest of a body that is shorter than the limit when the pipe is empty is copied.
    assert!(counters.spliced_bytes > 700_000, "{counters:?}");
    assert_eq!(counters.pipe_refused, 0);
}

#[test]
fn a_body_that_fits_into_the_kernel_is_sent_at_once() {
    let (mut world, mut peers) = with_peers(narrow(|config| config.socket_send_buffer_bytes = None), 1);
    let (to, stream) = &mut peers[0];
    let memory = bytes(16_000, 9);
    let (sent, frame) = send(&mut world.rails[0], *to, &memory, 1).unwrap();
    assert_eq!(sent, Sent::Done);
    assert!(world.rails[0].drained(*to) && world.rails[0].counters().spliced_bytes >= 12_000);
    expect(&mut world, stream, &frame, &mut vec![]);
}

/// A connection that makes no progress has the pipe, and the bodies of another one are copied. At the end of the first connection
/// its bytes in the pipe are dropped.
#[test]
fn a_stuck_connection_does_not_delay_others_and_leaves_no_bytes_in_the_pipe() {
    let (mut world, mut peers) = with_peers(narrow(|_| {}), 2);
    let memory = bytes(200_000, 5);
    let mut completed = vec![];
    let (stuck, _) = send(&mut world.rails[0], peers[0].0, &memory, 1).unwrap();
    assert_eq!(stuck, Sent::InPlace);
    while world.rails[0].poll(world.now).is_some() {}
    let before = world.rails[0].counters().spliced_bytes;
    assert!(before > 20_000 && before < 200_000);
    let (_, frame) = send(&mut world.rails[0], peers[1].0, &memory, 2).unwrap();
    expect(&mut world, &mut peers[1].1, &frame, &mut completed);
    // The stuck body may go on a little, when the kernel acknowledges bytes late. Both bodies together would be longer.
    assert!(world.rails[0].counters().spliced_bytes <= 200_000, "it was copied");
    peers[0].1.shutdown(Shutdown::Both).unwrap();
    drop(peers.remove(0));
    world.until("the loss", |world| world.observed[0].iter().any(|seen| matches!(seen, Observed::Lost(Peer(1), _))));
    completed.clear();
    let before = world.rails[0].counters().spliced_bytes;
    let (_, frame) = send(&mut world.rails[0], peers[0].0, &memory, 3).unwrap();
    expect(&mut world, &mut peers[0].1, &frame, &mut completed);
    assert!(world.rails[0].counters().spliced_bytes > before + 100_000, "it was not copied");
    assert!(!completed.contains(&1), "a lost body has no completion");
}

/// For a broken pipe the kernel raises a signal that would end this process.
#[test]
fn a_connection_that_breaks_in_the_middle_of_a_body_raises_no_signal() {
    let (mut world, mut peers) = with_peers(narrow(|_| {}), 1);
    let memory = bytes(200_000, 5);
    // SAFETY: the handler is the default one of the system.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let (to, stream) = peers.remove(0);
    assert_eq!(send(&mut world.rails[0], to, &memory, 1).unwrap().0, Sent::InPlace);
    let mut handles = [libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    // SAFETY: the argument is a slice of descriptors.
    let ready = unsafe { libc::poll(handles.as_mut_ptr(), 1, 300_000) };
    assert_eq!(ready, 1, "bytes to read, which the test leaves unread");
    // An orderly end first, then a reset: the next send reports a broken pipe.
    stream.shutdown(Shutdown::Write).unwrap();
    drop(stream);
    world.until("the loss", |world| world.observed[0].iter().any(|seen| matches!(seen, Observed::Lost(Peer(1), _))));
    assert!(!world.observed[0].contains(&Observed::Lost(Peer(1), Lost::Closed)), "it has not said goodbye");
    // SAFETY: restores the handler from before.
    unsafe { libc::signal(libc::SIGPIPE, before) };
}

#[test]
fn bodies_are_copied_on_encrypted_connections_and_without_a_pipe() {
    let without = |config: &mut Config| config.pipe_bytes = 0;
    let (mut world, mut peers) = with_peers(narrow(without), 1);
    let (to, stream) = &mut peers[0];
    let memory = bytes(100_000, 1);
    let (_, frame) = send(&mut world.rails[0], *to, &memory, 1).unwrap();
    expect(&mut world, stream, &frame, &mut vec![]);
    assert_eq!([world.rails[0].counters().spliced_bytes, world.rails[0].counters().pipe_refused], [0, 0]);

    let encrypted = |rank| {
        let config = Config { encrypt: Encrypt::Always, splice_from_bytes: 8192, ..config(rank) };
        Rail::new(config).unwrap()
    };
    let (mut world, endpoints) = World::with_peers((0..2).map(encrypted).collect());
    let to = endpoints[0][1];
    world.send(0, to, b"connect");
    world.until("the frame", |world| world.observed[1].len() == 1);
    let (_, frame) = send(&mut world.rails[0], to, &memory, 1).unwrap();
    world.until("the frame", |world| world.observed[1].len() == 2);
    let last = world.observed[1].pop();
    assert!(matches!(last, Some(Observed::Frame(Peer(0), body)) if body == frame[8..]));
    assert_eq!([world.rails[0].counters().spliced_bytes, world.rails[0].counters().pipe_refused], [0, 0]);
}
