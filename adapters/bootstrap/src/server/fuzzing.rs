//! Strangers, ranks, and ranks that go astray, at a server.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};

use towline_core::modex::Set;

use super::config::{Config, Event};
use super::connection::State;
use super::event_loop::{Orders, Serving};
use crate::fuzzing::input::{Input, JOB, SIZE, key};
use crate::protocol::channel::{Channel, Kind, Side};
use crate::protocol::handshake::{ANSWER, OPENING, Opening};
use crate::protocol::stream::Stream;
use crate::rank::connect::believe;

/// Somebody who has connected.
struct Guest {
    end: UnixStream,
    id: u64,
    heard: Vec<u8>,
    opening: Option<[u8; OPENING]>,
    /// Has proved itself, if nothing was spoilt on the way.
    channel: Option<Channel>,
    /// Has said only what an honest rank says.
    honest: bool,
}

pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    let config =
        Config { size: SIZE, job: JOB, key: key(), name: None, listen: None, left_is_gone: input.byte() & 1 == 1 };
    let (tell, events) = mpsc::channel();
    let (_orders, received) = mpsc::channel();
    let orders = Orders { received, stop: Arc::default() };
    let Ok((woken, _wake)) = rustix::pipe::pipe() else { return };
    let mut serving = Serving::new(config, Vec::new(), orders, woken, Box::new(move |event| drop(tell.send(event))));
    let mut guests: [Option<Guest>; 4] = Default::default();
    let (mut proofs, mut joined) = (0, 0);
    while !input.0.is_empty() {
        let place = &mut guests[usize::from(input.byte() % 4)];
        let Some(guest) = place else {
            *place = connect(&mut serving);
            continue;
        };
        let said = match input.byte() % 8 {
            0 => {
                let id = guest.id;
                // Where a child of this process is about to start, it has the descriptor for a moment, too.
                let _ = guest.end.shutdown(std::net::Shutdown::Both);
                *place = None;
                serving.serve(id);
                assert!(!serving.connections.contains_key(&id), "a closed connection is kept");
                continue;
            }
            1 => {
                guest.honest = false;
                input.bytes().to_vec()
            }
            2 => guest.open(&mut input),
            3 | 4 => guest.prove(&mut input, &mut proofs),
            5 => {
                serving.gone(u32::from(input.byte() % 4));
                Vec::new()
            }
            _ => guest.speak(&mut input),
        };
        let piece = usize::from(input.byte()).max(1);
        for piece in said.chunks(piece) {
            // A server that has closed hears nothing.
            let _ = guest.end.write(piece);
            serving.serve(guest.id);
        }
        guests.iter_mut().flatten().for_each(Guest::hear);
        joined += events.try_iter().filter(|event| matches!(event, Event::Joined { .. })).count();
        assert!(joined <= proofs, "somebody was let in who has not proved that it holds the key");
        check(&serving);
    }
}

fn connect(serving: &mut Serving) -> Option<Guest> {
    let (theirs, end) = UnixStream::pair().ok()?;
    end.set_nonblocking(true).ok()?;
    let id = serving.admit(Stream::unix(theirs).ok()?, "a guest".into());
    Some(Guest { end, id, heard: Vec::new(), opening: None, channel: None, honest: true })
}

fn check(serving: &Serving) {
    for (rank, id) in &serving.by_rank {
        let state = serving.connections.get(id).map(|connection| &connection.state);
        assert!(matches!(state, Some(State::Open { rank: of, .. }) if of == rank), "rank {rank} has no connection");
    }
    let open = serving.connections.values().filter(|it| matches!(it.state, State::Open { .. })).count();
    assert_eq!(open, serving.by_rank.len());
    assert_eq!(serving.greetings(), serving.connections.len() - open);
}

impl Guest {
    fn open(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let rank = u32::from(input.byte() % 4);
        let opening = Opening { rank, size: SIZE, job: JOB, nonce: [input.byte(); 32] };
        self.honest &= self.opening.is_none() && rank < SIZE;
        let (said, spoilt) = input.perhaps_spoilt(&opening.encode());
        self.honest &= !spoilt;
        self.opening = Some(opening.encode());
        said
    }

    fn prove(&mut self, input: &mut Input<'_>, proofs: &mut usize) -> Vec<u8> {
        let (Some(opening), Some(answer)) = (&self.opening, self.heard.first_chunk::<ANSWER>()) else {
            self.honest = false;
            return Vec::new();
        };
        let Ok((proof, session)) = believe(&key(), opening, answer) else { return Vec::new() };
        let again = self.channel.is_some();
        let (said, spoilt) = input.perhaps_spoilt(&proof);
        self.honest &= !spoilt && !again;
        *proofs += usize::from(!spoilt);
        self.heard.drain(..ANSWER);
        self.channel = Some(Channel::new(session, Side::Rank));
        said
    }

    fn speak(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let Some(channel) = &mut self.channel else { return Vec::new() };
        let (kind, payload) = input.frame();
        channel.send(kind, &payload);
        let (said, spoilt) = input.perhaps_spoilt(channel.output());
        let length = channel.output().len();
        channel.wrote(length);
        self.honest &= !spoilt;
        said
    }

    /// Takes in what the server says: to an honest rank, frames as the protocol has them.
    fn hear(&mut self) {
        let mut bytes = [0; 1 << 12];
        while let Ok(count) = self.end.read(&mut bytes)
            && count != 0
        {
            self.heard.extend_from_slice(&bytes[..count]);
        }
        let Some(channel) = self.channel.as_mut().filter(|_| self.honest) else { return };
        channel.feed(&self.heard);
        self.heard.clear();
        while let Some((kind, payload)) = channel.next().expect("a server seals what it says") {
            match kind {
                Kind::Welcome | Kind::Gone => assert_eq!(payload.len(), 8),
                Kind::Fence => assert_eq!(payload.len(), 4),
                Kind::Ends => assert_eq!(payload.len() % 8, 4),
                Kind::Set => {
                    let length = payload[20..24].try_into().map(u32::from_le_bytes).expect("four bytes");
                    Set::parse(&payload[..length as usize]).expect("a server passes on only what it has checked");
                }
                Kind::Part => panic!("a server has no parts"),
                Kind::Refuse | Kind::Finish | Kind::Abort => {}
            }
        }
    }
}
