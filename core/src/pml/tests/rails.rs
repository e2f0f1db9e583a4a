//! The engine over several rails to one peer: which frames each rail carries, and which calls the rails get.

use std::cell::RefCell;
use std::rc::Rc;
use std::vec::Vec;
use std::{boxed::Box, vec};

use crate::arena::Arena;
use crate::convertor::Span;
use crate::pml::matching::Pattern;
use crate::pml::*;
use crate::ptl::Cache;
use crate::rail::loopback::{self, Hub};
use crate::rail::stack::{Call, Traced, Tuned};
use crate::rail::{Attributes, Lane, Peer, Rail, Shape, Unreachable};
use crate::time::Instant;

type Log = Rc<RefCell<Vec<(usize, Shape)>>>;
type Stacked = Traced<Tuned<loopback::Rail<'static>>, Box<dyn FnMut(Call)>>;
type Engine = Pml<'static, [Stacked; 3]>;

fn memory(bytes: usize) -> &'static mut [u8] {
    Box::leak(vec![0u8; bytes].into_boxed_slice())
}

/// Two engines with three rails between them, whose attributes `tune` sets, and a record of all that the first engine sends.
fn pair(config: Config, slots: u32, tune: fn(usize, &mut Attributes)) -> (Vec<Engine>, Log) {
    let log = Log::default();
    let hubs: Vec<&'static Hub<'static>> = (0..3)
        .map(|_| {
            let hub = Hub::new(&mut Arena::new(memory(Hub::cost(2, slots, 1024))), 2, slots, 1024).unwrap();
            &*Box::leak(Box::new(hub))
        })
        .collect();
    let mut engines: Vec<Engine> = (0..2)
        .map(|end| {
            let rails: [Stacked; 3] = core::array::from_fn(|index| {
                let log = log.clone();
                let observer: Box<dyn FnMut(Call)> = Box::new(move |call| match call {
                    Call::Send(_, shape, _) | Call::Reserve(_, shape) if end == 0 => {
                        log.borrow_mut().push((index, shape))
                    }
                    _ => {}
                });
                Traced::new(Tuned::new(hubs[index].rail(end).unwrap(), |a| tune(index, a)), observer)
            });
            let bytes = config.bytes(&rails.each_ref().map(Rail::attributes));
            Pml::new(config, &mut Arena::new(memory(bytes)), rails).unwrap()
        })
        .collect();
    for at in 0..2 {
        let (peer, params) = (Peer(1 - at as u32), engines[1 - at].params());
        engines[at].add_peer(peer, &params, |_, rail| rail.add_peer(peer, &peer.0.to_le_bytes())).unwrap();
    }
    (engines, log)
}

const CONFIG: Config =
    Config { peers: 2, requests: 64, unexpected: 256, units: 256, unit_bytes: 512, ..Config::SMALLEST };

const ALL: Pattern = Pattern { context: 1, source: 0, tag: 1 };

fn transfer(engines: &mut [Engine], len: usize) {
    let data: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
    let mut into = vec![0u8; len];
    // SAFETY: both buffers live until both requests are over, at the end of this function.
    let (receive, sending) = unsafe {
        let receive = engines[1].irecv(ALL, Span::contiguous(into.as_mut_ptr(), len)).unwrap();
        (receive, engines[0].isend(Peer(1), 1, 1, Mode::Standard, Span::of(&data)).unwrap())
    };
    let mut waiting = (Some(receive), if let Sending::Pending(request) = sending { Some(request) } else { None });
    for _ in 0..100_000 {
        engines.iter_mut().for_each(|engine| {
            engine.progress(Instant::ZERO);
        });
        waiting.0 = waiting.0.filter(|r| engines[1].test(*r).map(Result::unwrap).is_none());
        waiting.1 = waiting.1.filter(|r| engines[0].test(*r).map(Result::unwrap).is_none());
        if waiting == (None, None) {
            assert!(into == data);
            return;
        }
    }
    panic!("no progress");
}

#[test]
fn p12_first_fragments_go_round_the_links_of_the_lowest_latency() {
    let (mut engines, log) = pair(CONFIG, 64, |index, a| a.latency = [10, 500, 10][index]);
    for i in 0..31 {
        transfer(&mut engines, if i % 3 == 0 { 5000 } else { 100 });
    }
    let firsts = |rail| log.borrow().iter().filter(|(at, s)| *at == rail && s.lane == Lane::Eager).count();
    assert_eq!((firsts(0) + firsts(2), firsts(1)), (31, 0));
    assert!(firsts(0).abs_diff(firsts(2)) <= 1);
}

#[test]
fn p13_the_rest_is_striped_by_bandwidth_and_p2_each_rail_is_scheduled_by_the_engine() {
    let (mut engines, log) = pair(CONFIG, 4096, |index, a| a.bandwidth = [1000, 3000, 2000][index]);
    transfer(&mut engines, 1_000_000);
    let bytes = |rail| {
        let log = log.borrow();
        let bulk = log.iter().filter(|(at, s)| *at == rail && s.lane == Lane::Bulk);
        bulk.map(|(_, s)| u64::from(s.len) - u64::from(s.header)).sum::<u64>()
    };
    assert_eq!(bytes(0) + bytes(1) + bytes(2), 1_000_000);
    for (rail, share) in [(0, 1), (1, 3), (2, 2)] {
        assert!(bytes(rail).abs_diff(1_000_000 * share / 6) <= 1024, "rail {rail}: {}", bytes(rail));
    }
}

#[test]
fn p13_p9_a_rail_that_is_enabled_again_does_not_catch_up() {
    // The queues are so long that no rail is ever busy.
    let (mut engines, log) = pair(CONFIG, 4096, |_, _| {});
    engines[0].enable_rail(0, false).unwrap();
    transfer(&mut engines, 1_000_000);
    engines[0].enable_rail(0, true).unwrap();
    log.borrow_mut().clear();
    transfer(&mut engines, 300_000);
    let frames = |rail| log.borrow().iter().filter(|(at, s)| *at == rail && s.lane == Lane::Bulk).count();
    assert!(frames(0).abs_diff(frames(1)) <= 2 && frames(0).abs_diff(frames(2)) <= 2, "{:?}", [0, 1, 2].map(frames));
}

/// With queues of a few slots every rail is busy most of the time. Rails accept only parts, and everything arrives nevertheless.
#[test]
fn p20_p23_short_accepts_are_resumed() {
    let (mut engines, _) = pair(CONFIG, 3, |_, _| {});
    transfer(&mut engines, 100_000);
    assert!(engines[0].counters().busy > 0);
}

#[test]
fn p34_sizes_at_each_limit() {
    // Frames of 256 bytes on either lane, rendezvous with 100 bytes; a message goes eagerly up to 256 - 24.
    let tune = |_: usize, a: &mut Attributes| {
        (a.eager_limit, a.max_send_size, a.rendezvous_eager_limit) = (256, 256, 100);
    };
    for len in [0, 1, 99, 100, 101, 231, 232, 233, 328, 329, 556, 557, 1013, 100 + 228 * 4, 101 + 228 * 4] {
        let (mut engines, log) = pair(CONFIG, 16, tune);
        transfer(&mut engines, len);
        let log = log.borrow();
        assert!(log.iter().all(|(_, shape)| shape.len <= 256));
        let bulk = log.iter().filter(|(_, s)| s.lane == Lane::Bulk).count();
        let expected = if len <= 232 { 0 } else { (len - 100).div_ceil(256 - 28) };
        assert_eq!(bulk, expected, "{len} bytes");
    }
}

#[test]
fn p35_a_stacked_rail_sees_each_call() {
    let (mut engines, log) = pair(CONFIG, 16, |index, a| a.latency = index as u32);
    transfer(&mut engines, 10);
    transfer(&mut engines, 3000);
    let log = log.borrow();
    let sent = engines[0].counters();
    let seen = |lane| log.iter().filter(|(_, shape)| shape.lane == lane).count() as u64;
    assert_eq!(seen(Lane::Eager), sent.eager_sent + sent.rendezvous_sent);
    assert_eq!(seen(Lane::Bulk), sent.fragments_sent);
}

#[test]
fn p6_partial_reachability_and_handles_that_come_back() {
    let hub = |_| -> &'static Hub<'static> {
        Box::leak(Box::new(Hub::new(&mut Arena::new(memory(Hub::cost(2, 4, 256))), 2, 4, 256).unwrap()))
    };
    let (one, other) = (hub(0), hub(1));
    let rails = [one.rail(0).unwrap(), other.rail(0).unwrap()];
    let bytes = CONFIG.bytes(&rails.each_ref().map(Rail::attributes));
    let mut engine = Pml::new(CONFIG, &mut Arena::new(memory(bytes)), rails).unwrap();
    let params = engine.params();
    // The peer is reached by the second rail only, at its end 1.
    engine
        .add_peer(Peer(1), &params, |index, rail| {
            if index == 0 { Err(Unreachable::OtherHost) } else { rail.add_peer(Peer(1), &1u32.to_le_bytes()) }
        })
        .unwrap();
    assert_eq!(engine.add_peer(Peer(0), &params, |_, _| Err(Unreachable::NoNetwork)), Err(Unreachable::NoNetwork));
    assert_eq!(engine.add_peer(Peer(1), &params, |_, _| Err(Unreachable::NoCard)), Err(Unreachable::Full));
    assert_eq!(engine.add_peer(Peer(0), b"garbage", |_, _| Err(Unreachable::NoCard)), Err(Unreachable::BadCard));
    // SAFETY: an empty message has no memory.
    unsafe { engine.isend(Peer(1), 1, 1, Mode::Standard, Span::EMPTY) }.map(|_| ()).unwrap();
    let (mut unused, mut used) = (one.rail(1).unwrap(), other.rail(1).unwrap());
    for rail in [&mut unused, &mut used] {
        rail.add_peer(Peer(0), &0u32.to_le_bytes()).unwrap();
    }
    assert!(unused.poll(Instant::ZERO).is_none() && used.poll(Instant::ZERO).is_some());
}

/// After a million messages, short and long, every slot of every pool is free again.
#[test]
fn p32_nothing_is_left_after_many_messages() {
    let (mut engines, _) = pair(CONFIG, 16, |_, _| {});
    let messages = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
    for i in 0..messages {
        transfer(&mut engines, if i % 100 == 0 { 2000 } else { i % 64 });
    }
    for engine in &mut engines {
        engine.progress(Instant::ZERO);
        assert_eq!(engine.used(), [0; 3]);
    }
}

#[test]
fn p25_sequence_numbers_wrap_at_every_width() {
    for first_sequence in [0xffff - 5, 0xffff_ffff - 5, u64::MAX - 5] {
        let (mut engines, _) = pair(Config { first_sequence, ..CONFIG }, 16, |_, _| {});
        for len in 0..20 {
            transfer(&mut engines, len * 60);
        }
        assert_eq!(engines[1].counters().credit_violations, 0);
    }
}

#[test]
fn p10_one_call_advances_every_rail_with_the_time_that_was_given() {
    let polled = Rc::new(RefCell::new(Vec::new()));
    let hub: &'static Hub<'static> =
        Box::leak(Box::new(Hub::new(&mut Arena::new(memory(Hub::cost(3, 4, 256))), 3, 4, 256).unwrap()));
    let rails: [_; 3] = core::array::from_fn(|index| {
        let polled = polled.clone();
        Traced::new(hub.rail(index as u32).unwrap(), move |call| {
            if let Call::Poll(now) = call {
                polled.borrow_mut().push((index, now));
            }
        })
    });
    let bytes = CONFIG.bytes(&rails.each_ref().map(Rail::attributes));
    let mut engine = Pml::new(CONFIG, &mut Arena::new(memory(bytes)), rails).unwrap();
    let stamp = Instant::from_nanos(77);
    assert_eq!(engine.progress(stamp), 0);
    assert_eq!(*polled.borrow(), [(0, stamp), (1, stamp), (2, stamp)]);
}

#[test]
fn p16_p18_p19_sends_beyond_the_cache_go_uncached_and_preparation_balances() {
    let counts = Rc::new(RefCell::new((0u32, 0u32)));
    let hub: &'static Hub<'static> =
        Box::leak(Box::new(Hub::new(&mut Arena::new(memory(Hub::cost(2, 16, 1024))), 2, 16, 1024).unwrap()));
    let seen = counts.clone();
    let tuned = Tuned::new(hub.rail(0).unwrap(), |a| (a.cache_size, a.cache_bytes) = (2, 24));
    let rail = Traced::new(tuned, move |call| match call {
        Call::RequestInit => seen.borrow_mut().0 += 1,
        Call::RequestFini => seen.borrow_mut().1 += 1,
        _ => {}
    });
    let bytes = CONFIG.bytes(&[rail.attributes()]);
    assert_eq!(bytes, CONFIG.bytes(&[&Hub::attributes(1024)]) + Cache::cost(2, 24));
    let mut engine = Pml::new(CONFIG, &mut Arena::new(memory(bytes)), [rail]).unwrap();
    let params = engine.params();
    engine.add_peer(Peer(0), &params, |_, rail| rail.add_peer(Peer(0), &0u32.to_le_bytes())).unwrap();
    let here = Pattern { context: 1, source: 0, tag: 1 };
    let (data, mut into) = ([7u8; 2000], [[0u8; 2000]; 5]);
    for round in 0..3 {
        // SAFETY: all buffers live until their requests are over, at the end of the round.
        let sends: Vec<_> =
            (0..5).map(|_| unsafe { engine.isend(Peer(0), 1, 1, Mode::Standard, Span::of(&data)) }.unwrap()).collect();
        assert_eq!(*counts.borrow(), (2, 0), "round {round}"); // five sends, two of them cached, prepared once
        let receives: Vec<_> = into
            .iter_mut()
            // SAFETY: as above.
            .map(|into| unsafe { engine.irecv(here, Span::contiguous(into.as_mut_ptr(), 2000)) }.unwrap())
            .collect();
        let mut open: Vec<Request> = sends
            .into_iter()
            .filter_map(|s| if let Sending::Pending(request) = s { Some(request) } else { None })
            .chain(receives)
            .collect();
        for _ in 0..1000 {
            engine.progress(Instant::ZERO);
            open.retain(|request| engine.test(*request).map(Result::unwrap).is_none());
        }
        assert!(open.is_empty());
    }
    engine.drain_caches();
    assert_eq!(*counts.borrow(), (2, 2));
}

/// A link that is not connected yet has no room. Frames whose turn it is on that link take the other links.
#[test]
fn p12_nothing_waits_for_a_link_without_room() {
    use super::basic::WIDE;
    use super::failover::{Cables, Pair};
    for full in 0..3 {
        let mut pair = Pair::<Cables>::new(WIDE, 3, None);
        for engine in pair.engines.iter_mut() {
            engine.rails_mut().0[full].window = 0;
        }
        let data: Vec<u8> = (0..1500).map(|at| (at * 7) as u8).collect();
        for (tag, (from, len)) in [10, 100, 1500, 20].into_iter().flat_map(|len| [(0, len), (1, len)]).enumerate() {
            for mode in [Mode::Standard, Mode::Synchronous] {
                let mut into = vec![0; len];
                let sending = pair.send(from, tag as u32, mode, &data[..len]);
                pair.turns(20);
                let receive = pair.recv(1 - from, from as u32, tag as u32, &mut into);
                pair.finish(1 - from, receive).unwrap();
                if let Sending::Pending(request) = sending {
                    pair.finish(from, request).unwrap();
                }
                assert!(into == data[..len], "{full} {from} {len}");
            }
        }
    }
}
