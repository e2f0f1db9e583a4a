//! Requests that are kept for collective operations. A program may hold all others: as receives that it has posted, for example. The
//! other ranks wait for this one in a collective operation, so it must not end with `Busy` here.

use towline_core::mtl::Request;

use crate::engine::Engine;

/// A step of a collective operation has a send and a receive in progress at least.
pub(crate) const KEPT: u32 = 2;

/// The requests that are kept now.
#[derive(Default)]
pub(crate) struct KeptRequests([Option<Request>; KEPT as usize]);

impl Engine {
    /// Keeps free requests, up to [`KEPT`] of them.
    pub fn keep_requests(&mut self) {
        for place in self.kept_requests.0.iter_mut().filter(|place| place.is_none()) {
            *place = self.mtl.pml().keep_request();
        }
    }

    /// Frees a request that was kept. Returns `false` if there is none.
    pub fn free_kept_request(&mut self) -> bool {
        let kept = self.kept_requests.0.iter_mut().find_map(Option::take);
        kept.is_some_and(|request| self.mtl.test(request).is_some())
    }
}
