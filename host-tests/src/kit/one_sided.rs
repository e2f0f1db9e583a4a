//! The suite for one-sided operations over BTL modules, whether the rails support them or they are emulated.

use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;

use towline_core::arena::Arena;
use towline_core::btl::endpoint::{EndpointId, Proc};
use towline_core::btl::module::{Btl, Config, Outcome, RmaCallback, RmaCompleted, RmaCompletion, RmaParams};
use towline_core::convertor::{Layout, Span};
use towline_core::rail::{FullRail, Rail, Unreachable};
use towline_core::rma::{self, Access, Atomic, AtomicFlags, AtomicOp, Denied, Failure, Registration, RemoteMemory};

use super::fake_accelerator::FakeAccelerator;
use super::mesh::Setup;
use super::wait_limit::WaitLimit;

/// Makes one test of each check.
#[macro_export]
macro_rules! one_sided_suite {
    ($setup:expr) => {
        $crate::one_sided_suite! { @each $setup;
            b18_b19_b43_put_and_get_transfer_exactly_the_bytes
            b21_b22_b43_atomics_match_the_model_and_change_no_other_word
            b20_each_fetched_value_is_seen_once
            b24_each_missing_right_refuses_its_operations
            b38_local_accelerator_memory_is_copied_and_remote_is_refused
            b25_deregistered_memory_is_unreachable
            b28_b44_flushed_operations_are_complete
            b5_b18_operations_on_a_removed_peer_end_and_write_nothing_later
        }
    };
    (@each $setup:expr; $($check:ident)*) => {
        $(#[test]
        fn $check() {
            $crate::kit::one_sided::$check($setup);
        })*
    };
}

/// BTL modules that know each other.
pub struct Modules<S: Setup<Rail: 'static>> {
    setup: S,
    /// The modules. Each has a rail of its own.
    pub modules: Vec<Btl<'static, S::Rail>>,
    /// Endpoints, by module and by other module.
    pub to: Vec<Vec<Option<EndpointId>>>,
    completions: Vec<&'static Ends>,
}

/// Records completions: the context word of each operation, and its outcome.
#[derive(Debug, Default)]
struct Ends(RefCell<Vec<(usize, Result<u64, Failure>)>>);

impl<R: FullRail> RmaCompleted<R> for Ends {
    fn rma_completed(&self, _: &mut Btl<'_, R>, completion: &RmaCompletion) {
        self.0.borrow_mut().push((completion.context[0], completion.status));
    }
}

/// Memory that is never freed. It is accessed by address only.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The first byte.
    pub base: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

impl Memory {
    /// Zeroed memory.
    pub fn new(len: usize) -> Self {
        Self { base: vec![0u64; len.div_ceil(8)].leak().as_mut_ptr().cast(), len }
    }

    /// Its content. No operation on it may be in progress.
    pub fn bytes(self) -> Vec<u8> {
        // SAFETY: the memory has that length, and nothing writes to it now.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }.to_vec()
    }

    /// Fills it. No operation on it may be in progress.
    pub fn fill(self, byte: impl Fn(usize) -> u8) {
        for at in 0..self.len {
            // SAFETY: within the memory, which nothing accesses now.
            unsafe { self.base.add(at).write(byte(at)) };
        }
    }

    /// A part of it.
    pub fn part(self, at: usize, len: usize) -> Span {
        assert!(at + len <= self.len);
        Span::contiguous(self.base.wrapping_add(at), len)
    }
}

/// An operation on memory of a peer.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// Writes these bytes to the peer's memory.
    Put(Span),
    /// Reads the peer's bytes into this span.
    Get(Span),
    /// Changes a word of the peer.
    Atomic(Atomic, AtomicFlags),
}

impl<S: Setup<Rail: 'static>> Modules<S> {
    /// Makes `count` modules. Each knows all others.
    pub fn new(mut setup: S, count: usize) -> Self {
        let rma = rma::Config { regions: 8, operations: 8, window: 4 };
        let module = |rail: S::Rail| {
            let config = Config { rma, ..Config::default() };
            let block = vec![0; config.bytes::<S::Rail>(rail.attributes())].leak();
            Btl::new(config, &mut Arena::new(block), rail).expect("room for all tables")
        };
        let modules: Vec<_> = setup.rails(count).into_iter().map(module).collect();
        let completions = (0..count).map(|_| &*Box::leak(Box::default())).collect();
        let mut all = Self { setup, modules, to: vec![vec![None; count]; count], completions };
        for one in 0..count {
            for other in (0..count).filter(|other| *other != one) {
                all.introduce(one, other);
            }
        }
        all
    }

    /// Adds module `other` as a peer of module `one`.
    fn introduce(&mut self, one: usize, other: usize) {
        let card = self.modules[other].rail().card().to_vec();
        let mut reached = [Err(Unreachable::NoCard)];
        self.modules[one].add_procs(&[Proc { id: other as u32, card: &card }], &mut reached, None);
        self.to[one][other] = Some(reached[0].expect("it can be reached"));
    }

    /// Lets two modules delete each other and connect again.
    pub fn reconnect(&mut self, one: usize, other: usize) {
        for (one, other) in [(one, other), (other, one)] {
            let to = self.to(one, other);
            self.modules[one].del_procs(&[to]);
        }
        self.introduce(one, other);
        self.introduce(other, one);
    }

    /// The endpoint of module `one` for module `other`.
    pub fn to(&self, one: usize, other: usize) -> EndpointId {
        self.to[one][other].expect("they know each other")
    }

    /// Makes progress at every module once. Returns whether there was any.
    pub fn progress(&mut self) -> bool {
        let now = self.setup.now();
        self.modules.iter_mut().map(|module| module.progress(now)).sum::<u32>() != 0
    }

    /// Makes progress at all modules until `done`.
    ///
    /// # Panics
    /// If this does not happen in time.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let mut wait_limit = WaitLimit::default();
        while !done(self) {
            let came = self.progress();
            assert!(!wait_limit.expired(came), "this did not happen in time: {what}");
        }
    }

    /// Registers memory with a module. Returns the registration, and the handle as a peer receives it.
    pub fn register(&mut self, at: usize, memory: Memory, access: Access) -> (Registration, RemoteMemory) {
        let Memory { base, len } = memory;
        // SAFETY: the memory lives forever, and is accessed by address only while no operation on it is in progress.
        let registration = unsafe { self.modules[at].register_mem(None, base, len, access) }.expect("a slot is free");
        let remote = self.modules[at].remote_memory(registration).expect("it was registered");
        (registration, RemoteMemory::from_bytes(&remote.to_bytes()).expect("it survives being sent"))
    }

    /// Begins an operation. Its completion is reported with the context word `word`.
    pub fn begin(
        &mut self,
        [one, other]: [usize; 2],
        what: What,
        remote: &RemoteMemory,
        offset: u64,
        registration: Option<Registration>,
        word: usize,
    ) {
        let (to, callback) = (self.to(one, other), self.completions[one] as RmaCallback<'static, S::Rail>);
        let params = RmaParams { registration, callback: Some(callback), context: [word, 0] };
        let module = &mut self.modules[one];
        // SAFETY: test memory lives forever, and is not accessed until the operation is complete.
        let begun = unsafe {
            match what {
                What::Put(span) => module.put(to, span, remote, offset, params),
                What::Get(span) => module.get(to, span, remote, offset, params),
                What::Atomic(atomic, flags) => module.atomic(to, atomic, flags, remote, offset, params),
            }
        };
        assert_eq!(begun, Ok(Outcome::Queued));
    }

    /// The outcomes of the operations that have completed since the last call.
    pub fn ends(&self, at: usize) -> Vec<(usize, Result<u64, Failure>)> {
        self.completions[at].0.borrow_mut().drain(..).collect()
    }

    /// Does one operation, and waits for it.
    pub fn perform(
        &mut self,
        way: [usize; 2],
        what: What,
        remote: &RemoteMemory,
        offset: u64,
        registration: Option<Registration>,
    ) -> Result<u64, Failure> {
        self.begin(way, what, remote, offset, registration, 7);
        self.until("an operation", |all| all.modules[way[0]].flush(None));
        let ends = self.ends(way[0]);
        let [(7, end)] = ends[..] else { panic!("an operation completes once: {ends:?}") };
        end
    }
}

const LENGTHS: [usize; 12] = [1, 8, 63, 220, 221, 700, 4096, 8256, 65_536, 65_537, 131_072, 300_001];

/// Puts and gets of many lengths, at any address, with and without local registration. The bytes must be exact, and
/// bytes beside them must not change.
pub fn b18_b19_b43_put_and_get_transfer_exactly_the_bytes<S: Setup<Rail: 'static>>(setup: S) {
    let mut all = Modules::new(setup, 2);
    let [there, here, back] = [(); 3].map(|()| Memory::new(310_000));
    let (_, remote) = all.register(1, there, Access::ANY);
    let [from, to] = [here, back].map(|memory| all.register(0, memory, Access::LOCAL_WRITE).0);
    here.fill(|at| (at * 7 / 3) as u8);
    let source = here.bytes();
    for (turn, len) in LENGTHS.into_iter().enumerate() {
        for registered in [false, true] {
            let (at, offset) = (turn * 3, turn * 5 + 1);
            there.fill(|_| 0x5a);
            back.fill(|_| 0xa5);
            let registration = registered.then_some(from);
            let done = all.perform([0, 1], What::Put(here.part(at, len)), &remote, offset as u64, registration);
            assert_eq!(done, Ok(0), "{len} bytes");
            let mut wanted = vec![0x5a; there.len];
            wanted[offset..offset + len].copy_from_slice(&source[at..at + len]);
            assert!(there.bytes() == wanted, "{len} bytes were put, registered: {registered}");
            let registration = registered.then_some(to);
            let done = all.perform([0, 1], What::Get(back.part(at, len)), &remote, offset as u64, registration);
            assert_eq!(done, Ok(0), "{len} bytes");
            let mut wanted = vec![0xa5; back.len];
            wanted[at..at + len].copy_from_slice(&source[at..at + len]);
            assert!(back.bytes() == wanted, "{len} bytes were got, registered: {registered}");
        }
    }
}

/// All atomic operations, on words of all kinds.
pub fn b21_b22_b43_atomics_match_the_model_and_change_no_other_word<S: Setup<Rail: 'static>>(setup: S) {
    let mut all = Modules::new(setup, 2);
    let words = Memory::new(32);
    let (_, remote) = all.register(1, words, Access::ANY);
    let operands = [1u64, u64::MAX, 0x8000_0000_8000_0000, 1.5f64.to_bits(), u64::from(2.5f32.to_bits())];
    let mut model = [0u64; 4];
    let mut kinds = 0;
    for turn in 0..200usize {
        let flags = AtomicFlags::from_bits_truncate(turn as u32 / 10 % 4);
        let (swaps, which) = (turn.is_multiple_of(7), turn % 3);
        let at = if swaps { 3 } else { which };
        let atomic = match swaps {
            true => Atomic::CompareSwap(model[3] ^ u64::from(turn.is_multiple_of(14)), turn as u64),
            false => Atomic::Op(AtomicOp::ALL[turn % 10], operands[turn % 5]),
        };
        if !atomic.takes(flags) {
            continue;
        }
        // The first half of a word, or the second.
        let is_32 = flags.contains(AtomicFlags::BITS_32);
        let second = is_32 && turn % 2 == 1 && !swaps;
        let shift = if second == cfg!(target_endian = "little") { 32 } else { 0 };
        let shift = if is_32 { shift } else { 0 };
        let mask = if is_32 { u64::from(u32::MAX) } else { u64::MAX };
        let offset = 8 * at as u64 + 4 * u64::from(second);
        let before = (model[at] >> shift) & mask;
        let old = all.perform([0, 1], What::Atomic(atomic, flags), &remote, offset, None);
        assert_eq!(old, Ok(before), "{atomic:?} {flags:?}");
        let new = atomic.of_word(before, flags) & mask;
        model[at] = (model[at] & !(mask << shift)) | new << shift;
        let wanted: Vec<u8> = model.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(words.bytes(), wanted, "{atomic:?} {flags:?}");
        kinds += 1;
    }
    assert!(kinds > 120, "only {kinds} operations were possible");
}

/// Each value of a counter is returned to one initiator, and no increment by compare-and-swap is lost.
pub fn b20_each_fetched_value_is_seen_once<S: Setup<Rail: 'static>>(setup: S) {
    const EACH: usize = 60;
    let mut all = Modules::new(setup, 4);
    let words = Memory::new(16);
    let (_, remote) = all.register(0, words, Access::ANY);
    let add = What::Atomic(Atomic::Op(AtomicOp::Add, 1), AtomicFlags::empty());
    let swap = |seen| What::Atomic(Atomic::CompareSwap(seen, seen + 1), AtomicFlags::empty());
    let (mut seen, mut left, mut swapped) = (vec![], [EACH; 4], [0; 4]);
    let mut under_way = [0; 4];
    for one in 1..4 {
        all.begin([one, 0], swap(0), &remote, 8, None, 0);
    }
    all.until("all are counted", |all| {
        for one in 1..4 {
            for (guess, end) in all.ends(one) {
                let old = end.expect("no peer is lost");
                if guess == usize::MAX {
                    seen.push(old);
                    under_way[one] -= 1;
                    continue;
                }
                swapped[one] += usize::from(old == guess as u64);
                if swapped[one] < EACH {
                    let next = if old == guess as u64 { old + 1 } else { old };
                    all.begin([one, 0], swap(next), &remote, 8, None, next as usize);
                }
            }
            while left[one] > 0 && under_way[one] < 3 {
                all.begin([one, 0], add, &remote, 0, None, usize::MAX);
                (left[one], under_way[one]) = (left[one] - 1, under_way[one] + 1);
            }
        }
        seen.len() == 3 * EACH && swapped[1..] == [EACH; 3]
    });
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..3 * EACH as u64), "each value is returned once");
    let counts = [3 * EACH as u64; 2].map(u64::to_ne_bytes);
    assert_eq!(words.bytes(), counts.as_flattened());
}

/// An operation without its right is denied by the target and changes nothing. Other operations are done before and
/// after it.
pub fn b24_each_missing_right_refuses_its_operations<S: Setup<Rail: 'static>>(setup: S) {
    let mut all = Modules::new(setup, 2);
    let sink = Memory::new(8);
    let source = Memory::new(8);
    source.fill(|_| 9);
    let add = What::Atomic(Atomic::Op(AtomicOp::Add, 1), AtomicFlags::empty());
    for (right, what) in [
        (Access::REMOTE_WRITE, What::Put(source.part(0, 8))),
        (Access::REMOTE_READ, What::Get(sink.part(0, 8))),
        (Access::REMOTE_ATOMIC, add),
    ] {
        let words = Memory::new(16);
        let (kept, remote) = all.register(1, words, Access::ANY - right);
        let end = all.perform([0, 1], what, &remote, 0, None);
        assert!(matches!(end, Err(Failure::Denied(_))), "{right:?}: {end:?}");
        assert_eq!((words.bytes(), sink.bytes()), (vec![0; 16], vec![0; 8]));
        let (other, what, _) = [
            (Access::REMOTE_WRITE, What::Put(source.part(0, 8)), 9),
            (Access::REMOTE_READ, What::Get(sink.part(0, 8)), 0),
        ]
        .into_iter()
        .find(|(other, ..)| *other != right)
        .expect("two");
        assert_eq!(all.perform([0, 1], what, &remote, 0, None), Ok(0), "{other:?}");
        all.modules[1].deregister_mem(kept).expect("it is registered");
        sink.fill(|_| 0);
    }
    assert!(all.modules[0].is_reachable(all.to(0, 1)), "a denied operation does not lose the peer");
}

/// Local memory may belong to an accelerator, which copies it. Operations on accelerator memory of a peer are denied if
/// no device can access it.
pub fn b38_local_accelerator_memory_is_copied_and_remote_is_refused<S: Setup<Rail: 'static>>(setup: S) {
    let mut all = Modules::new(setup, 2);
    let far = FakeAccelerator::default();
    let layout = Layout::bytes(1000).expect("it is short").on(&far).expect("it is on none yet");
    let (source, sink, there) = (Memory::new(1000), Memory::new(1000), Memory::new(1000));
    source.fill(|at| at as u8 | 1);
    // SAFETY: the layout fits the memory, and outlives the operations.
    let [from, to] =
        [source, sink].map(|memory| unsafe { Span::laid_out(FakeAccelerator::name(memory.base), &layout) });
    let (kept, remote) = all.register(1, there, Access::ANY);
    assert_eq!(all.perform([0, 1], What::Put(from), &remote, 0, None), Ok(0));
    assert_eq!(all.perform([0, 1], What::Get(to), &remote, 0, None), Ok(0));
    assert!(there.bytes() == source.bytes() && sink.bytes() == source.bytes());
    assert!(far.copied.load(Relaxed) >= 2000, "some bytes were not copied by the accelerator");
    all.modules[1].deregister_mem(kept).expect("it is registered");
    let named = Memory { base: FakeAccelerator::name(there.base), ..there };
    let (_, remote) = all.register(1, named, Access::ANY | Access::ACCELERATOR);
    let add = What::Atomic(Atomic::Op(AtomicOp::Add, 1), AtomicFlags::empty());
    for what in [What::Put(sink.part(0, 8)), What::Get(sink.part(0, 8)), add] {
        let end = all.perform([0, 1], what, &remote, 0, None);
        assert_eq!(end, Err(Failure::Denied(Denied::NotAvailable)), "{what:?}");
    }
    assert!(there.bytes() == source.bytes() && sink.bytes() == source.bytes());
}

/// Deregistered memory cannot be accessed with an old handle. If a device refuses, the connection may break.
pub fn b25_deregistered_memory_is_unreachable<S: Setup<Rail: 'static>>(setup: S) {
    let mut all = Modules::new(setup, 2);
    let (sink, source) = (Memory::new(8), Memory::new(8));
    source.fill(|_| 9);
    let add = What::Atomic(Atomic::Op(AtomicOp::Add, 1), AtomicFlags::empty());
    for what in [What::Put(source.part(0, 8)), What::Get(sink.part(0, 8)), add] {
        let words = Memory::new(16);
        let (first, stale) = all.register(1, words, Access::ANY);
        assert_eq!(all.perform([0, 1], add, &stale, 0, None), Ok(0));
        all.modules[1].deregister_mem(first).expect("it is registered");
        let end = all.perform([0, 1], what, &stale, 0, None);
        assert!(end.is_err(), "{end:?}");
        // The same memory and the same slot again, with another generation.
        let (second, remote) = all.register(1, words, Access::ANY);
        if !all.modules[0].is_reachable(all.to(0, 1)) {
            all.reconnect(0, 1);
        }
        assert_eq!(all.perform([0, 1], add, &remote, 0, None), Ok(1), "the old handle changed the word");
        assert_eq!(sink.bytes(), [0; 8]);
        all.modules[1].deregister_mem(second).expect("it is registered");
    }
}

/// After a flush the memory has the results of all operations, and all callbacks were called.
pub fn b28_b44_flushed_operations_are_complete<S: Setup<Rail: 'static>>(setup: S) {
    let mut all = Modules::new(setup, 2);
    let (there, here) = (Memory::new(1 << 17), Memory::new(1 << 17));
    let (_, remote) = all.register(1, there, Access::ANY);
    for round in 1..20u8 {
        here.fill(|at| (at as u8).wrapping_mul(31).wrapping_add(round));
        let len = if round % 2 == 0 { 64 } else { 1 << 14 };
        for part in 0..8 {
            let at = part << 14;
            all.begin([0, 1], What::Put(here.part(at, len)), &remote, at as u64, None, part);
        }
        let to = all.to(0, 1);
        all.until("they are flushed", |all| all.modules[0].flush(Some(to)));
        let (there, here) = (there.bytes(), here.bytes());
        for part in 0..8 {
            let at = part << 14;
            assert!(there[at..at + len] == here[at..at + len], "part {part} of round {round}");
        }
        let mut ends = all.ends(0);
        ends.sort_unstable_by_key(|(word, _)| *word);
        assert!(ends.into_iter().eq((0..8).map(|part| (part, Ok(0)))), "each operation completes once");
    }
}

/// Operations in progress on a peer that is deleted complete exactly once. From then on the local memory belongs to the
/// user again.
pub fn b5_b18_operations_on_a_removed_peer_end_and_write_nothing_later<S: Setup<Rail: 'static>>(setup: S) {
    let mut all = Modules::new(setup, 2);
    let there = Memory::new(200_000);
    there.fill(|at| at as u8 | 1);
    let sinks: Vec<Memory> = (0..4).map(|_| Memory::new(200_000)).collect();
    let locals: Vec<Registration> = sinks.iter().map(|sink| all.register(0, *sink, Access::LOCAL_WRITE).0).collect();
    let mut removed = 0;
    for round in 0..12usize {
        let (target, remote) = all.register(1, there, Access::ANY);
        let one = all.perform([0, 1], What::Get(sinks[0].part(0, 8)), &remote, 0, None);
        assert_eq!(one, Ok(0), "the modules are connected");
        for (word, sink) in sinks.iter().enumerate() {
            let len = if word % 2 == 0 { 200_000 } else { 3000 };
            all.begin([0, 1], What::Get(sink.part(0, len)), &remote, 0, Some(locals[word]), word);
        }
        (0..round * 3).for_each(|_| _ = all.progress());
        all.reconnect(0, 1);
        all.until("they are over", |all| all.modules[0].flush(None));
        let mut ends = all.ends(0);
        ends.sort_unstable_by_key(|(word, _)| *word);
        assert_eq!(ends.len(), 4, "each operation completes once");
        for (at, (word, end)) in ends.into_iter().enumerate() {
            assert!(at == word && matches!(end, Ok(0) | Err(Failure::Removed)), "{end:?}");
            removed += u32::from(end.is_err());
        }
        sinks.iter().for_each(|sink| sink.fill(|_| 0));
        // The modules connect again, and do more operations.
        let (again, remote) = all.register(1, there, Access::ANY);
        let add = What::Atomic(Atomic::Op(AtomicOp::Add, 1 << 8), AtomicFlags::empty());
        for _ in 0..20 {
            assert!(all.perform([0, 1], add, &remote, 0, None).is_ok());
        }
        assert!(sinks.iter().all(|sink| sink.bytes().iter().all(|byte| *byte == 0)), "round {round}");
        for registration in [target, again] {
            all.modules[1].deregister_mem(registration).expect("it is registered");
        }
    }
    assert!(removed > 0, "no operation was in progress");
}
