//! Requests that rails have prepared: see [`ptl::Cache`].

use crate::pml::engine::Pml;
use crate::pml::rails::Rails;
use crate::pml::rdma::ENABLED;
use crate::pml::requests::state::{Attachment, RequestState};
use crate::ptl;
use crate::rail::RequestCache;

impl<R: Rails> Pml<'_, R> {
    /// Gives a send an entry in the cache of the rail that carries the next first fragment, if the rail has a cache with a free
    /// entry (P16).
    pub(in crate::pml) fn take_cached(&mut self, to: u32, slot: u32) {
        if !ENABLED {
            return;
        }
        let Some((index, _)) = self.first_link(to) else { return };
        let Some(cache) = self.caches.iter_mut().find(|cache| cache.rail() == index) else { return };
        let Some(rail) = self.rails.rail_mut(index) else { return };
        if let (Some(entry), Some(state)) = (cache.take(|extra| rail.request_init(extra)), self.requests.at_mut(slot)) {
            state.cached_by = index as u8;
            state.attachment = Attachment::of_cache_entry(entry);
        }
    }

    /// Releases the rails' resources of all prepared requests that are not in use (P19). To be called if memory is short;
    /// [`finalize`](Self::finalize) calls it, too.
    pub fn drain_caches(&mut self) {
        for cache in self.caches.iter_mut() {
            if let Some(rail) = self.rails.rail_mut(cache.rail()) {
                cache.drain(|extra| rail.request_fini(extra));
            }
        }
    }
}

/// The rail's bytes of a send's entry in its cache. `None` if the send has no entry, or another rail carries it.
pub(in crate::pml) fn extra<'c>(
    caches: &'c mut [ptl::Cache<'_>],
    rail: usize,
    state: &RequestState,
) -> Option<&'c mut [u8]> {
    let entry = state.attachment.cache_entry().filter(|_| ENABLED)?;
    if usize::from(state.cached_by) != rail {
        return None; // the entry belongs to another rail than the one that carries the send now
    }
    caches.iter_mut().find(|cache| cache.rail() == rail)?.extra(entry)
}
