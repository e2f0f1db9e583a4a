//! The rails by which peers are reached, and the cookies of what is given to them.

use super::frames::{ANSWER, REQUEST};
use crate::rail::native::OneSided;
use crate::rail::{Endpoint, FullRail, HEAD, Peer, REMOTE_BUFFER_BYTES};

/// By which rail a peer is reached.
pub(crate) trait Ways {
    type Rail: FullRail;

    /// `None`: by none now. Where that is for ever, the peer is about to be forgotten.
    fn way(&mut self, to: Peer) -> Option<Way<'_, Self::Rail>>;

    /// The one whose device is to reach the peer's memory, which is the one that the peer has registered it with. `None`: none
    /// does so now.
    fn device(&mut self, to: Peer) -> Option<Way<'_, Self::Rail>>;
}

/// A rail to a peer.
pub(crate) struct Way<'r, R> {
    pub rail: &'r mut R,
    pub endpoint: Endpoint,
    /// The longest frames of the eager lane, and at all.
    pub eager: u32,
    pub longest: u32,
    /// What the rail may be asked to do itself.
    pub one_sided: OneSided,
}

/// Bytes that are lent at a time, at most: whoever fetches them does nothing else meanwhile.
pub(super) const MOST_EXPOSED: u64 = 1 << 20;

const _: () = assert!(
    REQUEST + REMOTE_BUFFER_BYTES <= HEAD && ANSWER + REMOTE_BUFFER_BYTES <= HEAD,
    "a loan comes with the header, whole"
);

/// In cookies: it is one of these, and of an answer. No pool has so many slots, and an engine's own cookies have the second
/// bit alone.
pub(super) const COOKIE: u64 = 1 << 30;
pub(super) const OF_ANSWER: u64 = 1 << 31;
/// Slots that such cookies can name.
pub(super) const SLOTS: u32 = 1 << 30;
