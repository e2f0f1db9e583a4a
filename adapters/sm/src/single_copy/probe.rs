//! The result of the receiver's probe: whether it can read the sender's memory.

/// The way in which long messages travel to a peer, or from it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SingleCopyState {
    /// No frame has been sent in that direction yet, or its receiver has not looked at the ring.
    Untried,
    /// In a single copy, by the receiver.
    Supported,
    /// Copied into a ring and out of it: the system refused single copy, or either side has switched it off.
    Refused,
    /// As `Refused`, because too many receivers had yet to look at their rings when the ring to this peer was made. Each of these
    /// rings holds a lock, which takes a descriptor, until its receiver has looked.
    LockLimit,
}

/// In a ring: the receiver has not looked.
pub const UNTRIED: u64 = 0;
/// In a ring: the receiver has read the epoch word.
pub const SUPPORTED: u64 = 1;
/// In a ring: the receiver could not read the epoch word.
pub const REFUSED: u64 = 2;
