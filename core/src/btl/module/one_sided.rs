//! One-sided operations of a module: see [`rma`](crate::rma).

use super::state::{Btl, Told};
use super::types::{Note, Outcome, Performance, RegisterMemoryError, Terms};
use crate::btl::endpoint::{EndpointId, Reach};
use crate::convertor::Span;
use crate::pool::Pool;
use crate::rail::{Attributes, Capabilities, FullRail, Peer};
use crate::rma::{
    self, Access, Atomic, AtomicFlags, AtomicSupport, BeginError, DeregisterError, EMULATED, Finished, HANDLE_BYTES,
    Operation, Registration, RemoteMemory, Transfer, Way, Ways, device_owns,
};

/// By the one rail that a module has.
struct OneWay<'b, 'm, R> {
    rail: &'b mut R,
    endpoints: &'b Pool<'m, Reach>,
}

impl<R: FullRail> Ways for OneWay<'_, '_, R> {
    type Rail = R;

    fn way(&mut self, to: Peer) -> Option<Way<'_, R>> {
        let reach = self.endpoints.at(to.0).filter(|reach| !reach.lost)?;
        let Attributes { eager_limit: eager, max_send_size: longest, one_sided, .. } = *self.rail.attributes();
        Some(Way { rail: self.rail, endpoint: reach.rail, eager, longest, one_sided })
    }

    fn device(&mut self, to: Peer) -> Option<Way<'_, R>> {
        self.way(to)
    }
}

impl<'m, R: FullRail> Btl<'m, R> {
    /// What the rail promises, and what the module makes of it: one-sided operations that the rail does not have itself are
    /// emulated, if there are slots for them (CONTRACTS B40, B43).
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
        // What the rail does itself is not emulated.
        let needless = [
            (Capabilities::PUT, Capabilities::PUT_AM),
            (Capabilities::GET, Capabilities::GET_AM),
            (Capabilities::ATOMIC_FOPS, Capabilities::ATOMIC_AM_FOP),
        ];
        let added =
            needless.iter().filter(|(native, _)| own.contains(*native)).fold(emulated, |all, (_, am)| all - *am);
        if self.notes.is_empty() { own } else { own | added }
    }

    /// The atomics that work.
    pub fn atomics(&self) -> AtomicSupport {
        if self.notes.is_empty() {
            return AtomicSupport::empty();
        }
        if device_owns(self.rail.attributes().one_sided.atomics) { EMULATED - AtomicSupport::GLOB } else { EMULATED }
    }

    /// Bytes of a handle that peers need for memory of this side (`btl_registration_handle_size`, CONTRACTS B26): those of
    /// [`RemoteMemory::to_bytes`]. 0: there is nothing to be registered or shipped, as peers can do nothing to memory here. (In
    /// `btl.h` 0 is also said by who lets peers use bare addresses, which nobody does here.)
    pub const fn registration_handle_bytes(&self) -> usize {
        if self.rma.used()[0][1] == 0 { 0 } else { HANDLE_BYTES }
    }

    /// Registers memory: for an endpoint alone, or with `None`, which is `MCA_BTL_ENDPOINT_ANY`, for all, also those that are added
    /// later (CONTRACTS B27). The handle for peers is [`remote_memory`](Self::remote_memory).
    ///
    /// # Errors
    /// [`RegisterMemoryError`].
    ///
    /// # Safety
    /// Until it is deregistered, or the module is dropped, the memory is readable and writable, and all who access it know that
    /// peers do so too, at any time: no reference to it exists but to atomics.
    pub unsafe fn register_mem(
        &mut self,
        endpoint: Option<EndpointId>,
        base: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Registration, RegisterMemoryError> {
        let only = match endpoint {
            Some(endpoint) => {
                self.reach(endpoint).ok_or(RegisterMemoryError::Unreachable)?;
                Some(Peer(endpoint.0.slot()))
            }
            None => None,
        };
        let why_not = if self.registration_handle_bytes() == 0 {
            RegisterMemoryError::NotAvailable
        } else {
            RegisterMemoryError::Full
        };
        let memory = Span::contiguous(base, len);
        self.rma.register(Some((&mut self.rail, Access::all())), memory, access, only).ok_or(why_not)
    }

    /// Takes a registration back: from now on what peers ask of the memory is denied.
    ///
    /// # Errors
    /// [`DeregisterError`].
    pub fn deregister_mem(&mut self, registration: Registration) -> Result<(), DeregisterError> {
        if self.rma.deregister(Some(&mut self.rail), registration)? {
            self.rail.revoke_exposed();
        }
        Ok(())
    }

    /// What peers need to access registered memory; `None` if it was deregistered.
    pub fn remote_memory(&self, registration: Registration) -> Option<RemoteMemory> {
        self.rma.remote(registration)
    }

    /// Copies `local` into memory of a peer, from `offset` on. [`Outcome::Queued`]: the callback will tell.
    ///
    /// # Errors
    /// [`BeginError`]; nothing is done then and no callback follows.
    ///
    /// # Safety
    /// The memory of `local`, and the layout that it may refer to, is readable and unchanging until the operation is complete.
    pub unsafe fn put(
        &mut self,
        to: EndpointId,
        local: Span,
        remote: &RemoteMemory,
        offset: u64,
        terms: Terms<Told<'m, R>>,
    ) -> Result<Outcome, BeginError> {
        // SAFETY: passed on from the caller.
        unsafe { self.begin(to, Transfer::Put(local), remote, offset, terms) }
    }

    /// Copies memory of a peer, from `offset` on, to `local`, all of which is filled.
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
        terms: Terms<Told<'m, R>>,
    ) -> Result<Outcome, BeginError> {
        // SAFETY: passed on from the caller.
        unsafe { self.begin(from, Transfer::Get(local), remote, offset, terms) }
    }

    /// Changes a word of a peer's memory; its old value is told with the completion (`btl_atomic_op`, `btl_atomic_fop` and
    /// `btl_atomic_cswap` in one).
    ///
    /// # Errors
    /// As [`put`](Self::put); [`BeginError::NotAvailable`] where the word is not aligned to its size, or there is no such
    /// operation on such words.
    pub fn atomic(
        &mut self,
        at: EndpointId,
        atomic: Atomic,
        flags: AtomicFlags,
        remote: &RemoteMemory,
        offset: u64,
        terms: Terms<Told<'m, R>>,
    ) -> Result<Outcome, BeginError> {
        // SAFETY: no local memory is involved.
        unsafe { self.begin(at, Transfer::Atomic(atomic, flags), remote, offset, terms) }
    }

    /// Whether all one-sided operations that were begun to an endpoint, or to all, are complete; also within the callback of the
    /// last one. Not complete yet: make progress and ask again. To an endpoint that was removed there are none.
    pub fn flush(&self, endpoint: Option<EndpointId>) -> bool {
        if endpoint.is_some_and(|endpoint| self.endpoints.get(endpoint.0).is_none()) {
            return true;
        }
        self.rma.is_flushed(endpoint.map(|endpoint| Peer(endpoint.0.slot())))
    }

    /// What happened to one-sided operations so far.
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
        terms: Terms<Told<'m, R>>,
    ) -> Result<Outcome, BeginError> {
        self.reach(to).ok_or(BeginError::Unreachable)?;
        let local = match what {
            Transfer::Put(local) | Transfer::Get(local) => local.as_contiguous().map_or(0, |(base, _)| base.addr()),
            Transfer::Atomic(..) => 0,
        };
        let ways = &mut OneWay { rail: &mut self.rail, endpoints: &self.endpoints };
        // SAFETY: passed on from the caller.
        let begun = unsafe { self.rma.begin(ways, Peer(to.0.slot()), what, terms.registration, remote, offset) };
        let Operation(handle) = begun?;
        if let Some(note) = self.notes.get_mut(handle.slot() as usize) {
            *note = Note { endpoint: to, local, terms };
        }
        Ok(Outcome::Queued)
    }

    /// Sends requests and answers that wait.
    pub(super) fn push_out_rma(&mut self) {
        self.rma.push_out(&mut OneWay { rail: &mut self.rail, endpoints: &self.endpoints });
    }

    /// Makes the callbacks of the operations that are complete, but none that become so meanwhile.
    pub(super) fn call_back_rma(&mut self) -> u32 {
        let due = self.rma.due();
        for _ in 0..due {
            let Some(Finished { operation, result }) = self.rma.next_finished() else { break };
            let Some(Note { endpoint, local, terms }) = self.notes.get(operation.0.slot() as usize).copied() else {
                break;
            };
            self.counters.completed = self.counters.completed.wrapping_add(1);
            self.complete(endpoint);
            if let Some(callback) = terms.callback {
                let Terms { registration, context, .. } = terms;
                callback.performed(self, &Performance { endpoint, local, registration, context, status: result });
            }
        }
        due
    }
}
