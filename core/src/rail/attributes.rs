//! The attributes of a rail: capabilities, exclusivity and limits.

use bitflags::bitflags;

use super::atomics::AtomicSupport;
use super::native::{OneSided, Reach};

bitflags! {
    /// The promises of a rail, with the values of `btl.h` 3.3.0 (CONTRACTS B32 to B44). A rail that sets a bit passes the
    /// conformance kit for it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Capabilities: u32 {
        /// Frames can be sent.
        const SEND = 0x0001;
        /// Native put.
        const PUT = 0x0002;
        /// Native get.
        const GET = 0x0004;
        /// Bodies are sent from user memory without registration or copy: `send` may answer `Sent::InPlace`.
        const SEND_INPLACE = 0x0008;
        /// The rail may lose frames: wrap it in a link that acknowledges.
        const NEED_ACK = 0x0010;
        /// The rail may corrupt frames: wrap it in a link with checksums.
        const NEED_CSUM = 0x0020;
        /// Deprecated; accepted and ignored.
        const RDMA_MATCHED = 0x0040;
        /// One-sided operations need a local completion.
        const RDMA_COMPLETION = 0x0080;
        /// One-sided operations on bytes work between hosts of unlike byte order.
        const HETEROGENEOUS_RDMA = 0x0100;
        /// The rail's unacknowledged frames can migrate to another rail.
        const FAILOVER_SUPPORT = 0x0200;
        /// A put reaches [accelerators](crate::convertor::Accelerator) at both ends. Such memory is registered with
        /// [`Access::ACCELERATOR`](crate::rail::access::Access::ACCELERATOR).
        const ACCELERATOR_PUT = 0x0400;
        /// A get reaches accelerators at both ends.
        const ACCELERATOR_GET = 0x0800;
        /// Both: [`ACCELERATOR_PUT`](Capabilities::ACCELERATOR_PUT) and [`ACCELERATOR_GET`](Capabilities::ACCELERATOR_GET).
        const ACCELERATOR_RDMA = 0x0c00;
        /// Bodies in an accelerator's memory are copied while other messages go on: `send` answers `Sent::InPlace`, as it may for
        /// bodies of more than [`COPIED`](crate::rail::COPIED) bytes, and the end of the copy is reported later.
        const ACCELERATOR_COPY_ASYNC_SEND = 0x1000;
        /// The same for bodies that are received into an accelerator's memory: `deliver` answers `Delivery::Pending`.
        const ACCELERATOR_COPY_ASYNC_RECV = 0x2000;
        /// A sleeping peer can be woken on demand.
        const SIGNALED = 0x4000;
        /// Atomics that return nothing.
        const ATOMIC_OPS = 0x08000;
        /// Atomics that return the old value.
        const ATOMIC_FOPS = 0x10000;
        /// All peers must be added in one call (`btl_add_procs`).
        const SINGLE_ADD_PROCS = 0x20000;
        /// A thread of the rail makes progress, so matching must be protected.
        const PROGRESS_THREAD = 0x40000;
        /// Flush is supported.
        const RDMA_FLUSH = 0x80000;
        /// Put is emulated by active messages.
        const PUT_AM = 0x100000;
        /// Get is emulated by active messages.
        const GET_AM = 0x200000;
        /// Fetching atomics are emulated by active messages.
        const ATOMIC_AM_FOP = 0x400000;
        /// Completion at the initiator means done at the target.
        const RDMA_REMOTE_COMPLETION = 0x800000;
    }
}

impl Capabilities {
    /// The capabilities of a rail that has one-sided operations of its own.
    pub const NATIVE: Self = Self::PUT
        .union(Self::GET)
        .union(Self::ATOMIC_OPS)
        .union(Self::ATOMIC_FOPS)
        .union(Self::HETEROGENEOUS_RDMA)
        .union(Self::RDMA_COMPLETION)
        .union(Self::RDMA_FLUSH)
        .union(Self::RDMA_REMOTE_COMPLETION)
        .union(Self::ACCELERATOR_RDMA);
}

#[cfg(feature = "defmt")]
impl defmt::Format for Capabilities {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "Capabilities({=u32:#x})", self.bits());
    }
}

/// The exclusivity of a rail inside the process (`btl.h`: 64 Ki).
pub const EXCLUSIVITY_HIGH: u32 = 64 * 1024;
/// The exclusivity of a rail between processes of one host: above network rails, below loopback.
pub const EXCLUSIVITY_HOST: u32 = 32 * 1024;
/// The exclusivity of a fast network rail.
pub const EXCLUSIVITY_DEFAULT: u32 = 1024;
/// The exclusivity of a rail of last resort.
pub const EXCLUSIVITY_LOW: u32 = 0;

/// Limits of a rail for messages from and to [accelerators](crate::convertor::Accelerator), in addition to the general limits
/// (CONTRACTS B38).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct AcceleratorLimits {
    /// The most bytes of a message that is sent eagerly. A longer one waits for its receiver.
    pub eager_limit: u32,
    /// Bytes of the shortest message that a device moves, if it reaches accelerators; used instead of
    /// [`Pipeline::least`](crate::rail::native::Pipeline::least). `u64::MAX`: devices move no messages.
    pub rdma_limit: u64,
    /// The longest frame on [`Lane::Bulk`](crate::rail::Lane), as
    /// [`Attributes::max_send_size`](crate::rail::Attributes::max_send_size).
    pub max_send_size: u32,
}

impl AcceleratorLimits {
    /// No additional limits; devices move no messages.
    pub const NONE: Self = Self { eager_limit: u32::MAX, rdma_limit: u64::MAX, max_send_size: u32::MAX };
}

/// Capabilities, exclusivity and limits of a rail. Constant over the rail's life. Sizes are bytes of a frame, header and body
/// together, if not said otherwise.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Attributes {
    /// Short name: "sm", "tcp", "loopback".
    pub name: &'static str,
    /// The promises of the rail.
    pub capabilities: Capabilities,
    /// The rails with the highest exclusivity are used for a peer; rails of equal exclusivity share it (CONTRACTS P5).
    pub exclusivity: u32,
    /// The rank by latency: lower is better, and rails of equal latency share first fragments (CONTRACTS P12). In nanoseconds
    /// if it was measured.
    pub latency: u32,
    /// The bandwidth in megabytes per second, which decides the shares of striping (CONTRACTS P13). Never 0.
    pub bandwidth: u32,
    /// The longest frame on [`Lane::Eager`](crate::rail::Lane) and [`Lane::Control`](crate::rail::Lane): `ptl_first_frag_size`.
    pub eager_limit: u32,
    /// The most bytes of a body that are sent with a rendezvous header.
    pub rendezvous_eager_limit: u32,
    /// The smallest fragment into which the rest of a message is split: `ptl_min_frag_size`.
    pub min_fragment: u32,
    /// The longest frame on [`Lane::Bulk`](crate::rail::Lane): `ptl_max_frag_size`.
    pub max_send_size: u32,
    /// How many requests an engine may keep initialised for this rail: `ptl_cache_size`.
    pub cache_size: u32,
    /// How many bytes of each cached request belong to the rail: `ptl_cache_bytes`.
    pub cache_bytes: u32,
    /// How many frames the reader may hold before `poll` yields no more. At least 1.
    pub frames_kept: u32,
    /// The one-sided operations of the rail's device. The bits `PUT`, `GET`, `ATOMIC_OPS` and `ATOMIC_FOPS` say the same,
    /// except on a rail that maps only memory that it has allocated itself: it sets no such bit, since it promises nothing
    /// about other memory.
    pub one_sided: OneSided,
    /// The limits for memory of accelerators.
    pub accelerator: AcceleratorLimits,
}

impl Attributes {
    /// The one-sided operations of the device on an accelerator's memory, or on other memory.
    pub const fn reach(&self, is_accelerators: bool) -> OneSided {
        let mut can = self.one_sided;
        if is_accelerators {
            if !self.capabilities.contains(Capabilities::ACCELERATOR_PUT) {
                can.put = Reach::NONE;
            }
            if !self.capabilities.contains(Capabilities::ACCELERATOR_GET) {
                can.get = Reach::NONE;
            }
            // Memory of an accelerator is always registered, since the device learns only by the registration that it is an
            // accelerator's.
            (can.put.local_registration, can.get.local_registration) = (0, 0);
            can.atomics = AtomicSupport::empty();
            can.pipeline.least = self.accelerator.rdma_limit;
        }
        can
    }
}
