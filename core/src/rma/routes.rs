//! The rails that reach peers, and the cookies of the frames and operations that rails get.

use super::frames::{ANSWER, REQUEST};
use crate::rail::native::OneSided;
use crate::rail::{Endpoint, FullRail, HEAD, Peer, REMOTE_BUFFER_BYTES};

/// The rails of a module or of an engine, by peer.
pub(crate) trait Routes {
    type Rail: FullRail;

    /// The rail for frames to a peer. `None`: no rail reaches the peer now. If none will again, the peer is lost, and is
    /// forgotten soon.
    fn route(&mut self, to: Peer) -> Option<Route<'_, Self::Rail>>;

    /// The rail whose device reaches the peer's memory. It is the one that the peer has registered its memory with. `None`: there
    /// is none now.
    fn device_route(&mut self, to: Peer) -> Option<Route<'_, Self::Rail>>;
}

/// A rail to a peer.
pub(crate) struct Route<'r, R> {
    pub rail: &'r mut R,
    pub endpoint: Endpoint,
    /// The longest frame of the eager lane, and of the bulk lane, in bytes.
    pub eager: u32,
    pub longest: u32,
    /// The operations that may be given to the rail's device.
    pub one_sided: OneSided,
}

/// The most bytes that one request or answer exposes. The limit is there because the side that reads them does nothing else
/// until all are read.
pub(super) const MAX_EXPOSED: u64 = 1 << 20;

const _: () = assert!(
    REQUEST + REMOTE_BUFFER_BYTES <= HEAD && ANSWER + REMOTE_BUFFER_BYTES <= HEAD,
    "a remote buffer comes with the header, whole"
);

/// A bit of a cookie: it belongs to a one-sided operation. No slot number of a pool reaches this bit, and the engine does not
/// set it in the cookies of messages.
pub(super) const RMA_COOKIE: u64 = 1 << 30;
/// A bit of a cookie with [`RMA_COOKIE`]: it belongs to an answer. (In the engine's own cookies this bit has another meaning.)
pub(super) const ANSWER_COOKIE: u64 = 1 << 31;
/// The most slots of a pool whose handles are put into such cookies.
pub(super) const MAX_SLOTS: u32 = 1 << 30;
