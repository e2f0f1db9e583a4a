//! One-sided operations over a scripted rail: the test chooses how the rail answers each send.

use super::{Mesh, Module, leak, mesh, mesh_of};
use crate::btl::active::RegisterError;
use crate::btl::endpoint::EndpointState;
use crate::btl::endpoint::Proc;
use crate::btl::module::*;
use crate::convertor::Span;
use crate::rail::FullRail;
use crate::rail::Lane;
use crate::rail::Peer;
use crate::rail::Shape;
use crate::rail::Unreachable;
use crate::rail::atomics::AtomicSupport;
use crate::rail::native::{self, OneSided};
use crate::rail::tags;
use crate::rail::testing::{Answer, Device};
use crate::rail::{Capabilities, Lost};
use crate::rail::{Cookie, Event, Rail};
use crate::rma;
use crate::rma::{
    Access, Atomic, AtomicFlags, AtomicOp, BeginError, Denied, DeregisterError, Failure, HANDLE_BYTES, Registration,
    RemoteMemory, Transfer,
};
use crate::time::Instant;
use proptest::prelude::*;
use std::{cell::RefCell, collections::HashSet, string::ToString, vec, vec::Vec};

/// Keeps the completions of operations.
#[derive(Debug, Default)]
pub(super) struct Results(RefCell<Vec<RmaCompletion>>);

impl<R: FullRail> RmaCompleted<R> for Results {
    fn rma_completed(&self, _: &mut Btl<'_, R>, completion: &RmaCompletion) {
        self.0.borrow_mut().push(*completion);
    }
}

impl Results {
    pub fn new() -> &'static Self {
        leak(Self::default())
    }

    pub fn statuses(&self) -> Vec<Result<u64, Failure>> {
        self.0.borrow().iter().map(|completion| completion.status).collect()
    }

    /// The status of the only completion since the last call.
    pub fn only(&self) -> Result<u64, Failure> {
        let results: Vec<_> = self.0.borrow_mut().drain(..).collect();
        let [only] = results[..] else { panic!("not one completion: {results:?}") };
        only.status
    }
}

pub(super) type Params = RmaParams<RmaCallback<'static, crate::rail::testing::Scripted>>;

pub(super) fn params(results: &'static Results) -> Params {
    RmaParams { callback: Some(results), ..RmaParams::NONE }
}

/// Memory that lives until the process ends, and is accessed only by its address.
pub(super) fn memory(len: usize) -> (*mut u8, usize) {
    let words = vec![0u64; len.div_ceil(8) + 1].leak();
    (words.as_mut_ptr().cast(), len)
}

pub(super) fn bytes((base, len): (*mut u8, usize)) -> Vec<u8> {
    // SAFETY: test memory of this length; no operation uses it when this is called.
    unsafe { std::slice::from_raw_parts(base, len) }.to_vec()
}

/// A copy of the bytes in leaked memory.
pub(super) fn source(bytes: &[u8]) -> Span {
    Span::of(bytes.to_vec().leak())
}

pub(super) fn register(
    btl: &mut Module,
    (base, len): (*mut u8, usize),
    access: Access,
) -> (Registration, RemoteMemory) {
    // SAFETY: the memory lives until the process ends, and tests read it when no operation is in progress.
    let registration = unsafe { btl.register_mem(None, base, len, access) }.unwrap();
    let remote = btl.remote_memory(registration).unwrap();
    // By its bytes, as peers get it.
    (registration, RemoteMemory::from_bytes(&remote.to_bytes()).unwrap())
}

pub(super) fn put(mesh: &mut Mesh, [from, to]: [usize; 2], data: Span, remote: &RemoteMemory, at: u64, params: Params) {
    let endpoint = mesh.to[from][to];
    // SAFETY: test data lives until the process ends.
    assert_eq!(unsafe { mesh.modules[from].put(endpoint, data, remote, at, params) }, Ok(Outcome::Queued));
}

pub(super) fn get(mesh: &mut Mesh, [from, to]: [usize; 2], sink: Span, remote: &RemoteMemory, at: u64, params: Params) {
    let endpoint = mesh.to[from][to];
    // SAFETY: test memory lives until the process ends.
    assert_eq!(unsafe { mesh.modules[from].get(endpoint, sink, remote, at, params) }, Ok(Outcome::Queued));
}

fn atomic(
    mesh: &mut Mesh,
    [from, to]: [usize; 2],
    what: Atomic,
    flags: AtomicFlags,
    remote: &RemoteMemory,
    at: u64,
    results: &'static Results,
) -> Result<u64, Failure> {
    let endpoint = mesh.to[from][to];
    let begun = mesh.modules[from].atomic(endpoint, what, flags, remote, at, params(results));
    assert_eq!(begun, Ok(Outcome::Queued));
    mesh.drive();
    results.only()
}

/// The operations of three devices: none; those of a network device; all operations, with atomics that agree with the
/// processor's.
const DEVICES: [OneSided; 3] = [
    OneSided::NONE,
    OneSided {
        put: native::Reach { limit: 100, alignment: 4, local_registration: 64 },
        get: native::Reach { limit: 64, alignment: 1, local_registration: u64::MAX },
        atomics: AtomicSupport::ADD.union(AtomicSupport::CSWAP),
        ..OneSided::NONE
    },
    OneSided { put: native::Reach::ANY, get: native::Reach::ANY, atomics: AtomicSupport::all(), ..OneSided::NONE },
];

/// One of the devices, and its answers to operations.
fn device() -> impl Strategy<Value = (usize, Vec<Device>)> {
    let answer = prop_oneof![Just(Device::Now), Just(Device::Late), Just(Device::Busy), Just(Device::NotAvailable)];
    (0..DEVICES.len(), proptest::collection::vec(answer, 0..20))
}

pub(super) fn small(window: u16) -> Config {
    Config { rma: rma::Config { regions: 3, operations: 4, window }, ..Config::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Any lengths and offsets, over rails that are full at any frame, read bodies in place, deliver them late, expose memory,
    /// and fail to read exposed memory.
    #[test]
    fn b19_b43_put_and_get_bring_exactly_the_bytes(
        window in 1u16..4,
        transfers in proptest::collection::vec((0usize..700, 0usize..100, any::<bool>()), 1..4),
        answers in proptest::collection::vec(prop_oneof![Just(Answer::Busy), Just(Answer::Pass), Just(Answer::InPlace)], 0..40),
        slow in any::<bool>(),
        (which, device) in device(),
        exposes in any::<[bool; 2]>(),
        fetches in proptest::collection::vec(any::<bool>(), 0..12),
    ) {
        let mut mesh = mesh_of(2, small(window), DEVICES[which]);
        mesh.scripts[0].borrow_mut().device.extend(device);
        for (script, exposes) in mesh.scripts.iter().zip(exposes) {
            let mut script = script.borrow_mut();
            script.exposes = exposes;
            script.fetches.extend(&fetches);
        }
        let results = Results::new();
        let here = memory(1000);
        let (_, remote) = register(&mut mesh.modules[1], here, Access::ANY);
        let mut model = vec![0; 1000];
        for script in &mesh.scripts {
            // `reserve` reads nothing in place: there the answer `InPlace` has no effect.
            script.borrow_mut().answers.extend(answers.iter().copied());
        }
        for (turn, (len, at, is_get)) in transfers.iter().copied().enumerate() {
            let data: Vec<u8> = (0..len).map(|byte| (byte * 7 + turn * 31 + 1) as u8).collect();
            let sink = memory(len);
            if is_get {
                get(&mut mesh, [0, 1], Span::contiguous(sink.0, len), &remote, at as u64, params(results));
            } else {
                put(&mut mesh, [0, 1], source(&data), &remote, at as u64, params(results));
                model[at..at + len].copy_from_slice(&data);
            }
            for pass in 0..60 {
                mesh.scripts.iter().for_each(|script| script.borrow_mut().slow_delivery = slow && pass % 3 != 0);
                mesh.progress();
            }
            mesh.scripts.iter().for_each(|script| script.borrow_mut().slow_delivery = false);
            mesh.drive();
            prop_assert_eq!(results.only(), Ok(0));
            prop_assert!(mesh.modules[0].flush(None));
            if is_get {
                prop_assert_eq!(bytes(sink), &model[at..at + len]);
            }
            prop_assert_eq!(bytes(here), &model[..]);
        }
    }

    /// Each operation on each type of word, compared with the expected result.
    #[test]
    fn b20_b21_b22_atomics_do_what_they_say(
        which in 0usize..10, bits_32 in any::<bool>(), float in any::<bool>(),
        word in prop_oneof![any::<u64>(), Just(0), Just(u64::MAX), Just(f64::NAN.to_bits()), Just((-0.0f64).to_bits()), Just(u64::from((-0.0f32).to_bits()))],
        operand in prop_oneof![any::<u64>(), Just(0), Just(1), Just(f64::NAN.to_bits()), Just(u64::from(f32::NAN.to_bits()))],
        (device, answers) in device(),
    ) {
        let mut mesh = mesh_of(2, small(2), DEVICES[device]);
        mesh.scripts[0].borrow_mut().device.extend(answers.iter().filter(|answer| **answer != Device::NotAvailable));
        let results = Results::new();
        let here = memory(24);
        let (_, remote) = register(&mut mesh.modules[1], here, Access::REMOTE_ATOMIC);
        let mut flags = AtomicFlags::empty();
        flags.set(AtomicFlags::BITS_32, bits_32);
        flags.set(AtomicFlags::FLOAT, float);
        // SAFETY: test memory of three words.
        unsafe { here.0.cast::<[u64; 3]>().write([!0, word, !0]) };
        let op = AtomicOp::ALL[which];
        let endpoint = mesh.to[0][1];
        let what = Atomic::Op(op, operand);
        if float && matches!(op, AtomicOp::And | AtomicOp::Or | AtomicOp::Xor) {
            let refused = mesh.modules[0].atomic(endpoint, what, flags, &remote, 8, params(results));
            prop_assert_eq!(refused, Err(BeginError::NotAvailable));
            return Ok(());
        }
        let old = atomic(&mut mesh, [0, 1], what, flags, &remote, 8, results).unwrap();
        // SAFETY: as above.
        let now = unsafe { here.0.cast::<[u64; 3]>().read() };
        prop_assert_eq!((now[0], now[2]), (!0, !0));
        let becomes = if bits_32 {
            prop_assert_eq!(now[1] >> 32, word >> 32, "the other half has not changed");
            prop_assert_eq!(old, word & 0xffff_ffff);
            expected_32(op, float, word as u32, operand as u32).into()
        } else {
            prop_assert_eq!(old, word);
            expected_64(op, float, word, operand)
        };
        let now = if bits_32 { now[1] & 0xffff_ffff } else { now[1] };
        let is_nan = |bits: u64| if bits_32 { f32::from_bits(bits as u32).is_nan() } else { f64::from_bits(bits).is_nan() };
        prop_assert!(now == becomes || float && op != AtomicOp::Swap && is_nan(now) && is_nan(becomes), "{now:#x} {becomes:#x}");
    }

    /// Whatever a peer sends, memory that it has no right to write does not change, and nothing panics.
    #[test]
    fn b25_forged_frames_touch_nothing(
        frames in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..128), 0u8..11, any::<bool>()), 1..20),
        exposes in any::<bool>(),
    ) {
        let mut mesh = mesh(2, small(2));
        mesh.scripts.iter().for_each(|script| script.borrow_mut().exposes = exposes);
        let here = memory(64);
        let (_, remote) = register(&mut mesh.modules[1], here, Access::REMOTE_READ);
        let results = Results::new();
        let sink = memory(64);
        get(&mut mesh, [1, 0], Span::contiguous(sink.0, 64), &remote, 0, params(results)); // answered by forged frames, if at all
        for (mut frame, kind, names_memory) in frames {
            if let Some(first) = frame.first_mut() {
                *first = 0x10 | kind;
            }
            if names_memory && frame.len() >= 24 {
                frame[16..24].copy_from_slice(&remote.to_bytes()[8..16]);
            }
            forge(&mut mesh, 0, 1, &frame);
            mesh.progress();
        }
        mesh.drive();
        prop_assert_eq!(bytes(here), vec![0; 64]);
        mesh.modules[1].del_procs(&[mesh.to[1][0]]);
        mesh.modules[1].progress(Instant::ZERO);
        prop_assert_eq!(results.0.borrow().len(), 1);
        prop_assert_eq!(mesh.modules[1].rma.used()[1][0], 0);
    }
}

/// Sends bytes as a frame of one-sided operations, by the rail, without the module.
pub(super) fn forge(mesh: &mut Mesh, from: usize, to: usize, frame: &[u8]) {
    let EndpointState { rail, .. } = *mesh.modules[from].reachable(mesh.to[from][to]).unwrap();
    let shape =
        Shape { tag: tags::BTL_BASE, lane: Lane::Bulk, header: frame.len().min(40) as u8, len: frame.len() as u32 };
    let Ok(mut grant) = mesh.modules[from].rail.reserve(rail, shape) else { return };
    grant.write(0, frame);
    let ticket = grant.finish();
    mesh.modules[from].rail.commit(ticket);
}

fn expected_32(op: AtomicOp, float: bool, word: u32, operand: u32) -> u32 {
    let (a, b) = (f32::from_bits(word), f32::from_bits(operand));
    match (op, float) {
        (AtomicOp::Add, true) => (a + b).to_bits(),
        (AtomicOp::Min, true) => a.min(b).to_bits(),
        (AtomicOp::Max, true) => a.max(b).to_bits(),
        (AtomicOp::LogicalAnd, true) => f32::from(u8::from(a != 0.0 && b != 0.0)).to_bits(),
        (AtomicOp::LogicalOr, true) => f32::from(u8::from(a != 0.0 || b != 0.0)).to_bits(),
        (AtomicOp::LogicalXor, true) => f32::from(u8::from((a != 0.0) != (b != 0.0))).to_bits(),
        (AtomicOp::Min, false) => (word as i32).min(operand as i32) as u32,
        (AtomicOp::Max, false) => (word as i32).max(operand as i32) as u32,
        _ => expected_64(op, false, word.into(), operand.into()) as u32,
    }
}

fn expected_64(op: AtomicOp, float: bool, word: u64, operand: u64) -> u64 {
    let (a, b) = (f64::from_bits(word), f64::from_bits(operand));
    match (op, float) {
        (AtomicOp::Add, true) => (a + b).to_bits(),
        (AtomicOp::Min, true) => a.min(b).to_bits(),
        (AtomicOp::Max, true) => a.max(b).to_bits(),
        (AtomicOp::LogicalAnd, true) => f64::from(u8::from(a != 0.0 && b != 0.0)).to_bits(),
        (AtomicOp::LogicalOr, true) => f64::from(u8::from(a != 0.0 || b != 0.0)).to_bits(),
        (AtomicOp::LogicalXor, true) => f64::from(u8::from((a != 0.0) != (b != 0.0))).to_bits(),
        (AtomicOp::Add, false) => word.wrapping_add(operand),
        (AtomicOp::And, _) => word & operand,
        (AtomicOp::Or, _) => word | operand,
        (AtomicOp::Xor, _) => word ^ operand,
        (AtomicOp::LogicalAnd, false) => u64::from(word != 0 && operand != 0),
        (AtomicOp::LogicalOr, false) => u64::from(word != 0 || operand != 0),
        (AtomicOp::LogicalXor, false) => u64::from((word != 0) != (operand != 0)),
        (AtomicOp::Swap, _) => operand,
        (AtomicOp::Min, false) => (word as i64).min(operand as i64) as u64,
        (AtomicOp::Max, false) => (word as i64).max(operand as i64) as u64,
    }
}

#[test]
fn b20_compare_and_swap_swaps_equal_words() {
    let mut mesh = mesh(2, small(2));
    let results = Results::new();
    let here = memory(16);
    let (_, remote) = register(&mut mesh.modules[1], here, Access::REMOTE_ATOMIC);
    let mut swap =
        |is, becomes, flags| atomic(&mut mesh, [0, 1], Atomic::CompareSwap(is, becomes), flags, &remote, 0, results);
    assert_eq!(swap(1, 2, AtomicFlags::empty()), Ok(0));
    assert_eq!(swap(0, u64::MAX, AtomicFlags::empty()), Ok(0));
    assert_eq!(swap(u64::MAX, 7, AtomicFlags::empty()), Ok(u64::MAX));
    // With 32 bits, only the lower half is compared, and the upper half of the word does not change.
    assert_eq!(swap(7, 1 << 40 | 9, AtomicFlags::BITS_32), Ok(7));
    assert_eq!(swap(5 << 32 | 9, u64::from(u32::MAX), AtomicFlags::BITS_32), Ok(9));
    assert_eq!(bytes(here)[..8], u64::from(u32::MAX).to_ne_bytes());
}

#[test]
fn b22_unavailable_atomics_are_refused_and_change_nothing() {
    let mut mesh = mesh(2, small(2));
    let to = mesh.to[0][1];
    let here = memory(16);
    let (_, remote) = register(&mut mesh.modules[1], here, Access::ANY);
    let mut begin = |what, flags, at| mesh.modules[0].atomic(to, what, flags, &remote, at, RmaParams::NONE);
    let add = Atomic::Op(AtomicOp::Add, 1);
    let none = AtomicFlags::empty();
    assert_eq!(begin(add, none, 4), Err(BeginError::NotAvailable));
    assert_eq!(begin(add, AtomicFlags::BITS_32, 2), Err(BeginError::NotAvailable));
    assert_eq!(begin(Atomic::Op(AtomicOp::Xor, 1), AtomicFlags::FLOAT, 0), Err(BeginError::NotAvailable));
    assert_eq!(begin(Atomic::CompareSwap(0, 1), AtomicFlags::FLOAT, 0), Err(BeginError::NotAvailable));
    assert_eq!(begin(add, none, 16), Err(BeginError::OutOfBounds));
    assert_eq!(begin(add, none, u64::MAX - 7), Err(BeginError::OutOfBounds));
    assert!(mesh.modules[0].flush(None));
    // The target checks for itself: the same requests without the checks of the initiator.
    for (operation, flags, at) in [(1, 0, 4u8), (1, 1, 2), (0x14, 2, 0), (0, 2, 0), (0x77, 0, 0), (1, 4, 0), (1, 0, 12)]
    {
        let mut frame = [0; 48];
        (frame[0], frame[1], frame[2]) = (0x13, operation, flags);
        frame[16..24].copy_from_slice(&remote.to_bytes()[8..16]);
        (frame[24], frame[32]) = (at, 1);
        forge(&mut mesh, 0, 1, &frame);
    }
    mesh.drive();
    let counters = mesh.modules[1].rma_counters();
    assert_eq!((counters.denied, counters.served, counters.malformed), (2, 0, 0), "two fit into the window");
    assert_eq!(counters.window_violations, 5);
    assert_eq!(bytes(here), [0; 16]);
}

#[test]
fn b24_each_right_is_needed_for_its_operation() {
    let results = Results::new();
    for access in 0..16 {
        let access = Access::from_bits(access).unwrap();
        let mut mesh = mesh(2, small(2));
        let here = memory(200);
        let (_, remote) = register(&mut mesh.modules[1], here, access);
        let expect =
            |right, value| if access.contains(right) { Ok(value) } else { Err(Failure::Denied(Denied::NoRight)) };
        for len in [8, 200] {
            put(&mut mesh, [0, 1], source(&vec![3; len]), &remote, 0, params(results));
            mesh.drive();
            assert_eq!(results.only(), expect(Access::REMOTE_WRITE, 0), "{access:?}");
            get(&mut mesh, [0, 1], Span::contiguous(memory(len).0, len), &remote, 0, params(results));
            mesh.drive();
            assert_eq!(results.only(), expect(Access::REMOTE_READ, 0), "{access:?}");
        }
        // SAFETY: test memory; no operation is in progress.
        let word = unsafe { here.0.cast::<u64>().read() };
        let what = Atomic::Op(AtomicOp::Swap, 1);
        let old = atomic(&mut mesh, [0, 1], what, AtomicFlags::empty(), &remote, 0, results);
        assert_eq!(old, expect(Access::REMOTE_ATOMIC, word), "{access:?}");
        assert_eq!(word != 0, access.contains(Access::REMOTE_WRITE));
    }
}

#[test]
fn b23_b27_memory_for_one_endpoint_is_denied_to_others() {
    let mut mesh = mesh(3, small(2));
    let results = Results::new();
    let here = memory(8);
    let only = mesh.to[2][0];
    // SAFETY: test memory lives until the process ends.
    let registration = unsafe { mesh.modules[2].register_mem(Some(only), here.0, 8, Access::ANY) }.unwrap();
    let remote = mesh.modules[2].remote_memory(registration).unwrap();
    for (from, status) in [(0, Ok(0)), (1, Err(Failure::Denied(Denied::NoRight)))] {
        put(&mut mesh, [from, 2], source(&[from as u8 + 1; 8]), &remote, 0, params(results));
        mesh.drive();
        assert_eq!(results.only(), status);
    }
    assert_eq!(bytes(here), [1; 8]);
    // The number of slots is limited, and freed slots are used again.
    let btl = &mut mesh.modules[2];
    // SAFETY: as above.
    let register = |btl: &mut Module| unsafe { btl.register_mem(None, here.0, 8, Access::ANY) };
    let more = [register(btl).unwrap(), register(btl).unwrap()];
    assert_eq!(register(btl), Err(RegisterMemoryError::Full));
    btl.deregister_mem(more[0]).unwrap();
    assert_ne!(register(btl).unwrap(), more[0]);
    btl.del_procs(&[only]);
    // Memory for a peer that was removed is denied to the peer that gets its number.
    let card = mesh.modules[1].rail().card().to_vec();
    let mut again = [Err(Unreachable::NoCard)];
    let btl = &mut mesh.modules[2];
    btl.del_procs(&[mesh.to[2][1]]);
    btl.add_procs(&[Proc { id: 1, card: &card }], &mut again, None);
    btl.add_procs(&[Proc { id: 1, card: &card }], &mut again, None);
    for _ in 0..2 {
        put(&mut mesh, [1, 2], source(&[7; 8]), &remote, 0, params(results));
        mesh.drive();
        assert_eq!(results.only(), Err(Failure::Denied(Denied::NoRight)));
    }
    let btl = &mut mesh.modules[2];
    // SAFETY: as above.
    assert_eq!(unsafe { btl.register_mem(Some(only), here.0, 8, Access::ANY) }, Err(RegisterMemoryError::Unreachable));
}

/// Open MPI may give the handle of another memory of the same process with an address.
#[test]
fn b25_b27_by_its_address_memory_is_reached_through_any_handle_of_its_owner() {
    let mut mesh = mesh(3, small(2));
    let results = Results::new();
    let (first, second, single) = (memory(64), memory(1000), memory(8));
    let (_, of_first) = register(&mut mesh.modules[2], first, Access::ANY);
    let (registration, of_second) = register(&mut mesh.modules[2], second, Access::ANY);
    let all = of_first.by_address();
    assert_eq!((all.base(), all.len(), all), (0, u64::MAX, of_second.by_address()));
    let at = |memory: (*mut u8, usize), offset: u64| memory.0.addr() as u64 + offset;

    put(&mut mesh, [0, 2], source(&[5; 900]), &all, at(second, 100), params(results));
    mesh.drive();
    assert_eq!(results.only(), Ok(0));
    assert_eq!(bytes(second), [vec![0; 100], vec![5; 900]].concat());
    let sink = memory(300);
    get(&mut mesh, [0, 2], Span::contiguous(sink.0, sink.1), &all, at(second, 0), params(results));
    mesh.drive();
    assert_eq!((results.only(), bytes(sink)), (Ok(0), bytes(second)[..300].to_vec()));
    let add = Atomic::Op(AtomicOp::Add, 1);
    let old = atomic(&mut mesh, [1, 2], add, AtomicFlags::BITS_32, &all, at(first, 60), results);
    assert_eq!((old, &bytes(first)[60..]), (Ok(0), &1u32.to_ne_bytes()[..]));

    // What lies in no registration as a whole is denied.
    let none = Err(Failure::Denied(Denied::NoMemory));
    for (address, len) in [(at(first, 1), 64), (at(single, 0), 8), (at(second, 993), 8), (u64::MAX - 100, 8), (0, 8)] {
        put(&mut mesh, [0, 2], source(&vec![7; len]), &all, address, params(results));
        mesh.drive();
        assert_eq!(results.only(), none, "{len} bytes at {address:x}");
    }
    mesh.modules[2].deregister_mem(registration).unwrap();
    put(&mut mesh, [0, 2], source(&[7; 8]), &all, at(second, 0), params(results));
    mesh.drive();
    assert_eq!(results.only(), none);

    // The rights are those of the memory, and among several registrations those that allow the operation.
    let only = mesh.to[2][0];
    // SAFETY: test memory lives until the process ends.
    unsafe { mesh.modules[2].register_mem(Some(only), single.0, 8, Access::REMOTE_WRITE) }.unwrap();
    for (from, status) in [(0, Ok(0)), (1, none)] {
        put(&mut mesh, [from, 2], source(&[from as u8 + 1; 8]), &all, at(single, 0), params(results));
        mesh.drive();
        assert_eq!(results.only(), status);
    }
    assert_eq!(bytes(single), [1; 8]);
    get(&mut mesh, [0, 2], Span::contiguous(sink.0, 8), &all, at(single, 0), params(results));
    mesh.drive();
    assert_eq!(results.only(), none);
    register(&mut mesh.modules[2], single, Access::REMOTE_READ);
    get(&mut mesh, [0, 2], Span::contiguous(sink.0, 8), &all, at(single, 0), params(results));
    mesh.drive();
    assert_eq!((results.only(), &bytes(sink)[..8]), (Ok(0), &[1; 8][..]));
}

#[test]
fn b25_deregistered_memory_is_denied() {
    let mut mesh = mesh(2, small(2));
    let results = Results::new();
    let here = memory(16);
    let (registration, remote) = register(&mut mesh.modules[1], here, Access::ANY);
    mesh.modules[1].deregister_mem(registration).unwrap();
    assert_eq!(mesh.modules[1].deregister_mem(registration), Err(DeregisterError::Stale));
    assert_eq!(mesh.modules[1].remote_memory(registration), None);
    // The slot is used by other memory now.
    let (_, _) = register(&mut mesh.modules[1], here, Access::ANY);
    put(&mut mesh, [0, 1], source(&[9; 16]), &remote, 0, params(results));
    mesh.drive();
    assert_eq!(results.only(), Err(Failure::Denied(Denied::NoMemory)));
    assert_eq!(bytes(here), [0; 16]);
}

/// An answer has no room, and nothing else is to be done: its module does not sleep until the answer has left.
#[test]
fn b43_a_module_that_owes_an_answer_does_not_sleep() {
    let mut mesh = mesh(2, small(2));
    let results = Results::new();
    let (_, remote) = register(&mut mesh.modules[1], memory(8), Access::ANY);
    assert!(mesh.modules.iter_mut().all(Btl::arm));
    let add = Atomic::Op(AtomicOp::Add, 1);
    let endpoint = mesh.to[0][1];
    mesh.modules[0].atomic(endpoint, add, AtomicFlags::empty(), &remote, 0, params(results)).unwrap();
    assert!(mesh.modules[0].arm(), "the answer wakes the initiator");
    mesh.scripts[1].borrow_mut().always = Some(Answer::Busy);
    for _ in 0..3 {
        mesh.progress();
        assert!(!mesh.modules[1].arm(), "nothing would wake it when there is room");
    }
    mesh.scripts[1].borrow_mut().always = None;
    mesh.modules[1].progress(Instant::ZERO);
    assert!(mesh.modules[1].arm());
    mesh.modules[0].progress(Instant::ZERO);
    assert_eq!(results.only(), Ok(0));
}

#[test]
fn b27_memory_for_any_endpoint_is_reached_by_all_and_by_later_ones() {
    let mut mesh = mesh(3, small(2));
    let results = Results::new();
    let here = memory(8);
    // At first, only peer 0 was added.
    let later = mesh.to[2][1];
    mesh.modules[2].del_procs(&[later]);
    let (_, remote) = register(&mut mesh.modules[2], here, Access::ANY);
    let card = mesh.modules[1].rail().card().to_vec();
    mesh.modules[2].add_procs(&[Proc { id: 1, card: &card }], &mut [Err(Unreachable::NoCard)], None);
    for from in [0, 1] {
        put(&mut mesh, [from, 2], source(&[from as u8 + 1; 8]), &remote, 0, params(results));
        mesh.drive();
        assert_eq!((results.only(), bytes(here)), (Ok(0), vec![from as u8 + 1; 8]));
    }
}

/// A module without slots for registered memory says that handles have no bytes.
#[test]
fn b26_a_module_without_registered_memory_has_no_handles() {
    let config = Config { rma: rma::Config { regions: 0, ..small(2).rma }, ..Config::default() };
    let mut mesh = mesh(2, config);
    assert_eq!(mesh.modules[0].registration_handle_bytes(), 0);
    let here = memory(8);
    // SAFETY: test memory lives until the process ends.
    let refused = unsafe { mesh.modules[0].register_mem(None, here.0, 8, Access::ANY) };
    assert_eq!(refused, Err(RegisterMemoryError::NotAvailable));
    assert_eq!(RegisterMemoryError::NotAvailable.blame(), crate::error::Blame::Caller);
    assert_eq!(RemoteMemory::from_bytes(&[]), None);
}

#[test]
fn b26_a_handle_has_a_fixed_length() {
    let mut mesh = mesh(1, small(2));
    assert_eq!(mesh.modules[0].registration_handle_bytes(), HANDLE_BYTES);
    let here = memory(16);
    let (_, remote) = register(&mut mesh.modules[0], here, Access::ANY);
    assert_eq!((remote.to_bytes().len(), remote.len(), remote.is_empty()), (HANDLE_BYTES, 16, false));
    assert_eq!(remote.base(), here.0 as u64);
    assert_eq!(RemoteMemory::from_bytes(&remote.to_bytes()[1..]), None);
    assert_eq!(RemoteMemory::from_bytes(&[0; HANDLE_BYTES]), None);
}

#[test]
fn b19_b25_memory_is_not_deregistered_while_an_operation_uses_it() {
    let mut mesh = mesh(2, small(2));
    let results = Results::new();
    let (here, there) = (memory(300), memory(300));
    let (theirs, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    let (ours, _) = register(&mut mesh.modules[0], here, Access::LOCAL_WRITE);
    let with = RmaParams { registration: Some(ours), ..params(results) };
    get(&mut mesh, [0, 1], Span::contiguous(here.0, 300), &remote, 0, with);
    assert_eq!(mesh.modules[0].deregister_mem(ours), Err(DeregisterError::InUse));
    mesh.drive();
    assert_eq!(results.only(), Ok(0));
    mesh.modules[0].deregister_mem(ours).unwrap();
    // A body is arriving.
    mesh.scripts[1].borrow_mut().slow_delivery = true;
    put(&mut mesh, [0, 1], source(&[7; 60]), &remote, 0, params(results));
    mesh.progress();
    assert_eq!(mesh.modules[1].deregister_mem(theirs), Err(DeregisterError::InUse));
    assert_eq!(mesh.modules[1].remote_memory(theirs), None);
    // An initiator that sends more requests does not delay deregistration.
    get(&mut mesh, [0, 1], Span::contiguous(here.0, 10), &remote, 0, params(results));
    mesh.scripts[1].borrow_mut().slow_delivery = false;
    mesh.drive();
    assert_eq!(results.statuses(), [Ok(0), Err(Failure::Denied(Denied::NoMemory))]);
    results.0.borrow_mut().clear();
    mesh.modules[1].deregister_mem(theirs).unwrap();
    let (theirs, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    // Data that has not left, and a put that is done: an initiator that takes no answers does not delay deregistration.
    mesh.scripts[1].borrow_mut().always = Some(Answer::Busy);
    get(&mut mesh, [0, 1], Span::contiguous(here.0, 10), &remote, 0, params(results));
    mesh.progress();
    mesh.scripts[1].borrow_mut().slow_delivery = true;
    put(&mut mesh, [0, 1], source(&[8; 60]), &remote, 0, params(results));
    mesh.progress();
    mesh.scripts[1].borrow_mut().slow_delivery = false;
    mesh.progress();
    mesh.modules[1].deregister_mem(theirs).unwrap();
    mesh.scripts[1].borrow_mut().always = None;
    mesh.drive();
    assert_eq!(results.statuses(), [Err(Failure::Denied(Denied::NoMemory)), Ok(0)]);
    assert_eq!((bytes(here), bytes(there)[..60].to_vec()), (vec![0; 300], vec![8; 60]));
}

#[test]
fn b19_b53_registered_local_memory_is_checked() {
    let mut mesh = mesh(2, small(2));
    let to = mesh.to[0][1];
    let (here, there) = (memory(64), memory(64));
    let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    let (read_only, _) = register(&mut mesh.modules[0], here, Access::REMOTE_READ);
    let (writable, _) = register(&mut mesh.modules[0], (here.0, 32), Access::LOCAL_WRITE);
    let with = |registration| RmaParams { registration: Some(registration), ..RmaParams::NONE };
    let btl = &mut mesh.modules[0];
    // SAFETY: test memory lives until the process ends.
    let mut get = |from: usize, len, registration| unsafe {
        btl.get(to, Span::contiguous(here.0.wrapping_add(from), len), &remote, 0, with(registration))
    };
    assert_eq!(get(0, 32, read_only), Err(BeginError::NotRegistered));
    assert_eq!(get(0, 33, writable), Err(BeginError::NotRegistered));
    assert_eq!(get(31, 2, writable), Err(BeginError::NotRegistered));
    assert_eq!(get(1, 31, writable), Ok(Outcome::Queued));
    // SAFETY: as above.
    assert_eq!(unsafe { btl.put(to, Span::contiguous(here.0, 64), &remote, 0, with(read_only)) }, Ok(Outcome::Queued));
    // SAFETY: as above.
    let beyond = unsafe { btl.put(to, Span::contiguous(here.0, 64), &remote, 1, RmaParams::NONE) };
    assert_eq!(beyond, Err(BeginError::OutOfBounds));
    // The number of slots is limited: two of four are in use.
    // SAFETY: as above.
    let mut one_more = || unsafe { btl.put(to, Span::contiguous(here.0, 8), &remote, 0, RmaParams::NONE) };
    assert_eq!([one_more(), one_more()], [Ok(Outcome::Queued); 2]);
    assert_eq!(one_more(), Err(BeginError::Full));
    mesh.drive();
    mesh.modules[0].deregister_mem(writable).unwrap();
    let btl = &mut mesh.modules[0];
    // SAFETY: as above.
    let stale = unsafe { btl.put(to, Span::contiguous(here.0, 8), &remote, 0, with(writable)) };
    assert_eq!(stale, Err(BeginError::NotRegistered));
}

#[test]
fn b18_b28_b44_a_completion_has_all_parameters_and_means_done_at_the_target() {
    let mut mesh = mesh(2, small(2));
    let results = Results::new();
    let there = memory(64);
    let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    let here = memory(64);
    let (ours, _) = register(&mut mesh.modules[0], here, Access::ANY);
    let with = RmaParams { registration: Some(ours), context: [11, 12], ..params(results) };
    put(&mut mesh, [0, 1], Span::contiguous(here.0.wrapping_add(8), 4), &remote, 60, with);
    let to = mesh.to[0][1];
    assert!(!mesh.modules[0].flush(Some(to)) && !mesh.modules[0].flush(None));
    assert!(mesh.modules[0].flush(Some(mesh.to[0][0])), "no operation was begun to this peer");
    for _ in 0..5 {
        mesh.modules[0].progress(Instant::ZERO);
    }
    assert!(!mesh.modules[0].flush(Some(to)), "the target has not made progress");
    mesh.drive();
    assert!(mesh.modules[0].flush(Some(to)));
    let completion = RmaCompletion {
        endpoint: to,
        local: here.0 as usize + 8,
        registration: Some(ours),
        context: [11, 12],
        status: Ok(0),
    };
    assert_eq!(*results.0.borrow(), [completion]);
}

#[test]
fn b18_operations_end_when_the_peer_is_lost_or_removed() {
    for (removed, failure) in [(false, Failure::Lost), (true, Failure::Removed)] {
        let mut mesh = mesh(3, small(1));
        let results = Results::new();
        let there = memory(600);
        let (registration, remote) = register(&mut mesh.modules[1], there, Access::ANY);
        let here = memory(600);
        let (ours, _) = register(&mut mesh.modules[0], here, Access::ANY);
        let with = RmaParams { registration: Some(ours), ..params(results) };
        // One operation is read in place, one is half done, one waits; and one is on memory of another peer.
        mesh.scripts[0].borrow_mut().answers.push_back(Answer::InPlace);
        mesh.scripts[0].borrow_mut().reads = false;
        put(&mut mesh, [0, 1], Span::contiguous(here.0, 600), &remote, 0, with);
        get(&mut mesh, [0, 1], Span::contiguous(here.0, 600), &remote, 0, with);
        let to = mesh.to[0][1];
        let add = Atomic::Op(AtomicOp::Add, 1);
        assert!(mesh.modules[0].atomic(to, add, AtomicFlags::empty(), &remote, 0, params(results)).is_ok());
        let (_, others) = register(&mut mesh.modules[2], memory(8), Access::ANY);
        put(&mut mesh, [0, 2], source(&[1; 8]), &others, 0, params(results));
        if removed {
            mesh.modules[0].del_procs(&[to]);
        } else {
            mesh.scripts[0].borrow_mut().events.push_back(Event::Lost(Peer(to.0.slot()), Lost::Broken));
        }
        mesh.scripts[0].borrow_mut().reads = true;
        mesh.drive();
        let failed = Err(failure);
        let mut statuses = results.statuses();
        statuses.sort_by_key(|status| status.is_ok());
        assert_eq!(statuses, [failed, failed, failed, Ok(0)]);
        assert!(mesh.modules[0].flush(None));
        mesh.modules[0].deregister_mem(ours).unwrap();
        let btl = &mut mesh.modules[0];
        assert_eq!(
            btl.atomic(to, add, AtomicFlags::empty(), &remote, 0, RmaParams::NONE),
            Err(BeginError::Unreachable)
        );
        // The target forgets the initiator, too, with all of its requests.
        let from = mesh.to[1][0];
        mesh.modules[1].del_procs(&[from]);
        mesh.modules[1].deregister_mem(registration).unwrap();
        assert!(
            mesh.modules[1]
                .dump(None, false)
                .to_string()
                .contains(r#""regions":[0,3],"operations":[0,4],"answers":[0,8]"#)
        );
    }
}

#[test]
fn b43_requests_beyond_the_window_are_dropped_and_other_peers_are_served() {
    let mut mesh = mesh(3, small(2));
    let results = Results::new();
    let there = memory(8);
    let (_, remote) = register(&mut mesh.modules[2], there, Access::ANY);
    let mut frame = [0; 40];
    frame[0] = 0x12;
    frame[4] = 8;
    frame[16..24].copy_from_slice(&remote.to_bytes()[8..16]);
    mesh.scripts[2].borrow_mut().always = Some(Answer::Busy);
    for _ in 0..8 {
        forge(&mut mesh, 0, 2, &frame);
    }
    mesh.progress();
    put(&mut mesh, [1, 2], source(&[5; 8]), &remote, 0, params(results));
    mesh.progress();
    mesh.scripts[2].borrow_mut().always = None;
    mesh.drive();
    assert_eq!(results.only(), Ok(0));
    assert_eq!(mesh.modules[2].rma_counters().window_violations, 6);
    // The initiator drops answers to requests that it has not sent.
    assert_eq!(mesh.modules[0].rma_counters().stale, 2);
}

/// `RDMA_MATCHED` has no meaning any more. With `RDMA_COMPLETION` an operation ends when the device reports it, and not earlier.
#[test]
fn b35_matched_is_ignored_and_completion_is_waited_for() {
    for flags in [Capabilities::empty(), Capabilities::RDMA_MATCHED] {
        let mut mesh = mesh_of(2, Config::default(), DEVICES[1]);
        let words = memory(64);
        for module in &mut mesh.modules {
            module.rail.attributes.capabilities |= Capabilities::NATIVE | flags;
            assert!(module.capabilities().contains(Capabilities::RDMA_COMPLETION | flags));
        }
        let (_, remote) = register(&mut mesh.modules[1], words, Access::ANY);
        let results = Results::new();
        mesh.scripts[0].borrow_mut().device_is_late = true;
        put(&mut mesh, [0, 1], source(&[7; 32]), &remote, 0, params(results));
        for _ in 0..10 {
            mesh.progress();
        }
        assert_eq!(
            (mesh.scripts[0].borrow().performed.len(), results.statuses().len()),
            (1, 0),
            "the device has not finished"
        );
        assert!(!mesh.modules[0].flush(None) && !mesh.modules[0].arm());
        mesh.scripts[0].borrow_mut().device_is_late = false;
        mesh.drive();
        assert_eq!(results.statuses(), [Ok(0)]);
        assert_eq!(bytes(words)[..33], [[7; 32].as_slice(), &[0]].concat());
    }
}

#[test]
fn b40_b43_capabilities_include_emulation_and_its_tag_is_reserved() {
    let mut mesh = mesh(1, small(2));
    let btl = &mut mesh.modules[0];
    let all = Capabilities::PUT_AM | Capabilities::GET_AM | Capabilities::ATOMIC_AM_FOP | Capabilities::RDMA_FLUSH;
    assert!(btl.capabilities().contains(all | Capabilities::SEND));
    assert!(!btl.capabilities().intersects(Capabilities::PUT | Capabilities::GET));
    assert_eq!(btl.atomics(), rma::EMULATED);
    let inbox: &super::tests::Inbox = leak(super::tests::Inbox::default());
    assert_eq!(btl.register(tags::BTL_BASE, inbox), Err(RegisterError::Taken));
    // Without slots there is no emulation.
    let mut mesh = super::tests::mesh(1, Config { rma: rma::Config::OFF, ..Config::default() });
    let btl = &mut mesh.modules[0];
    assert!(!btl.capabilities().intersects(all) && btl.atomics().is_empty());
    let here = memory(8);
    // SAFETY: test memory lives until the process ends.
    assert_eq!(unsafe { btl.register_mem(None, here.0, 8, Access::ANY) }, Err(RegisterMemoryError::NotAvailable));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Several initiators use atomics on one word, each one operation at a time. There is an order of all operations that
    /// explains all results, and in which no operation comes before one that had ended when it began.
    #[test]
    fn b20_atomics_of_several_initiators_are_linearizable(
        script in proptest::collection::vec((0usize..3, 0u8..4, 0u64..3, 0usize..4), 1..14),
        busy in proptest::collection::vec(any::<bool>(), 0..30),
        device in 0..DEVICES.len(),
    ) {
        let mut mesh = mesh_of(4, small(1), DEVICES[device]);
        let here = memory(8);
        let (_, remote) = register(&mut mesh.modules[3], here, Access::REMOTE_ATOMIC);
        for script in &mesh.scripts {
            script.borrow_mut().answers.extend(busy.iter().map(|busy| if *busy { Answer::Busy } else { Answer::Pass }));
        }
        let results: [&Results; 3] = std::array::from_fn(|_| Results::new());
        let mut history: Vec<Call> = Vec::new();
        let mut open: [Option<usize>; 3] = [None; 3];
        let mut clock = 0;
        let close = |open: &mut [Option<usize>; 3], history: &mut Vec<Call>, clock: usize| {
            for (from, results) in results.iter().enumerate() {
                if let Some(completion) = results.0.borrow_mut().pop() {
                    let call = &mut history[open[from].take().unwrap()];
                    (call.result, call.end) = (completion.status.unwrap(), clock);
                }
            }
        };
        for (from, which, operand, passes) in script {
            while open[from].is_some() {
                clock += 1;
                mesh.progress();
                close(&mut open, &mut history, clock);
            }
            let what = match which {
                0 => Atomic::Op(AtomicOp::Add, operand + 1),
                1 => Atomic::Op(AtomicOp::Swap, operand),
                2 => Atomic::Op(AtomicOp::Xor, operand),
                _ => Atomic::CompareSwap(operand, operand + 1),
            };
            clock += 1;
            open[from] = Some(history.len());
            history.push(Call { what, begin: clock, end: usize::MAX, result: 0 });
            let to = mesh.to[from][3];
            mesh.modules[from].atomic(to, what, AtomicFlags::empty(), &remote, 0, params(results[from])).unwrap();
            for _ in 0..passes {
                clock += 1;
                mesh.progress();
                close(&mut open, &mut history, clock);
            }
        }
        mesh.drive();
        close(&mut open, &mut history, clock + 1);
        prop_assert!(open.iter().all(Option::is_none));
        // SAFETY: test memory; no operation is in progress.
        let last = unsafe { here.0.cast::<u64>().read() };
        prop_assert!(explains(&history, last), "{:?}", history);
        // The checker finds a wrong result, and a lost operation.
        let mut wrong = history.clone();
        wrong[0].result ^= 64;
        prop_assert!(!explains(&wrong, last));
        prop_assert!(!explains(&history, last ^ 64));
    }
}

/// An operation, with the times of its begin and of its completion.
#[derive(Clone, Debug)]
struct Call {
    what: Atomic,
    begin: usize,
    end: usize,
    result: u64,
}

/// Whether the calls have an order that agrees with their times and results and ends with this word (Wing and Gong 1993).
fn explains(history: &[Call], last: u64) -> bool {
    fn search(history: &[Call], done: u32, word: u64, last: u64, seen: &mut HashSet<(u32, u64)>) -> bool {
        let left = || (0..history.len()).filter(|index| done & 1 << index == 0);
        let Some(first_end) = left().map(|index| history[index].end).min() else { return word == last };
        seen.insert((done, word))
            && left().any(|index| {
                let Call { what, begin, result, .. } = history[index];
                let fits = begin <= first_end && result == word;
                fits && search(history, done | 1 << index, what.of_word(word, AtomicFlags::empty()), last, seen)
            })
    }
    search(history, 0, 0, last, &mut HashSet::new())
}

/// A target with shorter frames answers a get in several frames, of which the last one may overtake the others.
#[test]
fn b43_data_that_comes_after_the_last_frame_is_accepted() {
    let mut mesh = mesh(2, small(2));
    let results = Results::new();
    let there = memory(8);
    let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    let sink = memory(8);
    get(&mut mesh, [0, 1], Span::contiguous(sink.0, 8), &remote, 0, params(results));
    // The target does not get the request: the test makes its answers.
    let id = mesh.modules[0].rma.only_operation().to_bits();
    let answer = |last: u8, at: u8, bytes: &[u8]| {
        let mut frame = vec![0x15, 0, last, 0, bytes.len() as u8, 0, 0, 0];
        frame.extend(id.to_le_bytes());
        frame.extend([at, 0, 0, 0, 0, 0, 0, 0]);
        frame.extend(bytes);
        frame
    };
    forge(&mut mesh, 1, 0, &answer(1, 4, &[5, 6, 7, 8]));
    forge(&mut mesh, 1, 0, &answer(0, 0, &[1, 2, 3, 4]));
    mesh.modules[0].progress(Instant::ZERO);
    assert_eq!((results.only(), bytes(sink)), (Ok(0), vec![1, 2, 3, 4, 5, 6, 7, 8]));
}

/// The result of an atomic comes with its completion: its registration is held, and no local memory is checked against it.
#[test]
fn b18_an_atomic_holds_its_registration() {
    let mut mesh = mesh(2, small(2));
    let results = Results::new();
    let (_, remote) = register(&mut mesh.modules[1], memory(8), Access::ANY);
    let (ours, _) = register(&mut mesh.modules[0], memory(8), Access::LOCAL_WRITE);
    let to = mesh.to[0][1];
    let with = RmaParams { registration: Some(ours), ..params(results) };
    let add = Atomic::Op(AtomicOp::Add, 1);
    assert_eq!(mesh.modules[0].atomic(to, add, AtomicFlags::empty(), &remote, 0, with), Ok(Outcome::Queued));
    assert_eq!(mesh.modules[0].deregister_mem(ours), Err(DeregisterError::InUse));
    mesh.drive();
    assert_eq!(results.only(), Ok(0));
    mesh.modules[0].deregister_mem(ours).unwrap();
}

/// Emulated atomics are done by the processor, so threads of the target may use atomics at the same time.
#[test]
fn b20_emulated_atomics_agree_with_the_processors() {
    use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    let mut mesh = mesh(2, small(2));
    assert!(mesh.modules[1].atomics().contains(AtomicSupport::GLOB));
    let results = Results::new();
    let here = memory(8);
    let (_, remote) = register(&mut mesh.modules[1], here, Access::REMOTE_ATOMIC);
    // SAFETY: test memory, aligned; all accesses are atomics of this size.
    let word = unsafe { AtomicU64::from_ptr(here.0.cast()) };
    let over = AtomicBool::new(false);
    let (mut remotely, add) = (0u64, Atomic::Op(AtomicOp::Add, 1 << 32));
    let locally = std::thread::scope(|threads| {
        let adds = threads.spawn(|| {
            let mut adds = 0;
            while !over.load(Ordering::Relaxed) {
                word.fetch_add(1, Ordering::Relaxed);
                adds += 1;
            }
            adds
        });
        while remotely < 500 || word.load(Ordering::Relaxed) as u32 == 0 {
            atomic(&mut mesh, [0, 1], add, AtomicFlags::empty(), &remote, 0, results).unwrap();
            remotely += 1;
        }
        over.store(true, Ordering::Relaxed);
        adds.join().unwrap()
    });
    assert_eq!(word.load(Ordering::Relaxed), (remotely << 32).wrapping_add(locally));
}

/// A device gets pieces that its limits allow. Operations that it cannot do go by frames.
#[test]
fn b52_b53_limits_alignments_and_thresholds_choose_device_or_frames() {
    let mut mesh = mesh_of(2, small(2), DEVICES[1]);
    let results = Results::new();
    let (_, remote) = register(&mut mesh.modules[1], memory(400), Access::ANY);
    let here = memory(400);
    let (ours, _) = register(&mut mesh.modules[0], here, Access::ANY);
    let mut pieces = |is_get, (from, len): (usize, usize), offset, registration| {
        let local = Span::contiguous(here.0.wrapping_add(from), len);
        let with = RmaParams { registration, ..params(results) };
        if is_get {
            get(&mut mesh, [0, 1], local, &remote, offset, with);
        } else {
            put(&mut mesh, [0, 1], local, &remote, offset, with);
        }
        mesh.drive();
        assert_eq!(results.only(), Ok(0));
        let mut script = mesh.scripts[0].borrow_mut();
        let performed: Vec<native::Native> = script.performed.drain(..).collect();
        let len = |native: &native::Native| match native.work {
            native::Work::Put(local) | native::Work::Get(local) => local.len,
            native::Work::Atomic(..) => 0,
        };
        performed.iter().map(len).collect::<Vec<_>>()
    };
    assert_eq!(pieces(false, (0, 60), 4, None), [60]);
    assert_eq!(pieces(false, (0, 64), 4, None), [60, 4], "local memory is not registered");
    assert_eq!(pieces(false, (0, 64), 4, Some(ours)), [64]);
    assert_eq!(pieces(false, (0, 240), 0, Some(ours)), [100, 100, 40]);
    assert_eq!(pieces(false, (0, 242), 0, Some(ours)), [], "not a multiple of 4");
    assert_eq!(pieces(false, (1, 8), 0, None), []);
    assert_eq!(pieces(false, (0, 8), 1, None), []);
    assert_eq!(pieces(true, (1, 131), 3, None), [64, 64, 3]);
}

/// All atomics on a window are done by the device, or all by the target's processor.
#[test]
fn b20_b22_atomics_of_a_window_have_one_mechanism() {
    let results = Results::new();
    for (which, one_sided) in DEVICES.into_iter().enumerate() {
        let mut mesh = mesh_of(2, small(2), one_sided);
        let here = memory(24);
        let (_, remote) = register(&mut mesh.modules[1], here, Access::REMOTE_ATOMIC);
        for op in AtomicOp::ALL {
            let flags = if op as u8 & 1 == 0 { AtomicFlags::BITS_32 } else { AtomicFlags::empty() };
            atomic(&mut mesh, [0, 1], Atomic::Op(op, 3), flags, &remote, 8, results).unwrap();
        }
        assert_eq!(mesh.scripts[0].borrow().performed.is_empty(), which == 0);
        let by_frames = mesh.modules[1].rma_counters().served;
        assert_eq!(by_frames, if which == 0 { AtomicOp::ALL.len() as u64 } else { 0 });
        assert_eq!(mesh.modules[0].atomics().contains(AtomicSupport::GLOB), which != 1);
        // The other half of a word does not change, whichever half it is.
        for half in [0usize, 1] {
            // SAFETY: test memory of six halves; no operation is in progress.
            unsafe { here.0.cast::<[u32; 6]>().write([9, 9, 5, 5, 9, 9]) };
            let min = Atomic::Op(AtomicOp::Min, 3);
            let old = atomic(&mut mesh, [0, 1], min, AtomicFlags::BITS_32, &remote, 8 + 4 * half as u64, results);
            let mut becomes = [9, 9, 5, 5, 9, 9];
            becomes[2 + half] = 3;
            // SAFETY: as above.
            assert_eq!((old, unsafe { here.0.cast::<[u32; 6]>().read() }), (Ok(5), becomes));
        }
        // The target denies atomics that come in frames if all atomics are the device's.
        let mut frame = [0; 40];
        (frame[0], frame[1], frame[32]) = (0x13, 1, 1);
        frame[16..24].copy_from_slice(&remote.to_bytes()[8..16]);
        forge(&mut mesh, 0, 1, &frame);
        mesh.drive();
        assert_eq!(mesh.modules[1].rma_counters().denied, u64::from(which == 1));
    }
    // A device cannot check which peer accesses memory, so memory for one peer has no key.
    let mut mesh = mesh_of(2, small(2), DEVICES[1]);
    let only = mesh.to[1][0];
    // SAFETY: test memory lives until the process ends.
    let registration = unsafe { mesh.modules[1].register_mem(Some(only), memory(8).0, 8, Access::ANY) }.unwrap();
    let remote = mesh.modules[1].remote_memory(registration).unwrap();
    let add = Atomic::Op(AtomicOp::Add, 1);
    assert_eq!(atomic(&mut mesh, [0, 1], add, AtomicFlags::empty(), &remote, 0, results), Ok(0));
    put(&mut mesh, [0, 1], Span::contiguous(memory(8).0, 8), &remote, 0, params(results));
    mesh.drive();
    assert_eq!(mesh.modules[1].rma_counters().served, 2);
    assert!(mesh.scripts[0].borrow().performed.is_empty());
}

#[test]
fn b18_b25_operations_of_a_device_end() {
    let results = Results::new();
    let mut mesh = mesh_of(2, small(2), DEVICES[2]);
    let there = memory(64);
    let (registration, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    let here = memory(64);
    let (ours, _) = register(&mut mesh.modules[0], here, Access::ANY);
    assert_eq!(mesh.modules[0].rail.regions(), 2);
    let with = RmaParams { registration: Some(ours), ..params(results) };
    // Memory is deregistered while operations are in progress: the target's device refuses them.
    mesh.scripts[0].borrow_mut().device_is_late = true;
    put(&mut mesh, [0, 1], Span::contiguous(here.0, 64), &remote, 0, with);
    let add = Atomic::Op(AtomicOp::Add, 1);
    let to = mesh.to[0][1];
    mesh.modules[0].atomic(to, add, AtomicFlags::empty(), &remote, 0, params(results)).unwrap();
    mesh.progress();
    assert!(!mesh.modules[0].flush(Some(to)));
    assert_eq!(mesh.modules[0].deregister_mem(ours), Err(DeregisterError::InUse));
    mesh.modules[1].deregister_mem(registration).unwrap();
    mesh.scripts[0].borrow_mut().device_is_late = false;
    mesh.drive();
    let refused = Err(Failure::Denied(Denied::NoRight));
    assert_eq!(results.0.borrow_mut().drain(..).map(|it| it.status).collect::<Vec<_>>(), [refused, refused]);
    // The peer is lost meanwhile: the end is reported once, and a late completion is ignored.
    let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    mesh.scripts[0].borrow_mut().device_is_late = true;
    mesh.modules[0].atomic(to, add, AtomicFlags::empty(), &remote, 0, params(results)).unwrap();
    let cookie = Cookie(mesh.modules[0].rma.only_operation().to_bits() | 1 << 30);
    mesh.scripts[0].borrow_mut().events.push_back(Event::Lost(Peer(to.0.slot()), Lost::Broken));
    mesh.progress();
    assert_eq!(results.only(), Err(Failure::Lost));
    mesh.scripts[0].borrow_mut().events.push_back(Event::Performed(cookie, Ok(7)));
    mesh.drive();
    assert_eq!((results.statuses(), mesh.modules[0].rma_counters().stale), (vec![], 1));
    mesh.modules[0].deregister_mem(ours).unwrap();
    assert_eq!(mesh.modules[0].rail.regions(), 1);
}

#[test]
fn b20_b24_operations_on_own_memory_obey_the_same_rules() {
    let mut mesh = mesh(2, Config::default());
    let endpoint = mesh.to[0][1];
    let btl = &mut mesh.modules[0];
    let (all, readable, single) = (memory(16), memory(16), memory(16));
    let (registration, remote) = register(btl, all, Access::ANY);
    let (_, read_only) = register(btl, readable, Access::REMOTE_READ);
    // SAFETY: the memory lives until the process ends.
    let for_one = unsafe { btl.register_mem(Some(endpoint), single.0, single.1, Access::ANY) }.unwrap();
    let for_one = btl.remote_memory(for_one).unwrap();
    let sink = memory(8);
    // SAFETY: test memory lives until the process ends.
    let perform = |btl: &Module, what, remote, at| unsafe { btl.perform_here(what, remote, at) };
    let add = Transfer::Atomic(Atomic::Op(AtomicOp::Add, 2), AtomicFlags::empty());
    assert_eq!(perform(btl, Transfer::Put(source(&[1; 8])), &remote, 8), Ok(0));
    assert_eq!(perform(btl, add, &remote, 8), Ok(0x0101_0101_0101_0101));
    assert_eq!(perform(btl, Transfer::Get(Span::contiguous(sink.0, sink.1)), &remote, 8), Ok(0));
    assert_eq!((bytes(sink), bytes(all)[..8].to_vec()), (0x0101_0101_0101_0103u64.to_ne_bytes().to_vec(), vec![0; 8]));
    assert_eq!(perform(btl, Transfer::Put(source(&[1; 8])), &remote, 9), Err(Denied::OutOfBounds));
    assert_eq!(perform(btl, add, &remote, 4), Err(Denied::NotAvailable));
    let word = all.0.addr() as u64 + 8;
    let by_address = read_only.by_address();
    assert_eq!(perform(btl, add, &by_address, word), Ok(0x0101_0101_0101_0103));
    assert_eq!(perform(btl, add, &by_address, word + 8), Err(Denied::NoMemory));
    assert_eq!(perform(btl, Transfer::Put(source(&[1; 8])), &read_only, 0), Err(Denied::NoRight));
    assert_eq!(perform(btl, add, &read_only, 0), Err(Denied::NoRight));
    assert_eq!(perform(btl, add, &for_one, 0), Err(Denied::NoRight));
    btl.deregister_mem(registration).unwrap();
    assert_eq!(perform(btl, add, &remote, 0), Err(Denied::NoMemory));
    assert_eq!((bytes(readable), bytes(single)), (vec![0; 16], vec![0; 16]));
}

#[test]
fn b28_a_module_is_drained_when_nothing_is_under_way() {
    let mut mesh = mesh(2, Config::default());
    let (_, remote) = register(&mut mesh.modules[1], memory(8), Access::ANY);
    assert!(mesh.modules[0].is_drained());
    let to = mesh.to[0][1];
    // SAFETY: test data lives until the process ends.
    unsafe { mesh.modules[0].put(to, source(&[1; 8]), &remote, 0, RmaParams::NONE) }.unwrap();
    assert!(!mesh.modules[0].is_drained());
    mesh.drive();
    assert!(mesh.modules.iter().all(Btl::is_drained));
    mesh.scripts[0].borrow_mut().answers.push_back(Answer::Busy);
    let waiting = mesh.modules[0].alloc(to, 255, 8, crate::btl::descriptor::DescriptorFlags::empty()).unwrap();
    mesh.modules[0].send(to, waiting, tags::USR).unwrap();
    assert!(!mesh.modules[0].is_drained());
    mesh.drive();
    assert!(mesh.modules[0].is_drained());
}
