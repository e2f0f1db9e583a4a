//! The engine over loopback rails: two to four of them in one thread.

use std::vec::Vec;
use std::{boxed::Box, vec};

use crate::arena::Arena;
use crate::convertor::Span;
use crate::pml::matching::{ANY, Pattern};
use crate::pml::*;
use crate::rail::loopback::{self, Hub};
use crate::rail::{Endpoint, FullRail, Peer, Rail};
use crate::time::Instant;

pub(super) type Engine = Pml<'static, [loopback::Rail<'static>; 1]>;

pub(super) fn memory(bytes: usize) -> &'static mut [u8] {
    Box::leak(vec![0u8; bytes].into_boxed_slice())
}

/// `n` engines that all know each other.
pub(super) fn engines(n: u32, config: Config, slots: u32, frame: u32) -> Vec<Engine> {
    let hub = Hub::new(&mut Arena::new(memory(Hub::cost(n, slots, frame))), n, slots, frame).unwrap();
    let hub: &'static Hub<'static> = Box::leak(Box::new(hub));
    over((0..n).map(|end| hub.rail(end).unwrap()), config)
}

/// Engines over these rails, which all know each other.
pub(super) fn over<R: FullRail>(rails: impl IntoIterator<Item = R>, config: Config) -> Vec<Pml<'static, [R; 1]>> {
    let engine = |rail: R| {
        let block = memory(config.bytes(&[rail.attributes()]));
        Pml::new(config, &mut Arena::new(block), [rail]).unwrap()
    };
    let mut engines: Vec<_> = rails.into_iter().map(engine).collect();
    let params: Vec<_> = engines.iter().map(Pml::params).collect();
    for engine in &mut engines {
        for (peer, params) in (0..).zip(&params) {
            engine.add_peer(Peer(peer), params, |_, rail| rail.add_peer(Peer(peer), &peer.to_le_bytes())).unwrap();
        }
    }
    engines
}

/// One step of each engine.
pub(super) fn step<R: FullRail>(engines: &mut [Pml<'static, [R; 1]>]) {
    for engine in engines {
        engine.progress(Instant::ZERO);
    }
}

pub(super) const WIDE: Config = Config {
    peers: 4,
    requests: 256,
    unexpected: 64,
    units: 64,
    unit_bytes: 512,
    probes: 1,
    seed: 1,
    first_sequence: u32::MAX as u64 - 2,
    rma: crate::rma::Config::OFF,
    rdma: crate::pml::rdma::Config::OFF,
};

pub(super) fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

pub(super) fn from(source: u32, tag: u32) -> Pattern {
    Pattern { context: 1, source, tag }
}

/// Drives all engines until the request is over. Fails if no engine makes progress any more.
pub(super) fn finish(engines: &mut [Engine], at: usize, request: Request) -> Result<Status, Failure> {
    for _ in 0..100_000 {
        if let Some(outcome) = engines[at].test(request) {
            return outcome;
        }
        step(engines);
    }
    panic!("no progress: {:?}", engines.iter().map(|e| *e.counters()).collect::<Vec<_>>());
}

pub(super) fn settle(engines: &mut [Engine]) {
    for _ in 0..1000 {
        step(engines);
    }
}

pub(super) fn send(engine: &mut Engine, to: u32, tag: u32, mode: Mode, data: &[u8]) -> Sending {
    // SAFETY: the tests keep their buffers until the end.
    unsafe { engine.isend(Peer(to), 1, tag, mode, Span::of(data)) }.unwrap()
}

pub(super) fn recv(engine: &mut Engine, pattern: Pattern, into: &mut [u8]) -> Request {
    // SAFETY: the tests keep their buffers until the end.
    unsafe { engine.irecv(pattern, Span::contiguous(into.as_mut_ptr(), into.len())) }.unwrap()
}

pub(super) fn pending(sending: Sending) -> Request {
    match sending {
        Sending::Pending(request) => request,
        Sending::Complete => panic!("complete too early"),
    }
}

#[test]
fn p20_p23_p28_p30_messages_of_all_sizes_and_modes_arrive_whole() {
    for mode in [Mode::Standard, Mode::Buffered, Mode::Synchronous, Mode::Ready, Mode::Complete] {
        for len in [0, 1, 31, 32, 33, 200, 488, 489, 511, 512, 513, 5000, 100_000] {
            for early in [true, false] {
                let mut engines = engines(2, WIDE, 8, 512);
                let data = bytes(len, 3);
                let mut into = vec![0u8; len];
                let mut receive = None;
                if early || mode == Mode::Ready {
                    receive = Some(recv(&mut engines[1], from(0, 5), &mut into));
                }
                let sending = send(&mut engines[0], 1, 5, mode, &data);
                if receive.is_none() {
                    settle(&mut engines);
                    receive = Some(recv(&mut engines[1], from(ANY, ANY), &mut into));
                }
                let status = finish(&mut engines, 1, receive.unwrap()).unwrap();
                if let Sending::Pending(request) = sending {
                    assert_eq!(finish(&mut engines, 0, request).unwrap().delivered, len as u64);
                }
                assert_eq!((status.received, status.delivered), (len as u64, len as u64));
                assert_eq!((status.peer, status.tag), (Peer(0), 5));
                assert!(into == data, "{mode:?} {len} {early}");
                let (copied, waited) = (engines[1].counters().copied, !early && mode != Mode::Ready);
                assert!(waited || copied == 0, "{copied} bytes were copied that came in time");
                if waited && mode == Mode::Standard && len <= 488 {
                    assert_eq!(copied, len as u64, "it came before its receive");
                }
                settle(&mut engines);
                assert_eq!(engines[0].used(), [0; 3]);
                assert_eq!(engines[1].used(), [0; 3]);
            }
        }
    }
}

#[test]
fn m8_modes_differ() {
    let mut engines = engines(2, WIDE, 8, 512);
    let data = bytes(16, 0);
    assert_eq!(send(&mut engines[0], 1, 1, Mode::Standard, &data), Sending::Complete);
    let synchronous = pending(send(&mut engines[0], 1, 2, Mode::Synchronous, &data));
    settle(&mut engines);
    assert_eq!(engines[0].test(synchronous), None); // not matched yet
    let ready = pending(send(&mut engines[0], 1, 3, Mode::Ready, &data));
    assert_eq!(finish(&mut engines, 0, ready), Err(Failure::NotReady(Peer(1))));
    let mut into = [0; 16];
    let receive = recv(&mut engines[1], from(0, 2), &mut into);
    assert!(finish(&mut engines, 1, receive).is_ok() && finish(&mut engines, 0, synchronous).is_ok());
}

#[test]
fn m8_an_engine_on_a_device_keeps_ready_messages_for_receives_of_its_host() {
    for len in [16, 3000] {
        let mut engines = engines(2, WIDE, 8, 512);
        let data = bytes(len, 0);
        engines[1].keep_ready(true);
        let ready = pending(send(&mut engines[0], 1, 3, Mode::Ready, &data));
        settle(&mut engines);
        assert_eq!(engines[0].test(ready), None); // not matched yet
        engines[1].keep_ready(false);
        let mut into = vec![0; len];
        let receive = recv(&mut engines[1], from(0, 3), &mut into);
        assert!(finish(&mut engines, 1, receive).is_ok() && finish(&mut engines, 0, ready).is_ok());
        assert_eq!(into, data);
        let ready = pending(send(&mut engines[0], 1, 3, Mode::Ready, &data));
        assert_eq!(finish(&mut engines, 0, ready), Err(Failure::NotReady(Peer(1))));
    }
}

#[test]
fn p29_truncation_reports_both_counts_and_touches_nothing_else() {
    for len in [10, 300, 3000] {
        let mut engines = engines(2, WIDE, 8, 512);
        let data = bytes(len, 9);
        let mut into = [0xeeu8; 12];
        let receive = recv(&mut engines[1], from(0, 1), &mut into[..8]);
        let sending = send(&mut engines[0], 1, 1, Mode::Standard, &data);
        let failure = finish(&mut engines, 1, receive).unwrap_err();
        let Failure::Truncated(status) = failure else { panic!("{failure}") };
        assert_eq!((status.received, status.delivered), (len as u64, 8));
        assert_eq!((&into[..8], &into[8..]), (&data[..8], &[0xee; 4][..]));
        if let Sending::Pending(request) = sending {
            finish(&mut engines, 0, request).unwrap();
        }
        settle(&mut engines);
        // The receiver asks for the bytes that fit, and for no others: they are in the only frame, or in one fragment.
        assert_eq!(engines[1].counters().fragments_received, u64::from(len == 3000), "{len} bytes");
        assert_eq!((engines[0].used(), engines[1].used()), ([0; 3], [0; 3]));
    }
}

/// A flood of one tag comes before the message that is wanted. The receiver's memory stays within its bounds, the wanted message
/// is asked for, and all messages come through in the end, in order.
#[test]
fn p27_a_flood_is_held_back_and_the_wanted_message_is_asked_for() {
    for (unexpected, units) in [(1, 1), (4, 1), (32, 32), (0, 0)] {
        let config = Config { peers: 2, unexpected, units, ..WIDE };
        let mut engines = engines(2, config, 4, 512);
        let messages: Vec<_> = (0..100u8).map(|i| bytes(40, i)).collect();
        let wanted = bytes(77, 200);
        let mut sends: Vec<_> = messages.iter().map(|m| send(&mut engines[0], 1, 1, Mode::Standard, m)).collect();
        sends.push(send(&mut engines[0], 1, 2, Mode::Standard, &wanted));
        settle(&mut engines);
        assert!(engines[1].used()[1] <= unexpected.max(1));
        let mut into = [0; 77];
        let receive = recv(&mut engines[1], from(0, 2), &mut into);
        finish(&mut engines, 1, receive).unwrap();
        assert_eq!(into, wanted[..]);
        assert!(engines[1].counters().asks_sent > 0);
        for message in &messages {
            let mut into = [0; 40];
            let receive = recv(&mut engines[1], from(ANY, 1), &mut into);
            finish(&mut engines, 1, receive).unwrap();
            assert_eq!(into, message[..]);
        }
        for sending in sends {
            if let Sending::Pending(request) = sending {
                finish(&mut engines, 0, request).unwrap();
            }
        }
        settle(&mut engines);
        assert_eq!((engines[0].used(), engines[1].used()), ([0; 3], [0; 3]));
    }
}

#[test]
fn p27_receives_in_reverse_order_with_one_envelope() {
    let config = Config { peers: 2, unexpected: 2, units: 2, requests: 64, ..WIDE };
    let mut engines = engines(2, config, 4, 512);
    let messages: Vec<_> = (0..50u8).map(|i| bytes(1 + 20 * i as usize, i)).collect();
    let sends: Vec<_> =
        messages.iter().enumerate().map(|(tag, m)| send(&mut engines[0], 1, tag as u32, Mode::Standard, m)).collect();
    settle(&mut engines);
    for (tag, message) in messages.iter().enumerate().rev() {
        let mut into = vec![0; message.len()];
        let receive = recv(&mut engines[1], from(0, tag as u32), &mut into);
        finish(&mut engines, 1, receive).unwrap();
        assert_eq!(&into, message);
    }
    for sending in sends {
        if let Sending::Pending(request) = sending {
            finish(&mut engines, 0, request).unwrap();
        }
    }
}

#[test]
fn m12_m13_probes_find_messages_that_are_held_back() {
    let config = Config { peers: 2, unexpected: 2, units: 2, ..WIDE };
    let mut engines = engines(2, config, 4, 512);
    let data: Vec<_> = (0..6u8).map(|i| bytes(100 + i as usize, i)).collect();
    let sends: Vec<_> =
        data.iter().enumerate().map(|(tag, m)| send(&mut engines[0], 1, tag as u32, Mode::Standard, m)).collect();
    // The last message is far beyond the credit of one envelope.
    let found = (0..1000).find_map(|_| {
        settle(&mut engines[..]);
        engines[1].iprobe(from(ANY, 5))
    });
    assert_eq!(found, Some(Envelope { peer: Peer(0), tag: 5, len: 105 }));
    let (message, envelope) = engines[1].improbe(from(0, 5)).unwrap().unwrap();
    assert_eq!(envelope.len, 105);
    assert_eq!(engines[1].iprobe(from(ANY, 5)), None); // no other receive can take it
    let mut into = vec![0; 105];
    // SAFETY: the buffer lives to the end of the test.
    let receive = unsafe { engines[1].imrecv(message, Span::contiguous(into.as_mut_ptr(), into.len())) }.unwrap();
    finish(&mut engines, 1, receive).unwrap();
    assert_eq!(into, data[5]);
    // A probe for one, then for another, then receives of both.
    for tag in [4, 3] {
        let found = (0..1000).find_map(|_| {
            settle(&mut engines[..]);
            engines[1].iprobe(from(0, tag))
        });
        assert_eq!(found.map(|e| e.tag), Some(tag));
    }
    for (tag, data) in data.iter().enumerate().take(5) {
        let mut into = vec![0; data.len()];
        let receive = recv(&mut engines[1], from(0, tag as u32), &mut into);
        finish(&mut engines, 1, receive).unwrap();
        assert_eq!(&into, data);
    }
    for sending in sends {
        if let Sending::Pending(request) = sending {
            finish(&mut engines, 0, request).unwrap();
        }
    }
    settle(&mut engines);
    assert_eq!((engines[0].used(), engines[1].used()), ([0; 3], [0; 3]));
}

#[test]
fn m14_only_an_unmatched_receive_is_cancelled() {
    let mut engines = engines(2, WIDE, 8, 512);
    let mut into = [0; 8];
    let receive = recv(&mut engines[0], from(1, 1), &mut into);
    assert!(engines[0].cancel(receive));
    assert_eq!(engines[0].test(receive), Some(Err(Failure::Cancelled)));
    assert_eq!(engines[0].test(receive), Some(Err(Failure::NoRequest)));
    let synchronous = pending(send(&mut engines[0], 1, 1, Mode::Synchronous, &[1]));
    assert!(!engines[0].cancel(synchronous)); // a send goes on
    let receive = recv(&mut engines[1], from(0, 1), &mut into);
    finish(&mut engines, 1, receive).unwrap();
    finish(&mut engines, 0, synchronous).unwrap();
}

#[test]
fn p7_m6_a_deleted_peer_leaves_nothing_behind_and_may_be_added_again() {
    let mut engines = engines(2, WIDE, 8, 512);
    let data = bytes(3000, 1);
    let mut into = vec![0; 3000];
    let long = pending(send(&mut engines[0], 1, 1, Mode::Standard, &data));
    let receive = recv(&mut engines[0], from(1, 9), &mut into);
    let _ = send(&mut engines[1], 0, 4, Mode::Standard, &data[..50]);
    settle(&mut engines);
    engines[0].del_peer(Peer(1));
    assert_eq!(engines[0].test(long), Some(Err(Failure::PeerFailed(Peer(1)))));
    assert_eq!(engines[0].test(receive), Some(Err(Failure::PeerFailed(Peer(1)))));
    assert_eq!(engines[0].used(), [0; 3]);
    // SAFETY: nothing is begun.
    let refused = unsafe { engines[0].isend(Peer(1), 1, 1, Mode::Standard, Span::EMPTY) };
    assert_eq!(refused, Err(Refusal::NoPeer(Peer(1))));
    engines[1].del_peer(Peer(0));
    for (at, other) in [(0, 1u32), (1, 0)] {
        let params = engines[at].params();
        let add = |_: usize, rail: &mut loopback::Rail<'_>| -> Result<Endpoint, _> {
            rail.add_peer(Peer(other), &other.to_le_bytes())
        };
        engines[at].add_peer(Peer(other), &params, add).unwrap();
    }
    let receive = recv(&mut engines[1], from(0, 1), &mut into);
    let long = pending(send(&mut engines[0], 1, 1, Mode::Standard, &data));
    finish(&mut engines, 0, long).unwrap();
    finish(&mut engines, 1, receive).unwrap();
    assert_eq!(into, data);
}

/// Users plan with these sizes, so a change must be noticed and intended.
#[test]
fn sizes_are_pinned_and_the_smallest_engine_fits_8_kib() {
    for (what, bytes) in SIZES {
        std::println!("{bytes:4} bytes per {what}");
    }
    let smallest = Config::SMALLEST.bytes(&[&Hub::attributes(64)]);
    std::println!("{smallest:4} bytes for the smallest engine");
    assert_eq!(SIZES.map(|(_, bytes)| bytes), [112, 24, 104, 56]);
    assert!(smallest <= 8192);
    let large = Config { peers: 100_000, ..WIDE };
    let mut arena = Arena::new(memory(large.bytes(&[&Hub::attributes(512)])));
    let hub = Hub::new(&mut Arena::new(memory(Hub::cost(1, 4, 512))), 1, 4, 512).unwrap();
    assert!(Pml::new(large, &mut arena, [hub.rail(0).unwrap()]).is_ok());
}

/// An operation that ends while nothing arrives must be reported as well: otherwise a caller that waits for it would go to sleep.
#[test]
fn p8_a_completion_without_an_arrival_is_progress() {
    let mut engines = engines(2, WIDE, 2, 512);
    let data = bytes(16, 1);
    // More than the loop has room for: the last message waits for its own rail.
    let held = loop {
        if let Sending::Pending(request) = send(&mut engines[0], 1, 1, Mode::Standard, &data) {
            break request;
        }
    };
    assert_eq!(engines[0].test(held), None);
    assert_eq!(engines[0].progress(Instant::ZERO), 0);
    while engines[1].progress(Instant::ZERO) != 0 {}
    assert_eq!(engines[0].progress(Instant::ZERO), 1, "it left");
    assert!(engines[0].test(held).is_some());
    assert_eq!(engines[0].progress(Instant::ZERO), 0);
}
