//! One-sided operations between two honest modules, while a hostile peer sends frames to both.
//!
//! A mesh has three ends, whose rails support single copy. The initiator and the target are modules. The hostile peer has
//! no module: the input determines its frames to the other two, and it knows the target's memory handle. The memory is
//! registered for the initiator only. The hostile peer must not read or change a byte of it, and must not complete or
//! corrupt an operation of the other two. After it is deleted, the other two must hold no resources for it.

use std::cell::RefCell;

use arbitrary::{Arbitrary, Result, Unstructured};
use towline_core::arena::Arena;
use towline_core::btl::endpoint::{EndpointId, Proc};
use towline_core::btl::module::{Btl, Config, RmaCompleted, RmaCompletion, RmaParams};
use towline_core::convertor::Span;
use towline_core::rail::loopback::{Hub, Rail};
use towline_core::rail::{Endpoint, Event, Lane, Peer, Rail as _, Shape, Unreachable, tags};
use towline_core::rma::{self, Access, Atomic, AtomicFlags, AtomicOp, RemoteMemory};
use towline_core::time::Instant;

use crate::exposing_rail::{ExposedBuffers, ExposingRail};

const TARGET: u32 = 0;
const INITIATOR: u32 = 1;
const HOSTILE: u32 = 2;
const ENDS: u32 = 3;
const SLOTS: u32 = 8;
const FRAME: u32 = 128;
/// Length of the target's memory, in 8-byte words and in bytes.
const WORDS: usize = 64;
const LEN: usize = WORDS * 8;
const CONFIG: Config = Config {
    endpoints: ENDS,
    descriptors: 1,
    descriptor_bytes: 64,
    sends: 1,
    receives: 1,
    rma: rma::Config { regions: 1, operations: 4, window: 2 },
};

/// Runs one input, and then checks that all operations succeed and that everything is released.
pub fn run(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let mut memory = vec![0; Hub::cost(ENDS, SLOTS, FRAME)];
    let hub = Hub::new(&mut Arena::new(&mut memory), ENDS, SLOTS, FRAME).expect("cost is enough");
    let bytes = CONFIG.bytes::<ExposingRail<'_>>(&Hub::attributes(FRAME));
    let (mut one, mut other) = (vec![0; bytes], vec![0; bytes]);
    let (completions, exposed) = (Completions::default(), ExposedBuffers::default());
    let hostile_memory = [0xaa; LEN];
    exposed.expose(HOSTILE, Span::of(&hostile_memory));
    let mut window = [0u64; WORDS];
    let (mut target, target_endpoints) = module(&hub, TARGET, &mut one, &exposed);
    let (initiator, initiator_endpoints) = module(&hub, INITIATOR, &mut other, &exposed);
    // SAFETY: the words outlive both modules. They are read only while no operation is in progress.
    let registered = unsafe {
        target.register_mem(Some(target_endpoints[INITIATOR as usize]), window.as_mut_ptr().cast(), LEN, Access::ANY)
    };
    let remote = registered.ok().and_then(|it| target.remote_memory(it)).expect("a slot is free");
    let mut honest = Honest {
        btl: initiator,
        target: initiator_endpoints[TARGET as usize],
        remote,
        completions: &completions,
        model: [0; WORDS],
        in_progress: None,
    };
    let mut hostile = Hostile::new(&hub, remote);
    while !data.is_empty() {
        let step = match u8::arbitrary(&mut data).unwrap_or(0) % 8 {
            0 | 1 => honest.begin(&mut data),
            2..=4 => hostile.send(&mut data),
            5 => {
                hostile.listen();
                Ok(())
            }
            6 => {
                target.progress(Instant::ZERO);
                honest.progress();
                Ok(())
            }
            _ => {
                exposed.refused.set(!exposed.refused.get());
                Ok(())
            }
        };
        if step.is_err() {
            break;
        }
    }
    // From now on the hostile peer neither sends nor receives.
    for _ in 0..200 {
        target.progress(Instant::ZERO);
        honest.progress();
    }
    assert!(honest.in_progress.is_none() && honest.btl.flush(None), "an operation did not complete");
    target.del_procs(&[target_endpoints[HOSTILE as usize]]);
    honest.btl.del_procs(&[initiator_endpoints[HOSTILE as usize]]);
    assert!(
        target.dump(None, false).to_string().contains(r#""answers":[0,6]"#),
        "resources are still in use: {target:?}"
    );
    assert_eq!(registered.map(|it| target.deregister_mem(it)), Ok(Ok(())));
    assert_eq!(window, honest.model, "the memory differs from the model's");
}

type Module<'m> = Btl<'m, ExposingRail<'m>>;

/// Creates a module and adds all ends to it. Returns the module and the endpoint of each end, by its number.
fn module<'m>(
    hub: &'m Hub<'m>,
    me: u32,
    memory: &'m mut [u8],
    exposed: &ExposedBuffers,
) -> (Module<'m>, Vec<EndpointId>) {
    let rail = ExposingRail::new(hub.rail(me).expect("the mesh has this end"), me, exposed.clone());
    let mut btl = Btl::new(CONFIG, &mut Arena::new(memory), rail).expect("the memory is large enough");
    let cards: Vec<_> = (0..ENDS).map(u32::to_le_bytes).collect();
    let procs: Vec<_> = (0..).zip(&cards).map(|(id, card)| Proc { id, card }).collect();
    let mut endpoints = [Err(Unreachable::NoCard); ENDS as usize];
    btl.add_procs(&procs, &mut endpoints, None);
    (btl, endpoints.map(|endpoint| endpoint.expect("all ends are reachable")).to_vec())
}

/// A callback that collects completions.
#[derive(Debug, Default)]
struct Completions(RefCell<Vec<RmaCompletion>>);

impl<R: towline_core::rail::FullRail> RmaCompleted<R> for Completions {
    fn rma_completed(&self, _: &mut Btl<'_, R>, completion: &RmaCompletion) {
        self.0.borrow_mut().push(*completion);
    }
}

/// The initiator. It has at most one operation in progress and knows its expected result.
struct Honest<'m> {
    btl: Module<'m>,
    target: EndpointId,
    remote: RemoteMemory,
    completions: &'m Completions,
    model: [u64; WORDS],
    in_progress: Option<Operation>,
}

struct Operation {
    /// The expected result of an atomic.
    value: u64,
    /// The memory that a get writes to.
    sink: Vec<u8>,
    /// The expected content of `sink`.
    expected: Vec<u8>,
    /// The memory that a put reads.
    _data: Vec<u8>,
}

impl Honest<'_> {
    fn begin(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        let (what, at, len, word) = <(u8, u16, u16, u64)>::arbitrary(data)?;
        if self.in_progress.is_some() {
            return Ok(());
        }
        let at = usize::from(at) % LEN;
        let len = usize::from(len) % (LEN - at);
        let (target, remote, params) =
            (self.target, self.remote, RmaParams { callback: Some(self.completions as _), ..RmaParams::NONE });
        let mut operation = Operation { value: 0, sink: vec![0; len], expected: vec![0; len], _data: vec![what; len] };
        let sink = Span::contiguous(operation.sink.as_mut_ptr(), len);
        let begun = match what % 3 {
            0 => {
                let source = Span::of(&operation._data);
                self.bytes()[at..at + len].fill(what);
                // SAFETY: the data is kept until the operation's completion is reported.
                unsafe { self.btl.put(target, source, &remote, at as u64, params) }
            }
            1 => {
                operation.expected = self.bytes()[at..at + len].to_vec();
                // SAFETY: the sink is kept until the operation's completion is reported.
                unsafe { self.btl.get(target, sink, &remote, at as u64, params) }
            }
            _ => {
                let place = &mut self.model[at / 8];
                let atomic = match AtomicOp::ALL.get(len % 11) {
                    Some(op) => Atomic::Op(*op, word),
                    None => Atomic::CompareSwap(if word & 1 == 0 { *place } else { word }, word),
                };
                operation.value = *place;
                *place = atomic.of_word(*place, AtomicFlags::empty());
                self.btl.atomic(target, atomic, AtomicFlags::empty(), &remote, (at / 8 * 8) as u64, params)
            }
        };
        begun.expect("a slot is free, and the operation stays within the memory");
        self.in_progress = Some(operation);
        Ok(())
    }

    fn bytes(&mut self) -> &mut [u8] {
        zerocopy::IntoBytes::as_mut_bytes(&mut self.model)
    }

    fn progress(&mut self) {
        self.btl.progress(Instant::ZERO);
        for completion in self.completions.0.borrow_mut().drain(..) {
            let operation = self.in_progress.take().expect("each completion is reported once");
            assert_eq!(completion.status, Ok(operation.value));
            assert_eq!(operation.sink, operation.expected);
        }
    }
}

/// The end without a module.
struct Hostile<'h> {
    rail: Rail<'h>,
    to: [Endpoint; 2],
    remote: RemoteMemory,
}

impl<'h> Hostile<'h> {
    fn new(hub: &'h Hub<'h>, remote: RemoteMemory) -> Self {
        let mut rail = hub.rail(HOSTILE).expect("the mesh has this end");
        let to =
            [TARGET, INITIATOR].map(|end| rail.add_peer(Peer(end), &end.to_le_bytes()).expect("the end is reachable"));
        Self { rail, to, remote }
    }

    /// Sends a request or a response with mostly plausible fields, or arbitrary bytes.
    fn send(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        let (to, kind, header) = <(bool, u8, u8)>::arbitrary(data)?;
        let len = usize::from(u8::arbitrary(data)? % (FRAME as u8)).min(data.len());
        let mut frame = data.bytes(len)?.to_vec();
        if let Some(first) = frame.first_mut()
            && kind < 240
        {
            *first = 0x10 | (kind % 11);
        }
        if kind & 0x40 == 0
            && let Some(memory) = frame.get_mut(16..24)
        {
            memory.copy_from_slice(&self.remote.to_bytes()[8..16]);
        }
        if kind & 0x80 == 0
            && let Some(id) = frame.get_mut(8..16)
        {
            // A handle of one of the initiator's operations: slot 0 to 3, with any generation.
            id.copy_from_slice(&(u64::from(header | 1) << 32 | u64::from(kind & 3)).to_le_bytes());
        }
        let shape = Shape {
            tag: tags::BTL_BASE,
            lane: [Lane::Eager, Lane::Control, Lane::Bulk][usize::from(kind) % 3],
            header: header.min(40).min(frame.len() as u8),
            len: frame.len() as u32,
        };
        if let Ok(mut grant) = self.rail.reserve(self.to[usize::from(to)], shape) {
            grant.write(0, &frame);
            let ticket = grant.finish();
            self.rail.commit(ticket);
        }
        Ok(())
    }

    fn listen(&mut self) {
        while let Some(Event::Frame(frame)) = self.rail.poll(Instant::ZERO) {
            if !frame.is_whole() {
                self.rail.release(frame.id);
            }
        }
    }
}
