//! The steps of a program, and their completion.

use towline_core::mtl::{Envelope, Failure, Refusal, Sending, Source, Status, Tag};
use towline_core::rail::Peer;

use super::node::{OpKind, PendingOp, Taken, UNPLANNED, mode_of, rank, source_of, tag_of};
use super::report::JobError;
use super::state::Job;
use crate::pattern::patterned;
use crate::sim::buffer::Buffer;
use crate::sim::history::{Message, Mode, Outcome, Receive, Record, SendFailure, digest};
use crate::sim::network::faults::PlantedBug;
use crate::sim::plan::{Cancel, NEVER, Step};

/// Whether a node could take its next step.
#[derive(PartialEq, Eq)]
pub(super) enum Progress {
    Advanced,
    /// The step must be retried: the engine does not report when there is room, or when another node has reached its
    /// step.
    Retry,
    /// The engine will report when to go on.
    Blocked,
}

impl Job<'_> {
    pub(super) fn step(&mut self, at: usize) -> Result<Progress, JobError> {
        let plan = self.plan;
        let node = &mut self.nodes[at];
        let Some(step) = node.program.get(node.next) else { return Ok(Progress::Blocked) };
        // A message from a matched probe soon needs a request, which must not be used up otherwise.
        let extra = if self.failures_expected { node.unplanned_receives() } else { 0 };
        if node.ops.len() + node.taken.len() - extra >= self.window
            && matches!(
                step,
                Step::Send(..) | Step::Recv(..) | Step::CancelledRecv(_) | Step::Probe(_) | Step::MatchedProbe(_)
            )
        {
            return Ok(Progress::Blocked);
        }
        let progress = match step {
            Step::Send(message, after) => {
                if !self.failures_expected && !after.iter().all(|receive| self.posted[*receive as usize]) {
                    return Ok(Progress::Retry);
                }
                self.send(at, *message)?
            }
            Step::Recv(planned, cancel) => {
                let receive = plan.receives[*planned as usize];
                let cancel = match cancel {
                    Cancel::Never => None,
                    Cancel::Now => Some(0),
                    Cancel::Later => Some(self.random.between(1, 200) as u32),
                };
                self.recv(at, receive, *planned, cancel, None)?
            }
            Step::Probe(planned) => self.probe(at, *planned)?,
            Step::MatchedProbe(planned) => self.matched_probe(at, *planned),
            Step::CancelledRecv(comm) => {
                let receive = Receive { at: node.me, comm: *comm, source: None, tag: Some(NEVER), buffer: 4 };
                let cancel = Some(self.random.below(100) as u32);
                self.recv(at, receive, UNPLANNED, cancel, None)?
            }
            Step::ProbeOnce(comm) => {
                let comm = node.comm(*comm);
                node.engine.iprobe(comm, Source::Any, Tag::Any);
                Progress::Advanced
            }
            Step::Compute(nanos) => {
                node.computes_until = self.now + nanos;
                Progress::Advanced
            }
            Step::CreateComm(comm) => {
                node.join(*comm, plan)?;
                Progress::Advanced
            }
            Step::DeleteComm(comm) => {
                if !node.ops.is_empty() || !node.taken.is_empty() {
                    return Ok(Progress::Blocked);
                }
                self.net.trace(at as u32, || format!("deletes communicator {comm}"));
                let left = node.comms[*comm as usize].take().expect("the plan deletes only communicators that exist");
                node.engine.del_comm(left);
                Progress::Advanced
            }
        };
        if progress == Progress::Advanced {
            self.nodes[at].next += 1;
        }
        Ok(progress)
    }

    pub fn send(&mut self, at: usize, message: u32) -> Result<Progress, JobError> {
        let node = &mut self.nodes[at];
        let mut message = self.plan.messages[message as usize];
        if self.failures_expected && message.mode == Mode::Ready {
            message.mode = Mode::Standard; // its receive may have failed
        }
        let dest = rank(self.plan, message.comm, message.to);
        let mut buffer = Buffer::any(message.len as usize, &mut self.random);
        // The pattern of the bytes is that of the send's number.
        let number = self.history.next_send();
        buffer.fill(&patterned(number.into(), message.len as usize));
        let (comm, span) = (node.comm(message.comm), buffer.span());
        // SAFETY: the buffer stays unchanged in `ops` until the outcome is taken.
        let sent = unsafe { node.engine.isend(comm, dest, message.tag, mode_of(message.mode), span) };
        match sent {
            Ok(sending) => {
                let number = self.history.send(message);
                self.latest_sends.insert((node.me, message.to), number);
                self.net.trace(at as u32, || format!("isend {number} {message:?}: {sending:?}"));
                match sending {
                    Sending::Complete => {
                        self.history.note(Record::Sent(number, None));
                        buffer.scribble();
                        node.finished_sends.push(buffer);
                    }
                    Sending::Pending(request) => {
                        let kind = OpKind::Send { message };
                        node.ops.push(PendingOp { number, request, buffer, kind });
                    }
                }
                Ok(Progress::Advanced)
            }
            Err(Refusal::Busy) => Ok(Progress::Retry),
            Err(Refusal::PeerFailed(peer) | Refusal::PeerClosed(peer) | Refusal::NoPeer(peer))
                if self.failures_expected =>
            {
                self.net.trace(at as u32, || format!("isend {message:?} refused"));
                self.history.note(Record::Refused { node: node.me, peer: peer.0 });
                Ok(Progress::Advanced)
            }
            Err(refusal) => Err(JobError::Refused(node.me, refusal.to_string())),
        }
    }

    pub(super) fn recv(
        &mut self,
        at: usize,
        receive: Receive,
        planned: u32,
        cancel: Option<u32>,
        found: Option<Envelope>,
    ) -> Result<Progress, JobError> {
        let node = &mut self.nodes[at];
        let mut buffer = Buffer::any(receive.buffer as usize, &mut self.random);
        let (comm, span) = (node.comm(receive.comm), buffer.span());
        let (source, tag) = (source_of(self.plan, &receive), tag_of(&receive));
        // SAFETY: the buffer is not accessed in `ops` until the outcome is taken.
        let request = match unsafe { node.engine.irecv(comm, source, tag, span) } {
            Ok(request) => request,
            Err(Refusal::Busy) => return Ok(Progress::Retry),
            Err(refusal) => return Err(JobError::Refused(node.me, refusal.to_string())),
        };
        let number = self.history.recv(receive);
        self.net.trace(at as u32, || format!("irecv {number} {receive:?}: {request:?}"));
        let kind = OpKind::Recv { receive, planned, cancel, found };
        let mut op = PendingOp { number, request, buffer, kind };
        if cancel == Some(0) {
            op.kind = OpKind::Recv { receive, planned, cancel: None, found };
            if node.engine.cancel(request) {
                // It was cancelled before a message could match it, so its position in the order is still free.
                let Some(outcome) = node.engine.test(request) else {
                    return Err(JobError::Refused(node.me, "a cancelled receive did not complete".into()));
                };
                self.end_receive(at, op, outcome, receive, found)?;
                let unplanned = planned == UNPLANNED;
                return if unplanned { Ok(Progress::Advanced) } else { self.recv(at, receive, planned, None, found) };
            }
        }
        node.ops.push(op);
        if let Some(posted) = self.posted.get_mut(planned as usize) {
            *posted = true;
        }
        Ok(Progress::Advanced)
    }

    /// Probes, and posts a receive for the source and tag that were found. It must get the probed message.
    pub fn probe(&mut self, at: usize, planned: u32) -> Result<Progress, JobError> {
        let receive = self.plan.receives[planned as usize];
        let node = &mut self.nodes[at];
        let comm = node.comm(receive.comm);
        let (source, tag) = (source_of(self.plan, &receive), tag_of(&receive));
        let Some(found) = node.engine.iprobe(comm, source, tag) else { return Ok(Progress::Blocked) };
        let exact = Receive { source: Some(found.peer.0), tag: Some(found.tag), ..receive };
        self.recv(at, exact, planned, None, Some(found))
    }

    pub fn matched_probe(&mut self, at: usize, planned: u32) -> Progress {
        self.matched_probe_any(at, self.plan.receives[planned as usize], planned)
    }

    /// Uses a matched probe for a receive. An unplanned receive gets a buffer for the whole message.
    pub(super) fn matched_probe_any(&mut self, at: usize, mut receive: Receive, planned: u32) -> Progress {
        let node = &mut self.nodes[at];
        let comm = node.comm(receive.comm);
        let (source, tag) = (source_of(self.plan, &receive), tag_of(&receive));
        let Ok(Some((message, found))) = node.engine.improbe(comm, source, tag) else { return Progress::Blocked };
        if planned == UNPLANNED {
            receive.buffer = found.len;
        }
        let number = self.history.recv(receive);
        self.net.trace(at as u32, || format!("improbe {number} {receive:?}: {found:?}"));
        let wait = self.random.below(50) as u32;
        node.taken.push(Taken { number, message, found, receive, planned, wait });
        Progress::Advanced
    }

    /// Receives messages from earlier matched probes.
    pub(super) fn receive_taken(&mut self, at: usize) -> Result<bool, JobError> {
        let node = &mut self.nodes[at];
        let mut any = false;
        for mut taken in std::mem::take(&mut node.taken) {
            if taken.wait > 0 {
                taken.wait -= 1;
                any = true;
                node.taken.push(taken);
                continue;
            }
            let Taken { number, message, found, receive, planned, .. } = taken;
            let mut buffer = Buffer::any(receive.buffer as usize, &mut self.random);
            // SAFETY: the buffer is not accessed in `ops` until the outcome is taken.
            match unsafe { node.engine.imrecv(message, buffer.span()) } {
                Ok(request) => {
                    let kind = OpKind::Recv { receive, planned, cancel: None, found: Some(found) };
                    node.ops.push(PendingOp { number, request, buffer, kind });
                    any = true;
                }
                Err((Refusal::Busy, message)) => {
                    node.taken.push(Taken { number, message, found, receive, planned, wait: 0 });
                }
                Err((Refusal::Invalid, _)) if self.failures_expected => {
                    // Its sender was deleted meanwhile.
                    self.history.note(Record::Received(number, Outcome::PeerFailed(found.peer.0)));
                    any = true;
                }
                Err((refusal, _)) => return Err(JobError::Refused(node.me, refusal.to_string())),
            }
        }
        Ok(any)
    }

    /// Completes operations, and cancels those that are due.
    pub(super) fn complete(&mut self, at: usize) -> Result<bool, JobError> {
        let mut any = self.complete_operations(at)?;
        // Operations that are begun meanwhile are handled later.
        let (mut place, mut left) = (0, self.nodes[at].ops.len());
        while left > 0 {
            left -= 1;
            let node = &mut self.nodes[at];
            let op = &mut node.ops[place];
            if let OpKind::Recv { cancel, .. } = &mut op.kind
                && let Some(wait) = cancel.take()
            {
                any = true;
                if wait > 0 {
                    *cancel = Some(wait - 1);
                } else {
                    node.engine.cancel(op.request);
                }
            }
            let (kind, mut outcome) = (op.kind, None);
            if let OpKind::Send { message } = kind
                && self.cancels_sends
                && self.random.below(8) == 0
            {
                outcome = self.cancel_send(at, place, message)?;
            }
            let node = &mut self.nodes[at];
            let Some(outcome) = outcome.or_else(|| node.engine.test(node.ops[place].request)) else {
                place += 1;
                continue;
            };
            any = true;
            let op = node.ops.remove(place);
            match op.kind {
                OpKind::Send { .. } => {
                    if self.planted == Some(PlantedBug::RequestLeaked) {
                        let receive = Receive { at: at as u32, comm: 0, source: None, tag: Some(NEVER), buffer: 0 };
                        let comm = self.nodes[at].comm(receive.comm);
                        let span = towline_core::convertor::Span::of(&[]);
                        // SAFETY: no bytes are given.
                        let _ = unsafe {
                            self.nodes[at].engine.irecv(comm, source_of(self.plan, &receive), tag_of(&receive), span)
                        };
                        self.planted = None;
                    }
                    self.end_send(at, op, outcome);
                }
                OpKind::Recv { receive, planned, found, .. } => {
                    let cancelled = self.end_receive(at, op, outcome, receive, found)?;
                    if cancelled
                        && planned != UNPLANNED
                        && self.recv(at, receive, planned, None, None)? != Progress::Advanced
                    {
                        return Err(JobError::Refused(
                            at as u32,
                            "a cancelled receive did not release its request".into(),
                        ));
                    }
                }
            }
        }
        Ok(any)
    }

    /// Cancels a send, if no later one goes to the same node, and begins it again: to the programs it is the same send. Returns
    /// its outcome, if it is complete then.
    fn cancel_send(
        &mut self,
        at: usize,
        place: usize,
        message: Message,
    ) -> Result<Option<Result<Status, Failure>>, JobError> {
        let node = &mut self.nodes[at];
        let comm = node.comm(message.comm);
        let op = &mut node.ops[place];
        if self.latest_sends.get(&(node.me, message.to)) != Some(&op.number) {
            return Ok(None);
        }
        if !node.engine.cancel_send(op.request) {
            self.net.count(|counts| counts.uncancelled_sends += 1);
            return Ok(None);
        }
        self.net.count(|counts| counts.cancelled_sends += 1);
        let outcome = node.engine.test(op.request);
        if outcome != Some(Err(Failure::Cancelled)) {
            return Err(JobError::Refused(node.me, format!("a cancelled send ended with {outcome:?}")));
        }
        let span = op.buffer.span();
        let dest = rank(self.plan, message.comm, message.to);
        // SAFETY: as in `send`.
        match unsafe { node.engine.isend(comm, dest, message.tag, mode_of(message.mode), span) } {
            Ok(Sending::Pending(request)) => {
                self.net.trace(at as u32, || format!("send {} is cancelled and begun again: {request:?}", op.number));
                op.request = request;
                Ok(None)
            }
            Ok(Sending::Complete) => {
                let sent = message.len;
                Ok(Some(Ok(Status { peer: Peer(message.to), tag: message.tag, received: sent, delivered: sent })))
            }
            other => Err(JobError::Refused(node.me, format!("a cancelled send was begun again: {other:?}"))),
        }
    }

    pub fn end_send(&mut self, at: usize, mut op: PendingOp, outcome: Result<Status, Failure>) {
        self.net.trace(at as u32, || format!("send {} is over: {outcome:?}", op.number));
        self.ended += 1;
        let failed = outcome.err().map(|failure| match failure {
            Failure::PeerFailed(peer) | Failure::PeerClosed { peer, .. } => SendFailure::Peer(peer.0),
            failure => SendFailure::Other(failure.to_string()),
        });
        self.history.note(Record::Sent(op.number, failed));
        op.buffer.scribble();
        self.nodes[at].finished_sends.push(op.buffer);
    }

    /// Records the outcome of a receive. Returns whether it was cancelled.
    pub fn end_receive(
        &mut self,
        at: usize,
        op: PendingOp,
        outcome: Result<Status, Failure>,
        receive: Receive,
        found: Option<Envelope>,
    ) -> Result<bool, JobError> {
        self.net.trace(at as u32, || format!("receive {} is over: {outcome:?}", op.number));
        let counts = !matches!(outcome, Err(Failure::Cancelled | Failure::PeerFailed(_) | Failure::PeerClosed { .. }));
        self.ended += u64::from(counts);
        let (status, truncated) = match outcome {
            Ok(status) => (status, false),
            Err(Failure::Truncated(status)) => (status, true),
            Err(Failure::Cancelled) => {
                self.history.note(Record::Received(op.number, Outcome::Cancelled));
                self.nodes[at].finished_receives.push((op.number, op.buffer, 0));
                return Ok(true);
            }
            Err(Failure::PeerFailed(peer) | Failure::PeerClosed { peer, .. }) if self.failures_expected => {
                self.history.note(Record::Received(op.number, Outcome::PeerFailed(peer.0)));
                self.nodes[at].finished_sends.push(op.buffer);
                return Ok(false);
            }
            Err(failure) => return Err(JobError::Refused(at as u32, format!("{receive:?}: {failure}"))),
        };
        if let Some(found) = found
            && (found.peer, found.tag, found.len) != (status.peer, status.tag, status.received)
        {
            return Err(JobError::ProbeDiffers(at as u32, format!("{found:?}, {status:?}")));
        }
        let delivered = status.delivered.min(receive.buffer);
        op.buffer.take(delivered as usize, &mut self.scratch);
        let outcome = Outcome::Received {
            source: status.peer.0,
            tag: status.tag,
            received: status.received,
            delivered: status.delivered,
            truncated,
            digest: digest(&self.scratch),
        };
        self.history.note(Record::Received(op.number, outcome));
        self.nodes[at].finished_receives.push((op.number, op.buffer, delivered));
        Ok(false)
    }
}
