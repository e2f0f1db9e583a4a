//! Single copy: exposing memory to peers, and reading theirs. See [`single_copy`](crate::single_copy).

use std::path::Path;

use towline_core::convertor::Span;
use towline_core::rail::{Endpoint, RemoteBuffer};

use super::state::Rail;
use crate::single_copy::expose::Exposure;
use crate::single_copy::probe::{REFUSED, SUPPORTED, SingleCopyState, UNTRIED};

/// Most locks that are held at a time for receivers that have not looked yet. Each lock takes a descriptor, and these are scarce.
const MAX_LOCKS: u32 = 64;

impl Rail {
    /// The way in which long messages travel to a peer.
    pub fn sends_in_single_copy(&self, to: Endpoint) -> SingleCopyState {
        match self.rings.get(to.0 as usize * 2).map(|ring| &ring.outgoing) {
            Some(outgoing) if outgoing.exists() => match (&outgoing.exposure, outgoing.probe()) {
                (None, _) if self.peers.get(to.0 as usize).is_some_and(|peer| peer.over_lock_limit) => {
                    SingleCopyState::LockLimit
                }
                (None, _) | (_, REFUSED..) => SingleCopyState::Refused,
                (_, UNTRIED) => SingleCopyState::Untried,
                (_, SUPPORTED) => SingleCopyState::Supported,
            },
            _ => SingleCopyState::Untried,
        }
    }

    /// How many rings were made without single copy because [too many locks](SingleCopyState::LockLimit) were held.
    pub fn rings_over_lock_limit(&self) -> u32 {
        self.ring_locks.over_limit
    }

    /// The state for exposing memory to a peer, whose ring at `path` was made just now. `None` where single copy does not work.
    pub(super) fn new_exposure(&mut self, endpoint: u32, path: &Path) -> Option<Exposure> {
        if self.ring_locks.held >= MAX_LOCKS {
            // Some receivers may have looked since the last maintenance.
            self.unlock_rings();
        }
        let over_limit = self.ring_locks.held >= MAX_LOCKS;
        let peer = self.peers.get_mut(endpoint as usize)?;
        peer.over_lock_limit = over_limit;
        if over_limit {
            if self.ring_locks.over_limit == 0 {
                log::warn!(
                    "long messages to rank {} are copied, because its ring was made while {MAX_LOCKS} other ranks had not looked \
                     at theirs; for further ranks this is not logged",
                    peer.rank
                );
            }
            self.ring_locks.over_limit = self.ring_locks.over_limit.saturating_add(1);
            return None;
        }
        let exposure = Exposure::new(path);
        match exposure {
            Some(_) => self.ring_locks.held += 1,
            None => log::info!("long messages to rank {} are copied: its ring cannot be locked", peer.rank),
        }
        exposure
    }

    /// Exposes memory to a peer. `None` where the message is to be copied.
    // Called through wrappers that are inlined into the path of short messages, too.
    #[inline(never)]
    pub(super) fn expose_to(&mut self, to: Endpoint, body: &Span) -> Option<RemoteBuffer> {
        let limits = u64::from(self.config.single_copy_bytes)..=u64::from(self.config.single_copy_limit_bytes);
        if !limits.contains(&body.len()) {
            return None;
        }
        let outgoing = self.rings.get_mut(to.0 as usize * 2).map(|ring| &mut ring.outgoing)?;
        if outgoing.len_bound == 0 || outgoing.probe() != SUPPORTED {
            return None;
        }
        let (base, _) = body.as_contiguous()?;
        Some(outgoing.exposure.as_mut()?.expose(base.addr() as u64))
    }

    /// Reads memory that a peer exposed. Returns whether that succeeded.
    ///
    /// # Safety
    /// As [`read_exposed`](towline_core::rail::SingleCopy::read_exposed).
    #[inline(never)]
    pub(super) unsafe fn read_exposed_by(&mut self, from: Endpoint, buffer: &RemoteBuffer, sink: Span) -> bool {
        let ring = from.0 as usize * 2;
        let Some(incoming) = self.rings.get_mut(ring).map(|ring| &mut ring.incoming) else { return false };
        let (Some(reader), Some((base, len))) = (incoming.reader, sink.as_contiguous()) else { return false };
        // SAFETY: the caller guarantees that the sink is valid.
        match unsafe { reader.read(buffer, base, len) } {
            Ok(read) => read,
            Err(error) => {
                // The probe worked: since then the process has ended, or lost the permission to be read.
                incoming.reader = None;
                incoming.set_probe(REFUSED);
                log::warn!(
                    "rank {} cannot be read any more, its long messages are copied: {error}",
                    self.rank_of(from.0)
                );
                false
            }
        }
    }

    /// Bytes of the longest message that is read from a peer's memory; 0 where that does not work.
    pub(super) fn read_limit_of(&self, from: Endpoint) -> u64 {
        let reader = self.rings.get(from.0 as usize * 2).and_then(|ring| ring.incoming.reader.as_ref());
        reader.map_or(0, |_| self.config.single_copy_limit_bytes.into())
    }

    /// Ends the exposure of all memory to all peers.
    #[cold]
    pub(super) fn revoke_all(&mut self) {
        for outgoing in self.rings.iter_mut().map(|ring| &mut ring.outgoing) {
            // A peer to which nothing was exposed may still have to compare the epoch word with the value in the ring.
            if let Some(exposure) = outgoing.exposure.as_mut().filter(|exposure| exposure.is_used()) {
                exposure.revoke();
            }
        }
    }

    /// Releases the locks of rings whose receivers have looked.
    #[cold]
    pub(super) fn unlock_rings(&mut self) {
        for outgoing in self.rings.iter_mut().map(|ring| &mut ring.outgoing) {
            if outgoing.probe() != UNTRIED
                && let Some(exposure) = &mut outgoing.exposure
                && exposure.unlock()
            {
                self.ring_locks.held -= 1;
            }
        }
    }
}
