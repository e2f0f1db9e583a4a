//! One-sided operations of two engines: by any link, and when links go down or peers are lost at any step.

use std::vec::Vec;
use std::{boxed::Box, vec};

use super::basic::{WIDE, bytes};
use super::failover::{Cables, FAULTS, Fault, Pair, Topology};
use crate::convertor::Span;
use crate::pml::*;
use crate::rail::testing::link::LinkFailure;
use crate::rail::{Lost, Peer};
use crate::rma::{
    self, Access, Atomic, AtomicFlags, AtomicOp, BeginError, DeregisterError, Finished, Operation, Registration,
    RemoteMemory, Transfer,
};

const CONFIG: Config = Config { rma: rma::Config { regions: 1, operations: 3, window: 2 }, ..WIDE };
/// Where puts go, behind the counter, and how long they are.
const AT: u64 = 8;
const LEN: usize = 500;
const ADDS: u64 = 4;

type Finish = Result<u64, rma::Failure>;

/// Two engines, each with memory that the other accesses. The memory is freed last.
struct Sides {
    pair: Pair<Cables>,
    registered: [Registration; 2],
    remote: [RemoteMemory; 2],
    memory: [Box<[u64]>; 2],
}

impl Sides {
    fn new(seed: Option<u64>) -> Self {
        let mut pair = Pair::<Cables>::new(CONFIG, 2, seed);
        let mut memory = [0, 1].map(|_| vec![0u64; 64].into_boxed_slice());
        let registered = [0, 1].map(|at| {
            // SAFETY: the memory outlives the engine, and is looked at when nothing is in progress.
            unsafe { pair.engines[at].register(memory[at].as_mut_ptr().cast(), 512, Access::ANY, None) }.unwrap()
        });
        let remote = [0, 1].map(|at| pair.engines[at].remote_memory(registered[at]).unwrap());
        Self { pair, registered, remote, memory }
    }

    fn begin(&mut self, from: usize, what: Transfer, offset: u64) -> Result<Operation, BeginError> {
        let to = 1 - from;
        // SAFETY: local memory is kept until the operation is over, or the engine has ended.
        unsafe { self.pair.engines[from].begin(Peer(to as u32), what, &self.remote[to], offset) }
    }

    /// Begins operations whenever slots are free, and drives both engines until all are over. Returns how each ended.
    fn run(&mut self, work: [Vec<(Transfer, u64)>; 2]) -> [Vec<Finish>; 2] {
        let mut begun = [Vec::new(), Vec::new()];
        let mut ends = [0, 1].map(|at: usize| vec![None; work[at].len()]);
        for _ in 0..20_000 {
            for at in 0..2 {
                while let Some((what, offset)) = work[at].get(begun[at].len()) {
                    match self.begin(at, *what, *offset) {
                        Ok(operation) => begun[at].push(Some(operation)),
                        Err(BeginError::Full) => break,
                        Err(BeginError::Unreachable) => {
                            ends[at][begun[at].len()] = Some(Err(rma::Failure::Lost));
                            begun[at].push(None);
                        }
                        Err(error) => panic!("{error:?}"),
                    }
                }
                while let Some(Finished { operation, result }) = self.pair.engines[at].next_finished() {
                    let which = begun[at].iter().position(|begun| *begun == Some(operation)).expect("it was begun");
                    begun[at][which] = None; // its name may be used again
                    assert_eq!(ends[at][which].replace(result), None, "told once");
                }
            }
            if ends.iter().flatten().all(Option::is_some) {
                return ends.map(|ends| ends.into_iter().flatten().collect());
            }
            self.pair.turn();
        }
        panic!("no progress: {:?} {:?}", self.pair.engines[0].rma_used(), self.pair.engines[1].rma_used());
    }

    /// Checks that no operation is left and that the memory can be deregistered.
    fn assert_clean(&mut self) {
        for at in 0..2 {
            for turn in 0.. {
                if self.pair.engines[at].rma_used() == [[1, 1], [0, 3], [0, 8]] {
                    break;
                }
                assert!(turn < 20_000, "{:?}", self.pair.engines[at].rma_used());
                self.pair.turn();
            }
            assert!(self.pair.engines[at].is_flushed(None));
            self.pair.engines[at].deregister(self.registered[at]).unwrap();
            assert_eq!(self.pair.engines[at].rma_used()[0], [0, 1]);
        }
    }
}

/// Each side counts in the other's word, puts and gets, while a message goes each way. Returns the number of steps, of migrated
/// frames, and of duplicates.
fn exchange(seed: Option<u64>, fault: Option<(u64, usize, Fault)>) -> [u64; 3] {
    let mut sides = Sides::new(seed);
    if let Some((step, cable, fault)) = fault {
        sides.pair.topology.plan(step, cable, fault);
    }
    let case = bytes(300, 9);
    let mut into = [vec![0; 300], vec![0; 300]];
    let receives = [0, 1].map(|at| sides.pair.recv(at, 1 - at as u32, 5, &mut into[at]));
    let sends = [0, 1].map(|at| sides.pair.send(at, 5, Mode::Complete, &case));
    let data = [0, 1].map(|at| bytes(LEN, at));
    let add = (Transfer::Atomic(Atomic::Op(AtomicOp::Add, 1), AtomicFlags::empty()), 0);
    let work = data.each_ref().map(|data| {
        let put = (Transfer::Put(Span::of(data)), AT);
        (0..ADDS).map(|_| add).chain([put]).collect()
    });
    for (at, ends) in sides.run(work).into_iter().enumerate() {
        let mut old: Vec<u64> = ends[..ADDS as usize].iter().map(|end| end.unwrap()).collect();
        old.sort_unstable();
        assert_eq!((old, ends[ADDS as usize]), ((0..ADDS).collect(), Ok(0)), "each was done once");
        assert_eq!(sides.memory[1 - at][0], ADDS);
    }
    let mut back = [vec![0u8; LEN], vec![0u8; LEN]];
    let gets = back.each_mut().map(|back| vec![(Transfer::Get(Span::contiguous(back.as_mut_ptr(), LEN)), AT)]);
    assert_eq!(sides.run(gets), [[Ok(0)], [Ok(0)]]);
    assert_eq!(back, data);
    for at in 0..2 {
        sides.pair.finish(at, receives[at]).unwrap();
        if let Sending::Pending(request) = sends[at] {
            sides.pair.finish(at, request).unwrap();
        }
    }
    assert!(into.iter().all(|into| *into == case));
    sides.assert_clean();
    sides.pair.assert_clean("one-sided");
    let counters = [0, 1].map(|at| *sides.pair.engines[at].counters());
    let sum = |of: fn(&Counters) -> u64| counters.iter().map(of).sum();
    [sides.pair.topology.steps(), sum(|counters| counters.frames_migrated), sum(|counters| counters.duplicates)]
}

#[test]
fn b43_operations_use_any_link_in_any_order() {
    for seed in [None, Some(1), Some(2), Some(3)] {
        let [steps, moved, doubles] = exchange(seed, None);
        assert!(steps > 50 && moved + doubles == 0);
    }
}

/// A link may go down at any step, and frames that had arrived may arrive again by another link.
#[test]
fn b43_operations_are_done_once_whatever_link_dies() {
    let [steps, ..] = exchange(None, None);
    let mut seen = [0; 3];
    for (turn, step) in (0..steps).step_by(3).enumerate() {
        for (which, fault) in FAULTS.into_iter().enumerate() {
            let this = exchange(None, Some((step, (turn + which) % 2, fault)));
            seen = [0, 1, 2].map(|at| seen[at] + this[at]);
        }
    }
    assert!(seen[1] > 100 && seen[2] > 100, "{seen:?}");
}

#[test]
fn b18_operations_in_any_state_end_with_their_peer() {
    let steps = exchange(None, None)[0];
    let mut lost = 0;
    for step in (0..steps).step_by(5) {
        let mut sides = Sides::new(None);
        let both = [0, 1].map(|cable| (step, cable, LinkFailure { polls_until_down: [3, 3], ..LinkFailure::CLEAN }));
        sides.pair.topology.net.borrow_mut().plan.extend(both);
        let data = bytes(LEN, 1);
        let mut back = vec![0u8; LEN];
        let add = (Transfer::Atomic(Atomic::Op(AtomicOp::Add, 1), AtomicFlags::empty()), 0);
        let work = vec![
            add,
            (Transfer::Put(Span::of(&data)), AT),
            (Transfer::Get(Span::contiguous(back.as_mut_ptr(), LEN)), AT),
            add,
        ];
        for end in sides.run([work, Vec::new()]).into_iter().flatten() {
            lost += u32::from(end == Err(rma::Failure::Lost));
            assert!(matches!(end, Ok(_) | Err(rma::Failure::Lost)), "{end:?}");
        }
        for at in 0..2 {
            sides.pair.engines[at].lose_peer(Peer(1 - at as u32), Lost::Broken);
        }
        sides.assert_clean();
        assert_eq!(sides.begin(0, add.0, 0), Err(BeginError::Unreachable));
    }
    assert!(lost > 20, "{lost}");
}

#[test]
fn b25_access_to_memory_that_was_deregistered_meanwhile_is_denied() {
    let mut sides = Sides::new(None);
    let data = bytes(LEN, 1);
    sides.begin(0, Transfer::Put(Span::of(&data)), AT).unwrap();
    let mut denied = false;
    for _ in 0..2_000 {
        // Deregistration is refused while a body is arriving.
        match sides.pair.engines[1].deregister(sides.registered[1]) {
            Ok(()) | Err(DeregisterError::Stale) => {}
            Err(error) => assert_eq!(error, DeregisterError::InUse),
        }
        sides.pair.turn();
        if let Some(finished) = sides.pair.engines[0].next_finished() {
            assert_eq!(finished.result, Err(rma::Failure::Denied(rma::Denied::NoMemory)));
            denied = true;
        }
    }
    assert!(denied && sides.pair.engines[0].is_flushed(None));
    assert_eq!(sides.pair.engines[1].rma_counters().served, 0);
}
