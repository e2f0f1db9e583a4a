//! One-sided operations in a job: nodes register, close and re-register windows, and begin operations with handles that
//! are valid, stale or forged.
//!
//! A handle is known as soon as its window exists, but only to nodes that know the owner in the incarnation that has
//! made it. [`one_sided`](crate::sim::history::one_sided) has the rules.

use towline_core::convertor::Span;
use towline_core::rail::Peer;
use towline_core::rma::{
    Access, Atomic, AtomicFlags, AtomicOp, BeginError, DeregisterError, Failure, Finished, HANDLE_BYTES, RemoteMemory,
    Transfer,
};

use super::counts::Named;
use super::node::{Engine, Node};
use super::report::JobError;
use super::state::Job;
use super::window_state::{KnownWindow, MAX_WINDOWS, OpenOperation, OwnWindow, WINDOWS};
use crate::random::Random;
use crate::sim::buffer::Buffer;
use crate::sim::history::one_sided::{CELL, COUNTERS, Forgery, RmaKind, RmaOp, RmaOutcome, Window, bytes, own};
use crate::sim::history::{History, Record, digest};

impl Job<'_> {
    /// Gives a node its turn with windows. Returns whether it did anything.
    pub fn use_windows(&mut self, at: usize) -> Result<bool, JobError> {
        let Some(windows) = &mut self.windows else { return Ok(false) };
        let [operations, closes] = windows.chances;
        // Pending operations do not keep a node awake. At the end of its program the node begins those that remain.
        let operations = if self.nodes[at].next == self.nodes[at].program.len() { 1000 } else { operations };
        let mut any = false;
        let wishes = self.nodes[at].node_windows.left != 0;
        if wishes && windows.random.chance(closes) {
            self.close_window(at);
            any = true;
        }
        self.deregister_closed(at)?;
        if wishes {
            self.open_windows(at);
        }
        while self.nodes[at].node_windows.left != 0
            && self.windows.as_mut().is_some_and(|windows| windows.random.chance(operations))
            && self.begin_operation(at)?
        {
            any = true;
        }
        Ok(any)
    }

    pub fn has_closed_windows(&self) -> bool {
        self.known.iter().any(|known| known.is_closed)
    }

    /// Registers windows of a node, if it has not enough.
    pub fn open_windows(&mut self, at: usize) {
        let nodes = self.nodes.len() as u32;
        let Some(windows) = &mut self.windows else { return };
        let node = &mut self.nodes[at];
        while node.node_windows.held.iter().filter(|held| held.registration.is_some()).count() < WINDOWS as usize {
            let one = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
            let access = if windows.random.chance(800) { Access::ANY } else { windows.random.pick(&one) };
            let what = Window { node: node.me, nodes, area: windows.area, access };
            let len = what.len() as usize;
            let mut memory = vec![0u64; len.div_ceil(8)].into_boxed_slice();
            // SAFETY: the memory is dropped after the engine, and is read only when it is not registered any more, or
            // when the engine does nothing.
            let made = unsafe { node.engine.pml().register(memory.as_mut_ptr().cast(), len, access, None) };
            let Some(registration) = made else { return };
            let remote = node.engine.pml().remote_memory(registration).expect("it is registered");
            let number = self.history.window(what);
            self.known.push(KnownWindow { what, incarnation: node.incarnation, remote, is_closed: false });
            node.node_windows.held.push(OwnWindow {
                number,
                memory,
                len,
                registration: Some(registration),
                is_closed: false,
            });
        }
    }

    /// Closes a window of a node, whatever is in progress.
    fn close_window(&mut self, at: usize) {
        let Some(windows) = self.windows.as_mut().filter(|_| self.known.len() < MAX_WINDOWS) else { return };
        let held: Vec<_> = self.nodes[at].node_windows.held.iter_mut().filter(|held| !held.is_closed).collect();
        let count = held.len() as u64;
        if count == 0 {
            return;
        }
        let held = held.into_iter().nth(windows.random.below(count) as usize).expect("one of them");
        held.is_closed = true;
        self.known[held.number as usize].is_closed = true;
        self.history.note(Record::WindowClosed(held.number));
    }

    /// Deregisters closed windows as soon as no data is arriving in them.
    fn deregister_closed(&mut self, at: usize) -> Result<(), JobError> {
        let Node { node_windows, engine, me, .. } = &mut self.nodes[at];
        for held in node_windows.held.iter_mut().filter(|held| held.is_closed) {
            let Some(registration) = held.registration else { continue };
            match engine.pml().deregister(registration) {
                Ok(()) => {
                    held.registration = None;
                    held.record_memory(&mut self.history);
                }
                Err(DeregisterError::InUse) => {}
                Err(why) => return Err(JobError::Refused(*me, why.to_string())),
            }
        }
        Ok(())
    }

    /// Begins an operation. Returns whether there was one to begin, and room for it.
    fn begin_operation(&mut self, at: usize) -> Result<bool, JobError> {
        let Some(windows) = &mut self.windows else { return Ok(false) };
        let random = &mut windows.random;
        let node = &mut self.nodes[at];
        let (me, target) = (node.me, random.below(node.nodes.into()) as u32);
        let incarnation =
            if target == me { Some(node.incarnation) } else { node.known_incarnations.get(&target).copied() };
        let of_target = (0..)
            .zip(&self.known)
            .filter(|(_, known)| known.what.node == target && Some(known.incarnation) == incarnation);
        let (closed, good): (Vec<_>, Vec<_>) = of_target.partition(|(_, known)| known.is_closed);
        let among = if closed.is_empty() || (!good.is_empty() && random.chance(900)) { good } else { closed };
        if among.is_empty() {
            node.node_windows.left -= 1; // the target is not known, or has no window
            return Ok(true);
        }
        let (window, known) = among[random.below(among.len() as u64) as usize];
        let area = known.what.area;
        let at_area = node
            .node_windows
            .open
            .iter()
            .any(|open| open.window == window && matches!(open.kind, RmaKind::Put { .. } | RmaKind::Get { .. }));
        let len = 1 + random.length(area - 1);
        let place = random.below(area - len + 1);
        let kind = match random.below(10) {
            0..3 if !at_area => RmaKind::Put { at: place, len },
            3..6 if !at_area => RmaKind::Get { at: place, len },
            6 => RmaKind::Swap,
            7 => RmaKind::CompareSwap(node.node_windows.found.get(&window).copied().unwrap_or(0)),
            other => RmaKind::Add(usize::from(other % 2 == 0)),
        };
        let forgery = match (random.below(40), kind) {
            (0, _) => Forgery::Handle,
            (1, _) => Forgery::Length,
            (2, RmaKind::Add(0) | RmaKind::Swap | RmaKind::CompareSwap(_)) => Forgery::Base,
            _ => Forgery::None,
        };
        // The target checks rights before offsets, so only handles with all rights are forged.
        let forgery = if known.what.access == Access::ANY && !known.is_closed { forgery } else { Forgery::None };
        let (remote, shift) = forge(known, forgery);
        let number = self.history.next_rma_op();
        let (what, offset, buffer) = transfer(&known.what, me, kind, number, random);
        let mut buffer = buffer;
        let what = buffer.as_mut().map_or(what, |buffer| match kind {
            RmaKind::Put { .. } => Transfer::Put(buffer.span()),
            _ => Transfer::Get(buffer.span()),
        });
        // SAFETY: the buffer stays unchanged in `open` until the operation is complete.
        match unsafe { node.engine.pml().begin(Peer(target), what, &remote, offset + shift) } {
            Ok(operation) => {
                let number = self.history.rma_op(RmaOp { from: me, window, kind, forgery });
                self.net.trace(me, || {
                    format!("begins operation {number} {kind:?} of window {window} of {target}, {forgery:?}")
                });
                node.node_windows.open.push(OpenOperation { number, operation, target, window, kind, buffer });
                node.node_windows.left -= 1;
                Ok(true)
            }
            Err(BeginError::Full) => Ok(false),
            Err(BeginError::Unreachable) => {
                self.history.note(Record::Refused { node: me, peer: target });
                node.node_windows.left -= 1;
                Ok(true)
            }
            Err(why) => Err(JobError::Refused(me, format!("{kind:?}: {why}"))),
        }
    }

    /// Completes operations of a node. Returns whether there was one.
    pub fn complete_operations(&mut self, at: usize) -> Result<bool, JobError> {
        let mut any = false;
        while let Some(Finished { operation, result }) = self.nodes[at].engine.pml().next_finished() {
            any = true;
            self.ended += 1;
            let node_windows = &mut self.nodes[at].node_windows;
            let Some(place) = node_windows.open.iter().position(|open| open.operation == operation) else {
                return Err(JobError::Refused(at as u32, format!("{operation:?} ended, but is not in progress")));
            };
            let OpenOperation { number, kind, buffer, window, .. } = node_windows.open.remove(place);
            self.net.trace(at as u32, || format!("operation {number} is over: {result:?}"));
            let mut ended = match result {
                Ok(found) => RmaOutcome::Done(found),
                Err(Failure::Denied(why)) => RmaOutcome::Denied(why),
                Err(_) => RmaOutcome::Lost,
            };
            if let (RmaKind::Swap | RmaKind::CompareSwap(_), RmaOutcome::Done(found)) = (kind, ended) {
                node_windows.found.insert(window, if kind == RmaKind::Swap { own(number) } else { found });
            }
            match (kind, buffer) {
                (RmaKind::Get { len, .. }, Some(mut buffer)) => {
                    buffer.take(len as usize, &mut self.scratch);
                    if let RmaOutcome::Done(found) = &mut ended {
                        *found = digest(&self.scratch);
                    }
                    if !buffer.intact(len as usize) {
                        return Err(JobError::Overrun(at as u32, number));
                    }
                    node_windows.late.push(buffer);
                }
                (_, Some(mut buffer)) => {
                    buffer.scribble();
                    self.nodes[at].finished_sends.push(buffer);
                }
                _ => {}
            }
            self.history.note(Record::RmaEnded(number, ended));
        }
        Ok(any)
    }
}

/// The handle to use, and the number of bytes by which it shifts the offset of the operation.
fn forge(known: &KnownWindow, forgery: Forgery) -> (RemoteMemory, u64) {
    let mut handle: [u8; HANDLE_BYTES] = known.remote.to_bytes();
    let shift = match forgery {
        Forgery::None => 0,
        Forgery::Handle => {
            handle[15] ^= 0x40; // a bit of the generation that no generation in a job reaches
            0
        }
        Forgery::Length => {
            handle[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
            known.what.len().next_multiple_of(8)
        }
        Forgery::Base => {
            let base = known.remote.base() + 4;
            handle[16..24].copy_from_slice(&base.to_le_bytes());
            4
        }
    };
    (RemoteMemory::from_bytes(&handle).expect("a forged handle has the length of a handle"), shift)
}

/// The engine's operation, its offset, and its buffer, if it needs one.
fn transfer(
    window: &Window,
    me: u32,
    kind: RmaKind,
    number: u32,
    random: &mut Random,
) -> (Transfer, u64, Option<Buffer>) {
    let area = window.area_of(me);
    let none = Transfer::Put(Span::EMPTY);
    let wide = AtomicFlags::empty();
    match kind {
        RmaKind::Put { at, len } => {
            let mut buffer = Buffer::any(len as usize, random);
            buffer.fill(&bytes(number, len));
            (none, area + at, Some(buffer))
        }
        RmaKind::Get { at, len } => (none, area + at, Some(Buffer::any(len as usize, random))),
        RmaKind::Add(which) => {
            let flags = [wide, AtomicFlags::BITS_32][which];
            (Transfer::Atomic(Atomic::Op(AtomicOp::Add, 1), flags), COUNTERS[which], None)
        }
        RmaKind::Swap => (Transfer::Atomic(Atomic::Op(AtomicOp::Swap, own(number)), wide), CELL, None),
        RmaKind::CompareSwap(is) => (Transfer::Atomic(Atomic::CompareSwap(is, own(number)), wide), CELL, None),
    }
}

/// Checks the windows of a node at the end of the job.
pub(super) fn check_windows(
    node: &mut Node<'_>,
    history: &mut History,
    failures_expected: bool,
) -> Result<(), JobError> {
    for buffer in &mut node.node_windows.late {
        if !buffer.intact(0) {
            return Err(JobError::Overrun(node.me, u32::MAX));
        }
    }
    for held in &mut node.node_windows.held {
        held.record_memory(history);
        // A body of a lost node may never finish arriving, if the loss was not reported.
        if let Some(registration) = held.registration.take()
            && node.engine.pml().deregister(registration).is_err()
            && !failures_expected
        {
            return Err(JobError::Refused(node.me, "a window is in use at the end of the job".into()));
        }
    }
    let [_, [operations, _], [answers, _]] = node.engine.pml().rma_used();
    for (what, after) in [("operations", operations), ("answers", if failures_expected { 0 } else { answers })] {
        history.note(Record::Level { node: node.me, what, before: 0, after: after.into() });
    }
    Ok(())
}

/// The activity of an engine's one-sided operations, and the counters that must stay 0.
pub(super) fn one_sided_counts(engine: &mut Engine<'_>) -> ([Named; 2], [Named; 3]) {
    let counters = engine.pml().rma_counters();
    let did = [("one_sided_served", counters.served), ("one_sided_denied", counters.denied)];
    let faults = [
        ("malformed one-sided frames", counters.malformed),
        ("requests beyond the window", counters.window_violations),
        ("answers without a request", counters.stale),
    ];
    (did, faults)
}
