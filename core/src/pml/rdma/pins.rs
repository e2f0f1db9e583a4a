//! The registration cache: memory that is registered for messages, and kept registered for later ones.
//!
//! Registering memory takes as long as sending some ten KiB of it, and many programs send from the same memory repeatedly. So a
//! registration without a user may be kept ([`Config::kept_pins`](super::Config::kept_pins)). The least recently used one is
//! dropped first.
//!
//! A device uses physical pages. If an address is unmapped and mapped again, the old registration still names the old pages. So a
//! caller that keeps registrations calls [`forget`](Pins::forget) before it unmaps memory. A registration that a device may still
//! use because a link went down is never kept.

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
    /// The memory is about to be unmapped, or a device may still access it: the registration ends with its last user.
    stale: bool,
    key: [u8; 24],
}

impl Pin {
    const fn touches(&self, base: u64, len: u64) -> bool {
        self.base < base.saturating_add(len) && base < self.base.saturating_add(self.len)
    }
}

/// The handle of a registration, or of none.
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
    /// The number of registrations without a user.
    idle: u32,
    /// Most registrations without a user.
    kept: u32,
    /// Counts uses, to find the least recently used registration.
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

    /// None, in a build without devices.
    pub const fn none() -> Self {
        Self { pins: Pool::none(), idle: 0, kept: 0, clock: 0 }
    }

    pub const fn cost(used: u32, kept: u32) -> usize {
        Pool::<Pin>::cost(used.saturating_add(kept))
    }

    /// The number of registrations in use, and of those without a user.
    pub const fn count(&self) -> [u32; 2] {
        [self.pins.used().saturating_sub(self.idle), self.idle]
    }

    /// Registers memory with a rail. Returns the handle, and whether the memory was registered before. `None`: it cannot be
    /// registered.
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
            // SAFETY: the caller that passed the memory to the engine guarantees that it is valid until its request is over, and
            // calls `forget_memory` before it unmaps memory if registrations are kept.
            match unsafe { rail.register(wanted.base, usize::try_from(wanted.len).ok()?, wanted.access) } {
                Ok(registered) => break registered,
                // The rail may have no room for another registration because some are kept.
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

    /// The rail's names of a registration: the region for this side, the key for peers.
    pub fn names(&self, pinned: Pinned) -> Option<(Region, Key)> {
        let pin = self.pins.at(pinned.0.get()?)?;
        Some((pin.region, Key(pin.key)))
    }

    /// Takes a user from a registration. Without a user it ends, unless it is kept. `keep`: it may be kept, since no device
    /// accesses the memory any more.
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

    /// Ends the kept registrations of memory that is about to be unmapped. Those in use end with their last user.
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

    /// A registration that covers the wanted memory.
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
        // If no registration is kept, none is shared either. So peers reach only the memory that was offered to them.
        let all = if self.kept == 0 { 0 } else { self.pins.touched() };
        (0..all).find(|slot| self.pins.at(*slot).is_some_and(same))
    }

    /// Drops the least recently used of the kept registrations. `false`: none is kept.
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
