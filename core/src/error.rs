//! A part of every floor's error type: whose fault the error is.
//!
//! Errors are enums per operation, each beside the operation. All implement [`core::error::Error`] and tell by
//! [`Blame`] who has to act.

/// The party that has to act on an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Blame {
    /// The caller gave something that cannot work, now or later.
    Caller,
    /// The peer broke the protocol, refused, or is gone.
    Peer,
    /// A limit of this process or machine is reached. The same request may succeed later.
    Resource,
}
