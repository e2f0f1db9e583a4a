//! The resource that a work request occupies until the device has completed it.

/// A send buffer, by its index among those of its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Buffer {
    /// A buffer for short frames.
    Eager(u32),
    /// A buffer for the longest frames.
    Bulk(u32),
}

/// The resource that a work request occupies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resource {
    /// A send buffer.
    Buffer(Buffer),
    /// One of the markers, which has no buffer.
    Marker,
    /// The last work request of a one-sided operation, by the operation's id. It occupies the operation's buffer, if there is
    /// one.
    Operation(u32),
    /// A work request of a one-sided operation that is not the operation's last one.
    OperationPart(u32),
}
