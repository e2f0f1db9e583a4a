//! Memory that was registered: what may be done to it, by whom, and whether anybody is at it.

use core::fmt;

use zerocopy::FromZeros;

use super::errors::Denied;
use crate::arena::{Arena, OutOfMemory};
use crate::convertor::Span;
use crate::error::Blame;
use crate::pool::{Handle, Pool};
use crate::rail::Peer;
use crate::rail::access::Access;
use crate::rail::native::{Key, Region as DeviceRegion};

/// Registered memory, for its owner: good until it is deregistered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Registration(pub(super) Handle);

/// Memory that is registered with a rail, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registered {
    pub region: DeviceRegion,
    /// What peers need, where they may use it.
    pub key: Option<Key>,
    /// Atomics on it are the device's alone.
    pub owns_atomics: bool,
}

/// The only peer that might is gone, and another may have its number.
const NOBODY: u32 = u32::MAX;

#[derive(Clone, Copy, FromZeros, Debug)]
pub(super) struct Region {
    pub memory: Span,
    pub access: u32,
    /// Number of the only peer that may, plus one; 0: any; [`NOBODY`].
    pub only: u32,
    /// Operations that are at it.
    pub uses: u32,
    /// A rail has it, too: [`HAS_REGION`] and the like; [`CLOSED`].
    marks: u32,
    region: DeviceRegion,
    key: Key,
}

const HAS_REGION: u32 = 1;
const HAS_KEY: u32 = 2;
const OWNS_ATOMICS: u32 = 4;
/// Its owner wants it back: nothing new may be done to it.
const CLOSED: u32 = 8;
/// Peers may fetch from it.
const LENT: u32 = 16;

impl Region {
    /// How a rail has it.
    pub const fn native(&self) -> Option<Registered> {
        if self.marks & HAS_REGION == 0 {
            return None;
        }
        let key = if self.marks & HAS_KEY == 0 { None } else { Some(self.key) };
        Some(Registered { region: self.region, key, owns_atomics: self.owns_atomics() })
    }

    /// Whether atomics on it are a device's alone.
    pub const fn owns_atomics(&self) -> bool {
        self.marks & OWNS_ATOMICS != 0
    }

    /// Whether peers may fetch from it.
    pub const fn was_lent(&self) -> bool {
        self.marks & LENT != 0
    }
}

#[derive(Debug)]
pub(super) struct Registry<'m> {
    regions: Pool<'m, Region>,
}

impl<'m> Registry<'m> {
    pub fn new(arena: &mut Arena<'m>, count: u32) -> Result<Self, OutOfMemory> {
        Ok(Self { regions: Pool::new(arena, count)? })
    }

    pub const fn cost(count: u32) -> usize {
        Pool::<Region>::cost(count)
    }

    pub fn register(&mut self, memory: Span, access: Access, only: Option<Peer>) -> Option<Handle> {
        let only = only.map_or(0, |peer| peer.0.wrapping_add(1));
        self.regions.take(Region { memory, access: access.bits(), only, ..Region::new_zeroed() }).ok()
    }

    /// A rail has it, too.
    pub fn keep(&mut self, handle: Handle, native: Registered) {
        if let Some(region) = self.regions.get_mut(handle) {
            let of_key = if native.key.is_some() { HAS_KEY } else { 0 };
            let of_atomics = if native.owns_atomics { OWNS_ATOMICS } else { 0 };
            (region.region, region.marks) = (native.region, HAS_REGION | of_key | of_atomics);
            region.key = native.key.unwrap_or(region.key);
        }
    }

    /// Tells what it was, to be taken back where a rail has it. What is at it goes on, and nothing else begins.
    pub fn deregister(&mut self, handle: Handle) -> Result<Region, DeregisterError> {
        let region = self.regions.get_mut(handle).ok_or(DeregisterError::Stale)?;
        region.marks |= CLOSED;
        if region.uses != 0 {
            return Err(DeregisterError::InUse);
        }
        self.regions.free(handle).ok_or(DeregisterError::Stale)
    }

    /// A region that operations may begin at.
    pub fn get(&self, handle: Handle) -> Option<&Region> {
        self.regions.get(handle).filter(|region| region.marks & CLOSED == 0)
    }

    /// Whether atomics on a region are a device's alone.
    pub fn owns_atomics(&self, memory: u64) -> bool {
        self.regions.get(Handle::from_bits(memory)).is_some_and(Region::owns_atomics)
    }

    /// The part of a region that a peer asks for, if it may have it.
    pub fn window(&self, asked: Asked) -> Result<Span, Denied> {
        let region = self.get(Handle::from_bits(asked.memory)).ok_or(Denied::NoMemory)?;
        let anybody = region.only == 0 || region.only == asked.peer.0.wrapping_add(1);
        if !anybody || !Access::from_bits_retain(region.access).contains(asked.access) {
            return Err(Denied::NoRight);
        }
        let end = asked.offset.checked_add(asked.len).ok_or(Denied::OutOfBounds)?;
        if end > region.memory.len() {
            return Err(Denied::OutOfBounds);
        }
        // Devices reach it, and no processor.
        if Access::from_bits_retain(region.access).contains(Access::ACCELERATOR) {
            return Err(Denied::NotAvailable);
        }
        Ok(region.memory.window(asked.offset, asked.len))
    }

    /// A peer is gone: what was for it alone is for nobody.
    pub fn revoke(&mut self, peer: Peer) {
        for slot in 0..self.regions.touched() {
            if let Some(region) = self.regions.at_mut(slot).filter(|region| region.only == peer.0.wrapping_add(1)) {
                region.only = NOBODY;
            }
        }
    }

    /// Peers may fetch from a region from now on.
    pub fn expose(&mut self, handle: Handle) {
        if let Some(region) = self.regions.get_mut(handle) {
            region.marks |= LENT;
        }
    }

    /// Somebody is at a region from now on.
    pub fn hold(&mut self, handle: Handle) {
        if let Some(region) = self.regions.get_mut(handle) {
            region.uses = region.uses.saturating_add(1);
        }
    }

    /// Somebody is no longer at it.
    pub fn let_go(&mut self, handle: Handle) {
        if let Some(region) = self.regions.get_mut(handle) {
            region.uses = region.uses.saturating_sub(1);
        }
    }

    pub const fn used(&self) -> u32 {
        self.regions.used()
    }

    pub const fn capacity(&self) -> u32 {
        self.regions.capacity()
    }
}

/// What a peer wants to do, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub peer: Peer,
    /// Slot and generation, as the peer has them.
    pub memory: u64,
    pub offset: u64,
    pub len: u64,
    pub access: Access,
}

/// Memory was not deregistered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum DeregisterError {
    /// It was deregistered before.
    Stale,
    /// An operation is at it: one of this side's, or a put of a peer's whose bytes are coming in.
    InUse,
}

impl DeregisterError {
    /// Who has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Stale => Blame::Caller,
            Self::InUse => Blame::Resource,
        }
    }
}

impl fmt::Display for DeregisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => "the memory was deregistered before",
            Self::InUse => "an operation is at the memory: make progress and try again",
        })
    }
}

impl core::error::Error for DeregisterError {}
