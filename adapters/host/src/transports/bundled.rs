//! Several links as one rail, for users of a single rail.

use towline_core::rail::bundle::{Bundle, Config};
use towline_core::rail::{DeviceMemory, Failover, FastPath, FullRail, Liveness, Rail, RequestCache, SingleCopy};

use crate::transports::linked::DELIVERIES;
use crate::transports::memory::Mapping;

/// A bundle of links, with the memory that it needs.
#[derive(Debug)]
pub struct Bundled<R: FullRail> {
    // Dropped before the memory.
    bundle: Bundle<'static, R, Vec<R>>,
    _memory: Mapping,
}

impl<R: FullRail> Bundled<R> {
    /// A bundle of these links, for at most `peers` peers.
    pub(crate) fn new(links: Vec<R>, peers: u32) -> std::io::Result<Self> {
        let config = Config { peers, deliveries: DELIVERIES.saturating_mul(links.len() as u32) };
        let memory = Mapping::new(config.bytes(&links))?;
        // SAFETY: called once; the bundle is in a field that is dropped before the memory is.
        let mut arena = unsafe { memory.arena() };
        let bundle = Bundle::new(links, config, &mut arena).map_err(std::io::Error::other)?;
        Ok(Self { bundle, _memory: memory })
    }

    /// The links, for calls that concern no peer.
    pub(crate) fn links_mut(&mut self) -> &mut [R] {
        self.bundle.links_mut()
    }
}

macro_rules! bundle {
    ($self:expr, $rail:ident => $call:expr) => {
        match $self {
            Bundled { bundle: $rail, .. } => $call,
        }
    };
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> Rail for Bundled<R> {
    towline_core::forward_rail!(bundle);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> FastPath for Bundled<R> {
    towline_core::forward_rail!(FastPath: bundle);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> RequestCache for Bundled<R> {
    towline_core::forward_rail!(RequestCache: bundle);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> SingleCopy for Bundled<R> {
    towline_core::forward_rail!(SingleCopy: bundle);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> DeviceMemory for Bundled<R> {
    towline_core::forward_rail!(DeviceMemory: bundle);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> Failover for Bundled<R> {
    towline_core::forward_rail!(Failover: bundle);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> Liveness for Bundled<R> {
    towline_core::forward_rail!(Liveness: bundle);
}
