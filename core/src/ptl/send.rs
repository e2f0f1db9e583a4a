//! Frames that are sent: first fragments, later fragments, control frames.

use zerocopy::{Immutable, IntoBytes};

use super::tag::TAG;
use crate::convertor::Span;
use crate::rail::{Cookie, Endpoint, FullRail, LINKED_HEAD, Lane, SHORTCUTS, SendError, Sent, Shape};

/// Sends a short message in one frame, and copies it. `words` is its header (see [`Match::words`](crate::wire::Match::words)).
///
/// # Errors
/// As [`Rail::reserve`](crate::rail::Rail::reserve).
///
/// # Safety
/// The body's memory is readable and unchanging during the call.
#[inline(always)]
pub unsafe fn eager<R: FullRail>(rail: &mut R, to: Endpoint, words: [u64; 3], body: Span) -> Result<Sent, SendError> {
    // SAFETY: passed on from the caller.
    unsafe { rail.send_now(to, TAG, words, body) }
}

/// Sends a first fragment: `header`, then all of `body`, which must fit into one frame of the rail. `extra` is the memory of
/// the request's entry in the rail's [`Cache`](super::Cache), if it has one.
///
/// # Errors
/// As [`Rail::send`](crate::rail::Rail::send).
///
/// # Safety
/// As [`Rail::send`](crate::rail::Rail::send).
pub unsafe fn first<R: FullRail, H: IntoBytes + Immutable>(
    rail: &mut R,
    to: Endpoint,
    header: &H,
    body: Span,
    cookie: Cookie,
    extra: Option<&mut [u8]>,
) -> Result<Sent, SendError> {
    let len = (size_of::<H>() as u32).wrapping_add(body.len() as u32);
    let shape = Shape { tag: TAG, lane: Lane::Eager, header: size_of::<H>() as u8, len };
    // SAFETY: passed on from the caller.
    unsafe { rail.send_request(to, shape, header.as_bytes(), body, cookie, extra) }
}

/// A fragment was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Unsent {
    /// The rail did not take it.
    Refused(SendError),
    /// The copy of its bytes has failed.
    Unreadable,
}

/// Sends a later fragment: `header`, then as many bytes of `rest` as the rail takes in one frame. Returns that number (the
/// contract's short accept, P20 and P23).
///
/// # Errors
/// [`Unsent`]: nothing has left.
///
/// # Safety
/// As [`Rail::send`](crate::rail::Rail::send), for the part of `rest` that was taken.
#[inline]
pub unsafe fn fragment<R: FullRail, H: IntoBytes + Immutable>(
    rail: &mut R,
    to: Endpoint,
    header: &H,
    rest: Span,
    cookie: Cookie,
) -> Result<(Sent, u64), Unsent> {
    let limits = rail.attributes();
    let own = if rest.accelerator().is_some() { limits.accelerator.max_send_size } else { u32::MAX };
    let body = |frame: u32| frame.saturating_sub(size_of::<H>() as u32);
    // a rail that states no limit gets one byte at a time: slow, but no hang
    let most = body(limits.max_send_size).min(body(own).max(1));
    let body = rest.window(0, u64::from(most));
    let len = (size_of::<H>() as u32).wrapping_add(body.len() as u32);
    let shape = Shape { tag: TAG, lane: Lane::Bulk, header: size_of::<H>() as u8, len };
    if let Some(failures) = body.failures() {
        // SAFETY: passed on from the caller.
        let sent = unsafe { copied(rail, to, shape, header.as_bytes(), body, failures) }?;
        return Ok((sent, body.len()));
    }
    // SAFETY: passed on from the caller; `body` is a part of `rest`.
    let sent = unsafe { rail.send(to, shape, header.as_bytes(), body, cookie) }.map_err(Unsent::Refused)?;
    Ok((sent, body.len()))
}

/// Copies header and body to the rail's memory, and sends them, unless the copy fails: there were `failures` before. So a body is
/// read once, although a link may send it several times.
///
/// # Safety
/// The body's memory is readable and unchanging during the call.
#[cold]
unsafe fn copied<R: FullRail>(
    rail: &mut R,
    to: Endpoint,
    shape: Shape,
    header: &[u8],
    body: Span,
    failures: u32,
) -> Result<Sent, Unsent> {
    let mut grant = rail.reserve(to, shape).map_err(Unsent::Refused)?;
    grant.write(0, header);
    // SAFETY: passed on from the caller. Memory of a rail is no accelerator's.
    unsafe { grant.gather(header.len(), body) };
    let ticket = grant.finish();
    // A ticket that is not committed is void.
    if body.failures() == Some(failures) { Ok(rail.commit(ticket)) } else { Err(Unsent::Unreadable) }
}

/// Sends a control frame: a header alone.
///
/// # Errors
/// As [`Rail::reserve`](crate::rail::Rail::reserve).
#[inline]
pub fn control<R: FullRail>(rail: &mut R, to: Endpoint, header: &[u8]) -> Result<Sent, SendError> {
    // No header over links is longer. Frames as short as this come whole.
    let header_len = header.len().min(LINKED_HEAD);
    let shape = Shape { tag: TAG, lane: Lane::Control, header: header_len as u8, len: header.len() as u32 };
    if !SHORTCUTS {
        // Messages leave in this way, too.
        let (head, rest) = header.split_at_checked(header_len).unwrap_or((header, &[]));
        // SAFETY: the rail copies a body of this length.
        return unsafe { rail.send(to, shape, head, Span::of(rest), Cookie(0)) };
    }
    let mut grant = rail.reserve(to, shape)?;
    grant.write(0, header);
    let ticket = grant.finish();
    Ok(rail.commit(ticket))
}
