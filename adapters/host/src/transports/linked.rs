//! Rails in links. A link makes frames arrive exactly once over rails that lose them, and lets the frames of a rail that fails
//! migrate to another rail.

use towline_checksum::Native;
use towline_core::link::{Config as LinkConfig, Counters, Link};
use towline_core::rail::{
    Capabilities, DeviceMemory, Endpoint, Failover, FastPath, FullRail, Liveness, Rail, RequestCache, SingleCopy,
};
use towline_core::time;

use crate::settings::config::Config;
use crate::transports::memory::Mapping;
use crate::values::address::Grid;

/// Bytes of the longest card of the library's rails: that of tcp, with the largest number of addresses.
const CARD_BYTES: u32 = 512;

/// How many bodies may be arriving on a link, or have to arrive once more, in addition to the frames that the reader holds.
pub(crate) const DELIVERIES: u32 = 64;

/// A rail in a link, with the memory that the link needs.
#[derive(Debug)]
pub struct Linked<R: FullRail> {
    // Dropped before the memory.
    link: Link<'static, R, Native>,
    /// How many peers the link may have.
    peers: u32,
    /// The end of this link is a failure for its peers.
    fails_at_end: bool,
    _memory: Mapping,
}

impl<R: FullRail> Linked<R> {
    /// A link over `raw`, to all addresses of the job. `link` is a number that no other link of the context has.
    /// `progress_thread`: a progress thread answers while the rank computes.
    pub(crate) fn new(raw: R, link: u8, config: &Config, grid: Grid, progress_thread: bool) -> std::io::Result<Self> {
        let mut incarnation = [0; 8];
        getrandom::fill(&mut incarnation).map_err(std::io::Error::other)?;
        let millis = |millis: u32| time::Duration::from_millis(millis.into());
        let mut settings = LinkConfig::new(link, u64::from_le_bytes(incarnation), raw.attributes());
        settings.peers = grid.total();
        settings.card_bytes = CARD_BYTES;
        settings.deliveries = DELIVERIES;
        settings.sums |= config.checksum;
        settings.window = config.link_window;
        settings.slots = config.link_window.saturating_mul(2);
        let connects = [config.tcp.connect_timeout_ms, config.udp.connect_timeout_ms, config.verbs.connect_timeout_ms];
        settings.hello_within = millis(connects.into_iter().max().unwrap_or_default());
        // Without a progress thread that answers, a computing rank is as silent as a rank whose host has failed. Over tcp, the
        // kernel of the peer's host still answers for a computing rank. A link that is silent while another link to the peer is
        // not has failed.
        let never = time::Duration::from_secs(365 * 24 * 3600);
        let reliable = !raw.attributes().capabilities.contains(Capabilities::NEED_ACK);
        // The other links of a bundle find that out over udp, too.
        let bundled = config.bundle && config.links > 1;
        settings.patient = !progress_thread && (reliable || bundled);
        let detects = config.peer_timeout_ms != 0 && (progress_thread || reliable || bundled);
        settings.dead_after = if detects { millis(config.peer_timeout_ms) } else { never };
        let memory = Mapping::new(settings.bytes(&raw))?;
        // SAFETY: called once; the link is in a field that is dropped before the memory is.
        let mut arena = unsafe { memory.arena() };
        let link = Link::new(raw, Native, settings, &mut arena).map_err(std::io::Error::other)?;
        Ok(Self { link, peers: settings.peers, fails_at_end: false, _memory: memory })
    }

    /// The rail in the link.
    pub const fn raw(&self) -> &R {
        self.link.raw()
    }

    /// Makes the end of this link a failure for its peers.
    pub(crate) fn end_as_failure(&mut self) {
        self.fails_at_end = true;
    }

    /// The link's counts of events so far.
    pub const fn counters(&self) -> &Counters {
        self.link.counters()
    }
}

impl<R: FullRail> Drop for Linked<R> {
    /// Sends goodbyes, so that no peer takes this end for a failure. A thread that panics has not ended normally.
    fn drop(&mut self) {
        if !self.fails_at_end && !std::thread::panicking() {
            (0..self.peers).for_each(|peer| self.link.del_peer(Endpoint(peer)));
            self.link.flush();
        }
    }
}

macro_rules! link {
    ($self:expr, $rail:ident => $call:expr) => {
        match $self {
            Linked { link: $rail, .. } => $call,
        }
    };
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> Rail for Linked<R> {
    towline_core::forward_rail!(link);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> FastPath for Linked<R> {
    towline_core::forward_rail!(FastPath: link);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> RequestCache for Linked<R> {
    towline_core::forward_rail!(RequestCache: link);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> SingleCopy for Linked<R> {
    towline_core::forward_rail!(SingleCopy: link);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> DeviceMemory for Linked<R> {
    towline_core::forward_rail!(DeviceMemory: link);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> Failover for Linked<R> {
    towline_core::forward_rail!(Failover: link);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> Liveness for Linked<R> {
    towline_core::forward_rail!(Liveness: link);
}
