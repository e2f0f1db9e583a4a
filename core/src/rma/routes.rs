//! The rails by which peers are reached, and the cookies of what is given to them.

use super::frames::{ANSWER, REQUEST};
use crate::rail::native::OneSided;
use crate::rail::{Endpoint, FullRail, HEAD, Peer, REMOTE_BUFFER_BYTES};

/// The rails of a module or of an engine, by peer.
pub(crate) trait Routes {
    type Rail: FullRail;

    /// The rail for frames to a peer. `None`: there is none now. If there will never be one, the peer is forgotten soon.
    fn route(&mut self, to: Peer) -> Option<Route<'_, Self::Rail>>;

    /// The rail whose device reaches the peer's memory. It is the one that the peer has registered its memory with. `None`: there
    /// is none now.
    fn device_route(&mut self, to: Peer) -> Option<Route<'_, Self::Rail>>;
}

/// A rail to a peer.
pub(crate) struct Route<'r, R> {
    pub rail: &'r mut R,
    pub endpoint: Endpoint,
    /// The longest frames, in bytes: of the eager lane, and of any lane.
    pub eager: u32,
    pub longest: u32,
    /// The operations that may be given to the rail's device.
    pub one_sided: OneSided,
}

/// The most bytes that are exposed by one request or answer: the side that reads them does nothing else meanwhile.
pub(super) const MAX_EXPOSED: u64 = 1 << 20;

const _: () = assert!(
    REQUEST + REMOTE_BUFFER_BYTES <= HEAD && ANSWER + REMOTE_BUFFER_BYTES <= HEAD,
    "a remote buffer comes with the header, whole"
);

/// Two bits of a cookie: it belongs to a one-sided operation; it belongs to an answer. No pool has so many slots, and the engine's
/// own cookies have only the second bit.
pub(super) const RMA_COOKIE: u64 = 1 << 30;
pub(super) const ANSWER_COOKIE: u64 = 1 << 31;
/// Slots that such cookies can name.
pub(super) const MAX_SLOTS: u32 = 1 << 30;
