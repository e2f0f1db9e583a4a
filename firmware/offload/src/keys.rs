//! The key of registered memory: the handle of the engine, and a sum of the handle and of the card of the device that has the memory.
//!
//! A handle names a slot of the engine that has given it out. Another engine, and the same one after its next start, may have other
//! memory in that slot. So the device of the initiator compares the sum with that of the card by which it has added the peer.

use towline_core::pml::Rails;
use towline_core::rma::{HANDLE_BYTES, RemoteMemory};
use towline_window::command::KEY;

use crate::cards;

const _: () = assert!(HANDLE_BYTES + size_of::<u64>() == KEY, "a key has these two parts");

/// The sum of the card of a device (FNV-1a). It tells cards from each other, and protects nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sum(u64);

impl Sum {
    /// The sum of no bytes.
    pub const NONE: Self = Self(0xcbf2_9ce4_8422_2325);

    /// The sum with more bytes.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(bytes.iter().fold(self.0, step))
    }

    /// The sum of the card of a device with these parameters and rails. `None` if it has no card.
    pub fn of<R: Rails>(params: &[u8; towline_core::pml::PARAMS], rails: &R) -> Option<Self> {
        let mut sum = Self::NONE;
        cards::write(params, rails, |piece| {
            sum = sum.with(piece);
            Some(())
        })?;
        Some(sum)
    }
}

/// The key of memory.
pub fn write(memory: RemoteMemory, card: Sum) -> [u8; KEY] {
    let mut key = [0; KEY];
    let bytes = memory.to_bytes();
    let all = bytes.iter().copied().chain(card.with(&bytes).0.to_le_bytes());
    key.iter_mut().zip(all).for_each(|(to, byte)| *to = byte);
    key
}

/// The handle in a key of the device with this card. `None` if it is no key, or that of another device or start.
pub fn read(key: &[u8; KEY], card: Sum) -> Option<RemoteMemory> {
    let (memory, sum) = key.split_first_chunk::<HANDLE_BYTES>()?;
    if sum != card.with(memory).0.to_le_bytes() {
        return None;
    }
    RemoteMemory::from_bytes(memory)
}
