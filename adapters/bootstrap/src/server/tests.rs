//! Bounds of what one connection can have of a server.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};

use super::config::Config;
use super::connection::{BACKLOG_BYTES, Connection, State};
use super::event_loop::{Orders, READS, Serving};
use crate::protocol::channel::{Channel, Kind, PAYLOAD_MAX, Side};
use crate::protocol::handshake::ANSWER;
use crate::protocol::stream::Stream;
use crate::{Environment, Key};

fn serving() -> Serving {
    let Environment { job, key, .. } = Environment::singleton();
    let config = Config { size: 2, job, key, name: None, listen: None, left_is_gone: false };
    let (_, received) = mpsc::channel();
    let orders = Orders { received, stop: Arc::default() };
    let (woken, _) = rustix::pipe::pipe().unwrap();
    Serving::new(config, Vec::new(), orders, woken, Box::new(drop))
}

/// A connection, with room for so much that one end has said and the other not read.
fn connect(serving: &mut Serving, room: usize) -> (u64, UnixStream) {
    let (theirs, end) = UnixStream::pair().unwrap();
    // Twice, as the room is for what the system needs as well.
    rustix::net::sockopt::set_socket_send_buffer_size(&end, 2 * room).unwrap();
    end.set_nonblocking(true).unwrap();
    (serving.admit(Stream::unix(theirs).unwrap(), "a guest".into()), end)
}

/// One of a rank that has proved itself, and the rank's end of its channel.
fn join(serving: &mut Serving, rank: u32) -> (u64, UnixStream, Channel) {
    let (id, end) = connect(serving, 1 << 16);
    let key = || Key::from_bytes([7; 32]);
    serving.hub.join(rank, &mut Vec::new()).unwrap();
    serving.connections.get_mut(&id).unwrap().state = State::Open { rank, channel: Channel::new(key(), Side::Server) };
    serving.by_rank.insert(rank, id);
    (id, end, Channel::new(key(), Side::Rank))
}

#[test]
fn nothing_is_read_of_a_caller_that_was_refused() {
    let mut serving = serving();
    let (id, mut end) = connect(&mut serving, 1 << 17);
    // More than one read takes, less than there is in a turn.
    end.write_all(&vec![7; 1 << 17]).unwrap();
    serving.serve(id);
    assert!(serving.connections.is_empty(), "refused, and the answer was written");
    assert!(end.write(&[7]).is_err(), "closed");
    let mut answer = Vec::new();
    let end = end.read_to_end(&mut answer).unwrap_err();
    assert_eq!(
        (answer.len(), end.kind()),
        (ANSWER, std::io::ErrorKind::ConnectionReset),
        "what it said further was read"
    );
}

#[test]
fn nobody_has_the_server_for_longer_than_some_reads() {
    let mut serving = serving();
    let (id, end, mut channel) = join(&mut serving, 0);
    // A large frame, of which there is more than is read in one turn.
    channel.send(Kind::Set, &vec![0; PAYLOAD_MAX]);
    rustix::net::sockopt::set_socket_send_buffer_size(&end, 4 << 20).unwrap();
    let written = (&end).write(channel.output()).unwrap();
    serving.serve(id);
    let Some(Connection { state: State::Open { channel, .. }, .. }) = serving.connections.get(&id) else {
        panic!("closed")
    };
    println!("{} of {written} bytes were read", channel.unread());
    assert!(channel.unread() <= (READS as usize) << 16 && channel.unread() > 0);
}

#[test]
fn what_waits_for_a_rank_that_does_not_read_is_bounded_and_nothing_is_lost() {
    const QUESTIONS: usize = 100;
    let mut serving = serving();
    let (id, mut end, mut channel) = join(&mut serving, 0);
    for part in 0..40_000u32 {
        serving.hub.frame(0, Kind::Part, &part.to_le_bytes(), &mut Vec::new()).unwrap();
    }
    let answer = 4 + 8 * 40_000;
    for _ in 0..QUESTIONS {
        channel.send(Kind::Ends, &[0; 4]);
    }
    end.write_all(channel.output()).unwrap();
    let output = |serving: &Serving| match &serving.connections[&id].state {
        State::Open { channel, .. } => channel.output().len(),
        _ => panic!("not open"),
    };
    let (mut answers, mut bytes) = (0, vec![0; 1 << 16]);
    for turn in 0.. {
        for _ in 0..3 {
            serving.serve(id);
            assert!(output(&serving) < BACKLOG_BYTES + answer + 100, "{} bytes wait", output(&serving));
        }
        // The rank reads at last.
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
        // What is here already needs no word of the rank to go on.
        let ready = serving.wait().unwrap();
        assert_eq!(ready.connections, [id], "turn {turn}");
    }
    assert_eq!(output(&serving), 0);
}
