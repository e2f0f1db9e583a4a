//! What every floor's error type is made of: whose fault it is.
//!
//! Errors are enums per operation, each beside the operation. All implement [`core::error::Error`] and tell by
//! [`Blame`] who has to act.

/// Who has to act on an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Blame {
    /// The caller gave something that cannot work, now or later.
    Caller,
    /// The peer broke the protocol, refused, or is gone.
    Peer,
    /// A limit of this process or machine is reached; what was asked may be asked again.
    Resource,
}
