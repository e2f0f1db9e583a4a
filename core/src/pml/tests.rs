//! The engine over loopback rails: two to four of them in one thread.

use std::vec::Vec;
use std::{boxed::Box, vec};

use super::matching::{ANY, Pattern};
use super::*;
use crate::arena::Arena;
use crate::btl::loopback::{self, Hub};
use crate::btl::{Endpoint, Peer, Rail};
use crate::convertor::Span;
use crate::time::Instant;

pub(super) type Engine = Pml<'static, [loopback::Rail<'static>; 1]>;

pub(super) fn memory(bytes: usize) -> &'static mut [u8] {
    Box::leak(vec![0u8; bytes].into_boxed_slice())
}

/// `n` engines, all known to each other.
pub(super) fn engines(n: u32, config: Config, slots: u32, frame: u32) -> Vec<Engine> {
    let hub = Hub::new(&mut Arena::new(memory(Hub::cost(n, slots, frame))), n, slots, frame).unwrap();
    let hub: &'static Hub<'static> = Box::leak(Box::new(hub));
    let mut engines: Vec<Engine> = (0..n)
        .map(|end| {
            let mut arena = Arena::new(memory(config.bytes(1)));
            Pml::new(config, &mut arena, [hub.rail(end).unwrap()]).unwrap()
        })
        .collect();
    let params: Vec<_> = engines.iter().map(Pml::params).collect();
    for engine in &mut engines {
        for (peer, params) in params.iter().enumerate() {
            let peer = Peer(peer as u32);
            engine.add_peer(peer, params, |_, rail| rail.add_peer(peer, &peer.0.to_le_bytes())).unwrap();
        }
    }
    engines
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
};

pub(super) fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

pub(super) fn from(source: u32, tag: u32) -> Pattern {
    Pattern { context: 1, source, tag }
}

/// Drives all engines until the request is over; fails on a stand-still.
pub(super) fn finish(engines: &mut [Engine], at: usize, request: Request) -> Result<Status, Failure> {
    for _ in 0..100_000 {
        if let Some(outcome) = engines[at].test(request) {
            return outcome;
        }
        engines.iter_mut().for_each(|engine| {
            engine.progress(Instant::ZERO);
        });
    }
    panic!("stand-still: {:?}", engines.iter().map(|e| *e.counters()).collect::<Vec<_>>());
}

pub(super) fn settle(engines: &mut [Engine]) {
    for _ in 0..1000 {
        engines.iter_mut().for_each(|engine| {
            engine.progress(Instant::ZERO);
        });
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
fn p20_p23_p30_messages_of_all_sizes_and_modes_arrive_whole() {
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
fn p29_truncation_tells_both_counts_and_leaves_the_rest_alone() {
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
        assert_eq!((engines[0].used(), engines[1].used()), ([0; 3], [0; 3]));
    }
}

/// A flood of one tag before the one that is wanted: the receiver's memory stays within its bounds, the wanted message
/// is asked for, and all come through in the end, in order.
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
    // The last is far beyond the credit of one envelope.
    let found = (0..1000).find_map(|_| {
        settle(&mut engines[..]);
        engines[1].iprobe(from(ANY, 5))
    });
    assert_eq!(found, Some(Envelope { peer: Peer(0), tag: 5, len: 105 }));
    let (message, envelope) = engines[1].improbe(from(0, 5)).unwrap();
    assert_eq!(envelope.len, 105);
    assert_eq!(engines[1].iprobe(from(ANY, 5)), None); // nobody else can take it
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
fn p7_m6_a_forgotten_peer_leaves_nothing_behind_and_may_come_back() {
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

/// Sizes are part of what users plan with: a change is to be seen and meant.
#[test]
fn sizes_are_pinned_and_the_smallest_engine_fits_8_kib() {
    for (what, bytes) in SIZES {
        std::println!("{bytes:4} bytes per {what}");
    }
    std::println!("{:4} bytes for the smallest engine", Config::SMALLEST.bytes(1));
    assert_eq!(SIZES.map(|(_, bytes)| bytes), [112, 24, 104, 56]);
    assert!(Config::SMALLEST.bytes(1) <= 8192);
    let large = Config { peers: 100_000, ..WIDE };
    let mut arena = Arena::new(memory(large.bytes(1)));
    let hub = Hub::new(&mut Arena::new(memory(Hub::cost(1, 4, 512))), 1, 4, 512).unwrap();
    assert!(Pml::new(large, &mut arena, [hub.rail(0).unwrap()]).is_ok());
}

/// What a hostile peer may send: handles that are stale, forged, or of another peer's request, offsets beyond what was
/// asked for, numbers from the past, messages beyond its credit. All of it is counted, none touches memory.
#[test]
fn p22_forged_handles_and_trespasses_are_counted_and_touch_nothing() {
    use crate::btl::{Lane, Shape};
    use crate::pool::Handle;
    use crate::wire;
    use zerocopy::{Immutable, IntoBytes};

    let hub = Hub::new(&mut Arena::new(memory(Hub::cost(3, 64, 512))), 3, 64, 512).unwrap();
    let hub: &'static Hub<'static> = Box::leak(Box::new(hub));
    let config = Config { unexpected: 8, units: 8, first_sequence: 0, ..WIDE };
    let mut engine = Pml::new(config, &mut Arena::new(memory(config.bytes(1))), [hub.rail(0).unwrap()]).unwrap();
    let params = engine.params();
    for peer in [1u32, 2] {
        engine.add_peer(Peer(peer), &params, |_, rail| rail.add_peer(Peer(peer), &peer.to_le_bytes())).unwrap();
    }
    let (mut liar, mut honest) = (hub.rail(1).unwrap(), hub.rail(2).unwrap());
    for rail in [&mut liar, &mut honest] {
        rail.add_peer(Peer(0), &0u32.to_le_bytes()).unwrap();
    }
    fn tell<H: IntoBytes + Immutable>(rail: &mut loopback::Rail<'_>, header: &H, body: &[u8]) {
        let len = size_of::<H>() + body.len();
        let shape = Shape { tag: crate::ptl::TAG, lane: Lane::Eager, header: size_of::<H>() as u8, len: len as u32 };
        let mut grant = rail.reserve(Endpoint(0), shape).unwrap();
        grant.write(0, header.as_bytes());
        grant.write(size_of::<H>(), body);
        let ticket = grant.finish();
        rail.commit(ticket);
    }
    // A long receive that peer 2 is about to fill.
    let mut into = vec![0xaa; 1000];
    let receive = recv(&mut engine, from(2, 5), &mut into);
    tell(&mut honest, &wire::Rendezvous::new(1, 5, 0, Handle::from_bits(77), 1000), &[]);
    engine.progress(Instant::ZERO);
    let Some(crate::btl::Event::Frame(ack)) = honest.poll(Instant::ZERO) else { panic!() };
    let (ack, _) = <wire::Ack as zerocopy::FromBytes>::read_from_prefix(ack.head()).unwrap();
    assert_eq!((ack.sender.get(), ack.wanted.get()), (77, 1000));
    let handle = ack.receiver.get();

    let mut stale = 0;
    for forged in [handle, handle ^ 1, handle.wrapping_add(1 << 32), 0, u64::MAX] {
        tell(&mut liar, &wire::Fragment::new(forged, 0), &[0x55; 100]); // not the liar's receive
        tell(&mut liar, &wire::Ack::new(forged, Handle::NONE, 10), &[]);
        tell(&mut liar, &wire::Finish::new(forged), &[]);
        tell(&mut liar, &wire::Reject::new(forged, wire::Reason::NotReady), &[]);
        stale += 4;
    }
    for (offset, len) in [(990, 11), (1001, 1), (u64::MAX, 2)] {
        tell(&mut honest, &wire::Fragment::new(handle, offset), &vec![0x55; len]);
        stale += 1;
    }
    tell(&mut liar, &wire::Nothing::new(3), &[]);
    stale += 1;
    (0..100).for_each(|_| {
        engine.progress(Instant::ZERO);
    });
    assert_eq!(engine.counters().stale, stale);
    assert!(into.iter().all(|byte| *byte == 0xaa));

    // Beyond its credit of two messages, and a number from the past.
    for sequence in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0] {
        tell(&mut liar, &wire::Match::new(1, 9, sequence), &[1, 2, 3]);
    }
    // Frames that are none.
    tell(&mut liar, &[0u8; 24], &[]);
    tell(&mut liar, &[0x2fu8; 40], &[]);
    tell(&mut liar, &wire::Finish::new(1), &[9]);
    (0..100).for_each(|_| {
        engine.progress(Instant::ZERO);
    });
    assert_eq!((engine.counters().trespasses, engine.counters().malformed), (9, 3));
    assert_eq!(engine.used()[1], 2); // its share of 8: what others are promised is there

    // The receive is none the worse for it.
    tell(&mut honest, &wire::Fragment::new(handle, 400), &[0x33; 400]);
    tell(&mut honest, &wire::Fragment::new(handle, 800), &[0x33; 200]);
    tell(&mut honest, &wire::Fragment::new(handle, 0), &[0x33; 400]);
    (0..100).for_each(|_| {
        engine.progress(Instant::ZERO);
    });
    assert_eq!(engine.test(receive).map(|outcome| outcome.unwrap().delivered), Some(1000));
    assert!(into.iter().all(|byte| *byte == 0x33));
}
