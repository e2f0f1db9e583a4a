//! The attributes of a bundle.

use crate::rail::native::OneSided;
use crate::rail::{AcceleratorLimits, Attributes, Capabilities, Rail};

/// The attributes of a bundle of these links. Any link may have to carry a frame, so the smallest limits count.
pub(super) fn attributes<R: Rail>(links: &[R]) -> Option<Attributes> {
    let (first, others) = links.split_first()?;
    let mut own = *first.attributes();
    for other in others.iter().map(Rail::attributes) {
        own.capabilities &= other.capabilities;
        own.exclusivity = own.exclusivity.min(other.exclusivity);
        own.latency = own.latency.max(other.latency);
        own.bandwidth = own.bandwidth.saturating_add(other.bandwidth);
        own.eager_limit = own.eager_limit.min(other.eager_limit);
        own.rendezvous_eager_limit = own.rendezvous_eager_limit.min(other.rendezvous_eager_limit);
        own.min_fragment = own.min_fragment.min(other.min_fragment);
        own.max_send_size = own.max_send_size.min(other.max_send_size);
        own.frames_kept = own.frames_kept.saturating_add(other.frames_kept);
        own.accelerator = AcceleratorLimits {
            eager_limit: own.accelerator.eager_limit.min(other.accelerator.eager_limit),
            rdma_limit: u64::MAX,
            max_send_size: own.accelerator.max_send_size.min(other.accelerator.max_send_size),
        };
    }
    // Frames of a bundle do not migrate to other rails, and devices take no part.
    own.capabilities -= Capabilities::FAILOVER_SUPPORT | Capabilities::NATIVE;
    own.accelerator.rdma_limit = u64::MAX;
    own.one_sided = OneSided::NONE;
    (own.cache_size, own.cache_bytes) = (0, 0);
    Some(own)
}
