//! Operations of this side on its own registered memory: they are done at once, by the rules for operations of peers.

use super::engine::Rma;
use super::errors::Denied;
use super::handle::RemoteMemory;
use super::operation::Transfer;
use super::registry::AccessRequest;
use crate::convertor::{Span, transfer};
use crate::rail::Peer;
use crate::rail::access::Access;
use crate::rail::apply_atomic;

/// A peer that no module has, so only memory that is registered for all peers is accessible.
const NOBODY: Peer = Peer(u32::MAX);

impl Rma<'_> {
    /// Does an operation on memory that was registered here. Returns the old value of the word for an atomic, otherwise 0.
    ///
    /// # Errors
    /// [`Denied`], as a target would deny it.
    ///
    /// # Safety
    /// The local memory of a put is readable, and that of a get is writable and used by nobody else.
    pub unsafe fn perform_here(&self, what: Transfer, remote: &RemoteMemory, offset: u64) -> Result<u64, Denied> {
        let (access, len) = match what {
            Transfer::Put(local) => (Access::REMOTE_WRITE, local.len()),
            Transfer::Get(local) => (Access::REMOTE_READ, local.len()),
            Transfer::Atomic(_, flags) => (Access::REMOTE_ATOMIC, flags.word_bytes()),
        };
        let request = AccessRequest { peer: NOBODY, memory: remote.handle(), offset, len, access };
        let request = self.registry.locate(request);
        let memory = self.registry.check_access(request)?;
        match what {
            // SAFETY: the caller vouches for local memory, and that of `register` for the other.
            Transfer::Put(local) => unsafe { copy(local, memory) },
            // SAFETY: the same.
            Transfer::Get(local) => unsafe { copy(memory, local) },
            Transfer::Atomic(atomic, flags) => {
                let (at, _) = memory.as_contiguous().ok_or(Denied::NotAvailable)?;
                let is_aligned = at.addr() as u64 & (flags.word_bytes() - 1) == 0;
                if !is_aligned || !atomic.takes(flags) || self.registry.owns_atomics(request.memory) {
                    return Err(Denied::NotAvailable);
                }
                // SAFETY: the caller of `register` vouches for the memory, on which peers may use atomics. The word lies within it,
                // and is aligned.
                return Ok(unsafe { apply_atomic(at, atomic, flags) });
            }
        }
        Ok(0)
    }
}

/// Copies bytes. Contiguous ones may overlap.
///
/// # Safety
/// `from` is readable, and `to` is writable; both have the same length.
unsafe fn copy(from: Span, to: Span) {
    match (from.as_contiguous(), to.as_contiguous()) {
        // SAFETY: passed on from the caller.
        (Some((from, len)), Some((to, room))) => unsafe { core::ptr::copy(from, to, len.min(room)) },
        // SAFETY: the same.
        _ => _ = unsafe { transfer(from, to) },
    }
}
