//! Operations that a rail does before its call returns, and the completions that its device reports later.

use super::engine::Rma;
use super::handle::RemoteMemory;
use super::operation::Transfer;
use super::routes::RMA_COOKIE;
use crate::convertor::Span;
use crate::pool::Handle;
use crate::rail::native::{Local, Native, NativeError, Reach, Work};
use crate::rail::{Cookie, Endpoint, FullRail};

impl Rma<'_> {
    /// Does an operation at once, by a rail that can: the operation has ended when this returns. Returns the old word of an
    /// atomic, or 0 for a put or get. `None`: nothing was done, and the caller uses [`begin`](Rma::begin), which also reports
    /// errors.
    ///
    /// # Safety
    /// Local memory is readable for a put, writable and nobody else's for a get, until this returns.
    pub unsafe fn at_once<R: FullRail>(
        &mut self,
        rail: &mut R,
        endpoint: Endpoint,
        what: Transfer,
        remote: &RemoteMemory,
        offset: u64,
    ) -> Option<u64> {
        let can = rail.attributes().one_sided;
        let key = remote.key().filter(|_| can.mixes_at_once())?;
        let local = |span: Span, reach: Reach| {
            let (base, len) = span.as_contiguous()?;
            let len = len as u64;
            let takes = len != 0 && len < reach.local_registration && reach.takes(offset, base.addr() as u64, len);
            takes.then_some((Local { base, len, region: None }, len))
        };
        let (work, bytes) = match what {
            Transfer::Put(span) => local(span, can.put).map(|(local, len)| (Work::Put(local), len))?,
            Transfer::Get(span) => local(span, can.get).map(|(local, len)| (Work::Get(local), len))?,
            Transfer::Atomic(atomic, flags) => {
                let bytes = flags.word_bytes();
                let aligned = remote.base().wrapping_add(offset) & (bytes - 1) == 0;
                let takes = aligned && atomic.takes(flags) && can.does(atomic, flags) && !remote.owns_atomics();
                takes.then_some((Work::Atomic(atomic, flags), bytes))?
            }
        };
        offset.checked_add(bytes).filter(|end| *end <= remote.len())?;
        let native = Native { work, key, offset };
        // SAFETY: passed on from the caller; a rail whose operations complete at once does not use the memory after it has
        // returned.
        let old = unsafe { rail.perform(endpoint, &native, Cookie(RMA_COOKIE)) }.ok().flatten()?;
        self.counters.at_once = self.counters.at_once.wrapping_add(1);
        Some(old)
    }

    /// A rail's device has finished a piece of an operation.
    pub fn on_device_completion(&mut self, cookie: Cookie, result: Result<u64, NativeError>) {
        let handle = Handle::from_bits(cookie.0 & !RMA_COOKIE);
        let Some(state) = self.operations.slots.get_mut(handle).filter(|state| state.in_device != 0) else {
            self.counters.stale = self.counters.stale.wrapping_add(1);
            return;
        };
        state.in_device -= 1;
        match result {
            Ok(old) => state.on_device_done(old),
            Err(error) => state.on_device_error(error),
        }
        if !state.is_all_requested() {
            self.operations.needs_retry = true;
            self.queue(handle.slot());
        }
        self.complete_or_restart(handle.slot());
    }
}
