//! What can go wrong in each operation of the exchange.

use core::fmt;

use crate::error::Blame;

/// Why nothing was published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SendError {
    /// The exchange was finalized.
    Closed,
    /// A name of the component is empty or too long.
    BadComponent,
    /// One component more than the exchange has room for.
    TooManyComponents,
    /// The data does not fit.
    TooLong {
        /// Bytes that are needed.
        needed: usize,
        /// Bytes that there are room for.
        room: usize,
    },
    /// What carries the publications is gone.
    Lost,
}

impl SendError {
    /// Who has to act.
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
            Self::Closed => "the module exchange was finalized: publish before",
            Self::BadComponent => "a component name is empty or too long: name it within the limits",
            Self::TooManyComponents => "the module exchange has no room for another component: configure more",
            Self::TooLong { needed, room } => {
                return write!(f, "the publication takes {needed} bytes, {room} are left: configure more");
            }
            Self::Lost => "the connection that carries the module exchange is lost",
        })
    }
}

impl core::error::Error for SendError {}

/// Why nothing was received. A C face maps all of them to one code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum RecvError {
    /// The exchange was finalized.
    Closed,
    /// The job has no such rank.
    NoSuchPeer,
    /// Nothing of that peer came so far: exchange first, or wait for the change.
    NotYet,
    /// The peer's publications are here, and none is meant for this component.
    NotFound,
    /// The caller's buffer is too short; nothing was copied.
    TooShort {
        /// Bytes that were published.
        needed: usize,
    },
}

impl RecvError {
    /// Who has to act.
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
            Self::Closed => "the module exchange was finalized: receive before",
            Self::NoSuchPeer => "the job has no such rank",
            Self::NotYet => "the peer's publications are not here yet: complete the exchange first",
            Self::NotFound => "the peer published nothing for this component and version",
            Self::TooShort { needed } => return write!(f, "the publication needs a buffer of {needed} bytes"),
        })
    }
}

impl core::error::Error for RecvError {}

/// Why nothing is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum WatchError {
    /// The exchange was finalized.
    Closed,
    /// A name of the component is empty or too long.
    BadComponent,
    /// The job has no such rank.
    NoSuchPeer,
    /// One component more than the exchange has room for.
    TooManyComponents,
}

impl WatchError {
    /// Who has to act.
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
            Self::Closed => "the module exchange was finalized: subscribe before",
            Self::BadComponent => "a component name is empty or too long: name it within the limits",
            Self::NoSuchPeer => "the job has no such rank",
            Self::TooManyComponents => "the module exchange has no room for another component: configure more",
        })
    }
}

impl core::error::Error for WatchError {}

/// Why an exchange ended without being done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ExchangeError {
    /// The exchange was finalized.
    Closed,
    /// The deadline passed.
    Timeout {
        /// Number of peers whose publications are missing.
        missing: u32,
        /// The lowest rank among them.
        first: u32,
    },
    /// A rank ended, so its publications will never come.
    PeerGone {
        /// That rank.
        rank: u32,
    },
    /// What carries the exchange is gone.
    Lost,
}

impl ExchangeError {
    /// Who has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Closed => Blame::Caller,
            Self::Timeout { .. } | Self::PeerGone { .. } | Self::Lost => Blame::Peer,
        }
    }
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the module exchange was finalized: exchange before"),
            Self::Timeout { missing, first } => {
                write!(f, "{missing} ranks, the first of them {first}, published nothing before the deadline")
            }
            Self::PeerGone { rank } => write!(f, "rank {rank} ended before it took part in the module exchange"),
            Self::Lost => f.write_str("the connection that carries the module exchange is lost"),
        }
    }
}

impl core::error::Error for ExchangeError {}
