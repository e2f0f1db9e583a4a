//! What all users of several links to a peer do in the same way when one of them fails: the engine, and a
//! [bundle](crate::rail::bundle).

use super::errors::SendError;
use super::frame::Frame;
use super::migration::{Claim, UnackedFrame};
use super::traits::FullRail;
use super::types::{Cookie, Delivery, Endpoint, Sent};
use crate::convertor::Span;

/// Sends an unacknowledged frame of a link that is down by another link. After `Ok` the caller reports the frame as
/// [`migrated`](super::Failover::migrated) to the first link. If the frame has a cookie, and the answer is not
/// [`Sent::InPlace`], nobody else will report that the body is no longer read.
///
/// # Errors
/// As [`Rail::send`](super::Rail::send). The first link keeps the frame then.
///
/// # Safety
/// [`next_unacked`](super::Failover::next_unacked) has returned the frame, and the first link was not called since.
pub(crate) unsafe fn resend<R: FullRail>(by: &mut R, to: Endpoint, unacked: &UnackedFrame) -> Result<Sent, SendError> {
    let header = unacked.header.get(..unacked.shape.header as usize).ok_or(SendError::TooLong)?;
    // SAFETY: the body is readable until `migrated` is called for the frame, which the caller does next. A body that is sent in
    // place belongs to the user, who keeps it unchanged until the end of the send is reported. A body without a cookie is copied.
    unsafe { by.send_migrated(to, unacked.origin, unacked.shape, header, unacked.body, unacked.cookie) }
}

/// Adds the answer of one more link to the verdict on a migrated frame. The link that carried the frame first knows whether it
/// has arrived. Any other link that carried it later knows whether it has written a part of it, and that decides.
pub(crate) const fn weigh(verdict: Option<Claim>, claim: Option<Claim>) -> Option<Claim> {
    match (verdict, claim) {
        (_, Some(Claim::Awaited { .. })) | (None, _) => claim,
        (verdict, _) => verdict,
    }
}

/// Delivers the part of a migrated frame that another link has not delivered: the answer to [`Claim::Awaited`]. `rail` has
/// brought the frame.
///
/// # Safety
/// `sink` and `cookie` are from a claim of another link, which does not access the sink any more.
pub(crate) unsafe fn deliver_rest<R: FullRail>(
    rail: &mut R,
    frame: &Frame,
    skip: usize,
    sink: Span,
    cookie: Cookie,
) -> Delivery {
    if !frame.is_whole() {
        // SAFETY: the caller of the first delivery guarantees that the sink is valid until the end of the delivery is reported.
        return unsafe { rail.deliver(frame.id, skip, sink, cookie) };
    }
    let bytes = frame.head().get(skip..).unwrap_or_default();
    // SAFETY: as above.
    unsafe { sink.unpack(bytes.as_ptr(), bytes.len()) };
    Delivery::Done
}
