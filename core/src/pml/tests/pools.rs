//! Pools of the least sizes, and control frames that leave when everything else is in use.

use std::boxed::Box;
use std::string::ToString;
use std::vec::Vec;

use proptest::prelude::*;

use super::basic::{bytes, from, memory, pending};
use crate::arena::Arena;
use crate::convertor::Span;
use crate::link::{self, Crc32c, Link};
use crate::pml::requests::state::Phase;
use crate::pml::*;
use crate::rail::loopback::{self, Hub};
use crate::rail::{Lane, Peer, Rail, SendError, Shape};
use crate::time::Instant;

const LEAST: Config = Config {
    peers: 1,
    requests: Pool::Requests.least(),
    unexpected: Pool::Envelopes.least(),
    units: Pool::Units.least(),
    unit_bytes: 0,
    probes: Pool::Spares.least(),
    seed: 1,
    first_sequence: u64::MAX,
    rma: crate::rma::Config::OFF,
    rdma: crate::pml::rdma::Config::OFF,
};

#[test]
fn b14_limits_below_the_least_are_refused_by_name() {
    assert_eq!(LEAST.check(), Ok(()));
    let below = [
        (Config { peers: 0, ..LEAST }, "peers"),
        (Config { requests: 0, ..LEAST }, "requests"),
        (Config { probes: 0, ..LEAST }, "probes"),
    ];
    for (config, what) in below {
        let refused = TooFew { what, has: 0, least: 1 };
        let none: Option<loopback::Rail<'_>> = None;
        let mut arena = Arena::new(memory(config.bytes(&[])));
        let made = Pml::new(config, &mut arena, none.into_iter().collect::<Vec<_>>().as_mut_slice()).map(drop);
        assert_eq!(made, Err(SetUpError::Limits(refused)));
        assert!(refused.to_string().contains(what));
    }
    let made = Pml::new(LEAST, &mut Arena::new(&mut []), [0u8; 0].map(|_| -> loopback::Rail<'_> { unreachable!() }));
    assert!(matches!(made.map(drop), Err(SetUpError::Memory(_))));
}

proptest! {
    /// Whatever the configuration, the pools are as large as the sum of their holders' shares.
    #[test]
    fn b14_shares_sum_up_to_no_more_than_there_is(
        peers in prop_oneof![0..5u32, any::<u32>()],
        requests in prop_oneof![0..5u32, any::<u32>()],
        unexpected in prop_oneof![0..5u32, any::<u32>()],
        units in prop_oneof![0..5u32, any::<u32>()],
        probes in prop_oneof![0..5u32, any::<u32>()],
    ) {
        let config = Config { peers, requests, unexpected, units, probes, ..LEAST };
        for share in config.shares() {
            let size = match share.pool {
                Pool::Requests => requests,
                Pool::Units => units,
                Pool::Envelopes => unexpected,
                Pool::Spares => probes,
                other => panic!("{other:?} is no limit of an engine"),
            };
            prop_assert!(share.most <= u64::from(size), "{share:?}");
            prop_assert!(share.waits_for.iter().all(|pool| *pool < share.pool), "{share:?}");
        }
        prop_assert_eq!(config.check().is_ok(), peers > 0 && requests > 0 && probes > 0);
    }
}

type Engine = Pml<'static, [Link<'static, loopback::Rail<'static>, Crc32c>; 1]>;

/// Two engines over links with a small window and `slots` slots, which use rails with `raw` slots.
fn pair(config: Config, slots: u32, raw: u32) -> [Engine; 2] {
    let hub = Hub::new(&mut Arena::new(memory(Hub::cost(2, raw, 256))), 2, raw, 256).unwrap();
    let hub: &'static Hub<'static> = Box::leak(Box::new(hub));
    let mut engines = [0, 1].map(|end| {
        let raw = hub.rail(end).unwrap();
        let default = link::Config::new(end as u8, 7, raw.attributes());
        let own = link::Config { peers: 1, window: 8, slots, control_slots: slots, ..default };
        let block = memory(own.bytes(&raw));
        let rail = Link::new(raw, Crc32c, own, &mut Arena::new(block)).unwrap();
        Pml::new(config, &mut Arena::new(memory(config.bytes(&[rail.attributes()]))), [rail]).unwrap()
    });
    let params = engines.each_ref().map(Pml::params);
    let cards = engines.each_ref().map(|engine| engine.rails()[0].card().to_vec());
    for (engine, (params, card)) in engines.iter_mut().zip(params.iter().zip(&cards).rev()) {
        engine.add_peer(Peer(0), params, |_, rail| rail.add_peer(Peer(0), card)).unwrap();
    }
    engines
}

fn settle(engines: &mut [Engine], now: &mut u64) {
    for _ in 0..400 {
        *now += 10_000;
        engines.iter_mut().for_each(|engine| {
            engine.progress(Instant::from_nanos(*now));
        });
    }
}

/// Requests, envelopes, units, envelopes for probes, the link's window and the rail's slots are all in use at one side. The
/// answer to a message that it takes now leaves nevertheless, without a poll of that side.
#[test]
fn b14_p15_a_control_frame_leaves_when_all_else_is_taken() {
    for (slots, raw) in [(1, 1), (1, 64), (64, 1), (64, 64)] {
        leaves(slots, raw);
    }
}

fn leaves(slots: u32, raw: u32) {
    let config = Config { requests: 3, unexpected: 1, units: 1, unit_bytes: 64, ..LEAST };
    let mut engines = pair(config, slots, raw);
    let (mut now, to) = (0, Peer(0));
    let data = bytes(1000, 1);
    // SAFETY: all buffers live to the end of the test.
    let send = |engine: &mut Engine, tag, mode, len| unsafe {
        engine.isend(to, 1, tag, mode, Span::of(&data[..len])).unwrap()
    };
    // A message of the first side takes the other side's envelope and unit. The next one is held back, and a probe moves it to
    // the envelope for probes.
    let _ = send(&mut engines[0], 1, Mode::Standard, 8);
    let long = pending(send(&mut engines[0], 2, Mode::Standard, 1000));
    settle(&mut engines, &mut now);
    for _ in 0..8 {
        engines[1].iprobe(from(0, 2));
        settle(&mut engines, &mut now);
    }
    // Two messages of the other side: one takes the first side's envelope, and one is held back.
    assert_eq!(send(&mut engines[1], 3, Mode::Standard, 8), Sending::Complete);
    let _ = pending(send(&mut engines[1], 3, Mode::Standard, 8));
    let _ = pending(send(&mut engines[1], 3, Mode::Standard, 8));
    settle(&mut engines, &mut now);
    assert_eq!(engines[1].used(), [2, 2, 1]);

    // From here on the first side does not poll, and all room for frames other than control frames gets used up.
    let rail = &mut engines[1].rails_mut()[0];
    let endpoint = crate::rail::Endpoint(0);
    let shape = |lane| Shape { tag: 0x80, lane, header: 8, len: 100 };
    let mut taken = 0;
    for lane in [Lane::Eager, Lane::Bulk] {
        loop {
            match rail.reserve(endpoint, shape(lane)) {
                Ok(mut grant) => {
                    grant.write(0, &[0; 100]);
                    let ticket = grant.finish();
                    let _ = rail.commit(ticket);
                    taken += 1;
                }
                Err(why) => break assert_eq!(why, SendError::Busy),
            }
        }
    }
    assert!(taken >= slots.min(3), "{taken}");

    let mut into = [0; 1000];
    // SAFETY: as above.
    let receive = unsafe { engines[1].irecv(from(0, 2), Span::contiguous(into.as_mut_ptr(), 1000)) }.unwrap();
    assert_eq!(engines[1].used(), [3, 1, 1], "the spare is free again, now that its message is received");
    // SAFETY: nothing is begun.
    assert_eq!(unsafe { engines[1].irecv(from(0, 9), Span::EMPTY) }, Err(Refusal::Busy));
    assert_eq!(engines[1].counters().acks_sent, 1, "{slots}, {raw}: it waits for room");
    settle(&mut engines[..1], &mut now);
    let phase = engines[0].requests.get(long.0).map(|state| state.phase);
    assert_ne!(phase, Some(Phase::Waiting), "{slots}, {raw}: the answer has not come");
    // Afterwards everything goes on.
    settle(&mut engines, &mut now);
    assert!(matches!((engines[0].test(long), engines[1].test(receive)), (Some(Ok(_)), Some(Ok(_)))));
    assert_eq!(into[..], data[..]);
}
