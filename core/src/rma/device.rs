//! Operations that the rail does itself: which of them, and how their ends come back.
//!
//! Put and get go that way wherever the rail takes them, as do atomics, if all that are used on the memory agree with each other:
//! where the device's agree with the processor's (`GLOB`), each takes the way that there is for it; else memory that peers may
//! use atomics on has the device's alone, which its handle tells, and the target does no others. What the device does not have
//! is then made up of its compare and swap.

use super::errors::{BeginError, Denied};
use super::handle::RemoteMemory;
use super::operation::{ATOMIC_LEN, By, Fate, Kind, OperationState};
use super::registry::Registered;
use super::ways::{COOKIE, Way, Ways};
use crate::convertor::Span;
use crate::pool::Handle;
use crate::rail::access::Access;
use crate::rail::atomics::{Atomic, AtomicFlags, AtomicSupport};
use crate::rail::native::{Local, Native, NativeError, OneSided, Work};
use crate::rail::{Cookie, DeviceMemory, FullRail, Peer, SendError};

/// Registers memory with a rail that does something itself. What it does not take is emulated. A device does not know who asks:
/// memory for one peer alone has no key for others.
pub(super) fn register<R: FullRail>(
    rail: &mut R,
    memory: &Span,
    access: Access,
    only: Option<Peer>,
) -> Option<Registered> {
    let is_accelerators = access.contains(Access::ACCELERATOR);
    let can = rail.attributes().reach(is_accelerators);
    // Peers do not see what it is, so the device must refuse what it cannot do.
    let may = |done: bool, right: Access| if is_accelerators && !done { right } else { Access::empty() };
    let access = access - may(can.put.limit != 0, Access::REMOTE_WRITE) - may(can.get.limit != 0, Access::REMOTE_READ);
    let access = access - may(false, Access::REMOTE_ATOMIC);
    let (base, len) = memory.as_contiguous().filter(|(_, len)| *len != 0 && can.any())?;
    let access = if only.is_some() { access & (Access::LOCAL_WRITE | Access::ACCELERATOR) } else { access };
    // SAFETY: who registers the memory vouches for it.
    let (region, key) = unsafe { rail.register(base, len, access) }.ok()?;
    let owns_atomics = only.is_none() && access.contains(Access::REMOTE_ATOMIC) && device_owns(can.atomics);
    Some(Registered { region, key: only.is_none().then_some(key), owns_atomics })
}

/// Whether atomics of a rail are to be the only ones: they do not agree with the processor's, and others can be made of them.
pub(crate) const fn device_owns(atomics: AtomicSupport) -> bool {
    atomics.contains(AtomicSupport::CSWAP) && !atomics.contains(AtomicSupport::GLOB)
}

/// Whether the aligned 64-bit word around an offset lies in the memory. A peer's handle may say anything.
fn has_word_around(remote: &RemoteMemory, offset: u64) -> bool {
    let within = remote.base().wrapping_add(offset) & 7;
    offset.checked_sub(within).is_some_and(|begin| remote.len().checked_sub(begin).is_some_and(|left| left >= 8))
}

impl OperationState {
    /// Chooses how the operation is done, by what the rail can do and what the handle of the memory says.
    pub(super) fn choose(&mut self, can: &OneSided, remote: &RemoteMemory) -> Result<(), BeginError> {
        let key = remote.key().filter(|_| can.any());
        let own = remote.owns_atomics();
        self.key = key.unwrap_or(self.key);
        self.by = match self.kind {
            Kind::Atomic if own => {
                let (atomic, flags) = self.atomic().ok_or(BeginError::NotAvailable)?;
                let swaps = can.does(Atomic::CompareSwap(0, 0), AtomicFlags::empty());
                if key.is_some() && can.does(atomic, flags) {
                    By::Device
                } else if key.is_some() && swaps && has_word_around(remote, self.offset) {
                    By::Swaps
                } else {
                    return Err(BeginError::NotAvailable);
                }
            }
            Kind::Atomic => {
                let glob = can.atomics.contains(AtomicSupport::GLOB);
                let does = self.atomic().is_some_and(|(atomic, flags)| can.does(atomic, flags));
                if key.is_some() && glob && does { By::Device } else { By::Frames }
            }
            Kind::Put | Kind::Get => {
                let reach = if self.kind == Kind::Put { can.put } else { can.get };
                // What is not registered goes in pieces that need not be.
                let most = if self.has_region { u64::MAX } else { reach.local_registration.saturating_sub(1) };
                let piece = reach.limit.min(most) & !reach.alignment.wrapping_sub(1);
                let fits = self.local.as_contiguous().is_some_and(|(base, len)| {
                    let len = len as u64;
                    reach.takes(self.offset, base.addr() as u64, len.min(piece))
                        && reach.takes(0, 0, len % piece.max(1))
                });
                self.piece = piece;
                if key.is_some() && piece != 0 && fits { By::Device } else { By::Frames }
            }
        };
        Ok(())
    }

    /// What is to be done to the word.
    fn atomic(&self) -> Option<(Atomic, AtomicFlags)> {
        let compare = u64::from_le_bytes(self.compare);
        let atomic = Atomic::of_parts((self.which, self.operand, Some(compare)))?;
        Some((atomic, AtomicFlags::from_bits_retain(self.flags.into())))
    }

    /// The compare and swap that does the atomic, if the word of 64 bits is what it is guessed to be; with where that word is.
    fn swap(&self, atomic: Atomic, flags: AtomicFlags) -> (Atomic, u64) {
        if !flags.contains(AtomicFlags::BITS_32) {
            return (Atomic::CompareSwap(self.guess, atomic.of_word(self.guess, flags)), self.offset);
        }
        let becomes = u64::from(atomic.of_word(self.half(self.guess), flags) as u32);
        let others = self.guess & !(u64::from(u32::MAX) << self.shift());
        (Atomic::CompareSwap(self.guess, others | becomes << self.shift()), self.offset.wrapping_sub(self.within))
    }

    /// Where in its 64 bits a word of 32 lies: a device takes all of them for a number as its own host does.
    const fn shift(&self) -> u32 {
        if (self.within == 0) == self.is_big_endian { 32 } else { 0 }
    }

    fn half(&self, word: u64) -> u64 {
        (word >> self.shift()) & u64::from(u32::MAX)
    }

    /// The device did a piece, or looked at the word.
    pub(super) fn performed(&mut self, old: u64) {
        if self.kind != Kind::Atomic {
            return; // its bytes count since it was begun
        }
        if self.by == By::Swaps && old != self.guess {
            (self.guess, self.asked) = (old, 0); // somebody else was there first: once more
            return;
        }
        let is_32 = AtomicFlags::from_bits_retain(self.flags.into()).contains(AtomicFlags::BITS_32);
        let old = match (is_32, self.by) {
            (false, _) => old,
            (true, By::Swaps) => self.half(old),
            (true, _) => old & u64::from(u32::MAX),
        };
        (self.done, self.value) = (ATOMIC_LEN, old);
    }

    pub(super) fn refused(&mut self, error: NativeError) {
        match error {
            NativeError::Refused => (self.fate, self.denied) = (Fate::Denied, Denied::NoRight as u8),
            NativeError::NotAvailable => (self.fate, self.denied) = (Fate::Denied, Denied::NotAvailable as u8),
            NativeError::Busy | NativeError::Unreachable => self.fate = Fate::Lost,
        }
    }
}

/// Has the device do the next piece of an operation. Where it is not there, and has nothing of it in hand, the rest goes by frames.
pub(super) fn perform(state: &mut OperationState, handle: Handle, ways: &mut impl Ways) -> Result<(), SendError> {
    let Some(Way { rail, endpoint, .. }) = ways.device(Peer(state.peer)) else {
        let can_go_on = state.kind != Kind::Atomic && state.in_device == 0;
        state.by = if can_go_on { By::Frames } else { state.by };
        return if can_go_on { Ok(()) } else { Err(SendError::Unreachable) };
    };
    let mut offset = state.offset.wrapping_add(state.asked);
    let piece = state.local.window(state.asked, state.piece);
    let local = || {
        let (base, len) = piece.as_contiguous().unwrap_or((core::ptr::null_mut(), 0));
        Local { base, len: len as u64, region: state.has_region.then_some(state.region) }
    };
    let (work, bytes) = match state.kind {
        Kind::Put => (Work::Put(local()), piece.len()),
        Kind::Get => (Work::Get(local()), piece.len()),
        Kind::Atomic => {
            let Some((mut atomic, mut flags)) = state.atomic() else { return Err(SendError::Unreachable) };
            if state.by == By::Swaps {
                (atomic, offset) = state.swap(atomic, flags);
                flags = AtomicFlags::empty();
            }
            (Work::Atomic(atomic, flags), ATOMIC_LEN)
        }
    };
    let native = Native { work, key: state.key, offset };
    // SAFETY: who began the operation vouches for its memory until it is finished, which it is not before the device is done
    // with it, or before the peer is forgotten, when the rail is.
    match unsafe { rail.perform(endpoint, &native, Cookie(handle.to_bits() | COOKIE)) } {
        Ok(old) => {
            state.asked = state.asked.saturating_add(bytes);
            state.done = state.done.saturating_add(piece.len()); // as soon as the device has no more in hand
            match old {
                Some(old) => state.performed(old),
                None => state.in_device = state.in_device.saturating_add(1),
            }
        }
        Err(NativeError::Busy | NativeError::Unreachable) => return Err(SendError::Busy),
        // By one way at a time: when its link breaks, all that is under way is given up.
        Err(NativeError::NotAvailable) if state.in_device != 0 => return Err(SendError::Busy),
        // It knows better when it sees it, and nothing was done: by frames, then. Atomics that are the device's alone
        // are refused there.
        Err(NativeError::NotAvailable) if state.by == By::Device => state.by = By::Frames,
        Err(error) => state.refused(error),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::pool::Handle;

    #[test]
    fn b22_b36_a_short_word_is_the_half_that_it_is_at_the_target() {
        use crate::rail::atomics::AtomicOp;
        let flags = AtomicFlags::BITS_32;
        for (is_big_endian, within, shift) in [(false, 0, 0), (false, 4, 32), (true, 0, 32), (true, 4, 0)] {
            let guess = 0x1111_1111_2222_2222u64;
            let mut state = OperationState::new_zeroed();
            (state.guess, state.within, state.offset, state.is_big_endian) = (guess, within, 8 + within, is_big_endian);
            let (swap, at) = state.swap(Atomic::Op(AtomicOp::Add, 1), flags);
            assert_eq!((swap, at), (Atomic::CompareSwap(guess, guess + (1 << shift)), 8));
        }
    }

    #[test]
    fn b25_handles_of_absurd_length_do_not_overflow() {
        let memory = |base, len| RemoteMemory::new(Handle::NONE, base, len, 1, None);
        assert!(has_word_around(&memory(0x1000, 16), 12) && has_word_around(&memory(0x1000, 16), 8));
        assert!(!has_word_around(&memory(0x1000, 12), 8), "the word is cut short");
        assert!(!has_word_around(&memory(0x1004, 16), 0), "it begins before the memory");
        assert!(!has_word_around(&memory(0, u64::MAX), u64::MAX - 4), "it goes on behind the end of all");
        assert!(!has_word_around(&memory(0, 0), u64::MAX));
    }
}
