//! Blame: the side that has to act on an error.
//!
//! Each operation has its own error enum, beside the operation. All of them implement [`core::error::Error`], and their `blame`
//! returns a [`Blame`].

/// The side that has to act on an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Blame {
    /// The caller: its arguments are wrong, now and later.
    Caller,
    /// The peer: it violated the protocol, refused, or is lost.
    Peer,
    /// A resource: a limit of this process or machine is reached. The caller may try again later.
    Resource,
}
