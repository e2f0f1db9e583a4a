//! Registered memory: the rights of peers to it, and the operations that use it now.

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

/// The handle of registered memory for its owner. It is valid until the memory is deregistered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Registration(pub(super) Handle);

impl Registration {
    /// The handle as one word, which is never 0. For callers that keep words.
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The handle from the result of [`to_bits`](Self::to_bits). Any other word is a stale handle.
    pub const fn from_bits(bits: u64) -> Self {
        Self(Handle::from_bits(bits))
    }
}

/// The registration of memory with a rail's device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registered {
    pub region: DeviceRegion,
    /// The key for peers, if they may access the memory by the device.
    pub key: Option<Key>,
    /// All atomics on the memory are done by the device.
    pub owns_atomics: bool,
}

/// Memory was registered for one peer, and this peer was removed or lost. Another peer may get its number, so no peer has
/// rights any more.
const REVOKED: u32 = u32::MAX;

#[derive(Clone, Copy, FromZeros, Debug)]
pub(super) struct Region {
    pub memory: Span,
    pub access: u32,
    /// Number of the only peer that has rights, plus one; 0: all peers have rights; [`REVOKED`].
    pub only: u32,
    /// Operations that use the memory now.
    pub uses: u32,
    /// [`HAS_REGION`] and the other flags below.
    flags: u32,
    region: DeviceRegion,
    key: Key,
}

/// The memory is registered with a rail's device.
const HAS_REGION: u32 = 1;
/// The rail has returned a key for peers.
const HAS_KEY: u32 = 2;
/// All atomics on the memory are done by the device.
const OWNS_ATOMICS: u32 = 4;
/// The owner deregisters the memory: no new operation may use it.
const CLOSED: u32 = 8;
/// The memory was exposed: peers may read it by single copy.
const EXPOSED: u32 = 16;

impl Region {
    /// The registration with a rail's device, if there is one.
    pub const fn native(&self) -> Option<Registered> {
        if self.flags & HAS_REGION == 0 {
            return None;
        }
        let key = if self.flags & HAS_KEY == 0 { None } else { Some(self.key) };
        Some(Registered { region: self.region, key, owns_atomics: self.owns_atomics() })
    }

    /// Whether all atomics on the memory are done by the device.
    pub const fn owns_atomics(&self) -> bool {
        self.flags & OWNS_ATOMICS != 0
    }

    /// Whether peers may read the memory by single copy.
    pub const fn is_exposed(&self) -> bool {
        self.flags & EXPOSED != 0
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

    /// None, in a build without one-sided operations.
    pub const fn none() -> Self {
        Self { regions: Pool::none() }
    }

    pub const fn cost(count: u32) -> usize {
        Pool::<Region>::cost(count)
    }

    pub fn register(&mut self, memory: Span, access: Access, only: Option<Peer>) -> Option<Handle> {
        let only = only.map_or(0, |peer| peer.0.wrapping_add(1));
        self.regions.take(Region { memory, access: access.bits(), only, ..Region::new_zeroed() }).ok()
    }

    /// Notes that memory is registered with a rail's device, too.
    pub fn set_native(&mut self, handle: Handle, native: Registered) {
        if let Some(region) = self.regions.get_mut(handle) {
            let key_flag = if native.key.is_some() { HAS_KEY } else { 0 };
            let atomics_flag = if native.owns_atomics { OWNS_ATOMICS } else { 0 };
            (region.region, region.flags) = (native.region, HAS_REGION | key_flag | atomics_flag);
            region.key = native.key.unwrap_or(region.key);
        }
    }

    /// Ends a registration. Returns the region, so that the caller can deregister it with the rail. While operations use the
    /// memory, this returns an error: these operations go on, no other operation begins, and the caller has to try again.
    pub fn deregister(&mut self, handle: Handle) -> Result<Region, DeregisterError> {
        let region = self.regions.get_mut(handle).ok_or(DeregisterError::Stale)?;
        region.flags |= CLOSED;
        if region.uses != 0 {
            return Err(DeregisterError::InUse);
        }
        self.regions.free(handle).ok_or(DeregisterError::Stale)
    }

    /// A region on which operations may begin.
    pub fn get(&self, handle: Handle) -> Option<&Region> {
        self.regions.get(handle).filter(|region| region.flags & CLOSED == 0)
    }

    /// Whether all atomics on a region are done by the device.
    pub fn owns_atomics(&self, memory: u64) -> bool {
        self.regions.get(Handle::from_bits(memory)).is_some_and(Region::owns_atomics)
    }

    /// The part of a region that a peer's request names, if the peer has the right to access it.
    pub fn check_access(&self, request: AccessRequest) -> Result<Span, Denied> {
        let region = self.get(Handle::from_bits(request.memory)).ok_or(Denied::NoMemory)?;
        let is_for_peer = region.only == 0 || region.only == request.peer.0.wrapping_add(1);
        if !is_for_peer || !Access::from_bits_retain(region.access).contains(request.access) {
            return Err(Denied::NoRight);
        }
        let end = request.offset.checked_add(request.len).ok_or(Denied::OutOfBounds)?;
        if end > region.memory.len() {
            return Err(Denied::OutOfBounds);
        }
        // Only devices reach memory of an accelerator.
        if Access::from_bits_retain(region.access).contains(Access::ACCELERATOR) {
            return Err(Denied::NotAvailable);
        }
        Ok(region.memory.window(request.offset, request.len))
    }

    /// The same request, for the registration in which its memory lies, if it names none: then its offset is an address. Among
    /// several, one that the peer has the right to access.
    pub fn locate(&self, request: AccessRequest) -> AccessRequest {
        if request.memory != 0 {
            return request;
        }
        let in_region = |slot| {
            let handle = self.regions.handle(slot)?;
            let region = self.get(handle)?;
            let is_device = request.access.contains(Access::REMOTE_ATOMIC) && region.owns_atomics();
            let (base, _) = region.memory.as_contiguous().filter(|_| !is_device)?;
            let offset = request.offset.wrapping_sub(base.addr() as u64);
            let found = AccessRequest { memory: handle.to_bits(), offset, ..request };
            self.check_access(found).is_ok().then_some(found)
        };
        (0..self.regions.touched()).find_map(in_region).unwrap_or(request)
    }

    /// A peer was removed or lost: memory that was registered for it alone is closed to all peers.
    pub fn revoke(&mut self, peer: Peer) {
        for slot in 0..self.regions.touched() {
            if let Some(region) = self.regions.at_mut(slot).filter(|region| region.only == peer.0.wrapping_add(1)) {
                region.only = REVOKED;
            }
        }
    }

    /// Notes that peers may read a region by single copy from now on.
    pub fn expose(&mut self, handle: Handle) {
        if let Some(region) = self.regions.get_mut(handle) {
            region.flags |= EXPOSED;
        }
    }

    /// An operation uses a region from now on.
    pub fn hold(&mut self, handle: Handle) {
        if let Some(region) = self.regions.get_mut(handle) {
            region.uses = region.uses.saturating_add(1);
        }
    }

    /// An operation does not use a region any more.
    pub fn release(&mut self, handle: Handle) {
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

/// The memory that a request names, and the right that it needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct AccessRequest {
    pub peer: Peer,
    /// Slot and generation, from the request; 0 if it names no registration.
    pub memory: u64,
    /// Where the bytes begin in the registration. If none is named, their address.
    pub offset: u64,
    pub len: u64,
    pub access: Access,
}

/// Why memory was not deregistered.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum DeregisterError {
    /// The memory was deregistered before.
    Stale,
    /// An operation uses the memory: one of this side, or a put of a peer whose bytes are arriving.
    InUse,
}

impl DeregisterError {
    /// The side that has to act.
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
            Self::Stale => "the memory was deregistered before: deregister it once",
            Self::InUse => "an operation uses the memory: make progress and try again",
        })
    }
}

impl core::error::Error for DeregisterError {}

crate::debug_as_display!(DeregisterError);
