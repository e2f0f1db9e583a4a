//! The shared regions of this rank.

use std::sync::{Arc, Weak};

use towline_core::rail::atomics::AtomicSupport;
use towline_core::rail::native::{Key, NativeError, OneSided, Pipeline, Reach, Region};
use towline_core::rma::Access;

use super::region::SharedRegion;

/// The one-sided operations of this rail: all of them, executed by the processor.
pub const ALL_OPERATIONS: OneSided = OneSided {
    put: Reach::ANY,
    get: Reach::ANY,
    atomics: AtomicSupport::all(),
    at_once: true,
    pipeline: Pipeline::NONE,
};

/// The shared regions that a rail has made.
#[derive(Debug, Default)]
pub struct OwnRegions {
    /// Made, and not registered yet.
    unregistered: Vec<Weak<SharedRegion>>,
    registered: Vec<Arc<SharedRegion>>,
}

impl OwnRegions {
    /// Adds a region that can be registered later.
    pub fn add(&mut self, region: &Arc<SharedRegion>) {
        self.unregistered.push(Arc::downgrade(region));
    }

    /// Lets peers access a region that was made here: all of it, as each region is registered only once and as a whole.
    ///
    /// # Errors
    /// [`NativeError::NotAvailable`] for other memory, and for rights that the kernel cannot enforce.
    pub fn register(&mut self, base: *mut u8, len: usize, access: Access) -> Result<(Region, Key), NativeError> {
        self.unregistered.retain(|region| region.strong_count() != 0);
        let is_it = |region: &Arc<SharedRegion>| region.base() == base && region.len() == len;
        let found =
            self.unregistered.iter().enumerate().find_map(|(at, region)| Some((at, region.upgrade().filter(is_it)?)));
        let (at, region) = found.ok_or(NativeError::NotAvailable)?;
        region.grant(access)?;
        self.unregistered.swap_remove(at);
        let answer = (Region(region.nonce()), region.key());
        self.registered.push(region);
        Ok(answer)
    }

    /// Ends the access of peers.
    pub fn deregister(&mut self, region: Region) {
        let Some(at) = self.registered.iter().position(|own| own.nonce() == region.0) else { return };
        self.registered.swap_remove(at).withdraw();
    }
}
