//! Frames that have arrived and that the reader holds.

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::rail::{FrameId, Peer};

/// A slot for one datagram.
#[derive(Debug)]
struct Slot<'m> {
    /// The sender and the bytes of the frame, while the reader holds it.
    held: Option<(Peer, usize)>,
    bytes: &'m mut [u8],
}

/// Bytes of a datagram before its frame: version, tag, and the length of the frame (16 bits, little-endian). Ethernet makes short
/// frames longer, so the length of the datagram is not enough.
pub const PREFIX: usize = 4;

/// The slots. A frame is named by the number of its slot.
#[derive(Debug)]
pub struct Received<'m>(&'m mut [Slot<'m>]);

impl<'m> Received<'m> {
    /// The bytes of `count` slots for datagrams of `longest` bytes.
    pub const fn cost(count: u32, longest: usize) -> usize {
        let each = Arena::cost::<u8>(longest);
        Arena::cost::<Slot<'m>>(count as usize).saturating_add(each.saturating_mul(count as usize))
    }

    pub fn new(arena: &mut Arena<'m>, count: u32, longest: usize) -> Result<Self, OutOfMemory> {
        let slot = |arena: &mut Arena<'m>, _| Ok(Slot { held: None, bytes: arena.table(longest)? });
        Ok(Self(arena.each(count as usize, slot)?))
    }

    /// The memory of a free slot, for a datagram.
    pub fn free(&mut self) -> Option<(FrameId, &mut [u8])> {
        let mut slots = (0_u64..).zip(self.0.iter_mut());
        let (at, slot) = slots.find(|(_, slot)| slot.held.is_none())?;
        Some((FrameId(at), slot.bytes))
    }

    /// Keeps the frame in a slot until it is released.
    pub fn hold(&mut self, frame: FrameId, from: Peer, len: usize) {
        if let Some(slot) = self.0.get_mut(frame.0 as usize) {
            slot.held = Some((from, len));
        }
    }

    /// The bytes of a held frame.
    pub fn bytes(&self, frame: FrameId) -> Option<&[u8]> {
        let slot = self.0.get(frame.0 as usize)?;
        let (_, len) = slot.held?;
        slot.bytes.get(PREFIX..)?.get(..len)
    }

    /// The prefix of a held frame's datagram, and the bytes behind it.
    pub fn prefixed(&self, frame: FrameId) -> Option<(&[u8; PREFIX], &[u8])> {
        let slot = self.0.get(frame.0 as usize)?;
        let (_, len) = slot.held?;
        let (prefix, rest) = slot.bytes.split_first_chunk()?;
        Some((prefix, rest.get(..len)?))
    }

    /// How many frames are held.
    pub fn held(&self) -> usize {
        self.0.iter().filter(|slot| slot.held.is_some()).count()
    }

    pub fn release(&mut self, frame: FrameId) {
        if let Some(slot) = self.0.get_mut(frame.0 as usize) {
            slot.held = None;
        }
    }

    /// Releases the frames of a peer.
    pub fn release_all(&mut self, of: Peer) {
        for slot in self.0.iter_mut() {
            if matches!(slot.held, Some((from, _)) if from == of) {
                slot.held = None;
            }
        }
    }
}
