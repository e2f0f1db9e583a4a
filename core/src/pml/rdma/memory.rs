//! Registering this side's memory for the pieces of a message.

use crate::pml::engine::Pml;
use crate::pml::rails::Rails;
use crate::pml::rdma::pins::{Pinned, Wanted};
use crate::pool::Handle;
use crate::rma::Access;

impl<R: Rails> Pml<'_, R> {
    /// Ends the kept registrations of `len` bytes from `base` on ([`Config::kept_pins`](super::config::Config::kept_pins)). To be
    /// called before memory is unmapped or remapped. No message may be in progress from it or into it.
    pub fn forget_memory(&mut self, base: *mut u8, len: usize) {
        self.rdma.pins.forget(&mut self.rails, base, len as u64);
    }

    /// Ends the kept registrations of all memory.
    pub(in crate::pml) fn forget_all_memory(&mut self) {
        self.rdma.pins.forget(&mut self.rails, core::ptr::null_mut(), u64::MAX);
    }

    /// The number of registrations for messages: in use, and [kept](super::config::Config::kept_pins).
    pub fn pins(&self) -> [u32; 2] {
        self.rdma.pins.count()
    }

    /// Registers this side's memory for a piece, unless it is registered. `None`: it cannot be registered.
    pub(in crate::pml) fn pin_piece(&mut self, slot: u32, at: Handle, len: u64, access: Access) -> Option<Pinned> {
        let piece = *self.rdma.pieces.get(at)?;
        if piece.pin.is_some() {
            return Some(piece.pin); // registered at an earlier attempt, which found no room
        }
        let pin = if piece.ahead.is_some() && u64::from(piece.ahead_len) == len {
            piece.ahead
        } else {
            self.rdma.pins.unpin(&mut self.rails, piece.ahead, true);
            self.pin(slot, piece.rail, piece.offset, len, access).unwrap_or_default()
        };
        let piece = self.rdma.pieces.get_mut(at)?;
        (piece.pin, piece.ahead) = (pin, Pinned::NONE);
        pin.is_some().then_some(pin)
    }

    /// Registers the memory for the next piece, while this one is moved.
    pub(in crate::pml) fn pin_ahead(&mut self, slot: u32, at: Handle, access: Access) {
        let Some(piece) = self.rdma.pieces.get(at).filter(|piece| !piece.ahead.is_some()) else { return };
        let (rail, len, offset) = (piece.rail, piece.len, piece.offset.saturating_add(piece.len.into()));
        let wanted = self.requests.at(slot).map_or(0, |state| state.wanted);
        let len = wanted.saturating_sub(offset).min(len.into());
        if len != 0
            && let Some(pin) = self.pin(slot, rail, offset, len, access)
            && let Some(piece) = self.rdma.pieces.get_mut(at)
        {
            (piece.ahead, piece.ahead_len) = (pin, len as u32);
        }
    }

    /// Registers `len` bytes of a request's memory with a rail, from byte `offset` on.
    pub(in crate::pml) fn pin(&mut self, slot: u32, rail: u8, offset: u64, len: u64, access: Access) -> Option<Pinned> {
        let span = self.requests.at(slot)?.span.window(offset, len);
        let (base, _) = span.as_run()?;
        let access = if span.accelerator().is_some() { access | Access::ACCELERATOR } else { access };
        let wanted = Wanted { rail: rail.into(), base, len, access };
        let (pinned, kept) = self.rdma.pins.pin(&mut self.rails, &wanted)?;
        let count = if kept { &mut self.counters.pins_found } else { &mut self.counters.pins_made };
        *count = count.wrapping_add(1);
        Some(pinned)
    }
}
