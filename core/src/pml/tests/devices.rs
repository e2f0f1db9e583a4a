//! One-sided operations of two engines over rails of which one has a device that accesses memory.

use std::{boxed::Box, vec, vec::Vec};

use super::basic::{bytes, memory};
use crate::arena::Arena;
use crate::convertor::Span;
use crate::pml::*;
use crate::rail::atomics::AtomicSupport;
use crate::rail::native::{OneSided, Reach, Work};
use crate::rail::testing::{Device, Far, Scripted, rails};
use crate::rail::{Capabilities, Event, Lost, Peer, Rail};
use crate::rma::{self, Access, Atomic, AtomicFlags, AtomicOp, Failure, Finished, RemoteMemory, Transfer};
use crate::time::Instant;

const CONFIG: Config = Config {
    peers: 2,
    requests: 16,
    rma: rma::Config { regions: 2, operations: 4, window: 2 },
    rdma: rdma::Config { windows: true, ..rdma::Config::OFF },
    ..Config::SMALLEST
};
const DEVICE: OneSided = OneSided {
    put: Reach { limit: 1000, alignment: 1, local_registration: 41 },
    get: Reach { limit: 1000, alignment: 1, local_registration: 41 },
    atomics: AtomicSupport::ADD.union(AtomicSupport::CSWAP),
    ..OneSided::NONE
};
const LEN: usize = 400;

/// Two engines, each with two links. The second link has a device.
struct Pair {
    engines: [Pml<'static, [Scripted; 2]>; 2],
    base: *mut u8,
    remote: RemoteMemory,
}

impl Pair {
    fn new() -> Self {
        let base: *mut u8 = vec![0u64; LEN / 8].leak().as_mut_ptr().cast();
        Self { base, ..Self::over(Capabilities::empty(), base, Access::ANY) }
    }

    /// As above, with memory of an accelerator. `reach`: what the devices can do with such memory.
    fn far(reach: Capabilities) -> Self {
        let base: *mut u8 = vec![0u64; LEN / 8].leak().as_mut_ptr().cast();
        Self { base, ..Self::over(reach, Far::name(base), Access::ANY | Access::ACCELERATOR) }
    }

    fn over(reach: Capabilities, base: *mut u8, access: Access) -> Self {
        let mut ends: Vec<_> = (0..2).flat_map(|_| rails(2)).map(Some).collect();
        let mut engines = [0, 1].map(|at| {
            let mut mine = [0, 1].map(|index| ends[2 * index + at].take().unwrap());
            mine.iter_mut().for_each(|rail| rail.attributes.capabilities |= Capabilities::FAILOVER_SUPPORT);
            mine[1].attributes.one_sided = DEVICE;
            mine[1].attributes.capabilities |= reach;
            let bytes = CONFIG.bytes(&mine.each_ref().map(Rail::attributes));
            Pml::new(CONFIG, &mut Arena::new(memory(bytes)), mine).unwrap()
        });
        for at in 0..2u32 {
            let (peer, params) = (Peer(1 - at), engines[1 - at as usize].params());
            engines[at as usize].add_peer(peer, &params, |_, rail| rail.add_peer(peer, &peer.0.to_le_bytes())).unwrap();
        }
        // SAFETY: the memory stays forever, and is read when nothing is in progress.
        let registration = unsafe { engines[1].register(base, LEN, access, None) }.unwrap();
        let remote = engines[1].remote_memory(registration).unwrap();
        Self { engines, base, remote }
    }

    fn begin(&mut self, what: Transfer, offset: u64) {
        // SAFETY: the tests keep local memory until the end.
        unsafe { self.engines[0].begin(Peer(1), what, &self.remote, offset) }.unwrap();
    }

    fn turn(&mut self) {
        for _ in 0..100 {
            self.engines.iter_mut().for_each(|engine| _ = engine.progress(Instant::ZERO));
        }
    }

    fn ends(&mut self) -> Vec<Result<u64, Failure>> {
        core::iter::from_fn(|| self.engines[0].next_finished()).map(|Finished { result, .. }| result).collect()
    }

    fn bytes(&self) -> Vec<u8> {
        // SAFETY: memory of that length; nothing is in progress.
        unsafe { core::slice::from_raw_parts(self.base, LEN) }.to_vec()
    }

    /// Bytes of the pieces that the device was given.
    fn performed(&self) -> Vec<u64> {
        let script = self.engines[0].rails()[1].script.borrow();
        let len = |work| match work {
            Work::Put(local) | Work::Get(local) => local.len,
            Work::Atomic(..) => panic!("the target's processor does those"),
        };
        script.performed.iter().map(|native| len(native.work)).collect()
    }
}

fn data(seed: u8) -> &'static [u8] {
    Box::leak(bytes(100, seed).into_boxed_slice())
}

#[test]
fn b18_b20_a_device_puts_and_gets_and_the_processor_counts() {
    let mut pair = Pair::new();
    let (from, to) = (data(1), vec![0u8; 100].leak());
    let sink = Span::contiguous(to.as_mut_ptr(), 100);
    pair.begin(Transfer::Put(Span::of(from)), 8);
    pair.begin(Transfer::Atomic(Atomic::Op(AtomicOp::Add, 5), AtomicFlags::empty()), 0);
    pair.turn();
    assert_eq!(pair.ends(), [Ok(0); 2]);
    pair.begin(Transfer::Get(sink), 8);
    pair.turn();
    assert_eq!(pair.ends(), [Ok(0)]);
    assert_eq!((pair.bytes()[0], &pair.bytes()[8..108], &to[..]), (5, from, from));
    assert_eq!(pair.performed(), [40, 40, 20, 40, 40, 20], "what is not registered goes in pieces");
    let counters = pair.engines.each_ref().map(Pml::rma_counters);
    assert_eq!((counters[0].by_device, counters[1].served), (6, 1));
    assert!(pair.engines[0].is_flushed(None));
}

/// The processor cannot access the memory of an accelerator. Devices execute the operations that they support there, and all
/// others are denied.
#[test]
fn b38_peers_reach_accelerators_as_far_as_devices_do() {
    for reach in [
        Capabilities::ACCELERATOR_PUT,
        Capabilities::ACCELERATOR_GET,
        Capabilities::ACCELERATOR_RDMA,
        Capabilities::empty(),
    ] {
        let mut pair = Pair::far(reach);
        let (from, to) = (data(1), vec![0u8; 100].leak());
        let add = Transfer::Atomic(Atomic::Op(AtomicOp::Add, 5), AtomicFlags::empty());
        for (what, may) in [
            (Transfer::Put(Span::of(from)), reach.contains(Capabilities::ACCELERATOR_PUT)),
            (Transfer::Get(Span::contiguous(to.as_mut_ptr(), 100)), reach.contains(Capabilities::ACCELERATOR_GET)),
            (add, false),
        ] {
            pair.begin(what, 8);
            pair.turn();
            let ends = pair.ends();
            assert!(
                matches!((may, &ends[..]), (true, [Ok(0)]) | (false, [Err(Failure::Denied(_))])),
                "{what:?}: {ends:?}"
            );
        }
        let put = reach.contains(Capabilities::ACCELERATOR_PUT);
        assert_eq!(pair.bytes()[8..108] == *from, put);
        assert!(to == if reach == Capabilities::ACCELERATOR_RDMA { from } else { &[0; 100] });
    }
}

#[test]
fn b18_p14_operations_of_a_device_whose_link_goes_down_are_lost_and_later_ones_take_other_links() {
    for (answers, ends, pieces) in [
        // The device has begun all of it; the first piece; none of it, since the link is busy.
        (vec![], [Err(Failure::Lost), Ok(0)], 3),
        (vec![Device::Late, Device::Busy], [Err(Failure::Lost), Ok(0)], 1),
        (vec![Device::Busy], [Ok(0), Ok(0)], 0),
        (vec![Device::Now, Device::Busy], [Ok(0), Ok(0)], 1),
    ] {
        let mut pair = Pair::new();
        pair.begin(Transfer::Atomic(Atomic::Op(AtomicOp::Add, 1), AtomicFlags::empty()), 0);
        pair.turn();
        assert_eq!(pair.ends(), [Ok(0)]);
        {
            let script = &mut *pair.engines[0].rails()[1].script.borrow_mut();
            (script.device, script.device_is_late) = (answers.into(), true);
        }
        pair.begin(Transfer::Put(Span::of(data(2))), 100);
        let down = Event::Down(Peer(1), Lost::Broken);
        pair.engines[0].rails()[1].script.borrow_mut().events.push_back(down);
        pair.turn();
        assert_eq!((pair.ends(), pair.performed().len()), (vec![ends[0]], pieces));
        assert_eq!(pair.engines[0].rma_counters().by_device, pieces as u64, "as many as the device got");
        // A later operation is done by the other link.
        pair.begin(Transfer::Put(Span::of(data(3))), 200);
        pair.turn();
        assert_eq!(pair.ends(), [ends[1]]);
        assert_eq!(pair.bytes()[200..300], *data(3));
        if ends[0].is_ok() {
            assert_eq!(pair.bytes()[100..200], *data(2), "each byte came, by one way or the other");
        }
        assert!(pair.engines[0].is_flushed(None));
        // The link is back, and so is its device.
        pair.engines[0].rails()[1].script.borrow_mut().device_is_late = false;
        pair.engines[0].rails()[1].script.borrow_mut().events.push_back(Event::Up(Peer(1)));
        pair.turn();
        let before = pair.performed().len();
        pair.begin(Transfer::Put(Span::of(data(4))), 0);
        pair.turn();
        assert_eq!((pair.ends(), pair.performed().len()), (vec![Ok(0)], before + 3));
        assert_eq!(pair.bytes()[..100], *data(4));
    }
}
