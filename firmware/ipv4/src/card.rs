//! What a driver of a card provides.

use smoltcp::phy::Device;

/// A network card that sends and receives Ethernet frames, each into and from memory of its own. It is a device of `smoltcp`, whose
/// frames have up to 1514 bytes.
pub trait Card: Device {
    /// Its Ethernet address. It never changes.
    fn address(&self) -> [u8; 6];

    /// How many frames it takes at most before it has sent any. At least 1. It never changes.
    fn capacity(&self) -> usize;

    /// How many frames it takes now.
    fn room(&mut self) -> usize;

    /// Whether a frame has arrived that was not received yet.
    fn has_arrived(&mut self) -> bool;
}
