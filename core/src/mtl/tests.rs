//! The transport over loopback rails: promises of its contract that the engine does not keep by itself.

use std::cell::Cell;
use std::rc::Rc;
use std::vec::Vec;
use std::{boxed::Box, vec};

use super::*;
use crate::arena::Arena;
use crate::convertor::Span;
use crate::pml::Config;
use crate::rail::loopback::{self, Hub};
use crate::rail::stack::{Call, Traced};
use crate::rail::{Lost, Peer, Rail, Unreachable};
use crate::time::Instant;

type Observed = Traced<loopback::Rail<'static>, Box<dyn FnMut(Call)>>;
type Transport = Mtl<'static, [Observed; 1]>;

const CONFIG: Config = Config { peers: 3, requests: 64, unexpected: 96, units: 96, ..Config::SMALLEST };

fn memory(bytes: usize) -> &'static mut [u8] {
    Box::leak(vec![0u8; bytes].into_boxed_slice())
}

/// `n` transports that do not know each other yet, and how many frames each has sent.
fn strangers(n: u32) -> (Vec<Transport>, Rc<Cell<u32>>) {
    let hub = Hub::new(&mut Arena::new(memory(Hub::cost(n, 16, 512))), n, 16, 512).unwrap();
    let hub: &'static Hub<'static> = Box::leak(Box::new(hub));
    let sent = Rc::new(Cell::new(0));
    let transports = (0..n)
        .map(|end| {
            let sent = sent.clone();
            let observer: Box<dyn FnMut(Call)> = Box::new(move |call| {
                sent.set(sent.get() + u32::from(matches!(call, Call::Send(..) | Call::Reserve(..))));
            });
            let arena = &mut Arena::new(memory(Transport::bytes(&CONFIG, 3, &[&Hub::attributes(512)])));
            Mtl::new(CONFIG, 3, arena, [Traced::new(hub.rail(end).unwrap(), observer)]).unwrap()
        })
        .collect();
    (transports, sent)
}

/// `n` transports that all know each other, in one communicator.
fn world(n: u32) -> (Vec<Transport>, Comm) {
    let (mut transports, _) = strangers(n);
    let params: Vec<_> = transports.iter().map(Mtl::params).collect();
    let mut comm = None;
    for (rank, transport) in transports.iter_mut().enumerate() {
        let peers: Vec<_> = (0..n).map(Peer).collect();
        let reach = |peer: Peer, _, rail: &mut Observed| rail.add_peer(peer, &peer.0.to_le_bytes());
        transport.add_peers(&peers, |peer| &params[peer.0 as usize], reach).unwrap();
        comm = Some(transport.add_lasting_comm(1, Group::World { size: n }, rank as u32).unwrap());
    }
    (transports, comm.unwrap())
}

fn sink(into: &mut [u8]) -> Span {
    Span::contiguous(into.as_mut_ptr(), into.len())
}

fn settle(transports: &mut [Transport]) {
    for _ in 0..2000 {
        transports.iter_mut().for_each(|transport| {
            transport.progress(Instant::ZERO);
        });
    }
}

#[test]
fn m1_the_transport_itself_cuts_and_orders_long_messages() {
    let (mut world, comm) = world(2);
    let data: Vec<Vec<u8>> = (1..6).map(|i| vec![i as u8; i * 3000 % 7000]).collect();
    let mut into = vec![vec![0u8; 7000]; data.len()];
    // SAFETY: all buffers live to the end of the test.
    let (sends, receives): (Vec<_>, Vec<_>) = unsafe {
        let sends = data.iter().map(|d| world[0].isend(comm, 1, 4, Mode::Standard, Span::of(d)).unwrap()).collect();
        let receives = into.iter_mut().map(|i| world[1].irecv(comm, Source::Any, Tag::Any, sink(i)).unwrap()).collect();
        (sends, receives)
    };
    settle(&mut world);
    for ((request, into), data) in receives.into_iter().zip(&into).zip(&data) {
        let status = world[1].test(request).unwrap().unwrap();
        assert_eq!(&into[..status.delivered as usize], &data[..]);
    }
    for sending in sends {
        if let Sending::Pending(request) = sending {
            world[0].test(request).unwrap().unwrap();
        }
    }
}

#[test]
fn m2_nothing_is_sent_before_a_peer_was_added() {
    let (mut transports, sent) = strangers(2);
    settle(&mut transports);
    let comm = transports[0].add_comm(1, Group::World { size: 2 }, 0).unwrap();
    // SAFETY: an empty message has no memory.
    let refused = unsafe { transports[0].isend(comm, 1, 0, Mode::Standard, Span::EMPTY) };
    assert_eq!((refused, sent.get()), (Err(Refusal::NoPeer(Peer(1))), 0));
}

#[test]
fn m4_p8_a_transport_ends_that_never_had_a_peer() {
    let (transports, sent) = strangers(2);
    for transport in transports {
        let [rail] = transport.finalize();
        drop(rail);
    }
    assert_eq!(Rc::strong_count(&sent), 1); // nothing of the rails is left
    let (mut world, comm) = world(2);
    let (data, mut into) = (vec![1u8; 5000], vec![0u8; 5000]);
    // SAFETY: both buffers live to the end of the test.
    unsafe {
        let _ = world[0].isend(comm, 1, 0, Mode::Standard, Span::of(&data)).unwrap();
        let _ = world[1].irecv(comm, Source::Rank(0), Tag::Is(0), sink(&mut into)).unwrap();
    }
    world.iter_mut().for_each(|transport| {
        transport.progress(Instant::ZERO);
    });
    world.into_iter().for_each(|transport| drop(transport.finalize()));
    into.fill(9); // no rail accesses it any more
}

#[test]
fn m5_one_peer_that_cannot_be_reached_undoes_all() {
    let (mut transports, _) = strangers(3);
    let params = transports[0].params();
    let peers = [Peer(0), Peer(1), Peer(2)];
    let some = |peer: Peer, _, rail: &mut Observed| {
        if peer.0 == 2 { Err(Unreachable::NoNetwork) } else { rail.add_peer(peer, &peer.0.to_le_bytes()) }
    };
    let first = &mut transports[0];
    assert_eq!(first.add_peers(&peers, |_| &params, some), Err((Peer(2), Unreachable::NoNetwork)));
    let comm = first.add_comm(1, Group::World { size: 3 }, 0).unwrap();
    for rank in 0..3 {
        // SAFETY: an empty message has no memory.
        let refused = unsafe { first.isend(comm, rank, 0, Mode::Standard, Span::EMPTY) };
        assert_eq!(refused, Err(Refusal::NoPeer(Peer(rank))));
    }
    let all = |peer: Peer, _, rail: &mut Observed| rail.add_peer(peer, &peer.0.to_le_bytes());
    assert_eq!(first.add_peers(&peers, |_| &params, all), Ok(()));
}

#[test]
fn m7_m9_a_blocking_send_leaves_the_buffer_and_has_the_same_outcome() {
    for len in [10, 3000] {
        let (mut world, comm) = world(2);
        let mut into = vec![vec![0u8; len]; 2];
        let mut data = vec![5u8; len];
        let (mut one, mut other) = (world.remove(0), world.remove(0));
        // SAFETY: the buffers live to the end of the test; the closures do not unwind unless the test fails.
        unsafe {
            let first = other.irecv(comm, Source::Rank(0), Tag::Is(1), sink(&mut into[0])).unwrap();
            let second = other.irecv(comm, Source::Rank(0), Tag::Is(1), sink(&mut into[1])).unwrap();
            let turn = |other: &mut Transport| {
                other.progress(Instant::ZERO);
                Instant::ZERO
            };
            one.send(comm, 1, 1, Mode::Standard, &data, || turn(&mut other)).unwrap();
            data.fill(0xee); // the buffer is ours again
            let again = vec![6u8; len];
            if let Sending::Pending(request) = one.isend(comm, 1, 1, Mode::Standard, Span::of(&again)).unwrap() {
                one.wait(request, || turn(&mut other)).unwrap();
            }
            for request in [first, second] {
                let status = other.wait(request, || turn(&mut one)).unwrap();
                assert_eq!((status.received, status.tag, status.peer), (len as u64, 1, Peer(0)));
            }
        }
        assert_eq!((&into[0], &into[1]), (&vec![5u8; len], &vec![6u8; len]));
    }
}

#[test]
fn m11_a_request_is_one_word_that_is_good_until_its_outcome_is_taken() {
    let (mut world, comm) = world(2);
    assert_eq!(Transport::ATTRIBUTES.request_bytes, size_of_val(&0u64));
    let mut into = [0u8; 4];
    // SAFETY: the buffers live to the end of the test.
    let word = unsafe { world[1].irecv(comm, Source::Any, Tag::Any, sink(&mut into)) }.unwrap().to_bits();
    // SAFETY: as above.
    let _ = unsafe { world[0].isend(comm, 1, 3, Mode::Standard, Span::of(&[1, 2, 3, 4])) }.unwrap();
    settle(&mut world);
    assert_eq!(world[1].test(Request::from_bits(word)).map(|o| o.unwrap().tag), Some(3));
    into.fill(7);
    for word in [word, 0, u64::MAX] {
        assert_eq!(world[1].test(Request::from_bits(word)), Some(Err(Failure::NoRequest)));
        assert!(!world[1].cancel(Request::from_bits(word)));
    }
    settle(&mut world);
    assert_eq!(into, [7; 4]);
}

#[test]
fn m15_the_rank_of_each_peer_is_found_in_tables_of_any_order() {
    let (mut world, _) = world(3);
    for (context, table) in [&[2, 0, 1][..], &[0, 1, 2], &[0, 2], &[2, 0], &[1]].into_iter().enumerate() {
        let comm = world[0].add_comm(100 + context as u32, Group::Table(table), 0).unwrap();
        for peer in 0..3 {
            let rank = table.iter().position(|other| *other == peer).map(|rank| rank as u32);
            assert_eq!(world[0].rank_of(comm, Peer(peer)), rank, "peer {peer} of {table:?}");
        }
        world[0].del_comm(comm);
    }
}

#[test]
fn m15_messages_wait_for_their_communicator_and_go_with_it() {
    let (mut world, _) = world(2);
    let later = world[0].add_comm(9, Group::Table(&[1, 0]), 1).unwrap();
    let long = vec![3u8; 2000];
    // SAFETY: the buffers live to the end of the test.
    let (short, pending) = unsafe {
        let short = world[0].isend(later, 0, 1, Mode::Standard, Span::of(b"early")).unwrap();
        (short, world[0].isend(later, 0, 2, Mode::Synchronous, Span::of(&long)).unwrap())
    };
    assert_eq!(short, Sending::Complete);
    let Sending::Pending(pending) = pending else { panic!("complete too early") };
    settle(&mut world);
    let here = world[1].add_comm(9, Group::Table(&[1, 0]), 0).unwrap();
    assert_eq!(world[1].add_comm(9, Group::World { size: 2 }, 0), Err(CommError::ContextTaken));
    let mut into = [0u8; 5];
    // SAFETY: as above.
    let receive = unsafe { world[1].irecv(here, Source::Rank(1), Tag::Is(1), sink(&mut into)) }.unwrap();
    let status = world[1].test(receive).unwrap().unwrap();
    assert_eq!((&into, world[1].rank_of(here, status.peer)), (b"early", Some(1)));
    // SAFETY: as above.
    let unmatched = unsafe { world[1].irecv(here, Source::Rank(1), Tag::Is(77), sink(&mut into)) }.unwrap();
    world[1].del_comm(here);
    settle(&mut world);
    assert_eq!(world[1].test(unmatched), Some(Err(Failure::Cancelled)));
    let refused = world[0].test(pending);
    assert!(matches!(refused, Some(Err(Failure::NoCommunicator(status))) if status.peer == Peer(1)), "{refused:?}");
    assert_eq!((world[0].pml().used(), world[1].pml().used()), ([0; 3], [0; 3]));
}

#[test]
fn m16_limits_are_enforced() {
    let (mut world, comm) = world(2);
    let (context, tag) = (Transport::ATTRIBUTES.max_context, Transport::ATTRIBUTES.max_tag);
    assert!(world[0].add_comm(context, Group::World { size: 2 }, 0).is_ok());
    assert_eq!(world[0].add_comm(2, Group::World { size: 2 }, 2), Err(CommError::RankOutside));
    assert!(world[0].add_comm(2, Group::World { size: 2 }, 0).is_ok());
    assert_eq!(world[0].add_comm(3, Group::World { size: 2 }, 0), Err(CommError::Full));
    // SAFETY: empty messages have no memory.
    unsafe {
        assert_eq!(world[0].isend(comm, 2, 0, Mode::Standard, Span::EMPTY), Err(Refusal::Invalid));
        assert_eq!(world[0].isend(comm, 1, u32::MAX, Mode::Standard, Span::EMPTY), Err(Refusal::Invalid));
        assert_eq!(world[1].irecv(comm, Source::Rank(2), Tag::Any, Span::EMPTY).err(), Some(Refusal::Invalid));
        // The largest tag for all is taken by any, the next is not.
        let _ = world[0].isend(comm, 1, tag + 1, Mode::Standard, Span::EMPTY).unwrap();
        let _ = world[0].isend(comm, 1, tag, Mode::Standard, Span::EMPTY).unwrap();
        settle(&mut world);
        let receive = world[1].irecv(comm, Source::Any, Tag::Any, Span::EMPTY).unwrap();
        assert_eq!(world[1].test(receive).map(|o| o.unwrap().tag), Some(tag));
        assert!(world[1].iprobe(comm, Source::Any, Tag::Any).is_none());
        assert!(world[1].iprobe(comm, Source::Any, Tag::Is(tag + 1)).is_some());
    }
}

/// A member that ends normally has not failed. But when all others have ended, nothing can come from any source.
#[test]
fn p7_receives_from_any_source_end_when_no_other_member_is_left() {
    let (mut world, comm) = world(3);
    let apart = world[0].add_comm(2, Group::Table(&[1, 0]), 1).unwrap();
    let mut into = [[0u8; 4]; 5];
    let [a, b, c, d, e] = &mut into;
    let closed = |peer, tag| Some(Err(Failure::PeerClosed { peer: Peer(peer), tag, bytes: None }));
    // SAFETY: the buffers live to the end of the test.
    let receive = |transport: &mut Transport, comm, tag, into: &mut [u8]| unsafe {
        transport.irecv(comm, Source::Any, Tag::Is(tag), sink(into)).unwrap()
    };
    // SAFETY: as above.
    let _ = unsafe { world[1].isend(comm, 0, 5, Mode::Standard, Span::of(b"last")) }.unwrap();
    settle(&mut world);
    let (wide, elsewhere) = (receive(&mut world[0], comm, 1, a), receive(&mut world[0], apart, 1, b));
    world[0].pml().lose_peer(Peer(1), Lost::Closed);
    world[0].progress(Instant::ZERO);
    assert_eq!((world[0].test(wide), world[0].test(elsewhere)), (None, closed(1, 1)));
    assert_eq!((world[0].failed(comm, Source::Any), world[0].failed(apart, Source::Any)), (None, Some(Peer(1))));
    world[0].pml().lose_peer(Peer(2), Lost::Closed);
    world[0].progress(Instant::ZERO);
    assert_eq!(world[0].test(wide), closed(2, 1));
    // A message that has arrived is received.
    let last = receive(&mut world[0], comm, 5, c);
    assert!(world[0].test(last).is_some_and(|outcome| outcome.is_ok()));
    let vain = receive(&mut world[0], comm, 6, d);
    world[0].progress(Instant::ZERO);
    assert_eq!(world[0].test(vain), closed(2, 6));
    // A member that has rejoined may send again.
    let params = world[1].params();
    world[0].add_peer(Peer(2), &params, |_, rail| rail.add_peer(Peer(2), &2u32.to_le_bytes())).unwrap();
    let patient = receive(&mut world[0], comm, 7, e);
    world[0].progress(Instant::ZERO);
    assert_eq!(world[0].test(patient), None);
    assert_eq!(into[2], *b"last");
}

/// When a member fails, receives from any source end once, and no message is lost. Fault-tolerant MPI needs this.
#[test]
fn p7_receives_from_any_source_end_where_a_member_fails_until_that_is_acknowledged() {
    let (mut world, comm) = world(3);
    let apart = world[0].add_comm(2, Group::Table(&[0, 1]), 0).unwrap();
    let mut into = [[0u8; 4]; 7];
    let [a, b, c, d, e, f, g] = &mut into;
    let failed = Some(Err(Failure::PeerFailed(Peer(2))));
    // SAFETY: the buffers live to the end of the test.
    let receive = |transport: &mut Transport, comm, source, tag, into: &mut [u8]| unsafe {
        transport.irecv(comm, source, Tag::Is(tag), sink(into)).unwrap()
    };
    // SAFETY: as above.
    let _ = unsafe { world[2].isend(comm, 0, 5, Mode::Standard, Span::of(b"last")) }.unwrap();
    settle(&mut world);
    let wide = receive(&mut world[0], comm, Source::Any, 1, a);
    let recent = receive(&mut world[0], comm, Source::Rank(1), 2, b);
    let elsewhere = receive(&mut world[0], apart, Source::Any, 1, c);
    world[0].pml().lose_peer(Peer(2), Lost::TimedOut);
    world[0].progress(Instant::ZERO);
    assert_eq!([wide, recent, elsewhere].map(|request| world[0].test(request)), [failed, None, None]);
    assert_eq!((world[0].broken(comm), world[0].broken(apart)), (Some(Peer(2)), None));
    let gone = [Source::Any, Source::Rank(2), Source::Rank(1)].map(|source| world[0].failed(comm, source));
    assert_eq!(gone, [Some(Peer(2)), Some(Peer(2)), None]);
    // A message that has arrived is received, whichever member sent it. A receive without a message ends at once.
    let last = receive(&mut world[0], comm, Source::Any, 5, d);
    assert!(world[0].test(last).is_some_and(|outcome| outcome.is_ok()));
    let vain = receive(&mut world[0], comm, Source::Any, 1, e);
    assert_eq!(world[0].test(vain), failed);
    world[0].acknowledge(comm);
    assert_eq!((world[0].failed(comm, Source::Any), world[0].broken(comm)), (None, Some(Peer(2))));
    let patient = receive(&mut world[0], comm, Source::Any, 1, f);
    settle(&mut world);
    assert_eq!(world[0].test(patient), None);
    // A second failure ends it again.
    world[0].pml().lose_peer(Peer(1), Lost::Broken);
    world[0].progress(Instant::ZERO);
    let failed = Some(Err(Failure::PeerFailed(Peer(1))));
    assert_eq!([patient, recent, elsewhere].map(|request| world[0].test(request)), [failed; 3]);
    // A peer that has rejoined has not failed.
    world[0].acknowledge(comm);
    let params = world[1].params();
    for peer in [Peer(1), Peer(2)] {
        world[0].add_peer(peer, &params, |_, rail| rail.add_peer(peer, &peer.0.to_le_bytes())).unwrap();
    }
    assert_eq!((world[0].broken(comm), world[0].failed(comm, Source::Rank(2))), (None, None));
    let patient = receive(&mut world[0], comm, Source::Any, 1, g);
    world[0].progress(Instant::ZERO);
    assert_eq!(world[0].test(patient), None);
    assert_eq!(into[3], *b"last");
}

#[test]
fn p7_a_rejoined_member_does_not_hide_another_that_has_failed() {
    let (mut world, comm) = world(3);
    let params = world[1].params();
    let at_zero = &mut world[0];
    // A peer that was never known, or was forgotten, is lost as well: nothing leads to it.
    at_zero.del_peer(Peer(1));
    at_zero.pml().lose_peer(Peer(1), Lost::Broken);
    at_zero.progress(Instant::ZERO);
    assert_eq!(
        (at_zero.failed(comm, Source::Rank(1)), at_zero.pml().why_lost(Peer(1))),
        (Some(Peer(1)), Some(Lost::Broken))
    );
    at_zero.pml().lose_peer(Peer(2), Lost::Broken);
    at_zero.progress(Instant::ZERO);
    assert_eq!((at_zero.failed(comm, Source::Any), at_zero.broken(comm)), (Some(Peer(2)), Some(Peer(2))));
    let reach = |at: u32| move |_, rail: &mut Observed| rail.add_peer(Peer(at), &at.to_le_bytes());
    at_zero.add_peer(Peer(2), &params, reach(2)).unwrap();
    assert_eq!((at_zero.failed(comm, Source::Any), at_zero.broken(comm)), (Some(Peer(1)), Some(Peer(1))));
    at_zero.add_peer(Peer(1), &params, reach(1)).unwrap();
    assert_eq!((at_zero.failed(comm, Source::Any), at_zero.broken(comm)), (None, None));
    // A peer that ended normally has not failed.
    at_zero.pml().lose_peer(Peer(1), Lost::Closed);
    at_zero.pml().lose_peer(Peer(2), Lost::Broken);
    at_zero.progress(Instant::ZERO);
    at_zero.add_peer(Peer(2), &params, reach(2)).unwrap();
    assert_eq!((at_zero.failed(comm, Source::Any), at_zero.broken(comm)), (None, None));
}

/// Communicators that were made before a peer was lost do not contain the process that replaces it.
#[test]
fn p7_a_rejoined_member_is_in_no_communicator_made_before_it_was_lost() {
    let (mut world, comm) = world(3);
    let table = world[0].add_comm(7, Group::Table(&[2, 1, 0]), 2).unwrap();
    let same = world[0].add_comm(8, Group::World { size: 3 }, 0).unwrap();
    let params = world[1].params();
    let mut into = [[0u8; 4]; 12];
    let [a, b, c, d, e, f, g, h, i, j, k, l] = &mut into;
    let zero = &mut world[0];
    // SAFETY: the buffers live to the end of the test.
    let receive = |zero: &mut Transport, comm, source, into: &mut [u8]| unsafe {
        zero.irecv(comm, source, Tag::Is(1), sink(into)).unwrap()
    };
    // SAFETY: an empty message has no memory.
    let send = |zero: &mut Transport, comm, dest| unsafe { zero.isend(comm, dest, 1, Mode::Standard, Span::EMPTY) };
    let before = [receive(zero, table, Source::Rank(1), a), receive(zero, same, Source::Any, b)];
    assert_eq!(send(zero, same, 1), Ok(Sending::Complete)); // the communicator that was looked up last
    zero.pml().lose_peer(Peer(1), Lost::Broken);
    // No progress in between: the failure must not be forgotten.
    zero.add_peer(Peer(1), &params, |_, rail| rail.add_peer(Peer(1), &1u32.to_le_bytes())).unwrap();
    assert_eq!(before.map(|request| zero.test(request)), [const { Some(Err(Failure::PeerFailed(Peer(1)))) }; 2]);
    let restarted = Some(Err(Failure::Restarted(Peer(1))));
    for (comm, a, b) in [(table, c, d), (same, e, f)] {
        assert_eq!(send(zero, comm, 1), Err(Refusal::Restarted(Peer(1))));
        let receives = [receive(zero, comm, Source::Rank(1), a), receive(zero, comm, Source::Any, b)];
        assert_eq!(receives.map(|request| zero.test(request)), [restarted; 2]);
        assert_eq!(zero.iprobe(comm, Source::Rank(1), Tag::Any), None);
        let probe = zero.improbe(comm, Source::Rank(1), Tag::Any);
        assert!(matches!(probe, Err(Refusal::Restarted(Peer(1)))), "{probe:?}");
        let failed =
            [Source::Any, Source::Rank(0), Source::Rank(1), Source::Rank(2)].map(|rank| zero.failed(comm, rank));
        assert_eq!(failed, [Some(Peer(1)), None, Some(Peer(1)), None]);
        assert_eq!((zero.excluded(comm, Source::Rank(1)), zero.broken(comm)), (Some(Peer(1)), Some(Peer(1))));
        // A rank that does not exist at all is reported as invalid.
        assert_eq!(send(zero, comm, 3), Err(Refusal::Invalid));
    }
    // Messages among the other members go on, and once the failure is acknowledged, receives from any source do as well.
    zero.acknowledge(table);
    let (wide, recent) = (receive(zero, table, Source::Any, g), receive(zero, same, Source::Rank(2), h));
    assert_eq!(send(zero, same, 2), Ok(Sending::Complete));
    assert_eq!([wide, recent].map(|request| zero.test(request)), [None; 2]);
    // The new process of the peer is no member, so its failure does not matter here.
    zero.pml().lose_peer(Peer(1), Lost::Broken);
    zero.progress(Instant::ZERO);
    assert_eq!((zero.test(wide), zero.failed(table, Source::Any)), (None, None));
    zero.add_peer(Peer(1), &params, |_, rail| rail.add_peer(Peer(1), &1u32.to_le_bytes())).unwrap();
    // A lasting communicator, and a new one, contain the present incarnations of their peers.
    let anew = zero.add_comm(9, Group::World { size: 3 }, 0);
    assert_eq!(anew, Err(CommError::Full));
    zero.del_comm(same);
    let anew = zero.add_comm(9, Group::World { size: 3 }, 0).unwrap();
    for (comm, a, b) in [(comm, i, j), (anew, k, l)] {
        assert_eq!(send(zero, comm, 1), Ok(Sending::Complete));
        let receives = [receive(zero, comm, Source::Rank(1), a), receive(zero, comm, Source::Any, b)];
        assert_eq!(receives.map(|request| zero.test(request)), [None; 2]);
        assert_eq!((zero.excluded(comm, Source::Rank(1)), zero.broken(comm)), (None, None));
    }
    settle(&mut world);
    // Once more: now the communicator that was made in between is an earlier one.
    let zero = &mut world[0];
    zero.pml().lose_peer(Peer(1), Lost::Closed);
    assert_eq!(send(zero, anew, 1), Err(Refusal::PeerClosed(Peer(1))));
    zero.add_peer(Peer(1), &params, |_, rail| rail.add_peer(Peer(1), &1u32.to_le_bytes())).unwrap();
    assert_eq!([comm, anew].map(|comm| send(zero, comm, 1)), [Ok(Sending::Complete), Err(Refusal::Restarted(Peer(1)))]);
    // The peer had ended normally, so other operations are not disturbed.
    let mut last = [0; 4];
    let wide = receive(zero, anew, Source::Any, &mut last);
    assert_eq!(zero.test(wide), None);
    zero.del_comm(anew);
}

#[test]
fn a_communicator_is_found_by_its_context_until_it_is_deleted() {
    let (mut world, comm) = world(2);
    let table = Box::leak(Box::new([1u32, 0]));
    let other = world[0].add_comm(9, Group::Table(table), 1).unwrap();
    assert_eq!((world[0].comm_of(1), world[0].comm_of(9), world[0].comm_of(2)), (Some(comm), Some(other), None));
    assert_eq!((world[0].context_of(comm), world[0].context_of(other)), (Some(1), Some(9)));
    assert_eq!((world[0].peer_of(comm, 1), world[0].peer_of(other, 1)), (Some(Peer(1)), Some(Peer(0))));
    assert_eq!((world[0].peer_of(comm, 2), world[0].peer_of(other, 2)), (None, None));
    world[0].del_comm(other);
    assert_eq!((world[0].comm_of(9), world[0].context_of(other), world[0].peer_of(other, 0)), (None, None, None));
}
