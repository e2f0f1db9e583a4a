//! Sizes and limits of a rail.
#![cfg_attr(
    not(feature = "device"),
    allow(dead_code, reason = "some are used by the rail alone, which is not built in")
)]

/// How often the device sends a packet that is not acknowledged, the first time included. Verbs allow at most eight times, but
/// Soft-RoCE understands eight as "forever".
pub(crate) const TRANSMISSIONS: u32 = 7;

/// Bytes of the longest frame that takes an eager buffer; longer frames take a bulk buffer.
pub(crate) const MAX_SHORT_FRAME: u32 = 8 * 1024 + 64;

/// Bytes in a receive buffer before those of the datagram: room for a global routing header (GRH).
pub(crate) const GRH_BYTES: usize = 40;
/// Receive buffers for hellos.
pub(crate) const HELLO_RECEIVE_BUFFERS: u32 = 64;
/// Send buffers for hellos.
pub(crate) const HELLO_SEND_BUFFERS: u32 = 16;

/// Most markers in flight, to all peers.
pub(crate) const MAX_MARKERS: u32 = 64;
/// Control frames that may be in flight to a peer in addition to the other frames and a marker.
pub(crate) const CONTROL_FRAMES: u32 = 16;
/// Most one-sided operations in flight, to all peers; each is two work requests at most.
pub(crate) const MAX_OPS: u32 = 64;
/// Most one-sided operations in flight to one peer, so that the others get their share while that peer does not answer.
pub(crate) const MAX_OPS_PER_PEER: u32 = MAX_OPS / 4;

/// Most endpoints: the id of a work request has room for no more.
pub(crate) const MAX_ENDPOINTS: u32 = 1 << 30;

/// Numbers and sizes of a rail's buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BufferSizes {
    /// Receive buffers, each of `frame_bytes`.
    pub receive: u32,
    /// Send buffers, each of `short_bytes`.
    pub eager: u32,
    /// Send buffers, each of `frame_bytes`.
    pub bulk: u32,
    /// Bytes of the longest frame that an eager buffer holds.
    pub short_bytes: u32,
    /// Bytes of the longest frame.
    pub frame_bytes: u32,
}
