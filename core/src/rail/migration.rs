//! The migration of frames from one link to another: frames that a link could not deliver, and a link's answers about frames
//! that another one has brought. Links number their frames, so duplicates are found exactly. A rail without a link pays nothing
//! for this. (Counterpart: `bfo` of Open MPI.)

use super::types::{Cookie, Shape};
use crate::convertor::Span;

/// The identity of a frame that migrates: the link that it was given to first, and its number there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Origin {
    /// The sender's name of that link. Peers know it from the card.
    pub link: u8,
    /// The low word of the frame's number on that link, among the frames to that peer.
    pub number: u32,
}

/// The longest header of a frame that a link carries, in bytes.
pub const LINKED_HEAD: usize = 40;

/// A frame that a link could not deliver, and that another link can carry.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct UnackedFrame {
    /// The identity of the frame.
    pub origin: Origin,
    /// The shape with which the caller gave it to the link.
    pub shape: Shape,
    /// The header, in the first `shape.header` bytes.
    pub header: [u8; LINKED_HEAD],
    /// The body. It is readable until the frame has migrated.
    pub body: Span,
    /// The cookie, if the sender waits for [`Event::Sent`](crate::rail::Event::Sent). Without a cookie the body is the link's
    /// own copy. That copy is freed by [`migrated`](crate::rail::Failover::migrated), so the next link has to copy the body as
    /// well. [`send_migrated`](crate::rail::Failover::send_migrated) without a cookie does that.
    pub cookie: Option<Cookie>,
}

/// The knowledge of a link about a frame that another link has brought.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Claim {
    /// The frame never arrived here, and counts as received now.
    New,
    /// The frame was received before.
    Duplicate,
    /// The frame arrived here in part, and a delivery is pending. The link that brought the frame has to deliver it, with the
    /// arguments of the call of [`Rail::deliver`](crate::rail::Rail::deliver) on this link. This link has not reported the
    /// cookie, and will not report it.
    Awaited {
        /// Bytes of the frame before those that belong to the sink.
        skip: usize,
        /// Where the bytes belong.
        sink: Span,
        /// The cookie of the delivery that the reader waits for.
        cookie: Cookie,
    },
}
