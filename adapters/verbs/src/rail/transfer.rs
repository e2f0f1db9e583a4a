//! The rail trait, except for polling.

use towline_core::convertor::Span;
use towline_core::rail::native::{Key, Native, NativeError, Region};
use towline_core::rail::{
    Attributes, Cookie, Delivery, DeviceMemory, Endpoint, Event, Failover, FastPath, FrameId, GiveUp, Grant, HEAD,
    Lane, Liveness, Peer, Rail as RailTrait, RequestCache, SendError, Sent, Shape, SingleCopy, Ticket, Unreachable,
};
use towline_core::rma::Access;
use towline_core::time::Instant;
use towline_net::Member;

use super::peer::{ConnState, PeerState};
use super::state::Rail;
use super::work_id::WorkId;
use crate::bookkeeping::resource::Resource;
use crate::port::check_route;
use crate::sizes::CONTROL_FRAMES;
use crate::wire::card::Card;

impl RailTrait for Rail {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        &self.local.card
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        let card = Card::decode(card)?;
        self.check_card(&card)?;
        let endpoint = self.peers.add(PeerState::new(peer, card))?;
        // From here on, only connections allocate memory. Each peer is in each list at most once, and is lost once.
        let count = self.peers.count() as usize;
        self.lists.reserve(count);
        self.receive.reserve(count);
        Ok(Endpoint(endpoint))
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        self.forget(endpoint.0, true);
    }

    #[inline]
    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        let limit = if shape.lane == Lane::Bulk { self.attributes.max_send_size } else { self.attributes.eager_limit };
        if shape.len > limit || usize::from(shape.header) > HEAD.min(shape.len as usize) {
            return Err(SendError::TooLong);
        }
        let Some(peer) = self.peers.get(to.0) else {
            return Err(SendError::Unreachable);
        };
        let (ConnState::Established, Some(connection)) = (peer.state, &peer.connection) else {
            return Err(self.not_established(to.0));
        };
        let more = if shape.lane == Lane::Control { CONTROL_FRAMES } else { 0 };
        if connection.send_queue.len() >= (self.config.send_queue_frames + more) as usize {
            return Err(SendError::Busy);
        }
        let lane = if shape.len > self.config.short_bytes() { Lane::Bulk } else { shape.lane };
        let Some(buffer) = self.send.resources.next(lane) else { return Err(SendError::Busy) };
        let Some(room) = self.queues.send_buffer(buffer, shape.len as usize) else { return Err(SendError::TooLong) };
        let extra = u32::from_le_bytes([shape.tag, shape.header, 0, 0]);
        let ticket = Ticket { endpoint: to, position: 0, len: shape.len, extra };
        self.send.granted = Some((ticket, buffer));
        // SAFETY: within the region, and the device has completed the buffer, which it gets again by `commit` only.
        Ok(unsafe { Grant::new(room.as_ptr(), shape.len as usize, ticket) })
    }

    #[inline]
    fn commit(&mut self, ticket: Ticket) -> Sent {
        let Some((granted, buffer)) = self.send.granted.take() else { return Sent::Done };
        let Some(at) = self.queues.layout.buffer(buffer).filter(|_| granted == ticket) else { return Sent::Done };
        let endpoint = ticket.endpoint.0;
        let few = self.send.resources.are_few();
        let Some(connection) = self.peers.connection_mut(endpoint) else { return Sent::Done };
        if !self.send.resources.take(buffer) {
            return Sent::Done; // does not happen: no other frame takes buffers in between
        }
        let signaled = few || connection.send_queue.unsignaled() + 1 >= self.config.signal_every;
        let id = WorkId::Send { endpoint, number: connection.send_queue.next() }.word();
        if let Err(why) = connection.queue_pair.send(id, ticket.extra, at, ticket.len, signaled) {
            log::debug!("verbs: the device refuses a frame: {why}");
            self.send.resources.give_back(Resource::Buffer(buffer));
            self.lists.add_failed(endpoint);
            return Sent::Done;
        }
        connection.send_queue.push(Resource::Buffer(buffer), signaled);
        self.counters.inline += u64::from(ticket.len <= connection.queue_pair.inline());
        if signaled {
            self.counters.signaled += 1;
        } else {
            self.counters.unsignaled += 1;
            self.add_tail(endpoint);
        }
        Sent::Done
    }

    /// `true` once the peer's device has acknowledged all frames: those in flight are lost when the queue pair is destroyed.
    fn drained(&self, to: Endpoint) -> bool {
        self.peers.connection(to.0).is_none_or(|connection| connection.send_queue.is_empty())
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Event> {
        self.progress(now)
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        let Some((buffer, held)) = self.receive.held(frame) else { return 0 };
        let count = (held.len as usize).saturating_sub(at).min(into.len());
        let Some(start) = self.queues.receive_buffer(buffer, at, count) else { return 0 };
        // SAFETY: within the region, of a buffer that belongs to the engine until it is released: the device does not write
        // to it.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(start.as_ptr(), count) };
        count
    }

    #[inline]
    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, _cookie: Cookie) -> Delivery {
        if let Some((buffer, held)) = self.receive.held(frame) {
            let len = (held.len as usize).saturating_sub(skip);
            if let Some(start) = self.queues.receive_buffer(buffer, skip, len) {
                // SAFETY: the bytes are within the region, of a buffer that belongs to the engine until it is released; the
                // caller vouches for the sink, which is not the rail's memory.
                unsafe { sink.unpack(start.as_ptr(), len) };
            }
        }
        self.release(frame);
        Delivery::Done
    }

    #[inline]
    fn release(&mut self, frame: FrameId) {
        self.receive.release(frame, &self.queues);
    }

    fn poll_at(&self) -> Option<Instant> {
        self.timers.earliest(self.closing.check_at())
    }

    fn arm(&mut self) -> bool {
        if let Err(why) = self.queues.completions.request_notification() {
            log::warn!("verbs: the device gives no notification: {why}");
            return false;
        }
        // There is no notification for completions that came before the request.
        self.armed = true;
        self.process_all_completions();
        self.receive.post_all(&self.queues);
        self.receive.pending.is_empty() && self.send.resources.operations.has_reported_all() && !self.has_work()
    }
}

impl DeviceMemory for Rail {
    unsafe fn register(&mut self, base: *mut u8, len: usize, access: Access) -> Result<(Region, Key), NativeError> {
        // SAFETY: passed on from the caller.
        unsafe { self.register_memory(base, len, access) }
    }

    fn deregister(&mut self, region: Region) {
        self.user_memory.remove(region);
    }

    unsafe fn perform(&mut self, on: Endpoint, native: &Native, cookie: Cookie) -> Result<Option<u64>, NativeError> {
        // SAFETY: passed on from the caller.
        unsafe { self.perform_on(on, native, cookie) }
    }
}

impl Liveness for Rail {
    fn give_up(&mut self, to: Endpoint, what: GiveUp) -> bool {
        if what == GiveUp::Peer {
            self.forget(to.0, false);
        }
        what == GiveUp::Peer
    }
}

impl FastPath for Rail {}
impl RequestCache for Rail {}
impl SingleCopy for Rail {}
impl Failover for Rail {}

impl Rail {
    /// Whether a peer with this card can be added.
    fn check_card(&self, card: &Card) -> Result<(), Unreachable> {
        let (link, rank) = (self.config.link, card.rank);
        let own = Member { job: self.config.job, link, rank: self.config.rank };
        self.peers.check(own, Member { job: card.job, link: card.link, rank })?;
        if card.longest < self.config.max_send_size_bytes {
            log::warn!(
                "verbs link {link}: rank {rank} receives frames of at most {} bytes, but this rank sends up to {}: set \
                 TOWLINE_VERBS_MAX_SEND_BYTES to the same value for all ranks",
                card.longest,
                self.config.max_send_size_bytes
            );
            return Err(Unreachable::BadCard);
        }
        if let Some(why) = self.health.dead {
            log::warn!("verbs link {link}: rank {rank} cannot be reached: {why}");
            return Err(Unreachable::System);
        }
        if let Err((answer, why)) = check_route(&self.local.port.address.entry, card) {
            log::warn!("verbs link {link}: rank {rank} cannot be reached from {}: {why}", self.local.port.name);
            return Err(answer);
        }
        Ok(())
    }

    /// The error for a frame to a peer without an established connection; requests one if there was none.
    #[cold]
    pub(super) fn not_established(&mut self, endpoint: u32) -> SendError {
        let Some(peer) = self.peers.get_mut(endpoint) else { return SendError::Unreachable };
        match peer.state {
            ConnState::Lost => SendError::Unreachable,
            ConnState::Idle => {
                peer.state = ConnState::Requested;
                self.lists.requested.push(endpoint);
                SendError::Busy
            }
            ConnState::Requested | ConnState::Handshake | ConnState::Established => SendError::Busy,
        }
    }
}
