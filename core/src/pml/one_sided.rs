//! One-sided operations: [`rma`](crate::rma), whose frames go by any rail of the engine as others do.
//!
//! Rails deliver frames once, links also where one has died half-way: so no request is done twice.
//!
//! A rail that [maps the memory of peers](OneSided::mixes_at_once) does at once what it can ([`Pml::at_once`]); all else is begun, and
//! goes by frames, also to the same memory. Where there is none, and [`Config::windows`](super::rdma::Config::windows) says so, the
//! device of the first rail that has one puts and gets; atomics are the target's processor's, so that who is reached by another rail, a
//! rank itself for one, counts in the same word. A handle has room for one rail's key: with a rail that maps memory, what is out of its
//! reach goes by frames.
//!
//! What a device has in hand when its link breaks may be done or not, and ends with [`Failure::Lost`](rma::Failure::Lost), also where
//! other links still lead to the peer; the rest of it, and all that follows, takes those.

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
    Access, BeginError, DeregisterError, Finished, Operation, Registration, RemoteMemory, Transfer, Way, Ways,
};

/// The links to all peers, tried by turns: one whose connection is not made yet has no room, and may not have for long.
struct Links<'a, R> {
    rails: &'a mut R,
    peers: &'a [PeerState],
    links: &'a [PeerLink],
    turn: u32,
    devices: bool,
}

impl<R: Rails> Ways for Links<'_, R> {
    type Rail = R::Rail;

    fn way(&mut self, to: Peer) -> Option<Way<'_, R::Rail>> {
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
        Some(Way { rail, endpoint: Endpoint(link.endpoint), eager, longest, one_sided: OneSided::NONE })
    }

    fn device(&mut self, to: Peer) -> Option<Way<'_, R::Rail>> {
        let (index, maps) = reaching(self.rails, self.devices)?;
        let peer = self.peers.get(to.0 as usize).filter(|peer| peer.status == PeerStatus::Up && !maps)?;
        let start = (to.0 as usize).wrapping_mul(self.rails.count());
        let row = self.links.get(start..start.wrapping_add(peer.route.links.into()))?;
        let endpoint = Endpoint(row.iter().find(|link| link.is_of(index))?.endpoint);
        let rail = self.rails.rail_mut(index)?;
        let Attributes { eager_limit: eager, max_send_size: longest, one_sided, .. } = *rail.attributes();
        Some(Way { rail, endpoint, eager, longest, one_sided })
    }
}

/// The rail by which peers are to reach memory of this side, and whether it maps it there: else its device does what it can, where
/// `devices` are to be used for that.
pub(super) fn reaching<R: Rails>(rails: &R, devices: bool) -> Option<(usize, bool)> {
    let find = |able: fn(&OneSided) -> bool| {
        (0..rails.count()).find(|index| rails.rail(*index).is_some_and(|rail| able(&rail.attributes().one_sided)))
    };
    let maps = find(OneSided::mixes_at_once).map(|index| (index, true));
    maps.or_else(|| Some((find(|can| can.any() && !can.at_once).filter(|_| devices)?, false)))
}

/// That rail, and the rights that peers are to have by it.
fn registrar<R: Rails>(rails: &mut R, devices: bool) -> Option<(&mut R::Rail, Access)> {
    let (index, maps) = reaching(rails, devices)?;
    let access = if maps { Access::all() } else { Access::all() - Access::REMOTE_ATOMIC };
    Some((rails.rail_mut(index)?, access))
}

impl<R: Rails> Pml<'_, R> {
    /// Registers memory, for one peer or for all: see [`rma`]. `None` where [`Config::rma`](super::Config::rma) has no slot left.
    ///
    /// # Safety
    /// Until it is deregistered, or the engine has ended, the memory is readable and writable, and all who access it know that
    /// peers do so too, at any time: no reference to it exists but to atomics.
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

    /// Takes a registration back: from now on what peers ask of the memory is denied.
    ///
    /// # Errors
    /// [`DeregisterError`].
    pub fn deregister(&mut self, registration: Registration) -> Result<(), DeregisterError> {
        let Self { rma, rails, config, .. } = self;
        if rma.deregister(registrar(rails, config.rdma.windows).map(|(rail, _)| rail), registration)? {
            (0..rails.count()).filter_map(|index| rails.rail_mut(index).map(SingleCopy::revoke_exposed)).count();
        }
        Ok(())
    }

    /// What peers need to access registered memory; `None` if it was deregistered.
    pub fn remote_memory(&self, registration: Registration) -> Option<RemoteMemory> {
        self.rma.remote(registration)
    }

    /// Does an operation on memory of a peer, from `offset` on, that a rail has mapped: it is over when this returns,
    /// with the old word of an atomic, else 0. `None`: nothing was done; [`begin`](Self::begin) it.
    ///
    /// # Safety
    /// Local memory is readable for a put, writable and nobody else's for a get, until this returns.
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

    /// Begins an operation on memory of a peer, from `offset` on. [`next_finished`](Self::next_finished) tells its end.
    ///
    /// # Errors
    /// [`BeginError`]: nothing is done then.
    ///
    /// # Safety
    /// Local memory is readable and unchanging for a put, writable and nobody else's for a get, until the operation is told
    /// to be over, or the engine has ended.
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
        let ways = &mut Links { rails, peers, links, turn: *rma_turn, devices: config.rdma.windows };
        // SAFETY: passed on from the caller.
        let begun = unsafe { rma.begin(ways, to, what, None, remote, offset) };
        self.waiting |= self.rma.has_to_send();
        begun
    }

    /// A one-sided operation that is over, in no order; each is told once.
    pub fn next_finished(&mut self) -> Option<Finished> {
        self.rma.next_finished()
    }

    /// Whether all one-sided operations that were begun to a peer, or to all, are over and were told.
    pub fn is_flushed(&self, to: Option<Peer>) -> bool {
        self.rma.is_flushed(to)
    }

    /// What happened to one-sided operations so far.
    pub const fn rma_counters(&self) -> rma::Counters {
        self.rma.counters()
    }

    /// Slots in use and in all: of registered memory, of one-sided operations, and of answers to those of peers.
    pub fn rma_used(&self) -> [[u32; 2]; 3] {
        self.rma.used()
    }

    /// A frame of one-sided operations, which is not one that came before.
    #[cold]
    pub(super) fn one_sided_frame(&mut self, rail: usize, frame: &Frame) {
        let from = self.link_of(frame.from.0, rail);
        let up = self.peers.get_mut(frame.from.0 as usize).filter(|peer| peer.status == PeerStatus::Up);
        let (Some(peer), Some(rail)) = (up, self.rails.rail_mut(rail)) else { return self.drop_frame(rail, frame) };
        peer.liveness.set(HEARD);
        self.rma.take(rail, from, frame);
        self.waiting |= self.rma.has_to_send();
    }

    /// A rail is done with memory of a one-sided operation: it has read it, or filled it.
    #[cold]
    pub(super) fn one_sided_memory(&mut self, cookie: Cookie, filled: bool) {
        if filled {
            self.rma.delivered(cookie);
        } else {
            self.rma.sent(cookie);
        }
        self.waiting |= self.rma.has_to_send();
    }

    #[cold]
    pub(super) fn performed(&mut self, cookie: Cookie, result: Result<u64, NativeError>) {
        if !rma::Rma::is_own(cookie) {
            return self.device_done(cookie, result);
        }
        self.rma.performed(cookie, result);
        self.waiting |= self.rma.has_to_send();
    }

    /// A rail does not reach a peer any more, and others do.
    #[cold]
    pub(super) fn lose_device(&mut self, rail: usize, peer: Peer) {
        if reaching(&self.rails, self.config.rdma.windows) == Some((rail, false)) {
            self.rma.lose_device(peer);
        }
    }

    /// Sends requests and answers that wait, as far as there is room. Tells whether some are left.
    pub(super) fn push_out_one_sided(&mut self) -> bool {
        if self.rma.has_to_send() {
            self.rma_turn = self.rma_turn.wrapping_add(1);
            let Self { rma, rails, peers, links, rma_turn, config, .. } = self;
            let devices = config.rdma.windows;
            rma.push_out(&mut Links { rails, peers, links, turn: *rma_turn, devices });
        }
        self.rma.has_to_send()
    }

    /// Whether a frame of one-sided operations waits for room.
    pub(super) fn has_one_sided_to_send(&self) -> bool {
        self.rma.has_to_send()
    }

    /// Whether a one-sided operation waits for a peer.
    pub(super) fn awaits_one_sided(&self, peer: u32) -> bool {
        !self.rma.is_flushed(Some(Peer(peer)))
    }

    /// Whether a frame of one-sided operations has gone to a peer, or come from it.
    pub(super) fn has_connected_one_sided(&self, peer: u32) -> bool {
        self.rma.has_met(Peer(peer))
    }

    /// A peer is gone, and its rails are done with its memory.
    pub(super) fn end_one_sided(&mut self, peer: Peer, failure: rma::Failure) {
        self.rma.forget(peer, failure);
    }
}
