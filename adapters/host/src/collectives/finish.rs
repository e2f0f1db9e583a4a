//! The barrier at the end of a world.

use towline_core::convertor::Span;
use towline_core::mtl::{Failure, Mode, Refusal, Sending};
use towline_core::time::Instant;

use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::threads::lock::{EngineGuard, EngineLock};
use crate::values::tags::FINISH_TAGS;
use crate::waiting::no_unwind::no_unwind;

impl<L: Threads> Communicator<L> {
    /// The barrier at the end. It waits until `deadline`, and not for ranks that are lost or have left. Afterwards the messages of
    /// this rank have been sent.
    pub(crate) fn finish_barrier(&self, deadline: Instant) -> FinishBarrier {
        let mut engine = self.handle.context.engine.lock();
        while engine.free_kept_request() {}
        let mut barrier = FinishBarrier { timed_out: false, lost: Vec::new() };
        for (round, dest, source) in self.rounds() {
            self.finish_round(&mut engine, &mut barrier, FINISH_TAGS.start + round, dest, source, deadline);
        }
        barrier.lost.sort_unstable();
        barrier.lost.dedup();
        barrier
    }

    /// One round of [`finish_barrier`](Self::finish_barrier).
    fn finish_round(
        &self,
        engine: &mut impl EngineGuard,
        barrier: &mut FinishBarrier,
        tag: u32,
        dest: u32,
        source: u32,
        deadline: Instant,
    ) {
        use towline_core::mtl::{Source, Tag};
        let comm = self.handle.comm;
        no_unwind(|| {
            // SAFETY: empty spans stand for no memory.
            let receive = unsafe { engine.mtl.irecv(comm, Source::Rank(source), Tag::Is(tag), Span::EMPTY) };
            // A synchronous send: this rank does not end before its message was received. With several links, a peer may see one
            // link close before it reads the other. SAFETY: as above.
            let send = match unsafe { engine.mtl.isend(comm, dest, tag, Mode::Synchronous, Span::EMPTY) } {
                Ok(Sending::Pending(request)) => Some(request),
                Ok(Sending::Complete) => None,
                Err(refusal) => {
                    // A rank that has left receives nothing.
                    if !matches!(refusal, Refusal::PeerClosed(_)) {
                        barrier.lost.push(dest);
                    }
                    None
                }
            };
            let (receive, send) = (receive.ok().map(|it| (it, false)), send.map(|it| (it, true)));
            for (request, is_send) in receive.into_iter().chain(send) {
                match engine.wait_until(request, deadline) {
                    // The receiver may have ended before its answer is read. The received frames show whether all ranks came
                    // here.
                    Some(Err(_)) if is_send => {}
                    Some(Ok(_) | Err(Failure::PeerClosed { .. })) => {}
                    Some(Err(_)) => barrier.lost.push(source),
                    None => {
                        barrier.timed_out = true;
                        engine.mtl.cancel(request);
                        engine.mtl.pml().detach(request);
                    }
                }
            }
        });
    }
}

/// The outcome of the barrier at the end.
pub(crate) struct FinishBarrier {
    /// Some rank did not come in time.
    pub timed_out: bool,
    /// Ranks that were lost before they came, as far as this rank knows.
    pub lost: Vec<u32>,
}
