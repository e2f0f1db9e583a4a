//! Operations of a rail's device: the choice between device and frames, and the end of operations that a device does.
//!
//! The device does a put or a get whenever its limits allow that. For atomics, all mechanisms that are used on the same memory
//! have to agree with each other. If the device's atomics agree with the processor's (`GLOB`), the device does the atomics that
//! it has, and the processor does the others. Otherwise the device does all atomics on memory that is registered for atomics:
//! the handle of the memory says so, and the target denies atomics that come in frames. An atomic that the device does not have
//! is then a loop of its compare and swap.

use super::errors::{BeginError, Denied};
use super::handle::RemoteMemory;
use super::operation::{ATOMIC_LEN, Kind, Method, OperationState, Status};
use super::registry::Registered;
use super::routes::{RMA_COOKIE, Route, Routes};
use crate::convertor::Span;
use crate::pool::Handle;
use crate::rail::access::Access;
use crate::rail::atomics::{Atomic, AtomicFlags, AtomicSupport};
use crate::rail::native::{Key, Local, Native, NativeError, OneSided, Work};
use crate::rail::{Cookie, DeviceMemory, FullRail, Peer, SendError};

/// Registers memory with a rail whose device has operations. If the rail does not take the memory, operations on it are emulated.
/// A device does not check which peer accesses the memory, so memory that is registered for one peer has no key.
pub(super) fn register<R: FullRail>(
    rail: &mut R,
    memory: &Span,
    access: Access,
    only: Option<Peer>,
) -> Option<Registered> {
    let is_accelerators = access.contains(Access::ACCELERATOR);
    let can = rail.attributes().reach(is_accelerators);
    // Peers do not see that the memory is an accelerator's. So the memory is registered without the rights for operations that
    // the device cannot do on an accelerator.
    let may = |done: bool, right: Access| if is_accelerators && !done { right } else { Access::empty() };
    let access = access - may(can.put.limit != 0, Access::REMOTE_WRITE) - may(can.get.limit != 0, Access::REMOTE_READ);
    let access = access - may(false, Access::REMOTE_ATOMIC);
    let (base, len) = memory.as_contiguous().filter(|(_, len)| *len != 0 && can.any())?;
    let access = if only.is_some() { access & (Access::LOCAL_WRITE | Access::ACCELERATOR) } else { access };
    // SAFETY: the caller of `register` vouches for the memory.
    let (region, key) = unsafe { rail.register(base, len, access) }.ok()?;
    let owns_atomics = only.is_none() && access.contains(Access::REMOTE_ATOMIC) && device_owns(can.atomics);
    Some(Registered { region, key: only.is_none().then_some(key), owns_atomics })
}

/// Whether the device has to do all atomics on memory: its atomics do not agree with the processor's, and it has compare and
/// swap, with which all others can be done.
pub(crate) const fn device_owns(atomics: AtomicSupport) -> bool {
    atomics.contains(AtomicSupport::CSWAP) && !atomics.contains(AtomicSupport::GLOB)
}

/// Whether the aligned 64-bit word around an offset lies in the memory. The handle comes from a peer, so its length may have
/// any value.
fn has_word_around(remote: &RemoteMemory, offset: u64) -> bool {
    let word_offset = remote.base().wrapping_add(offset) & 7;
    offset.checked_sub(word_offset).is_some_and(|begin| remote.len().checked_sub(begin).is_some_and(|left| left >= 8))
}

impl OperationState {
    /// Chooses the mechanism that does the operation. The choice depends on the operations that the rail's device has, and on
    /// the handle of the memory.
    pub(super) fn choose_method(&mut self, can: &OneSided, remote: &RemoteMemory) -> Result<(), BeginError> {
        let key = remote.key().filter(|_| can.any());
        self.key = key.unwrap_or(self.key);
        self.method = match self.kind {
            Kind::Atomic if remote.owns_atomics() => self.device_atomic_method(can, remote, key)?,
            Kind::Atomic => {
                let glob = can.atomics.contains(AtomicSupport::GLOB);
                let does = self.atomic().is_some_and(|(atomic, flags)| can.does(atomic, flags));
                if key.is_some() && glob && does { Method::Device } else { Method::Frames }
            }
            Kind::Put | Kind::Get => self.copy_method(can, key),
        };
        Ok(())
    }

    /// The method of an atomic on memory where the device does all atomics.
    fn device_atomic_method(
        &self,
        can: &OneSided,
        remote: &RemoteMemory,
        key: Option<Key>,
    ) -> Result<Method, BeginError> {
        let (atomic, flags) = self.atomic().ok_or(BeginError::NotAvailable)?;
        let swaps = can.does(Atomic::CompareSwap(0, 0), AtomicFlags::empty());
        if key.is_some() && can.does(atomic, flags) {
            Ok(Method::Device)
        } else if key.is_some() && swaps && has_word_around(remote, self.offset) {
            Ok(Method::CompareSwap)
        } else {
            Err(BeginError::NotAvailable)
        }
    }

    /// The method of a put or a get. Sets the length of the pieces that the device gets.
    fn copy_method(&mut self, can: &OneSided, key: Option<Key>) -> Method {
        let reach = if self.kind == Kind::Put { can.put } else { can.get };
        // Local memory that is not registered goes in pieces that are short enough to need no registration.
        let most = if self.has_region { u64::MAX } else { reach.local_registration.saturating_sub(1) };
        let piece = reach.limit.min(most) & !reach.alignment.wrapping_sub(1);
        let fits = self.local.as_contiguous().is_some_and(|(base, len)| {
            let len = len as u64;
            reach.takes(self.offset, base.addr() as u64, len.min(piece)) && reach.takes(0, 0, len % piece.max(1))
        });
        self.piece = piece;
        if key.is_some() && piece != 0 && fits { Method::Device } else { Method::Frames }
    }

    /// The atomic operation, with its flags.
    fn atomic(&self) -> Option<(Atomic, AtomicFlags)> {
        let compare = u64::from_le_bytes(self.compare);
        let atomic = Atomic::of_parts((self.op_code, self.operand, Some(compare)))?;
        Some((atomic, AtomicFlags::from_bits_retain(self.flags.into())))
    }

    /// The compare and swap that stands for an atomic, and the offset of its 64-bit word. It takes effect if the word has the
    /// expected value.
    fn compare_swap(&self, atomic: Atomic, flags: AtomicFlags) -> (Atomic, u64) {
        if !flags.contains(AtomicFlags::BITS_32) {
            return (Atomic::CompareSwap(self.expected, atomic.of_word(self.expected, flags)), self.offset);
        }
        let new = u64::from(atomic.of_word(self.half(self.expected), flags) as u32);
        let other_half = self.expected & !(u64::from(u32::MAX) << self.shift());
        let offset = self.offset.wrapping_sub(self.word_offset);
        (Atomic::CompareSwap(self.expected, other_half | new << self.shift()), offset)
    }

    /// The position of a 32-bit word in its 64-bit word, in bits: a device reads the 64-bit word in the byte order of its own
    /// host.
    const fn shift(&self) -> u32 {
        if (self.word_offset == 0) == self.is_big_endian { 32 } else { 0 }
    }

    fn half(&self, word: u64) -> u64 {
        (word >> self.shift()) & u64::from(u32::MAX)
    }

    /// The device has done a piece, or has compared the word. `old` is the value that it found.
    pub(super) fn on_device_done(&mut self, old: u64) {
        if self.kind != Kind::Atomic {
            return; // the bytes of the piece were counted when it was posted
        }
        if self.method == Method::CompareSwap && old != self.expected {
            (self.expected, self.requested) = (old, 0); // the word has changed meanwhile: try again with the new value
            return;
        }
        let is_32 = AtomicFlags::from_bits_retain(self.flags.into()).contains(AtomicFlags::BITS_32);
        let old = match (is_32, self.method) {
            (false, _) => old,
            (true, Method::CompareSwap) => self.half(old),
            (true, _) => old & u64::from(u32::MAX),
        };
        (self.done, self.value) = (ATOMIC_LEN, old);
    }

    /// The device has refused a piece, or has failed to do it.
    pub(super) fn on_device_error(&mut self, error: NativeError) {
        match error {
            NativeError::Refused => (self.status, self.denied) = (Status::Denied, Denied::NoRight as u8),
            NativeError::NotAvailable => (self.status, self.denied) = (Status::Denied, Denied::NotAvailable as u8),
            NativeError::Busy | NativeError::Unreachable => self.status = Status::Lost,
        }
    }
}

/// Gives the next piece of an operation to the device. If no device reaches the peer now, and none has a piece of the
/// operation, the rest of a put or get goes in frames.
pub(super) fn post(state: &mut OperationState, handle: Handle, routes: &mut impl Routes) -> Result<(), SendError> {
    let Some(Route { rail, endpoint, .. }) = routes.device_route(Peer(state.peer)) else {
        let can_go_on = state.kind != Kind::Atomic && state.in_device == 0;
        state.method = if can_go_on { Method::Frames } else { state.method };
        return if can_go_on { Ok(()) } else { Err(SendError::Unreachable) };
    };
    let mut offset = state.offset.wrapping_add(state.requested);
    let piece = state.local.window(state.requested, state.piece);
    let local = || {
        let (base, len) = piece.as_contiguous().unwrap_or((core::ptr::null_mut(), 0));
        Local { base, len: len as u64, region: state.has_region.then_some(state.region) }
    };
    let (work, bytes) = match state.kind {
        Kind::Put => (Work::Put(local()), piece.len()),
        Kind::Get => (Work::Get(local()), piece.len()),
        Kind::Atomic => {
            let Some((mut atomic, mut flags)) = state.atomic() else { return Err(SendError::Unreachable) };
            if state.method == Method::CompareSwap {
                (atomic, offset) = state.compare_swap(atomic, flags);
                flags = AtomicFlags::empty();
            }
            (Work::Atomic(atomic, flags), ATOMIC_LEN)
        }
    };
    let native = Native { work, key: state.key, offset };
    // SAFETY: the caller of `begin` vouches for the memory until the operation is finished. It is not finished before the
    // device is done with the memory, unless the peer is forgotten, and then the rail is done with the memory.
    match unsafe { rail.perform(endpoint, &native, Cookie(handle.to_bits() | RMA_COOKIE)) } {
        Ok(old) => {
            state.requested = state.requested.saturating_add(bytes);
            // The piece counts as done already, but the operation does not end while `in_device` counts a piece.
            state.done = state.done.saturating_add(piece.len());
            match old {
                Some(old) => state.on_device_done(old),
                None => state.in_device = state.in_device.saturating_add(1),
            }
        }
        Err(NativeError::Busy | NativeError::Unreachable) => return Err(SendError::Busy),
        // An operation does not use device and frames at the same time: if the device's link goes down, all of its pieces in
        // flight end as lost.
        Err(NativeError::NotAvailable) if state.in_device != 0 => return Err(SendError::Busy),
        // The device has limits that its attributes do not state. It has done nothing, so the operation goes in frames. If only
        // the device may do the atomic, the target denies those frames.
        Err(NativeError::NotAvailable) if state.method == Method::Device => state.method = Method::Frames,
        Err(error) => state.on_device_error(error),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::pool::Handle;

    #[test]
    fn b22_b36_a_32_bit_word_is_placed_by_the_byte_order_of_the_target() {
        use crate::rail::atomics::AtomicOp;
        let flags = AtomicFlags::BITS_32;
        for (is_big_endian, word_offset, shift) in [(false, 0, 0), (false, 4, 32), (true, 0, 32), (true, 4, 0)] {
            let expected = 0x1111_1111_2222_2222u64;
            let mut state = OperationState::new_zeroed();
            (state.expected, state.word_offset) = (expected, word_offset);
            (state.offset, state.is_big_endian) = (8 + word_offset, is_big_endian);
            let (swap, at) = state.compare_swap(Atomic::Op(AtomicOp::Add, 1), flags);
            assert_eq!((swap, at), (Atomic::CompareSwap(expected, expected + (1 << shift)), 8));
        }
    }

    #[test]
    fn b25_handles_of_absurd_length_do_not_overflow() {
        let memory = |base, len| RemoteMemory::new(Handle::NONE, base, len, 1, None);
        assert!(has_word_around(&memory(0x1000, 16), 12) && has_word_around(&memory(0x1000, 16), 8));
        assert!(!has_word_around(&memory(0x1000, 12), 8), "the word is cut short");
        assert!(!has_word_around(&memory(0x1004, 16), 0), "it begins before the memory");
        assert!(!has_word_around(&memory(0, u64::MAX), u64::MAX - 4), "it reaches beyond the end of all memory");
        assert!(!has_word_around(&memory(0, 0), u64::MAX));
    }
}
