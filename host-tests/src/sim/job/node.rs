//! One node of a job: its engine, its program, and its operations in progress.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;

use towline_core::arena::Arena;
use towline_core::mtl::{Comm, Envelope, Group, Mtl, Request, Source, Tag};
use towline_core::pml::Config;
use towline_core::rail::Rail;

use super::rails::NodeRails;
use super::report::JobError;
use super::window_state::NodeWindows;
use crate::sim::buffer::Buffer;
use crate::sim::history::{History, Message, Mode, Receive, Record, digest};
use crate::sim::plan::{Plan, Step};

/// The step number of a receive that belongs to no step of the plan. It is not posted again.
pub(super) const UNPLANNED: u32 = u32::MAX;

pub(super) type Engine<'m> = Mtl<'m, NodeRails<'m>>;

/// An operation in progress at a node.
pub(super) struct PendingOp {
    /// Its number in the history.
    pub number: u32,
    pub request: Request,
    pub buffer: Buffer,
    pub kind: OpKind,
}

#[derive(Clone, Copy)]
pub(super) enum OpKind {
    Send { message: Message },
    Recv { receive: Receive, planned: u32, cancel: Option<u32>, found: Option<Envelope> },
}

/// A message from a matched probe that has not been received yet.
pub(super) struct Taken {
    pub number: u32,
    pub message: towline_core::mtl::Message,
    pub found: Envelope,
    pub receive: Receive,
    pub planned: u32,
    pub wait: u32,
}

pub(super) struct Node<'m> {
    pub me: u32,
    pub engine: Engine<'m>,
    /// The memory of the engine and its links. Must be dropped after them.
    _memory: Vec<Box<[u64]>>,
    /// The communicators of this node, by their number in the plan.
    pub comms: Vec<Option<Comm>>,
    pub node_windows: NodeWindows,
    /// How many nodes there are.
    pub nodes: u32,
    pub program: &'m [Step],
    pub next: usize,
    pub ops: Vec<PendingOp>,
    pub taken: Vec<Taken>,
    pub computes_until: u64,
    /// Until when it is stalled.
    pub stalled_until: u64,
    /// It sleeps until it is woken.
    pub asleep: bool,
    /// Since when nothing has arrived, and nothing more has been sent.
    pub idle_since: u64,
    pub sent_before: u64,
    /// Buffers of completed sends. The engine must not read them any more.
    pub finished_sends: Vec<Buffer>,
    /// Completed receives: number, buffer, and delivered bytes.
    pub finished_receives: Vec<(u32, Buffer, u64)>,
    pub before: [u32; 3],
    /// Steps of the node so far, including calls of its engine. It may die at any of them.
    pub calls: u64,
    pub alive: bool,
    /// When this incarnation began.
    pub born: u64,
    /// When it restarts.
    pub back_at: Option<u64>,
    /// Nodes to which it was introduced in this incarnation.
    pub introduced: BTreeSet<u32>,
    /// Its incarnation.
    pub incarnation: u32,
    /// The incarnations in which it knows other nodes.
    pub known_incarnations: BTreeMap<u32, u32>,
}

impl<'m> Node<'m> {
    /// A node with a new engine, at this step of its program. It knows no peer yet.
    pub fn new(
        me: u32,
        config: Config,
        (rails, mut memories): (NodeRails<'m>, Vec<Box<[u64]>>),
        plan: &'m Plan,
        next: usize,
    ) -> Result<Self, JobError> {
        let comms = plan.permanent + 1;
        let attributes: Vec<_> = rails.0.iter().map(Rail::attributes).collect();
        let bytes = Engine::bytes(&config, comms, &attributes);
        let mut memory = vec![0u64; bytes.div_ceil(8) + 1].into_boxed_slice();
        let block = NonNull::from(&mut *memory).cast();
        // SAFETY: the memory is fresh zeros, is used by nothing else, and is dropped after the engine.
        let mut arena: Arena<'m> = unsafe { Arena::from_zeroed(block, memory.len() * 8) };
        memories.push(memory);
        let engine = Mtl::new(config, comms, &mut arena, rails);
        let engine = engine.map_err(|error| JobError::Refused(me, error.to_string()))?;
        let mut node = Self {
            me,
            engine,
            _memory: memories,
            comms: vec![None; plan.comms.len()],
            node_windows: NodeWindows::default(),
            nodes: plan.programs.len() as u32,
            program: &plan.programs[me as usize],
            next,
            ops: vec![],
            taken: vec![],
            computes_until: 0,
            stalled_until: 0,
            asleep: false,
            idle_since: 0,
            sent_before: 0,
            finished_sends: vec![],
            finished_receives: vec![],
            before: [0; 3],
            calls: 0,
            alive: true,
            born: 0,
            back_at: None,
            introduced: BTreeSet::new(),
            incarnation: 0,
            known_incarnations: BTreeMap::new(),
        };
        for comm in 0..plan.permanent {
            node.join(comm, plan)?;
        }
        Ok(node)
    }

    pub fn join(&mut self, comm: u32, plan: &'m Plan) -> Result<(), JobError> {
        let what = &plan.comms[comm as usize];
        let (group, rank) = match &what.table {
            None => (Group::World { size: plan.programs.len() as u32 }, self.me),
            Some(table) => (Group::Table(table), rank_in(table, self.me)),
        };
        // A restarted node also has the communicators that exist from the start.
        let added = match comm < plan.permanent {
            true => self.engine.add_lasting_comm(what.context, group, rank),
            false => self.engine.add_comm(what.context, group, rank),
        };
        let added = added.map_err(|why| JobError::Refused(self.me, why.to_string()))?;
        self.comms[comm as usize] = Some(added);
        Ok(())
    }

    pub fn comm(&self, comm: u32) -> Comm {
        self.comms[comm as usize].expect("the plan creates communicators before it uses them")
    }

    /// Records the buffers of completed receives.
    pub fn record_buffers(&mut self, history: &mut History, scratch: &mut Vec<u8>) {
        for (number, mut buffer, delivered) in std::mem::take(&mut self.finished_receives) {
            buffer.take(delivered as usize, scratch);
            history.note(Record::Buffer(number, digest(scratch), buffer.intact(delivered as usize)));
        }
    }

    /// Number of receives that belong to no step of the plan.
    pub fn unplanned_receives(&self) -> usize {
        let extra = |op: &&PendingOp| matches!(op.kind, OpKind::Recv { planned: UNPLANNED, .. });
        self.ops.iter().filter(extra).count()
    }

    /// Until when it takes no turn, because it is stalled, computes, or is dead.
    pub fn unavailable_until(&self) -> u64 {
        if self.alive { self.computes_until.max(self.stalled_until) } else { u64::MAX }
    }

    /// Number of message frames that have been sent.
    pub fn frames_sent(&self) -> u64 {
        let counters = self.engine.counters();
        counters.eager_sent + counters.rendezvous_sent + counters.fragments_sent + counters.frames_migrated
    }

    pub fn done(&self) -> bool {
        let over = self.next == self.program.len()
            && self.ops.is_empty()
            && self.taken.is_empty()
            && self.node_windows.is_done();
        if self.alive { over } else { self.back_at.is_none() }
    }
}

pub(super) fn rank_in(table: &[u32], node: u32) -> u32 {
    table.iter().position(|other| *other == node).expect("every node is in every table") as u32
}

pub(super) fn rank(plan: &Plan, comm: u32, node: u32) -> u32 {
    plan.comms[comm as usize].table.as_ref().map_or(node, |table| rank_in(table, node))
}

pub(super) fn source_of(plan: &Plan, receive: &Receive) -> Source {
    receive.source.map_or(Source::Any, |source| Source::Rank(rank(plan, receive.comm, source)))
}

pub(super) fn tag_of(receive: &Receive) -> Tag {
    receive.tag.map_or(Tag::Any, Tag::Is)
}

pub(super) fn mode_of(mode: Mode) -> towline_core::mtl::Mode {
    match mode {
        Mode::Standard => towline_core::mtl::Mode::Standard,
        Mode::Buffered => towline_core::mtl::Mode::Buffered,
        Mode::Synchronous => towline_core::mtl::Mode::Synchronous,
        Mode::Ready => towline_core::mtl::Mode::Ready,
        Mode::Complete => towline_core::mtl::Mode::Complete,
    }
}
