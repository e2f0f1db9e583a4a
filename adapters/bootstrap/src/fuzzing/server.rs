//! Fuzzes a server with callers of all kinds: processes without the key, honest ranks, and ranks that break the protocol.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};

use towline_core::modex::Set;

use super::input::{Input, JOB, SIZE, key};
use crate::protocol::channel::{Channel, Kind, Side};
use crate::protocol::handshake::{ANSWER, OPENING, Opening};
use crate::protocol::stream::Stream;
use crate::rank::connect::verify_answer;
use crate::server::connection::ConnState;
use crate::server::event_loop::{EventLoop, Orders};
use crate::server::{Config, Event};

/// A caller that has connected.
struct Caller {
    end: UnixStream,
    id: u64,
    received_bytes: Vec<u8>,
    opening: Option<[u8; OPENING]>,
    /// The session after the caller's proof, if no byte was changed on the way.
    channel: Option<Channel>,
    /// The caller has sent only what an honest rank sends.
    honest: bool,
}

pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    let config = Config {
        size: SIZE,
        job: JOB,
        key: key(),
        name: None,
        listen: None,
        disconnect_ends_rank: input.byte() & 1 == 1,
    };
    let (on_event, events) = mpsc::channel();
    let (_orders, received) = mpsc::channel();
    let orders = Orders { received, stop: Arc::default() };
    let Ok((wake_receiver, _wake)) = rustix::pipe::pipe() else { return };
    let mut event_loop =
        EventLoop::new(config, Vec::new(), orders, wake_receiver, Box::new(move |event| drop(on_event.send(event))));
    let mut callers: [Option<Caller>; 4] = Default::default();
    let (mut proofs, mut joined) = (0, 0);
    while !input.0.is_empty() {
        let place = &mut callers[usize::from(input.byte() % 4)];
        let Some(caller) = place else {
            *place = connect(&mut event_loop);
            continue;
        };
        let bytes = match input.byte() % 8 {
            0 => {
                let id = caller.id;
                // A child process that is being started may hold the descriptor for a moment, so dropping it is not
                // enough.
                let _ = caller.end.shutdown(std::net::Shutdown::Both);
                *place = None;
                event_loop.serve(id);
                assert!(!event_loop.connections.contains_key(&id), "a closed connection is kept");
                continue;
            }
            1 => {
                caller.honest = false;
                input.bytes().to_vec()
            }
            2 => caller.open(&mut input),
            3 | 4 => caller.send_proof(&mut input, &mut proofs),
            5 => {
                let rank = u32::from(input.byte() % 5);
                if rank == 4 {
                    event_loop.ask_for_reports(1)
                } else {
                    event_loop.rank_ended(rank)
                }
                Vec::new()
            }
            _ => caller.speak(&mut input),
        };
        let piece = usize::from(input.byte()).max(1);
        for piece in bytes.chunks(piece) {
            // The server may have closed the connection.
            let _ = caller.end.write(piece);
            event_loop.serve(caller.id);
        }
        callers.iter_mut().flatten().for_each(Caller::hear);
        joined += events.try_iter().filter(|event| matches!(event, Event::Joined { .. })).count();
        assert!(joined <= proofs, "a caller was accepted that did not prove that it holds the key");
        check(&event_loop);
    }
}

fn connect(event_loop: &mut EventLoop) -> Option<Caller> {
    let (theirs, end) = UnixStream::pair().ok()?;
    end.set_nonblocking(true).ok()?;
    let id = event_loop.admit(Stream::unix(theirs).ok()?, "a caller".into());
    Some(Caller { end, id, received_bytes: Vec::new(), opening: None, channel: None, honest: true })
}

fn check(event_loop: &EventLoop) {
    for (rank, id) in &event_loop.by_rank {
        let state = event_loop.connections.get(id).map(|connection| &connection.state);
        assert!(
            matches!(state, Some(ConnState::Joined { rank: of, .. }) if of == rank),
            "rank {rank} has no connection"
        );
    }
    let open = event_loop.connections.values().filter(|it| matches!(it.state, ConnState::Joined { .. })).count();
    assert_eq!(open, event_loop.by_rank.len());
    assert_eq!(event_loop.handshakes(), event_loop.connections.len() - open);
}

impl Caller {
    fn open(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let rank = u32::from(input.byte() % 4);
        let opening = Opening { rank, size: SIZE, job: JOB, nonce: [input.byte(); 32] };
        self.honest &= self.opening.is_none() && rank < SIZE;
        let (bytes, changed) = input.perhaps_changed(&opening.encode());
        self.honest &= !changed;
        self.opening = Some(opening.encode());
        bytes
    }

    fn send_proof(&mut self, input: &mut Input<'_>, proofs: &mut usize) -> Vec<u8> {
        let (Some(opening), Some(answer)) = (&self.opening, self.received_bytes.first_chunk::<ANSWER>()) else {
            self.honest = false;
            return Vec::new();
        };
        let Ok((proof, session)) = verify_answer(&key(), opening, answer) else { return Vec::new() };
        let again = self.channel.is_some();
        let (bytes, changed) = input.perhaps_changed(&proof);
        self.honest &= !changed && !again;
        *proofs += usize::from(!changed);
        self.received_bytes.drain(..ANSWER);
        self.channel = Some(Channel::new(session, Side::Rank));
        bytes
    }

    fn speak(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let Some(channel) = &mut self.channel else { return Vec::new() };
        let (kind, payload) = input.frame();
        channel.send(kind, &payload);
        let (bytes, changed) = input.perhaps_changed(channel.output());
        let length = channel.output().len();
        channel.wrote(length);
        self.honest &= !changed;
        bytes
    }

    /// Reads what the server sends. An honest rank gets only well-formed frames.
    fn hear(&mut self) {
        let mut bytes = [0; 1 << 12];
        while let Ok(count) = self.end.read(&mut bytes)
            && count != 0
        {
            self.received_bytes.extend_from_slice(&bytes[..count]);
        }
        let Some(channel) = self.channel.as_mut().filter(|_| self.honest) else { return };
        channel.feed(&self.received_bytes);
        self.received_bytes.clear();
        while let Some((kind, payload)) = channel.next().expect("a server seals its frames") {
            match kind {
                Kind::Welcome | Kind::Ended | Kind::Left | Kind::Leaving => assert_eq!(payload.len(), 8),
                Kind::Fence => assert_eq!(payload.len(), 4),
                Kind::Ends => assert_eq!(payload.len() % 8, 4),
                Kind::Set => {
                    let length = payload[20..24].try_into().map(u32::from_le_bytes).expect("four bytes");
                    Set::parse(&payload[..length as usize]).expect("a server forwards only checked sets");
                }
                Kind::PartEnded | Kind::Warning | Kind::LostPeer | Kind::Failing | Kind::Unmatched => {
                    panic!("only ranks send {kind:?}")
                }
                Kind::Report => assert_eq!(payload.len(), 4),
                Kind::Refuse | Kind::Finish | Kind::Abort => {}
            }
        }
    }
}
