//! What happens to a frame that has arrived: its body is delivered, or the frame is released to the rail.

use crate::convertor::Span;
use crate::rail::{Cookie, Delivery, Frame, FullRail, REMOTE_BUFFER_BYTES, RemoteBuffer};

/// The remote buffer after a header of `skip` bytes, if the frame has nothing else.
pub(super) fn remote_buffer_of(frame: &Frame, skip: usize) -> Option<RemoteBuffer> {
    if !frame.is_whole() || frame.len as usize != skip.saturating_add(REMOTE_BUFFER_BYTES) {
        return None;
    }
    frame.head().get(skip..)?.first_chunk().copied().map(RemoteBuffer)
}

/// Releases a frame that the rail still holds.
pub(super) fn release<R: FullRail>(rail: &mut R, frame: &Frame) {
    if !frame.is_whole() {
        rail.release(frame.id);
    }
}

/// Puts the body of a frame, after `skip` bytes of header, into memory; see [`Rail::deliver`](crate::rail::Rail::deliver).
///
/// # Safety
/// As for [`Rail::deliver`](crate::rail::Rail::deliver).
pub(super) unsafe fn deliver<R: FullRail>(
    rail: &mut R,
    frame: &Frame,
    skip: usize,
    sink: Span,
    cookie: Cookie,
) -> Delivery {
    if !frame.is_whole() {
        // SAFETY: passed on from the caller.
        return unsafe { rail.deliver(frame.id, skip, sink, cookie) };
    }
    let body = frame.head().get(skip..frame.len as usize).unwrap_or(&[]);
    // SAFETY: the body is a slice of the frame's own bytes; the caller vouches for the sink.
    unsafe { sink.unpack(body.as_ptr(), body.len()) };
    Delivery::Done
}
