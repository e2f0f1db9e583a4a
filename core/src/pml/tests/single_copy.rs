//! Single copy: which messages are exposed, when they are read, and how messages arrive that cannot be read.

use std::{boxed::Box, vec, vec::Vec};

use zerocopy::IntoBytes;

use super::basic::{bytes, memory};
use crate::arena::Arena;
use crate::convertor::Span;
use crate::pml::matching::Pattern;
use crate::pml::*;
use crate::pool::Handle;
use crate::rail::testing::{Answer, MOST_FETCHED, Scripted, rails};
use crate::rail::{Endpoint, Event, HEAD, Lane, Lost, Peer, REMOTE_BUFFER_BYTES, Rail, Shape};
use crate::rma::{self, Access, Transfer};
use crate::time::Instant;
use crate::wire;

const CONFIG: Config =
    Config { peers: 2, requests: 16, unexpected: 12, units: 12, unit_bytes: 8192, ..Config::SMALLEST };
/// Longer than a message that is always copied, and no longer than a payload unit.
const SHORT: usize = 6000;
/// Longer than a payload unit.
const LONG: usize = 10_000;

struct Pair([Pml<'static, [Scripted; 1]>; 2]);

impl Pair {
    fn new(config: Config) -> Self {
        let mut ends = rails(2).into_iter();
        let mut engines = [0, 1].map(|_| {
            let rail = ends.next().unwrap();
            rail.script.borrow_mut().exposes = true;
            Pml::new(config, &mut Arena::new(memory(config.bytes(&[rail.attributes()]))), [rail]).unwrap()
        });
        for at in 0..2u32 {
            let (peer, params) = (Peer(1 - at), engines[1 - at as usize].params());
            engines[at as usize].add_peer(peer, &params, |_, rail| rail.add_peer(peer, &peer.0.to_le_bytes())).unwrap();
        }
        Self(engines)
    }

    fn turn(&mut self) {
        for _ in 0..400 {
            self.0.iter_mut().for_each(|engine| {
                engine.progress(Instant::ZERO);
            });
        }
    }

    fn send(&mut self, tag: u32, mode: Mode, data: &'static [u8]) -> Request {
        // SAFETY: the memory is there forever.
        match unsafe { self.0[0].isend(Peer(1), 1, tag, mode, Span::of(data)) }.unwrap() {
            Sending::Pending(request) => request,
            Sending::Complete => panic!("an exposed message takes a request"),
        }
    }

    fn recv(&mut self, tag: u32, into: &mut [u8]) -> Request {
        let pattern = Pattern { context: 1, source: 0, tag };
        // SAFETY: the tests keep their buffers until the end.
        unsafe { self.0[1].irecv(pattern, Span::contiguous(into.as_mut_ptr(), into.len())) }.unwrap()
    }

    /// The outcomes of the send and of the receive.
    fn ended(&mut self, send: Request, receive: Request) -> bool {
        let sent = self.0[0].test(send).map(|outcome| outcome.unwrap()).is_some();
        let received = self.0[1].test(receive).map(|outcome| outcome.unwrap()).is_some();
        assert_eq!(sent, received);
        sent
    }

    /// Four counts: messages that the sender exposed; messages that the receiver read, and could not read; fragments that
    /// arrived.
    fn counts(&self) -> [u64; 4] {
        let received = self.0[1].counters();
        [
            self.0[0].counters().exposed,
            received.single_copies,
            received.single_copy_failures,
            received.fragments_received,
        ]
    }
}

fn data(len: usize, seed: u8) -> &'static [u8] {
    Box::leak(bytes(len, seed).into_boxed_slice())
}

#[test]
fn p20_an_exposed_message_is_read_by_its_receive_and_takes_no_fragment() {
    for mode in [Mode::Standard, Mode::Synchronous, Mode::Ready, Mode::Buffered, Mode::Complete] {
        let (mut pair, data, mut into) = (Pair::new(CONFIG), data(LONG, 3), vec![0; LONG]);
        let receive = pair.recv(7, &mut into);
        let send = pair.send(7, mode, data);
        pair.turn();
        assert!(pair.ended(send, receive) && into == data);
        assert_eq!(pair.counts(), [1, 1, 0, 0]);
    }
}

#[test]
fn one_message_is_exposed_at_a_time_and_the_others_are_copied() {
    let (mut pair, datas) = (Pair::new(CONFIG), [0, 1, 2].map(|seed| data(LONG, seed)));
    let sends = datas.map(|data| pair.send(7, Mode::Standard, data));
    let mut into = [0, 1, 2].map(|_| vec![0; LONG]);
    let receives = [0, 1, 2].map(|at| pair.recv(7, &mut into[at]));
    pair.turn();
    for at in 0..3 {
        assert!(pair.ended(sends[at], receives[at]) && into[at] == datas[at]);
    }
    assert_eq!(pair.counts()[..3], [1, 1, 0]);
    let fragments = pair.counts()[3];
    assert!(fragments > 0);
    // After the answer the next message may be exposed.
    let (send, receive) = (pair.send(8, Mode::Standard, datas[0]), pair.recv(8, &mut into[1]));
    pair.turn();
    assert!(pair.ended(send, receive) && into[1] == datas[0]);
    assert_eq!(pair.counts(), [2, 2, 0, fragments]);
}

#[test]
fn an_exposed_message_without_a_receive_stays_where_it_is_until_there_is_one() {
    // The message is too long for a unit, or its send must not complete before the match.
    for (len, mode) in [(LONG, Mode::Standard), (SHORT, Mode::Synchronous)] {
        let (mut pair, data, mut into) = (Pair::new(CONFIG), data(len, 3), vec![0; len]);
        let send = pair.send(7, mode, data);
        pair.turn();
        assert_eq!(pair.counts(), [1, 0, 0, 0]);
        assert!(pair.0[0].test(send).is_none());
        assert_eq!(pair.0[1].used(), [0, 1, 1]);
        let receive = pair.recv(7, &mut into);
        pair.turn();
        assert!(pair.ended(send, receive) && into == data);
        assert_eq!(pair.counts(), [1, 1, 0, 0]);
        assert_eq!(pair.0[1].used(), [0, 0, 0]);
    }
}

#[test]
fn m8_a_short_exposed_message_without_a_receive_is_read_at_once_and_its_sender_goes_on() {
    let (mut pair, data, mut into) = (Pair::new(CONFIG), data(SHORT, 3), vec![0; SHORT]);
    let send = pair.send(7, Mode::Standard, data);
    pair.turn();
    assert_eq!(pair.0[0].test(send).map(|outcome| outcome.unwrap().delivered), Some(SHORT as u64));
    assert_eq!(pair.0[1].iprobe(Pattern { context: 1, source: 0, tag: 7 }).unwrap().len, SHORT as u64);
    pair.0[0].del_peer(Peer(1)); // the message is whole at its receiver, whatever happens to its sender
    let receive = pair.recv(7, &mut into);
    assert_eq!(pair.0[1].test(receive).unwrap().map(|status| status.delivered), Ok(SHORT as u64));
    assert!(into == data);
    assert_eq!(pair.counts(), [1, 1, 0, 0]);
    assert_eq!(pair.0[1].used(), [0, 0, 0]);
}

#[test]
fn a_short_exposed_message_whose_sender_cannot_be_told_is_kept_as_a_remote_buffer() {
    let (mut pair, data, mut into) = (Pair::new(CONFIG), data(SHORT, 3), vec![0; SHORT]);
    let send = pair.send(7, Mode::Standard, data);
    pair.0[1].rails()[0].script.borrow_mut().always = Some(Answer::Busy);
    pair.turn();
    assert!(pair.0[0].test(send).is_none());
    pair.0[1].rails()[0].script.borrow_mut().always = None;
    let receive = pair.recv(7, &mut into);
    pair.turn();
    assert!(pair.ended(send, receive) && into == data);
    assert_eq!(pair.counts(), [1, 1, 0, 0]);
    assert_eq!(pair.0[1].used(), [0, 0, 0]);
}

#[test]
fn p20_a_message_that_cannot_be_read_comes_in_fragments() {
    for (len, early, failures) in [(LONG, true, 1), (LONG, false, 1), (SHORT, true, 1), (SHORT, false, 2)] {
        let (mut pair, data, mut into) = (Pair::new(CONFIG), data(len, 3), vec![0; len]);
        pair.0[1].rails()[0].script.borrow_mut().fetches = vec![false; failures].into();
        let receive = early.then(|| pair.recv(7, &mut into));
        let send = pair.send(7, Mode::Standard, data);
        pair.turn();
        let receive = receive.unwrap_or_else(|| pair.recv(7, &mut into));
        pair.turn();
        assert!(pair.ended(send, receive) && into == data);
        let [exposed, fetched, unfetched, fragments] = pair.counts();
        assert_eq!([exposed, fetched, unfetched], [1, 0, 1]);
        assert!(fragments > 0);
    }
}

#[test]
fn p28_no_more_is_read_than_the_receive_takes() {
    for take in [0, 1, 5000] {
        let (mut pair, data, mut into) = (Pair::new(CONFIG), data(LONG, 3), vec![0xee; LONG]);
        let receive = pair.recv(7, &mut into[..take]);
        let send = pair.send(7, Mode::Standard, data);
        pair.turn();
        assert_eq!(pair.0[0].test(send).map(|outcome| outcome.unwrap().delivered), Some(LONG as u64));
        let Some(Err(Failure::Truncated(status))) = pair.0[1].test(receive) else { panic!() };
        assert_eq!((status.received, status.delivered), (LONG as u64, take as u64));
        assert!(into[..take] == data[..take] && into[take..].iter().all(|byte| *byte == 0xee));
        let fetched = pair.0[1].rails()[0].script.borrow().fetched.clone();
        assert_eq!(fetched, if take == 0 { vec![] } else { vec![take as u64] });
    }
}

#[test]
fn b10_a_single_copy_whose_sender_or_receiver_is_lost_leaves_nothing_waiting() {
    let (mut pair, data, mut into) = (Pair::new(CONFIG), data(LONG, 3), vec![0; LONG]);
    let send = pair.send(7, Mode::Standard, data);
    pair.turn();
    for at in 0..2 {
        let lost = Event::Lost(Peer(1 - at as u32), Lost::Broken);
        pair.0[at].rails()[0].script.borrow_mut().events.push_back(lost);
    }
    pair.turn();
    assert_eq!(pair.0[0].test(send), Some(Err(Failure::PeerFailed(Peer(1)))));
    let receive = pair.recv(7, &mut into);
    assert_eq!(pair.0[1].test(receive), Some(Err(Failure::PeerFailed(Peer(0)))));
    assert_eq!([pair.0[0].used(), pair.0[1].used()], [[0; 3]; 2]);
    assert_eq!(pair.counts(), [1, 0, 0, 0]);
}

#[test]
fn p22_remote_buffers_that_are_forged_or_find_no_room_are_dropped() {
    let tell = |pair: &mut Pair, flags: u8, body: usize| {
        let mut header = wire::Rendezvous::new(1, 7, 0, Handle::from_bits(77), LONG as u64);
        header.common.flags = flags;
        let len = (HEAD - REMOTE_BUFFER_BYTES + body) as u32;
        let rail = &mut pair.0[0].rails_mut()[0];
        let mut grant =
            rail.reserve(Endpoint(1), Shape { tag: crate::ptl::TAG, lane: Lane::Eager, header: 40, len }).unwrap();
        grant.write(0, header.as_bytes());
        grant.write(header.as_bytes().len(), &vec![0x77; body]);
        let ticket = grant.finish();
        rail.commit(ticket);
    };
    let mut pair = Pair::new(CONFIG);
    for (flags, body) in [
        (0x10, 0),
        (0x10, REMOTE_BUFFER_BYTES - 1),
        (0x10, REMOTE_BUFFER_BYTES + 1),
        (0x14, REMOTE_BUFFER_BYTES),
        (0x11, 0),
    ] {
        tell(&mut pair, flags, body);
    }
    pair.turn();
    assert_eq!(pair.0[1].counters().malformed, 5);
    assert_eq!(pair.0[1].used(), [0, 0, 0]);
    // A unit is too short for a remote buffer. Correct senders know that, and expose nothing.
    let mut pair = Pair::new(Config { unit_bytes: 16, ..CONFIG });
    tell(&mut pair, 0x11, REMOTE_BUFFER_BYTES);
    pair.turn();
    assert_eq!((pair.0[1].counters().credit_violations, pair.0[1].used()), (1, [0, 0, 0]));
    let (data, mut into) = (data(LONG, 3), vec![0; LONG]);
    let mut pair = Pair::new(Config { unit_bytes: 16, ..CONFIG });
    let (receive, send) = (pair.recv(7, &mut into), pair.send(7, Mode::Standard, data));
    pair.turn();
    assert!(pair.ended(send, receive) && into == data);
    assert_eq!(pair.counts()[0], 0);
}

#[test]
fn short_messages_and_those_without_credit_are_not_exposed() {
    let config = Config { unexpected: 2, units: 2, ..CONFIG }; // one of each for each peer
    let mut pair = Pair::new(config);
    // SAFETY: the memory is there forever.
    assert_eq!(unsafe { pair.0[0].isend(Peer(1), 1, 1, Mode::Standard, Span::of(data(8, 1))) }, Ok(Sending::Complete));
    let send = pair.send(7, Mode::Standard, data(LONG, 3));
    pair.turn();
    assert_eq!(pair.counts()[0], 0);
    let mut into: Vec<_> = [8, LONG].map(|len| vec![0; len]).into();
    let _ = pair.recv(1, &mut into[0]);
    let receive = pair.recv(7, &mut into[1]);
    pair.turn();
    assert!(pair.ended(send, receive) && into[1] == data(LONG, 3));
}

/// While a peer holds messages back, the posted receives are kept in order. A receive that an exposed message matched leaves the
/// order before it answers.
#[test]
#[cfg(feature = "indexes")]
fn p27_a_receive_of_an_exposed_message_leaves_the_posting_order() {
    let (mut pair, data, mut into) = (Pair::new(CONFIG), data(LONG, 3), [(); 6].map(|()| vec![0; LONG]));
    let mut receives: Vec<_> = (0..6).map(|tag| (tag, pair.recv(tag, &mut into[tag as usize]))).collect();
    let Pml { posting_order, requests, .. } = &mut pair.0[1];
    posting_order.make(requests);
    for tag in [3, 1, 5, 0, 2, 4] {
        let at = receives.iter().position(|(other, _)| *other == tag).unwrap();
        let (_, receive) = receives.remove(at);
        let send = pair.send(tag, Mode::Standard, data);
        pair.turn();
        assert!(pair.ended(send, receive) && into[tag as usize] == data);
        let Pml { posting_order, requests, .. } = &mut pair.0[1];
        let (found, steps) = posting_order.next(requests, 0, 0);
        assert_eq!(found, receives.first().map(|(_, request)| request.0.slot()));
        assert!(steps <= receives.len() as u64);
    }
    assert_eq!(pair.counts(), [6, 6, 0, 0]);
}

/// Windows over a rail with single copy: the bytes of puts and gets are read, bytes that cannot be read come in frames, and
/// exposed memory is revoked with the registration.
#[test]
fn b19_b25_b43_one_sided_bytes_are_read_by_single_copy_too() {
    let rma = rma::Config { regions: 2, operations: 2, window: 4 };
    let (mut pair, data) = (Pair::new(Config { rma, ..CONFIG }), data(2000, 7));
    let (mut memory, mut sink) = (vec![0u8; 2000], vec![0u8; 2000]);
    // SAFETY: the memory outlives the engines, and is read when nothing is in progress.
    let registered = unsafe { pair.0[1].register(memory.as_mut_ptr(), 2000, Access::ANY, None) }.unwrap();
    let remote = pair.0[1].remote_memory(registered).unwrap();
    for refused in [false, true] {
        for engine in &pair.0 {
            engine.rails()[0].script.borrow_mut().fetches.extend(refused.then_some(false));
        }
        memory.fill(0);
        sink.fill(0);
        let into = Span::contiguous(sink.as_mut_ptr(), 2000);
        for what in [Transfer::Put(Span::of(data)), Transfer::Get(into)] {
            // SAFETY: local memory is kept until the operation is over.
            unsafe { pair.0[0].begin(Peer(1), what, &remote, 0) }.unwrap();
            pair.turn();
            assert_eq!(pair.0[0].next_finished().map(|finished| finished.result), Some(Ok(0)));
        }
        assert!(memory == data && sink == data, "{refused}");
        let [here, there] = [0, 1].map(|at| pair.0[at].rma_counters());
        assert_eq!([here.single_copy_failures, there.single_copy_failures], [refused.into(); 2]);
        assert!(refused || [here.single_copies, there.single_copies] == [2000u64.div_ceil(MOST_FETCHED), 1]);
    }
    let recalls = |pair: &Pair| pair.0[1].rails()[0].script.borrow().recalls;
    assert_eq!(recalls(&pair), 0);
    pair.0[1].deregister(registered).unwrap();
    assert_eq!(recalls(&pair), 1);
}
