//! Blocking operations while all requests are in use.

use crate::context::handle::CommHandle;
use crate::threads::levels::Threads;
use crate::threads::lock::{Awaited, EngineGuard, EngineLock};
use crate::waiting::idle::Idle;

/// Waits until `count` requests are free, as long as a request can become free without a further call by this thread: an
/// operation that was dropped ends, or another thread that waits for its operation takes the outcome. Returns the engine, so that
/// no other thread can take the requests in between. If they are not free then, the operation ends with `Busy`.
///
/// Runs code of users: no operation of the caller may be in progress.
#[cold]
#[inline(never)]
pub(crate) fn wait_for_requests<L: Threads>(handle: &CommHandle<L>, count: u32) -> <L::Lock as EngineLock>::Guard<'_> {
    let mut idle = Idle::default();
    loop {
        handle.context.run_callbacks(); // frees dropped buffers, whose operations are complete, and their requests
        let mut engine = handle.context.engine.lock();
        if engine.mtl.pml().free_requests() >= count || !engine.may_free_requests() {
            return engine;
        }
        engine.clock.renew_coarsely();
        engine.progress_or_wait(&mut idle, &Awaited::FreeRequests(count), None);
    }
}
