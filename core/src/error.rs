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

/// Makes the `Debug` text of error types that of `Display`, since a `main` that returns an error prints it by `Debug`.
///
/// ```
/// use core::fmt;
///
/// struct Refused;
///
/// impl fmt::Display for Refused {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         f.write_str("the peer refused: ask it for the reason")
///     }
/// }
///
/// towline_core::debug_as_display!(Refused);
/// assert_eq!(format!("{Refused:?}"), Refused.to_string());
/// ```
#[macro_export]
macro_rules! debug_as_display {
    ($($error:ty),+) => {
        $(
            /// The text of [`Display`](core::fmt::Display), since `main` prints an error this way.
            impl core::fmt::Debug for $error {
                fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    core::fmt::Display::fmt(self, f)
                }
            }
        )+
    };
}
