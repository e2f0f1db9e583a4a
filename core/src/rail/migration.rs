//! Frames that move from one link to another: what a link tells of those it could not deliver, and of those that it was
//! to get. Numbers are the links' own, so what may come twice is told apart exactly, and no rail pays for it that has no
//! link.

use super::types::{Cookie, Shape};
use crate::convertor::Span;

/// Which frame it is that moves from one link to another: the link that it was given to first, and its number there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Origin {
    /// The sender's name for that link, which peers know from its card.
    pub link: u8,
    /// The frame's number there, to that peer: the low word of it.
    pub number: u32,
}

/// Longest header of a frame that a link carries.
pub const LINKED_HEAD: usize = 40;

/// A frame that a link could not deliver, for another one to carry.
#[derive(Clone, Copy, Debug)]
pub struct UnackedFrame {
    /// Which it is.
    pub origin: Origin,
    /// What it was given with.
    pub shape: Shape,
    /// Its header, in the first `shape.header` bytes.
    pub header: [u8; LINKED_HEAD],
    /// Its body: readable until it is migrated.
    pub body: Span,
    /// Given where the sender waits for [`Event::Sent`](crate::rail::Event::Sent). Without it the body is the link's own copy, which
    /// goes with [`migrated`](crate::rail::Failover::migrated), so that the next link has to copy it as well:
    /// [`send_migrated`](crate::rail::Failover::send_migrated) without a cookie does.
    pub cookie: Option<Cookie>,
}

/// What a link knows of a frame that another one has brought.
#[derive(Clone, Copy, Debug)]
pub enum Claim {
    /// It never came here, and counts as received now.
    New,
    /// It was received already.
    Duplicate,
    /// It came here in part: the rest of its life belongs to who asked. It is to be delivered as [`Rail::deliver`](crate::rail::Rail::deliver) was
    /// told here; the cookie was not, and will not be, reported.
    Awaited {
        /// Bytes of the frame before those that go to the sink.
        skip: usize,
        /// Where they go.
        sink: Span,
        /// What is waited for.
        cookie: Cookie,
    },
}
