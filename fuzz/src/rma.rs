//! One-sided operations of two honest modules, among frames of a hostile peer to both.
//!
//! Three ends of one mesh whose rails lend: an initiator and a target, modules; and an end without a module, which sends whatever the input
//! says to both, and knows the target's handle. The memory is registered for the initiator alone. The hostile peer may not
//! read or change a byte of it, end or spoil an operation of the other two, or make them keep anything once it is deleted.

use std::cell::RefCell;

use arbitrary::{Arbitrary, Result, Unstructured};
use towline_core::arena::Arena;
use towline_core::btl::endpoint::{EndpointId, Proc};
use towline_core::btl::module::{Btl, Config, RmaCompletion, RmaCompleted, RmaParams};
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
/// Bytes of the target's memory, in words.
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

/// Plays one input, then sees that all operations end well and nothing is left over.
pub fn run(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let mut memory = vec![0; Hub::cost(ENDS, SLOTS, FRAME)];
    let hub = Hub::new(&mut Arena::new(&mut memory), ENDS, SLOTS, FRAME).expect("cost is enough");
    let bytes = CONFIG.bytes::<ExposingRail<'_>>(&Hub::attributes(FRAME));
    let (mut one, mut other) = (vec![0; bytes], vec![0; bytes]);
    let (told, exposed) = (Told::default(), ExposedBuffers::default());
    let of_hostile = [0xaa; LEN];
    exposed.expose(HOSTILE, Span::of(&of_hostile));
    let mut window = [0u64; WORDS];
    let (mut target, of_target) = module(&hub, TARGET, &mut one, &exposed);
    let (initiator, of_initiator) = module(&hub, INITIATOR, &mut other, &exposed);
    // SAFETY: the words outlive both modules, and are looked at when nothing is under way only.
    let registered = unsafe {
        target.register_mem(Some(of_target[INITIATOR as usize]), window.as_mut_ptr().cast(), LEN, Access::ANY)
    };
    let remote = registered.ok().and_then(|it| target.remote_memory(it)).expect("a slot is free");
    let mut honest = Honest {
        btl: initiator,
        target: of_initiator[TARGET as usize],
        remote,
        told: &told,
        model: [0; WORDS],
        under_way: None,
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
    // The hostile peer sends no more, but need not take what is for it, either.
    for _ in 0..200 {
        target.progress(Instant::ZERO);
        honest.progress();
    }
    assert!(honest.under_way.is_none() && honest.btl.flush(None), "an operation did not end");
    target.del_procs(&[of_target[HOSTILE as usize]]);
    honest.btl.del_procs(&[of_initiator[HOSTILE as usize]]);
    assert!(target.dump(None, false).to_string().contains(r#""answers":[0,6]"#), "something was kept: {target:?}");
    assert_eq!(registered.map(|it| target.deregister_mem(it)), Ok(Ok(())));
    assert_eq!(window, honest.model, "the memory is not what the operations made of it");
}

type Module<'m> = Btl<'m, ExposingRail<'m>>;

/// A module that knows all ends, by their numbers.
fn module<'m>(
    hub: &'m Hub<'m>,
    me: u32,
    memory: &'m mut [u8],
    exposed: &ExposedBuffers,
) -> (Module<'m>, Vec<EndpointId>) {
    let rail = ExposingRail::new(hub.rail(me).expect("an end for each"), me, exposed.clone());
    let mut btl = Btl::new(CONFIG, &mut Arena::new(memory), rail).expect("the configuration says how much");
    let cards: Vec<_> = (0..ENDS).map(u32::to_le_bytes).collect();
    let procs: Vec<_> = (0..).zip(&cards).map(|(id, card)| Proc { id, card }).collect();
    let mut endpoints = [Err(Unreachable::NoCard); ENDS as usize];
    btl.add_procs(&procs, &mut endpoints, None);
    (btl, endpoints.map(|endpoint| endpoint.expect("all can be reached")).to_vec())
}

/// Keeps what it is told.
#[derive(Debug, Default)]
struct Told(RefCell<Vec<RmaCompletion>>);

impl<R: towline_core::rail::FullRail> RmaCompleted<R> for Told {
    fn rma_completed(&self, _: &mut Btl<'_, R>, completion: &RmaCompletion) {
        self.0.borrow_mut().push(*completion);
    }
}

/// The initiator, which has one operation under way at a time and knows what must come of it.
struct Honest<'m> {
    btl: Module<'m>,
    target: EndpointId,
    remote: RemoteMemory,
    told: &'m Told,
    model: [u64; WORDS],
    under_way: Option<UnderWay>,
}

struct UnderWay {
    /// The word that an atomic is to be told.
    value: u64,
    /// Where a get writes, and what.
    sink: Vec<u8>,
    expected: Vec<u8>,
    /// What a put reads.
    _data: Vec<u8>,
}

impl Honest<'_> {
    fn begin(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        let (what, at, len, word) = <(u8, u16, u16, u64)>::arbitrary(data)?;
        if self.under_way.is_some() {
            return Ok(());
        }
        let at = usize::from(at) % LEN;
        let len = usize::from(len) % (LEN - at);
        let (target, remote, params) =
            (self.target, self.remote, RmaParams { callback: Some(self.told as _), ..RmaParams::NONE });
        let mut under_way = UnderWay { value: 0, sink: vec![0; len], expected: vec![0; len], _data: vec![what; len] };
        let sink = Span::contiguous(under_way.sink.as_mut_ptr(), len);
        let begun = match what % 3 {
            0 => {
                let source = Span::of(&under_way._data);
                self.bytes()[at..at + len].fill(what);
                // SAFETY: the data is kept until the operation is told.
                unsafe { self.btl.put(target, source, &remote, at as u64, params) }
            }
            1 => {
                under_way.expected = self.bytes()[at..at + len].to_vec();
                // SAFETY: the sink is kept until the operation is told.
                unsafe { self.btl.get(target, sink, &remote, at as u64, params) }
            }
            _ => {
                let place = &mut self.model[at / 8];
                let atomic = match AtomicOp::ALL.get(len % 11) {
                    Some(op) => Atomic::Op(*op, word),
                    None => Atomic::CompareSwap(if word & 1 == 0 { *place } else { word }, word),
                };
                under_way.value = *place;
                *place = atomic.of_word(*place, AtomicFlags::empty());
                self.btl.atomic(target, atomic, AtomicFlags::empty(), &remote, (at / 8 * 8) as u64, params)
            }
        };
        begun.expect("there is a slot, and it is within the memory");
        self.under_way = Some(under_way);
        Ok(())
    }

    fn bytes(&mut self) -> &mut [u8] {
        zerocopy::IntoBytes::as_mut_bytes(&mut self.model)
    }

    fn progress(&mut self) {
        self.btl.progress(Instant::ZERO);
        for completion in self.told.0.borrow_mut().drain(..) {
            let under_way = self.under_way.take().expect("told once");
            assert_eq!(completion.status, Ok(under_way.value));
            assert_eq!(under_way.sink, under_way.expected);
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
        let mut rail = hub.rail(HOSTILE).expect("an end for each");
        let to =
            [TARGET, INITIATOR].map(|end| rail.add_peer(Peer(end), &end.to_le_bytes()).expect("it can be reached"));
        Self { rail, to, remote }
    }

    /// A request or an answer, more or less right; or any bytes.
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
            // The first operations of the initiator: slot 0 to 3, some generation.
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
