//! Requests that are kept for collective operations. A program may hold all others: as receives that it has posted, for example. The
//! other ranks wait for this one in a collective operation, so it must not end with `Busy` here.

use towline_core::mtl::{Mtl, Request};

use crate::transports::rails::RailSet;

/// A step of a collective operation has a send and a receive in progress at least.
pub(crate) const KEPT: u32 = 2;

/// The requests that are kept now.
#[derive(Default)]
pub(crate) struct KeptRequests([Option<Request>; KEPT as usize]);

impl KeptRequests {
    /// Keeps free requests, up to [`KEPT`] of them.
    #[inline]
    pub fn fill(&mut self, mtl: &mut Mtl<'static, RailSet>) {
        for place in self.0.iter_mut().filter(|place| place.is_none()) {
            *place = mtl.pml().keep_request();
        }
    }

    /// Whether a request is one of them: it belongs to no operation.
    #[inline]
    pub fn contain(&self, request: Request) -> bool {
        self.0.contains(&Some(request))
    }

    /// Frees one of them. Returns `false` if there is none.
    pub fn free_one(&mut self, mtl: &mut Mtl<'static, RailSet>) -> bool {
        let kept = self.0.iter_mut().find_map(Option::take);
        kept.is_some_and(|request| mtl.test(request).is_some())
    }
}
