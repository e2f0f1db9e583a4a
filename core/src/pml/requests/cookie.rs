//! Cookies: the words by which rails report on the engine's bodies.

use crate::pool::Handle;

/// Set in the slot half of a cookie that names an envelope, not a request.
pub(in crate::pml) const ENVELOPE_COOKIE: u64 = 1 << 31;

/// The cookie of all bodies of a request.
#[inline]
pub(in crate::pml) const fn request_cookie(handle: Handle) -> crate::rail::Cookie {
    crate::rail::Cookie(handle.to_bits())
}
