//! One-sided operations of a module: see [`rma`](crate::rma).

use super::state::{Btl, RmaCallback};
use super::types::{Outcome, RegisterMemoryError, RmaCompletion, RmaContext, RmaParams};
use crate::btl::endpoint::{EndpointId, EndpointState};
use crate::convertor::Span;
use crate::pool::Pool;
use crate::rail::{Attributes, Capabilities, FullRail, Peer};
use crate::rma::{
    self, Access, Atomic, AtomicFlags, AtomicSupport, BeginError, Denied, DeregisterError, EMULATED, Finished,
    HANDLE_BYTES, Operation, Registration, RemoteMemory, Route, Routes, Transfer, device_owns,
};

/// The one rail of a module, as the route to all of its peers.
struct OneRail<'b, 'm, R> {
    rail: &'b mut R,
    endpoints: &'b Pool<'m, EndpointState>,
}

impl<R: FullRail> Routes for OneRail<'_, '_, R> {
    type Rail = R;

    fn route(&mut self, to: Peer) -> Option<Route<'_, R>> {
        let state = self.endpoints.at(to.0).filter(|state| !state.lost)?;
        let Attributes { eager_limit: eager, max_send_size: longest, one_sided, .. } = *self.rail.attributes();
        Some(Route { rail: self.rail, endpoint: state.rail, eager, longest, one_sided })
    }

    fn device_route(&mut self, to: Peer) -> Option<Route<'_, R>> {
        self.route(to)
    }
}

impl<'m, R: FullRail> Btl<'m, R> {
    /// The capabilities of the rail and those that the module adds: one-sided operations that the rail does not have are
    /// emulated, if the module has slots for them (CONTRACTS B40, B43).
    pub fn capabilities(&self) -> Capabilities {
        let emulated = Capabilities::PUT_AM
            | Capabilities::GET_AM
            | Capabilities::ATOMIC_AM_FOP
            | Capabilities::ATOMIC_OPS
            | Capabilities::ATOMIC_FOPS
            | Capabilities::RDMA_FLUSH
            | Capabilities::RDMA_REMOTE_COMPLETION
            | Capabilities::HETEROGENEOUS_RDMA;
        let own = self.rail.attributes().capabilities;
        // Operations that the rail has are not emulated.
        let native = [
            (Capabilities::PUT, Capabilities::PUT_AM),
            (Capabilities::GET, Capabilities::GET_AM),
            (Capabilities::ATOMIC_FOPS, Capabilities::ATOMIC_AM_FOP),
        ];
        let added = native.iter().filter(|(native, _)| own.contains(*native)).fold(emulated, |all, (_, am)| all - *am);
        if self.rma_contexts.is_empty() { own } else { own | added }
    }

    /// The atomics that the module has: those of the rail, or emulated ones.
    pub fn atomics(&self) -> AtomicSupport {
        if self.rma_contexts.is_empty() {
            return AtomicSupport::empty();
        }
        if device_owns(self.rail.attributes().one_sided.atomics) { EMULATED - AtomicSupport::GLOB } else { EMULATED }
    }

    /// The number of bytes of the handle that peers need for memory of this side (`btl_registration_handle_size`, CONTRACTS
    /// B26): the length of [`RemoteMemory::to_bytes`]. 0 means that the module has no slots for registered memory, so there is
    /// no handle to send to peers. (In `btl.h` 0 may also mean that peers use bare addresses. No rail here does that.)
    pub const fn registration_handle_bytes(&self) -> usize {
        if self.rma.used()[0][1] == 0 { 0 } else { HANDLE_BYTES }
    }

    /// Registers memory for one endpoint, or with `None` (`MCA_BTL_ENDPOINT_ANY`) for all endpoints, including those that are
    /// added later (CONTRACTS B27). [`remote_memory`](Self::remote_memory) returns the handle for peers.
    ///
    /// # Errors
    /// [`RegisterMemoryError`].
    ///
    /// # Safety
    /// The memory is readable and writable until it is deregistered or the module is dropped. Peers access it at any time
    /// during that, so no code has a reference to it, except references to atomics.
    pub unsafe fn register_mem(
        &mut self,
        endpoint: Option<EndpointId>,
        base: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Registration, RegisterMemoryError> {
        let only = match endpoint {
            Some(endpoint) => {
                self.reachable(endpoint).ok_or(RegisterMemoryError::Unreachable)?;
                Some(Peer(endpoint.0.slot()))
            }
            None => None,
        };
        let error = if self.registration_handle_bytes() == 0 {
            RegisterMemoryError::NotAvailable
        } else {
            RegisterMemoryError::Full
        };
        let memory = Span::contiguous(base, len);
        self.rma.register(Some((&mut self.rail, Access::all())), memory, access, only).ok_or(error)
    }

    /// Ends a registration: operations of peers on the memory are denied from now on.
    ///
    /// # Errors
    /// [`DeregisterError`].
    pub fn deregister_mem(&mut self, registration: Registration) -> Result<(), DeregisterError> {
        if self.rma.deregister(Some(&mut self.rail), registration)? {
            self.rail.revoke_exposed();
        }
        Ok(())
    }

    /// The handle with which peers access registered memory. `None` if the memory was deregistered.
    pub fn remote_memory(&self, registration: Registration) -> Option<RemoteMemory> {
        self.rma.remote(registration)
    }

    /// Copies `local` to memory of a peer, from byte `offset` on. [`Outcome::Queued`]: the callback reports the end.
    ///
    /// # Errors
    /// [`BeginError`]: nothing is done then, and no callback follows.
    ///
    /// # Safety
    /// Until the operation is complete, the memory of `local` is readable and unchanging, and so is the layout that it may refer
    /// to.
    pub unsafe fn put(
        &mut self,
        to: EndpointId,
        local: Span,
        remote: &RemoteMemory,
        offset: u64,
        params: RmaParams<RmaCallback<'m, R>>,
    ) -> Result<Outcome, BeginError> {
        // SAFETY: passed on from the caller.
        unsafe { self.begin(to, Transfer::Put(local), remote, offset, params) }
    }

    /// Copies memory of a peer, from byte `offset` on, to `local`. It fills all of `local`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Safety
    /// The memory of `local` is writable, and nobody else accesses it, until the operation is complete.
    pub unsafe fn get(
        &mut self,
        from: EndpointId,
        local: Span,
        remote: &RemoteMemory,
        offset: u64,
        params: RmaParams<RmaCallback<'m, R>>,
    ) -> Result<Outcome, BeginError> {
        // SAFETY: passed on from the caller.
        unsafe { self.begin(from, Transfer::Get(local), remote, offset, params) }
    }

    /// Changes a word of a peer's memory. The completion has its old value (`btl_atomic_op`, `btl_atomic_fop` and
    /// `btl_atomic_cswap` in one).
    ///
    /// # Errors
    /// As [`put`](Self::put); [`BeginError::NotAvailable`] if the word is not aligned to its size, or if there is no such
    /// operation on words of this type.
    pub fn atomic(
        &mut self,
        at: EndpointId,
        atomic: Atomic,
        flags: AtomicFlags,
        remote: &RemoteMemory,
        offset: u64,
        params: RmaParams<RmaCallback<'m, R>>,
    ) -> Result<Outcome, BeginError> {
        // SAFETY: no local memory is involved.
        unsafe { self.begin(at, Transfer::Atomic(atomic, flags), remote, offset, params) }
    }

    /// Does an operation on memory that was registered with this module itself, at once. Returns the old value of the word for an
    /// atomic, otherwise 0. A module reaches its own process in no other way, unless its rail does.
    ///
    /// # Errors
    /// [`Denied`], as a target denies it. Memory that was registered for one peer is denied, too.
    ///
    /// # Safety
    /// The local memory of a put is readable, and that of a get is writable and used by nobody else.
    pub unsafe fn perform_here(&self, what: Transfer, remote: &RemoteMemory, offset: u64) -> Result<u64, Denied> {
        // SAFETY: passed on from the caller.
        unsafe { self.rma.perform_here(what, remote, offset) }
    }

    /// Whether all one-sided operations on memory of an endpoint, or of all endpoints, are complete. If not, make progress and
    /// ask again. It returns `true` already within the callback of the last operation, and for an endpoint that was removed.
    pub fn flush(&self, endpoint: Option<EndpointId>) -> bool {
        if endpoint.is_some_and(|endpoint| self.endpoints.get(endpoint.0).is_none()) {
            return true;
        }
        self.rma.is_flushed(endpoint.map(|endpoint| Peer(endpoint.0.slot())))
    }

    /// Counts of one-sided operations since set-up.
    pub const fn rma_counters(&self) -> rma::Counters {
        self.rma.counters()
    }

    /// # Safety
    /// As for [`put`](Self::put) and [`get`](Self::get).
    unsafe fn begin(
        &mut self,
        to: EndpointId,
        what: Transfer,
        remote: &RemoteMemory,
        offset: u64,
        params: RmaParams<RmaCallback<'m, R>>,
    ) -> Result<Outcome, BeginError> {
        self.reachable(to).ok_or(BeginError::Unreachable)?;
        let local = match what {
            Transfer::Put(local) | Transfer::Get(local) => local.as_contiguous().map_or(0, |(base, _)| base.addr()),
            Transfer::Atomic(..) => 0,
        };
        let routes = &mut OneRail { rail: &mut self.rail, endpoints: &self.endpoints };
        // SAFETY: passed on from the caller.
        let begun = unsafe { self.rma.begin(routes, Peer(to.0.slot()), what, params.registration, remote, offset) };
        let Operation(handle) = begun?;
        if let Some(context) = self.rma_contexts.get_mut(handle.slot() as usize) {
            *context = RmaContext { endpoint: to, local, params };
        }
        Ok(Outcome::Queued)
    }

    /// Sends requests and answers of one-sided operations that wait for room.
    pub(super) fn send_queued_rma(&mut self) {
        self.rma.send_queued(&mut OneRail { rail: &mut self.rail, endpoints: &self.endpoints });
    }

    /// Makes the callbacks of the one-sided operations that are complete now. Operations that become complete during these
    /// callbacks have to wait.
    pub(super) fn run_rma_callbacks(&mut self) -> u32 {
        let due = self.rma.due();
        for _ in 0..due {
            let Some(Finished { operation, result }) = self.rma.next_finished() else { break };
            let slot = operation.0.slot() as usize;
            let Some(RmaContext { endpoint, local, params }) = self.rma_contexts.get(slot).copied() else { break };
            self.counters.completed = self.counters.completed.wrapping_add(1);
            self.note_completion(endpoint);
            if let Some(callback) = params.callback {
                let RmaParams { registration, context, .. } = params;
                let completion = RmaCompletion { endpoint, local, registration, context, status: result };
                callback.rma_completed(self, &completion);
            }
        }
        due
    }
}
