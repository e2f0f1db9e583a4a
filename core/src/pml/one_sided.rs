//! One-sided operations ([`rma`](crate::rma)) over the rails of the engine.
//!
//! Frames of one-sided operations take any rail, as other frames do. Rails and links deliver each frame once, even if a link goes
//! down, so the target executes no request twice.
//!
//! - A rail that [maps the memory of peers](OneSided::mixes_at_once) completes the operations that it supports immediately
//!   ([`Pml::at_once`]). All other operations are begun ([`Pml::begin`]) and use frames, even to the same memory.
//! - If no rail maps memory and [`Config::windows`](crate::pml::rdma::Config::windows) is set, puts and gets use the device of
//!   the first rail that has one. The target's processor executes all atomics, so that they stay atomic to peers that are reached
//!   by another rail, such as the process itself.
//! - A handle contains the key of one rail only. If that rail maps memory, operations beyond its reach use frames.
//!
//! If a link goes down while its device executes an operation, it is unknown whether the operation was done. It ends with
//! [`Failure::Lost`](rma::Failure::Lost), even if other links to the peer are in use. Later operations take the other links.

use crate::convertor::Span;
use crate::pml::engine::Pml;
use crate::pml::peers::flags::LINKED;
use crate::pml::peers::link::PeerLink;
use crate::pml::peers::state::{PeerState, PeerStatus};
use crate::pml::rails::Rails;
use crate::pml::stall::liveness::HEARD;
use crate::rail::native::{NativeError, OneSided};
use crate::rail::{Attributes, Cookie, Endpoint, Frame, Peer, Rail, SingleCopy};
use crate::rma;
use crate::rma::{
    Access, BeginError, DeregisterError, Finished, Operation, Registration, RemoteMemory, Route, Routes, Transfer,
};

/// The links to all peers, used in turn: a link that is not connected yet has no room, and may stay so for long.
struct Links<'a, R> {
    rails: &'a mut R,
    peers: &'a [PeerState],
    links: &'a [PeerLink],
    turn: u32,
    devices: bool,
}

impl<R: Rails> Routes for Links<'_, R> {
    type Rail = R::Rail;

    fn route(&mut self, to: Peer) -> Option<Route<'_, R::Rail>> {
        let peer = self.peers.get(to.0 as usize).filter(|peer| peer.status == PeerStatus::Up)?;
        let count = self.rails.count();
        let start = (to.0 as usize).wrapping_mul(count);
        let row = self.links.get(start..start.wrapping_add(count))?;
        let place = self.turn.checked_rem(peer.route.links.into())?;
        let link = row.get(place as usize)?;
        let (mut eager, mut longest) = (u32::MAX, u32::MAX);
        // Any link may have to carry the frame in the end.
        let may_carry = |other: &&PeerLink| other.rail == link.rail || (peer.has(LINKED) && other.bandwidth != 0);
        for other in row.iter().filter(may_carry) {
            let attributes = self.rails.rail(other.rail as usize)?.attributes();
            eager = eager.min(attributes.eager_limit);
            longest = longest.min(attributes.max_send_size);
        }
        let rail = self.rails.rail_mut(link.rail as usize)?;
        Some(Route { rail, endpoint: Endpoint(link.endpoint), eager, longest, one_sided: OneSided::NONE })
    }

    fn device_route(&mut self, to: Peer) -> Option<Route<'_, R::Rail>> {
        let (index, maps) = reaching(self.rails, self.devices)?;
        let peer = self.peers.get(to.0 as usize).filter(|peer| peer.status == PeerStatus::Up && !maps)?;
        let start = (to.0 as usize).wrapping_mul(self.rails.count());
        let row = self.links.get(start..start.wrapping_add(peer.route.links.into()))?;
        let endpoint = Endpoint(row.iter().find(|link| link.is_of(index))?.endpoint);
        let rail = self.rails.rail_mut(index)?;
        let Attributes { eager_limit: eager, max_send_size: longest, one_sided, .. } = *rail.attributes();
        Some(Route { rail, endpoint, eager, longest, one_sided })
    }
}

/// The rail by which peers access memory of this side, and whether the rail maps the memory. If it does not, its device executes
/// the operations that it supports; `devices` says whether devices may be used.
pub(super) fn reaching<R: Rails>(rails: &R, devices: bool) -> Option<(usize, bool)> {
    let find = |able: fn(&OneSided) -> bool| {
        (0..rails.count()).find(|index| rails.rail(*index).is_some_and(|rail| able(&rail.attributes().one_sided)))
    };
    let maps = find(OneSided::mixes_at_once).map(|index| (index, true));
    maps.or_else(|| Some((find(|can| can.any() && !can.at_once).filter(|_| devices)?, false)))
}

/// The rail of [`reaching`], and the rights that peers get through it.
fn registrar<R: Rails>(rails: &mut R, devices: bool) -> Option<(&mut R::Rail, Access)> {
    let (index, maps) = reaching(rails, devices)?;
    let access = if maps { Access::all() } else { Access::all() - Access::REMOTE_ATOMIC };
    Some((rails.rail_mut(index)?, access))
}

impl<R: Rails> Pml<'_, R> {
    /// Registers `len` bytes of memory with the rights `access`, for the peer `only` or for all peers: see [`rma`]. `None` if
    /// [`Config::rma`](crate::pml::Config::rma) has no slot left.
    ///
    /// # Safety
    /// Until it is deregistered, or the engine has ended, the memory is readable and writable. All code that accesses it expects
    /// accesses of peers at any time: the only references to it are to atomics.
    pub unsafe fn register(
        &mut self,
        base: *mut u8,
        len: usize,
        access: Access,
        only: Option<Peer>,
    ) -> Option<Registration> {
        let Self { rma, rails, config, .. } = self;
        rma.register(registrar(rails, config.rdma.windows), Span::contiguous(base, len), access, only)
    }

    /// Ends a registration: operations of peers on the memory are denied from now on.
    ///
    /// # Errors
    /// [`DeregisterError`]: the memory was deregistered before, or an operation still uses it.
    pub fn deregister(&mut self, registration: Registration) -> Result<(), DeregisterError> {
        let Self { rma, rails, config, .. } = self;
        if rma.deregister(registrar(rails, config.rdma.windows).map(|(rail, _)| rail), registration)? {
            (0..rails.count()).filter_map(|index| rails.rail_mut(index).map(SingleCopy::revoke_exposed)).count();
        }
        Ok(())
    }

    /// The handle by which peers access registered memory. `None` if it was deregistered.
    pub fn remote_memory(&self, registration: Registration) -> Option<RemoteMemory> {
        self.rma.remote(registration)
    }

    /// Executes an operation on memory of a peer that a rail has mapped, from byte `offset` on. The operation is over when this
    /// returns. Returns the old word of an atomic, else 0. `None`: nothing was done; use [`begin`](Self::begin).
    ///
    /// # Safety
    /// Until this returns, local memory is readable for a put. For a get it is writable, and no other code uses it.
    pub unsafe fn at_once(&mut self, to: Peer, what: Transfer, remote: &RemoteMemory, offset: u64) -> Option<u64> {
        let peer = self.peers.get(to.0 as usize).filter(|peer| peer.status == PeerStatus::Up)?;
        let start = (to.0 as usize).wrapping_mul(self.rails.count());
        let row = self.links.get(start..start.wrapping_add(peer.route.links.into()))?;
        let mixes = |link: &&PeerLink| {
            self.rails.rail(link.rail as usize).is_some_and(|rail| rail.attributes().one_sided.mixes_at_once())
        };
        let link = row.iter().find(mixes)?;
        let rail = self.rails.rail_mut(link.rail as usize)?;
        // SAFETY: passed on from the caller.
        unsafe { self.rma.at_once(rail, Endpoint(link.endpoint), what, remote, offset) }
    }

    /// Begins an operation on memory of a peer, from byte `offset` on. [`next_finished`](Self::next_finished) reports its end.
    ///
    /// # Errors
    /// [`BeginError`]: nothing is done then.
    ///
    /// # Safety
    /// Until the end of the operation is reported, or the engine has ended, local memory is readable and unchanging for a put.
    /// For a get it is writable, and no other code uses it.
    pub unsafe fn begin(
        &mut self,
        to: Peer,
        what: Transfer,
        remote: &RemoteMemory,
        offset: u64,
    ) -> Result<Operation, BeginError> {
        if self.peers.get(to.0 as usize).is_none_or(|peer| peer.status != PeerStatus::Up) {
            return Err(BeginError::Unreachable);
        }
        let Self { rma, rails, peers, links, rma_turn, config, .. } = self;
        let routes = &mut Links { rails, peers, links, turn: *rma_turn, devices: config.rdma.windows };
        // SAFETY: passed on from the caller.
        let begun = unsafe { rma.begin(routes, to, what, None, remote, offset) };
        self.waiting |= self.rma.has_queued();
        begun
    }

    /// Takes one of the operations that are over, in no order. Each is reported once.
    pub fn next_finished(&mut self) -> Option<Finished> {
        self.rma.next_finished()
    }

    /// Whether all one-sided operations that were begun to a peer, or to all peers, are over and reported.
    pub fn is_flushed(&self, to: Option<Peer>) -> bool {
        self.rma.is_flushed(to)
    }

    /// Counts of one-sided operations since set-up.
    pub const fn rma_counters(&self) -> rma::Counters {
        self.rma.counters()
    }

    /// The number of slots in use, and of all slots, in three pools: registrations, one-sided operations, answers to peers.
    pub fn rma_used(&self) -> [[u32; 2]; 3] {
        self.rma.used()
    }

    /// Handles an arriving frame of one-sided operations that is no duplicate.
    #[cold]
    pub(super) fn one_sided_frame(&mut self, rail: usize, frame: &Frame) {
        if !rma::ENABLED {
            self.counters.unknown_tags = self.counters.unknown_tags.wrapping_add(1);
            return self.drop_frame(rail, frame);
        }
        let from = self.link_of(frame.from.0, rail);
        let up = self.peers.get_mut(frame.from.0 as usize).filter(|peer| peer.status == PeerStatus::Up);
        let (Some(peer), Some(rail)) = (up, self.rails.rail_mut(rail)) else { return self.drop_frame(rail, frame) };
        peer.liveness.set(HEARD);
        self.rma.on_frame(rail, from, frame);
        self.waiting |= self.rma.has_queued();
    }

    /// Handles the report that a rail has read memory of a one-sided operation, or has `filled` it.
    #[cold]
    pub(super) fn one_sided_memory(&mut self, cookie: Cookie, filled: bool) {
        if filled {
            self.rma.on_delivered(cookie);
        } else {
            self.rma.on_sent(cookie);
        }
        self.waiting |= self.rma.has_queued();
    }

    /// Handles [`Event::Performed`](crate::rail::Event::Performed): a device has ended a one-sided operation, or a piece of a
    /// message.
    #[cold]
    pub(super) fn performed(&mut self, cookie: Cookie, result: Result<u64, NativeError>) {
        if !rma::ENABLED || !rma::Rma::is_own(cookie) {
            return self.device_done(cookie, result);
        }
        self.rma.on_device_completion(cookie, result);
        self.waiting |= self.rma.has_queued();
    }

    /// Handles that a rail does not reach a peer any more while other rails do: operations that its device has begun end.
    #[cold]
    pub(super) fn lose_device(&mut self, rail: usize, peer: Peer) {
        if rma::ENABLED && reaching(&self.rails, self.config.rdma.windows) == Some((rail, false)) {
            self.rma.lose_device(peer);
        }
    }

    /// Sends requests and answers that wait, as far as there is room. Returns whether some are left.
    pub(super) fn push_out_one_sided(&mut self) -> bool {
        if self.has_one_sided_to_send() {
            self.rma_turn = self.rma_turn.wrapping_add(1);
            let Self { rma, rails, peers, links, rma_turn, config, .. } = self;
            let devices = config.rdma.windows;
            rma.send_queued(&mut Links { rails, peers, links, turn: *rma_turn, devices });
        }
        self.has_one_sided_to_send()
    }

    /// Whether a frame of one-sided operations waits for room.
    pub(super) fn has_one_sided_to_send(&self) -> bool {
        rma::ENABLED && self.rma.has_queued()
    }

    /// Whether a one-sided operation waits for a peer.
    pub(super) fn awaits_one_sided(&self, peer: u32) -> bool {
        rma::ENABLED && !self.rma.is_flushed(Some(Peer(peer)))
    }

    /// Whether a frame of one-sided operations was sent to a peer, or came from it.
    pub(super) fn has_connected_one_sided(&self, peer: u32) -> bool {
        rma::ENABLED && self.rma.has_contact(Peer(peer))
    }

    /// Ends the one-sided operations with a peer that is lost or deleted, after its rails have ended their accesses to memory.
    pub(super) fn end_one_sided(&mut self, peer: Peer, failure: rma::Failure) {
        if rma::ENABLED {
            self.rma.forget(peer, failure);
        }
    }
}
