//! The port that a rail uses, with the rail's card for peers and its attributes for the engine.

use towline_core::rail::atomics::AtomicSupport;
use towline_core::rail::attributes::EXCLUSIVITY_DEFAULT;
use towline_core::rail::native::{OneSided, Pipeline, Reach};
use towline_core::rail::{AcceleratorLimits, Attributes, Capabilities};

use crate::address::Mtu;
use crate::config::Config;
use crate::device::Port;
use crate::wire::card;

/// The port that a rail uses, and the rail's card.
#[derive(Debug)]
pub struct LocalPort {
    pub port: Port,
    /// The path MTU that the rail uses at most.
    pub mtu: Mtu,
    /// A number that tells this rail from all others, drawn at random.
    pub instance: u64,
    pub card: [u8; card::BYTES],
}

/// The rail's attributes, for the engine.
pub fn attributes(config: &Config, port: &Port) -> Attributes {
    // Memory up to the longest frame is copied, so the engine need not register it.
    let local_registration = u64::from(config.max_send_size_bytes) + 1;
    let limit = u64::from(port.max_message_bytes.clamp(4096, 1 << 30)) & !4095;
    let reads = config.one_sided && port.max_reads_out != 0 && port.max_reads_in != 0;
    let reach = if reads { Reach { limit, alignment: 1, local_registration } } else { Reach::NONE };
    let atomics = if reads { port.atomics } else { AtomicSupport::empty() };
    let has_atomics = Capabilities::ATOMIC_OPS | Capabilities::ATOMIC_FOPS;
    let native = match (reads, atomics.is_empty()) {
        (true, false) => Capabilities::NATIVE,
        (true, true) => Capabilities::NATIVE - has_atomics,
        (false, _) => Capabilities::empty(),
    };
    let thread = if config.progress_thread { Capabilities::PROGRESS_THREAD } else { Capabilities::empty() };
    Attributes {
        name: "verbs",
        capabilities: Capabilities::SEND | native | thread,
        exclusivity: EXCLUSIVITY_DEFAULT,
        latency: config.latency_nanos,
        bandwidth: config.bandwidth_megabytes_per_second,
        eager_limit: config.eager_limit_bytes,
        rendezvous_eager_limit: config.rendezvous_eager_limit_bytes,
        min_fragment: config.max_send_size_bytes,
        max_send_size: config.max_send_size_bytes,
        cache_size: 0,
        cache_bytes: 0,
        accelerator: AcceleratorLimits::NONE,
        // The engine holds at most half of the buffers; the other half receives.
        frames_kept: (config.receive_buffers / 2).max(1),
        one_sided: OneSided {
            put: reach,
            get: reach,
            atomics,
            at_once: false,
            pipeline: config.pipeline.filter(|_| reads).unwrap_or(Pipeline::NONE),
        },
    }
}
