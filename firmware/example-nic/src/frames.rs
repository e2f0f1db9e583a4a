//! The driver of the frame device, which is a post office: 8 boxes for outgoing frames, and 8 for incoming ones.
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 4 | [`KNOWN`] |
//! | 4 | 4 | the number of this card on the wire |
//! | 8 | 4 | the driver writes 1 to reset the device, which writes 0 when all boxes are empty |
//! | [`BOX`] * (1 + n) | [`BOX`] | box n: 0 to 7 for outgoing frames, 8 to 15 for incoming ones |
//!
//! A box has a word with its owner ([`DRIVER`] or [`DEVICE`]), a word with the frame's length in the lower half and the number of
//! the other card in the upper half, and the frame. Driver and device use the boxes of each direction in turn. Words are
//! little-endian.

use core::sync::atomic::Ordering;

use datagram::{Address, Interface};
use towline_window::memory::Memory;

/// The first word of the device.
pub const KNOWN: u32 = u32::from_le_bytes(*b"POST");
/// Where the words of the device are.
pub const NUMBER: u64 = 4;
/// See [`NUMBER`].
pub const RESET: u64 = 8;
/// Boxes in each direction.
pub const BOXES: u64 = 8;
/// Bytes of a box.
pub const BOX: u64 = 2048;
/// Bytes of the device.
pub const BYTES: usize = (BOX * (1 + 2 * BOXES)) as usize;
/// The owner of a box that is empty, if it is for outgoing frames, or full, if it is for incoming ones.
pub const DRIVER: u32 = 0;
/// The owner of the other boxes.
pub const DEVICE: u32 = 1;
/// Where length and frame are in a box, whose first word is its owner.
pub const LENGTH: u64 = 4;
/// See [`LENGTH`].
pub const FRAME: u64 = 8;
/// Bytes of the longest frame.
pub const LONGEST: usize = (BOX - FRAME) as usize;

/// The driver. It is used by one thread.
#[derive(Debug)]
pub struct Frames {
    device: Memory<'static>,
    number: u8,
    /// The device has executed the reset.
    up: bool,
    /// The next box of each direction.
    outgoing: u64,
    incoming: u64,
}

impl Frames {
    /// The driver of the device in this memory, which nothing else uses. Returns `None` if there is no such device.
    pub fn new(device: Memory<'static>) -> Option<Self> {
        let found = device.word(0).ok()?.load(Ordering::Relaxed);
        if found != KNOWN.to_le() || device.bytes() < BYTES {
            return None;
        }
        let number = u32::from_le(device.word(NUMBER).ok()?.load(Ordering::Relaxed)) as u8;
        // The firmware may have run before, so the device may be at any box.
        device.word(RESET).ok()?.store(1_u32.to_le(), Ordering::Release);
        Some(Self { device, number, up: false, outgoing: 0, incoming: 0 })
    }

    /// Whether the device has executed the reset.
    fn is_up(&mut self) -> bool {
        self.up |= self.device.word(RESET).is_ok_and(|word| word.load(Ordering::Acquire) == 0);
        self.up
    }

    /// Where a box begins, if the driver owns it.
    fn owned(&mut self, number: u64) -> Option<u64> {
        let at = BOX * (1 + number);
        // Acquire: what the device wrote before it gave the box away is read after this.
        let owner = self.device.word(at).ok()?.load(Ordering::Acquire);
        (owner == DRIVER.to_le() && self.is_up()).then_some(at)
    }

    /// Gives a box to the device.
    fn give(&self, at: u64) {
        if let Ok(owner) = self.device.word(at) {
            // Release: the device sees what was written to the box before. What was read was read before.
            owner.store(DEVICE.to_le(), Ordering::Release);
        }
    }
}

impl Interface for Frames {
    fn address(&self) -> Address {
        Address::of_one(self.number)
    }

    fn longest(&self) -> usize {
        LONGEST
    }

    fn capacity(&self) -> usize {
        BOXES as usize
    }

    fn room(&mut self) -> usize {
        let first = self.outgoing;
        (0..BOXES).take_while(|next| self.owned((first + next) % BOXES).is_some()).count()
    }

    fn send(&mut self, to: &Address, frame: &[u8]) {
        let [to] = *to.bytes() else { return };
        let Some(at) = self.owned(self.outgoing).filter(|_| frame.len() <= LONGEST) else { return };
        let length = frame.len() as u32 | u32::from(to) << 16;
        if self.device.write(at + LENGTH, &length.to_le_bytes()).is_ok() && self.device.write(at + FRAME, frame).is_ok()
        {
            self.give(at);
            self.outgoing = (self.outgoing + 1) % BOXES;
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<(usize, Address)> {
        let at = self.owned(BOXES + self.incoming)?;
        let mut length = [0; 4];
        let read = self.device.read(at + LENGTH, &mut length);
        let [low, high, from, _] = length;
        let len = usize::from(u16::from_le_bytes([low, high]));
        // The device is not trusted: a length that is too long is that of no frame.
        let frame = into.get_mut(..len).filter(|_| read.is_ok() && len <= LONGEST);
        let arrived = frame.and_then(|frame| self.device.read(at + FRAME, frame).ok());
        self.give(at);
        self.incoming = (self.incoming + 1) % BOXES;
        arrived.map(|()| (len, Address::of_one(from)))
    }

    fn has_arrived(&mut self) -> bool {
        self.owned(BOXES + self.incoming).is_some()
    }
}
