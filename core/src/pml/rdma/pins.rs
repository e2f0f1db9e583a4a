//! The registration cache: memory that is registered for messages, and kept registered for later ones.
//!
//! To register memory takes as long as to send some ten KiB of it, and many programs send from the same memory again and again. So
//! a registration without a user may stay ([`Config::kept_pins`](super::Config::kept_pins)); the one that was used last is dropped
//! last.
//!
//! A device knows pages, not the addresses that a program gives them: memory that was unmapped and mapped again is not the memory
//! that was registered. So an owner of kept registrations calls [`forget`](Pins::forget) before it unmaps memory. Memory that a
//! device may still access because a link went down is never kept.

use zerocopy::FromZeros;

use crate::arena::{Arena, OutOfMemory};
use crate::list::OptSlot;
use crate::pml::rails::Rails;
use crate::pool::Pool;
use crate::rail::DeviceMemory;
use crate::rail::native::{Key, Region};
use crate::rma::Access;

/// A registration.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
struct Pin {
    base: u64,
    len: u64,
    region: Region,
    /// The time of its last use, by `Pins::clock`.
    at: u64,
    /// Bits of [`Access`].
    access: u32,
    /// Pieces that use it.
    users: u32,
    rail: u8,
    /// The memory has changed, or may be accessed: the registration ends with its last user.
    stale: bool,
    key: [u8; 24],
}

impl Pin {
    const fn touches(&self, base: u64, len: u64) -> bool {
        self.base < base.saturating_add(len) && base < self.base.saturating_add(self.len)
    }
}

/// Names a registration, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromZeros)]
#[repr(transparent)]
pub(in crate::pml) struct Pinned(OptSlot);

impl Pinned {
    pub const NONE: Self = Self(OptSlot::NONE);

    pub fn is_some(self) -> bool {
        self.0.is_some()
    }
}

/// All registrations.
#[derive(Debug)]
pub(in crate::pml) struct Pins<'m> {
    pins: Pool<'m, Pin>,
    /// Registrations without a user: how many there are, and, as `kept`, how many there may be.
    idle: u32,
    kept: u32,
    clock: u64,
}

/// The memory to be registered.
#[derive(Clone, Copy, Debug)]
pub(in crate::pml) struct Wanted {
    pub rail: usize,
    pub base: *mut u8,
    pub len: u64,
    pub access: Access,
}

impl<'m> Pins<'m> {
    /// `used`: most registrations in use; `kept`: most registrations without a user.
    pub fn new(arena: &mut Arena<'m>, used: u32, kept: u32) -> Result<Self, OutOfMemory> {
        Ok(Self { pins: Pool::new(arena, used.saturating_add(kept))?, idle: 0, kept, clock: 0 })
    }

    pub const fn cost(used: u32, kept: u32) -> usize {
        Pool::<Pin>::cost(used.saturating_add(kept))
    }

    /// Registrations in use, and those without a user.
    pub const fn count(&self) -> [u32; 2] {
        [self.pins.used().saturating_sub(self.idle), self.idle]
    }

    /// Registers memory with a rail. Returns its name, and whether it was registered before. `None`: it cannot be registered.
    pub fn pin<R: Rails>(&mut self, rails: &mut R, wanted: &Wanted) -> Option<(Pinned, bool)> {
        self.clock = self.clock.wrapping_add(1);
        if let Some(slot) = self.find(wanted)
            && let Some(pin) = self.pins.at_mut(slot)
        {
            self.idle = self.idle.saturating_sub(u32::from(pin.users == 0));
            pin.users = pin.users.saturating_add(1);
            pin.at = self.clock;
            return Some((Pinned(OptSlot::some(slot)), true));
        }
        if self.pins.used() == self.pins.capacity() && !self.evict_oldest(rails) {
            return None;
        }
        let (region, Key(key)) = loop {
            let rail = rails.rail_mut(wanted.rail)?;
            // SAFETY: the caller that gave the engine the memory vouches for it until its request is over, and calls
            // `forget_memory` before it unmaps memory if registrations are kept.
            match unsafe { rail.register(wanted.base, usize::try_from(wanted.len).ok()?, wanted.access) } {
                Ok(registered) => break registered,
                // The rail may have no room because of a kept registration.
                Err(_) if self.evict_oldest(rails) => {}
                Err(_) => return None,
            }
        };
        let pin = Pin {
            base: wanted.base.addr() as u64,
            len: wanted.len,
            region,
            at: self.clock,
            access: wanted.access.bits(),
            users: 1,
            rail: wanted.rail as u8,
            stale: false,
            key,
        };
        match self.pins.take(pin) {
            Ok(handle) => Some((Pinned(OptSlot::some(handle.slot())), false)),
            Err(_) => {
                rails.rail_mut(wanted.rail)?.deregister(region);
                None
            }
        }
    }

    /// The rail's names of the registration, for this side and for peers.
    pub fn names(&self, pinned: Pinned) -> Option<(Region, Key)> {
        let pin = self.pins.at(pinned.0.get()?)?;
        Some((pin.region, Key(pin.key)))
    }

    /// One user less. The registration ends with the last one, unless it is kept.
    pub fn unpin<R: Rails>(&mut self, rails: &mut R, pinned: Pinned, keep: bool) {
        let Some(slot) = pinned.0.get() else { return };
        let Some(pin) = self.pins.at_mut(slot) else { return };
        pin.users = pin.users.saturating_sub(1);
        pin.stale |= !keep;
        if pin.users != 0 {
            return;
        }
        if pin.stale || self.kept == 0 {
            return self.deregister_pin(rails, slot);
        }
        self.idle = self.idle.saturating_add(1);
        if self.idle > self.kept {
            self.evict_oldest(rails);
        }
    }

    /// Memory is about to be unmapped: no registration of it is kept from now on.
    pub fn forget<R: Rails>(&mut self, rails: &mut R, base: *mut u8, len: u64) {
        for slot in 0..self.pins.touched() {
            let Some(pin) = self.pins.at_mut(slot).filter(|pin| pin.touches(base.addr() as u64, len)) else { continue };
            pin.stale = true;
            if pin.users == 0 {
                self.idle = self.idle.saturating_sub(1);
                self.deregister_pin(rails, slot);
            }
        }
    }

    fn find(&self, wanted: &Wanted) -> Option<u32> {
        let same = |pin: &Pin| {
            pin.base == wanted.base.addr() as u64
                && pin.len >= wanted.len
                && pin.rail as usize == wanted.rail
                && !pin.stale
                && Access::from_bits_retain(pin.access).contains(wanted.access)
                // An accelerator may have other memory at the same address.
                && (pin.access ^ wanted.access.bits()) & Access::ACCELERATOR.bits() == 0
        };
        // If none is kept, none is shared either: so peers reach no more than they were offered.
        let all = if self.kept == 0 { 0 } else { self.pins.touched() };
        (0..all).find(|slot| self.pins.at(*slot).is_some_and(same))
    }

    /// Drops the kept registration that was used longest ago. `false`: none is kept.
    fn evict_oldest<R: Rails>(&mut self, rails: &mut R) -> bool {
        let idle = (0..self.pins.touched()).filter_map(|slot| {
            let pin = self.pins.at(slot).filter(|pin| pin.users == 0)?;
            Some((self.clock.wrapping_sub(pin.at), slot))
        });
        let Some((_, slot)) = idle.max().filter(|_| self.idle != 0) else { return false };
        self.idle = self.idle.saturating_sub(1);
        self.deregister_pin(rails, slot);
        true
    }

    fn deregister_pin<R: Rails>(&mut self, rails: &mut R, slot: u32) {
        let Some(pin) = self.pins.handle(slot).and_then(|handle| self.pins.free(handle)) else { return };
        if let Some(rail) = rails.rail_mut(pin.rail as usize) {
            rail.deregister(pin.region);
        }
    }
}
