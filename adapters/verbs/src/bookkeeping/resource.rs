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
    /// A one-sided operation, by its id, with the buffer that it has. This is the operation's last work request.
    Operation(u32),
    /// The same operation; another work request of it follows.
    OperationPart(u32),
}
