//! Bounds on what one connection can take from a server.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};

use rustix::event::{PollFd, PollFlags};

use super::config::Config;
use super::connection::{ConnState, Connection, OUTPUT_MAX};
use super::event_loop::{EventLoop, Orders, READS_PER_TURN};
use crate::protocol::channel::{Channel, Kind, PAYLOAD_MAX, Side};
use crate::protocol::handshake::ANSWER;
use crate::protocol::stream::Stream;
use crate::{Environment, JobKey};

fn event_loop() -> EventLoop {
    let Environment { job, key, .. } = Environment::singleton();
    let config = Config { size: 2, job, key, name: None, listen: None, disconnect_ends_rank: false };
    let (_, received) = mpsc::channel();
    let orders = Orders { received, stop: Arc::default() };
    let (wake_receiver, _) = rustix::pipe::pipe().unwrap();
    EventLoop::new(config, Vec::new(), orders, wake_receiver, Box::new(drop))
}

/// A connection whose socket buffer holds `room` bytes that one end has written and the other has not read.
fn connect(event_loop: &mut EventLoop, room: usize) -> (u64, UnixStream) {
    let (theirs, end) = UnixStream::pair().unwrap();
    // Doubled, since the system uses part of the buffer itself.
    rustix::net::sockopt::set_socket_send_buffer_size(&end, 2 * room).unwrap();
    end.set_nonblocking(true).unwrap();
    (event_loop.admit(Stream::unix(theirs).unwrap(), "a caller".into()), end)
}

/// A connection of a rank that has authenticated, and the rank's end of its channel.
fn join(event_loop: &mut EventLoop, rank: u32) -> (u64, UnixStream, Channel) {
    let (id, end) = connect(event_loop, 1 << 16);
    let key = || JobKey::new([7; 32]);
    event_loop.job.join(rank, &mut Vec::new()).unwrap();
    event_loop.connections.get_mut(&id).unwrap().state =
        ConnState::Joined { rank, channel: Channel::new(key(), Side::Server) };
    event_loop.by_rank.insert(rank, id);
    (id, end, Channel::new(key(), Side::Rank))
}

#[test]
fn nothing_is_read_from_a_refused_caller() {
    let mut event_loop = event_loop();
    let (id, mut end) = connect(&mut event_loop, 1 << 17);
    // More bytes than one read takes, and fewer than one turn takes.
    end.write_all(&vec![7; 1 << 17]).unwrap();
    event_loop.serve(id);
    assert!(event_loop.connections.is_empty(), "refused, and the answer was written");
    // Until it executes its program, a child that another test has forked meanwhile holds the socket, too.
    rustix::event::poll(&mut [PollFd::new(&end, PollFlags::HUP)], None).unwrap();
    assert!(end.write(&[7]).is_err(), "closed");
    let mut answer = Vec::new();
    let end = end.read_to_end(&mut answer).unwrap_err();
    assert_eq!(
        (answer.len(), end.kind()),
        (ANSWER, std::io::ErrorKind::ConnectionReset),
        "its further bytes were read"
    );
}

#[test]
fn one_connection_gets_a_bounded_number_of_reads_per_turn() {
    let mut event_loop = event_loop();
    let (id, end, mut channel) = join(&mut event_loop, 0);
    // A frame that is larger than what is read in one turn.
    channel.send(Kind::Set, &vec![0; PAYLOAD_MAX]);
    rustix::net::sockopt::set_socket_send_buffer_size(&end, 4 << 20).unwrap();
    let written = (&end).write(channel.output()).unwrap();
    event_loop.serve(id);
    let Some(Connection { state: ConnState::Joined { channel, .. }, .. }) = event_loop.connections.get(&id) else {
        panic!("closed")
    };
    println!("{} of {written} bytes were read", channel.unread());
    assert!(channel.unread() <= (READS_PER_TURN as usize) << 16 && channel.unread() > 0);
}

#[test]
fn output_for_a_rank_that_does_not_read_is_bounded_and_complete() {
    const QUESTIONS: usize = 100;
    let mut event_loop = event_loop();
    let (id, mut end, mut channel) = join(&mut event_loop, 0);
    for part in 0..40_000u32 {
        event_loop.job.frame(0, Kind::PartEnded, &part.to_le_bytes(), &mut Vec::new()).unwrap();
    }
    let answer = 4 + 8 * 40_000;
    for _ in 0..QUESTIONS {
        channel.send(Kind::Ends, &[0; 4]);
    }
    end.write_all(channel.output()).unwrap();
    let output = |event_loop: &EventLoop| match &event_loop.connections[&id].state {
        ConnState::Joined { channel, .. } => channel.output().len(),
        _ => panic!("not open"),
    };
    let (mut answers, mut bytes) = (0, vec![0; 1 << 16]);
    for turn in 0.. {
        for _ in 0..3 {
            event_loop.serve(id);
            assert!(output(&event_loop) < OUTPUT_MAX + answer + 100, "{} bytes wait", output(&event_loop));
        }
        // Now the rank reads.
        while let Ok(count) = end.read(&mut bytes) {
            assert!(count > 0);
            channel.feed(&bytes[..count]);
        }
        while let Some((kind, payload)) = channel.next().unwrap() {
            assert_eq!((kind, payload.len()), (Kind::Ends, answer));
            answers += 1;
        }
        if answers == QUESTIONS {
            break;
        }
        // Requests that have already arrived are handled although the rank sends nothing more.
        let ready = event_loop.wait().unwrap();
        assert_eq!(ready.connections, [id], "turn {turn}");
    }
    assert_eq!(output(&event_loop), 0);
}
