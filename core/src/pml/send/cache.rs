//! Requests that rails have prepared: see [`ptl::Cache`].

use crate::pml::engine::Pml;
use crate::pml::rails::Rails;
use crate::pml::requests::state::{Attachment, RequestState};
use crate::ptl;
use crate::rail::RequestCache;

impl<R: Rails> Pml<'_, R> {
    /// Gives a send an entry in the cache of the rail that is to carry its first fragment, if the rail has a cache with room (P16).
    pub(in crate::pml) fn take_cached(&mut self, to: u32, slot: u32) {
        let Some((index, _)) = self.first_link(to) else { return };
        let Some(cache) = self.caches.iter_mut().find(|cache| cache.rail() == index) else { return };
        let Some(rail) = self.rails.rail_mut(index) else { return };
        if let (Some(entry), Some(state)) = (cache.take(|extra| rail.request_init(extra)), self.requests.at_mut(slot)) {
            state.cached_by = index as u8;
            state.attachment = Attachment::of_cache_entry(entry);
        }
    }

    /// Undoes the preparation of all cached requests that are not in use (P19): under memory pressure, or before the rails are
    /// closed.
    pub fn drain_caches(&mut self) {
        for cache in self.caches.iter_mut() {
            if let Some(rail) = self.rails.rail_mut(cache.rail()) {
                cache.drain(|extra| rail.request_fini(extra));
            }
        }
    }
}

/// The bytes of a request in the cache of the rail that sends it.
pub(in crate::pml) fn extra<'c>(
    caches: &'c mut [ptl::Cache<'_>],
    rail: usize,
    state: &RequestState,
) -> Option<&'c mut [u8]> {
    let entry = state.attachment.cache_entry()?;
    if usize::from(state.cached_by) != rail {
        return None; // another rail carries it in the end
    }
    caches.iter_mut().find(|cache| cache.rail() == rail)?.extra(entry)
}
