//! The members of a communicator of a device.

/// A communicator of the device, or one that was deleted.
#[derive(Debug)]
pub struct Members {
    /// Its context.
    pub context: u32,
    /// The peer of each rank.
    pub peers: Box<[u32]>,
}
