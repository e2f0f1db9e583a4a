//! The barrier at the end of a world.

use towline_core::convertor::Span;
use towline_core::mtl::{Failure, Mode, Sending};
use towline_core::time::Instant;

use crate::collectives::tags::FINISH;
use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::threads::lock::{EngineGuard, EngineLock};
use crate::waiting::no_unwind::no_unwind;

impl<L: Threads> Communicator<L> {
    /// The barrier at the end. It waits until `deadline`, or until the ranks from which this rank receives are lost. Afterwards
    /// the messages of this rank have been sent. Returns whether the barrier is complete and no rank was lost.
    pub(crate) fn finish_barrier(&self, deadline: Instant) -> bool {
        let mut engine = self.handle.context.engine.lock();
        self.rounds().fold(true, |complete, (round, dest, source)| {
            complete & self.finish_round(&mut engine, FINISH + round, dest, source, deadline)
        })
    }

    /// One round of [`finish_barrier`](Self::finish_barrier).
    fn finish_round(&self, engine: &mut impl EngineGuard, tag: u32, dest: u32, source: u32, deadline: Instant) -> bool {
        let (comm, source) = (self.handle.comm, towline_core::mtl::Source::Rank(source));
        let mut complete = true;
        no_unwind(|| {
            // SAFETY: empty spans stand for no memory.
            let receive = unsafe { engine.mtl.irecv(comm, source, towline_core::mtl::Tag::Is(tag), Span::EMPTY) };
            // A synchronous send: this rank does not end before its message was received. With several links, a peer may see one
            // link close before it reads the other. SAFETY: as above.
            let send = match unsafe { engine.mtl.isend(comm, dest, tag, Mode::Synchronous, Span::EMPTY) } {
                Ok(Sending::Pending(request)) => Some(request),
                Ok(Sending::Complete) => None,
                Err(_) => {
                    complete = false;
                    None
                }
            };
            let (receive, send) = (receive.ok().map(|it| (it, false)), send.map(|it| (it, true)));
            for (request, is_send) in receive.into_iter().chain(send) {
                match engine.wait_until(request, deadline) {
                    // The receiver may have ended before its answer is read. The received frames show whether all ranks came
                    // here.
                    Some(Err(Failure::PeerFailed(_))) if is_send => {}
                    Some(outcome) => complete &= outcome.is_ok(),
                    None => {
                        complete = false;
                        engine.mtl.cancel(request);
                        engine.mtl.pml().detach(request);
                    }
                }
            }
        });
        complete
    }
}
