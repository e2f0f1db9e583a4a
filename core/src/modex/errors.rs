//! The errors of each operation of the exchange.

use core::fmt;

use crate::error::Blame;

/// Why nothing was published.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SendError {
    /// The exchange was finalized.
    Closed,
    /// A name of the component is empty or too long.
    BadComponent,
    /// The exchange has no room for another component.
    TooManyComponents,
    /// The data does not fit.
    TooLong {
        /// Bytes that are needed.
        needed: usize,
        /// Bytes that are free.
        room: usize,
    },
    /// The connection that carries the publications is lost.
    Lost,
}

impl SendError {
    /// The side that has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Closed | Self::BadComponent => Blame::Caller,
            Self::TooManyComponents | Self::TooLong { .. } => Blame::Resource,
            Self::Lost => Blame::Peer,
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the module exchange was finalized: publish before that",
            Self::BadComponent => "a name of the component is empty or too long: choose one within the limits",
            Self::TooManyComponents => "the module exchange has no room for another component: set `components` higher",
            Self::TooLong { needed, room } => {
                return write!(f, "the data needs {needed} bytes, and {room} are free: set `bytes` higher");
            }
            Self::Lost => {
                "the connection that carries the module exchange is lost: the launcher has probably ended, so end, too"
            }
        })
    }
}

impl core::error::Error for SendError {}

crate::debug_as_display!(SendError);

/// Why no data was received. The contract in C has only one code for all of these reasons.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum RecvError {
    /// The exchange was finalized.
    Closed,
    /// The job has no such rank.
    NoSuchPeer,
    /// No set of this peer has arrived yet. The caller completes the exchange first, or waits for a change.
    NotYet,
    /// The peer has published no data for this component.
    NotFound,
    /// The caller's buffer is too short; nothing was copied.
    TooShort {
        /// Bytes of the data.
        needed: usize,
    },
}

impl RecvError {
    /// The side that has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Closed | Self::NoSuchPeer => Blame::Caller,
            Self::NotYet | Self::TooShort { .. } => Blame::Resource,
            Self::NotFound => Blame::Peer,
        }
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the module exchange was finalized: receive before that",
            Self::NoSuchPeer => "the job has no such rank: use a rank below its size",
            Self::NotYet => "the peer's data has not arrived: complete the exchange first",
            Self::NotFound => {
                "the peer has published no data for this component and version: run the same version at all ranks"
            }
            Self::TooShort { needed } => return write!(f, "the data has {needed} bytes: use a larger buffer"),
        })
    }
}

impl core::error::Error for RecvError {}

crate::debug_as_display!(RecvError);

/// Why data is not watched.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum WatchError {
    /// The exchange was finalized.
    Closed,
    /// A name of the component is empty or too long.
    BadComponent,
    /// The job has no such rank.
    NoSuchPeer,
    /// The exchange has no room for another component.
    TooManyComponents,
}

impl WatchError {
    /// The side that has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Closed | Self::BadComponent | Self::NoSuchPeer => Blame::Caller,
            Self::TooManyComponents => Blame::Resource,
        }
    }
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the module exchange was finalized: subscribe before that",
            Self::BadComponent => "a name of the component is empty or too long: choose one within the limits",
            Self::NoSuchPeer => "the job has no such rank: use a rank below its size",
            Self::TooManyComponents => "the module exchange has no room for another component: set `components` higher",
        })
    }
}

impl core::error::Error for WatchError {}

crate::debug_as_display!(WatchError);

/// Why an exchange has failed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ExchangeError {
    /// The exchange was finalized.
    Closed,
    /// The deadline passed.
    Timeout {
        /// The number of peers whose publications are missing.
        missing: u32,
        /// The lowest rank among them.
        first: u32,
    },
    /// A rank ended, so its publications will never come.
    PeerEnded {
        /// That rank.
        rank: u32,
    },
    /// The connection that carries the exchange is lost.
    Lost,
}

impl ExchangeError {
    /// The side that has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Closed => Blame::Caller,
            Self::Timeout { .. } | Self::PeerEnded { .. } | Self::Lost => Blame::Peer,
        }
    }
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the module exchange was finalized: exchange before that"),
            Self::Timeout { missing, first } => {
                write!(
                    f,
                    "{missing} ranks, the first of which is {first}, published nothing before the deadline: look at their output, or allow more time"
                )
            }
            Self::PeerEnded { rank } => {
                write!(f, "rank {rank} ended before it took part in the module exchange: look at its output")
            }
            Self::Lost => f.write_str(
                "the connection that carries the module exchange is lost: the launcher has probably ended, so end, too",
            ),
        }
    }
}

impl core::error::Error for ExchangeError {}

crate::debug_as_display!(ExchangeError);
