//! The rail kit over the simulated rail, without faults, and with all faults of a reliable rail.

use towline_core::convertor::Span;
use towline_core::mtl::{Mode, Source, Tag};
use towline_core::time::Instant;
use towline_host_tests::kit::mesh::Setup;
use towline_host_tests::kit::nodes::{CONFIG, World};
use towline_host_tests::rail_suite;
use towline_host_tests::sim::network::Net;
use towline_host_tests::sim::network::SimRail;
use towline_host_tests::sim::network::faults::{Faults, RailParams};
use towline_host_tests::{pattern::patterned, random::Random};

struct Simulated {
    params: RailParams,
    faults: Faults,
    now: u64,
}

impl Setup for Simulated {
    type Rail = SimRail;

    fn rails(&mut self, count: usize) -> Vec<SimRail> {
        let net = Net::new(count as u32, vec![self.params], self.faults.clone(), Random::new(1));
        (0..count as u32).map(|node| net.rails(node).remove(0)).collect()
    }

    fn leave(&mut self, rail: SimRail) -> bool {
        rail.leave();
        true
    }

    fn now(&mut self) -> Instant {
        self.now += 100;
        Instant::from_nanos(self.now)
    }
}

fn plain() -> Simulated {
    Simulated { params: RailParams::default(), faults: Faults::default(), now: 0 }
}

fn rough() -> Simulated {
    let params =
        RailParams { slots: 3, frames_kept: 3, eager_limit: 100, rendezvous_eager_limit: 64, ..RailParams::default() };
    let faults = Faults {
        busy: 100,
        busy_for: 500,
        jitter: 5000,
        late_body: 400,
        in_place: 500,
        staged: 300,
        expose: 1000,
        ..Faults::default()
    };
    Simulated { params, faults, now: 0 }
}

mod calm {
    use super::*;
    rail_suite!(plain());
}

mod faulty {
    use super::*;
    rail_suite!(rough());
}

/// The suite for matching transports over rails that refuse, reorder and deliver late.
mod mtl {
    use super::*;
    towline_host_tests::matching_suite!(Simulated {
        params: RailParams { frames_kept: 2, ..RailParams::default() },
        ..rough()
    });
}

/// Bodies arrive much later than their headers.
fn late() -> Simulated {
    Simulated { faults: Faults { late_body: 1000, ..Faults::default() }, ..plain() }
}

#[test]
fn p26_p27_a_message_matches_before_its_payload_is_in() {
    let mut seen = 0;
    let mut world = World::new(late(), 2, CONFIG);
    for number in 0..40 {
        let data = patterned(number, 400);
        let mut room = vec![0; 400];
        let receive = world.irecv(1, Source::Rank(0), Tag::Is(1), &mut room);
        let sending = world.isend(0, 1, 1, Mode::Standard, &data);
        let log = world.logs[1][0].clone();
        let before = log.borrow().firsts();
        world.until("the header is there", |_| log.borrow().firsts() > before);
        assert!(!world.nodes[1].cancel(receive), "the header alone matches the receive");
        if log.borrow().pending_reports[1] == 1 {
            assert_eq!(world.nodes[1].test(receive), None, "a receive is not complete before its payload has arrived");
            seen += 1;
        }
        world.finish(1, receive).expect("it is received");
        world.finish_send(0, sending).expect("it is sent");
        assert_eq!(room, data);
    }
    assert!(seen > 10, "too few bodies were late: {seen}");
    world.assert_all_released();
}

#[test]
fn p26_m12_m13_a_probe_finds_a_message_whose_payload_is_not_in() {
    let mut world = World::new(late(), 2, CONFIG);
    let comm = world.world[1];
    let mut seen = 0;
    for number in 0..40 {
        let data = patterned(number, 400);
        let mut room = vec![0; 400];
        let sending = world.isend(0, 1, 1, Mode::Standard, &data);
        let mut taken = None;
        world.until("a probe takes it", |world| {
            taken = world.nodes[1].improbe(comm, Source::Any, Tag::Any).expect("a request is free");
            taken.is_some()
        });
        let (message, found) = taken.expect("just seen");
        assert_eq!(found.len, 400);
        seen += world.logs[1][0].borrow().pending_reports[1];
        let sink = Span::contiguous(room.as_mut_ptr(), room.len());
        // SAFETY: the buffer stays valid until the receive is complete.
        let receive = unsafe { world.nodes[1].imrecv(message, sink) }.expect("a request is free");
        world.finish(1, receive).expect("it is received");
        world.finish_send(0, sending).expect("it is sent");
        assert_eq!(room, data);
    }
    assert!(seen > 10, "too few bodies were late: {seen}");
    world.assert_all_released();
}
