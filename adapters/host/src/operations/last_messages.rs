//! The last message to each rank, at the end.

use std::collections::VecDeque;

use towline_core::convertor::Span;
use towline_core::mtl::{Mode, Refusal, Request, Sending};
use towline_core::time::Instant;

use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::threads::lock::{Awaited, EngineGuard, EngineLock};
use crate::values::tags::LAST_MESSAGE;
use crate::waiting::idle::Idle;
use crate::waiting::no_unwind::no_unwind;

impl<L: Threads> Communicator<L> {
    /// Waits until the messages of this rank have arrived at the ranks to which it has sent any, or these have ended, or until
    /// `deadline`. All ranks that finish do this before their last barrier, so after that all messages have arrived everywhere,
    /// and each rank knows which ones it has not received.
    ///
    /// Each of these ranks gets a last, synchronous message. Messages of one rank are handled in order, and a rank that finishes
    /// refuses messages that find no receive. So its refusal says that all earlier messages have arrived. It is the exchange of
    /// T. Hoefler, C. Siebert and A. Lumsdaine (Scalable communication protocols for dynamic sparse data exchange, 2010), with
    /// refusals in place of receives.
    ///
    /// A DPU tells when the messages that it was given have arrived. A rank that finishes takes them out of its own DPU, so that
    /// this one gets room for those that wait.
    pub(crate) fn send_last_messages(&self, deadline: Instant) {
        let comm = self.handle.comm;
        let mut engine = self.handle.context.engine.lock();
        let mut requests: VecDeque<Request> = VecDeque::new();
        no_unwind(|| {
            for rank in 0..self.size() {
                let peer = engine.mtl.peer_of(comm, rank);
                if !peer.is_some_and(|peer| engine.mtl.pml().has_sent(peer)) {
                    continue;
                }
                loop {
                    // SAFETY: an empty span stands for no memory.
                    match unsafe { engine.mtl.isend(comm, rank, LAST_MESSAGE, Mode::Synchronous, Span::EMPTY) } {
                        Ok(Sending::Pending(request)) => requests.push_back(request),
                        Err(Refusal::Busy) => {
                            let Some(first) = requests.pop_front() else { break };
                            end(&mut engine, first, deadline);
                            continue;
                        }
                        Ok(Sending::Complete) | Err(_) => {}
                    }
                    break;
                }
            }
            requests.into_iter().for_each(|request| end(&mut engine, request, deadline));
            let mut idle = Idle::default();
            while !engine.mtl.pml().has_device_sent_all() && engine.clock.renew() < deadline {
                engine.progress_or_wait(&mut idle, &Awaited::Anything, Some(deadline));
            }
        });
    }
}

/// Waits for the end of a last message. Its outcome does not matter: the last barrier reports lost ranks.
fn end(engine: &mut impl EngineGuard, request: Request, deadline: Instant) {
    if engine.wait_until(request, deadline).is_none() {
        engine.mtl.pml().detach(request);
    }
}
