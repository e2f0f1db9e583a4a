//! What is done with a frame that arrived: its body is delivered, or it is given back to the rail.

use crate::convertor::Span;
use crate::rail::{Cookie, Frame, FullRail, REMOTE_BUFFER_BYTES, RemoteBuffer};

/// The loan behind a header of `skip` bytes, if that is all there is.
pub(super) fn loan_of(frame: &Frame, skip: usize) -> Option<RemoteBuffer> {
    if !frame.is_whole() || frame.len as usize != skip.saturating_add(REMOTE_BUFFER_BYTES) {
        return None;
    }
    frame.head().get(skip..)?.first_chunk().copied().map(RemoteBuffer)
}

/// Gives a frame back that the rail still holds.
pub(super) fn release<R: FullRail>(rail: &mut R, frame: &Frame) {
    if !frame.is_whole() {
        rail.release(frame.id);
    }
}

/// Puts the body of a frame, behind `skip` bytes, into memory; see [`Rail::deliver`](crate::rail::Rail::deliver).
///
/// # Safety
/// As for [`Rail::deliver`](crate::rail::Rail::deliver).
pub(super) unsafe fn deliver<R: FullRail>(
    rail: &mut R,
    frame: &Frame,
    skip: usize,
    sink: Span,
    cookie: Cookie,
) -> crate::rail::Delivery {
    if !frame.is_whole() {
        // SAFETY: passed on from the caller.
        return unsafe { rail.deliver(frame.id, skip, sink, cookie) };
    }
    let body = frame.head().get(skip..frame.len as usize).unwrap_or(&[]);
    // SAFETY: the body is a slice of the frame's own bytes; the caller vouches for the sink.
    unsafe { sink.unpack(body.as_ptr(), body.len()) };
    crate::rail::Delivery::Done
}
