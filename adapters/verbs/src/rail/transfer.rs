//! The rail trait: what is asked of a rail, but for polling.

use towline_core::rail::native::{Key, Native, NativeError, Region};
use towline_core::rma::Access;
use towline_core::rail::{Attributes, Cookie, Delivery, Endpoint, Event, FrameId, GiveUp, Grant, HEAD, Lane, Peer, Rail as RailTrait, SendError, Sent, Shape, Ticket, Unreachable};
use towline_core::convertor::Span;
use towline_core::time::Instant;

use crate::wire::card::Card;
use crate::wire::hello::Stage;
use crate::port;
use crate::rail::state::{CONTROL, Held, Id, Known, MOST_PEERS, Rail, Way};
use crate::bookkeeping::send_queue::Slot;

impl RailTrait for Rail {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        &self.card
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        let card = Card::decode(card)?;
        let (link, rank) = (self.config.link, card.rank);
        if (card.job, card.link) != (self.config.job, link) || self.ranks.contains_key(&rank) {
            log::warn!("verbs link {link}: the card of rank {rank} is of another job or link, or was added before");
            return Err(Unreachable::BadCard);
        }
        if card.longest < self.config.max_send_size_bytes {
            log::warn!("verbs link {link}: rank {rank} takes frames of {} bytes only", card.longest);
            return Err(Unreachable::BadCard);
        }
        if let Some(why) = self.dead {
            log::warn!("verbs link {link}: no way to rank {rank}: {why}");
            return Err(Unreachable::System);
        }
        if rank == self.config.rank {
            return Err(Unreachable::NoNetwork); // a way to oneself is the loopback rail's
        }
        if let Err((answer, why)) = port::way(&self.port.address.entry, &card) {
            log::warn!("verbs link {link}: no way from {} to rank {rank}: {why}", self.port.name);
            return Err(answer);
        }
        let index = self.free.pop().unwrap_or(self.peers.len() as u32);
        if index as usize >= MOST_PEERS {
            return Err(Unreachable::Full);
        }
        if index as usize == self.peers.len() {
            self.peers.push(None);
        }
        self.peers[index as usize] = Some(Known { peer, card, way: Way::Unused, line: None, destination: None });
        self.ranks.insert(rank, index);
        // Nothing is allocated later on but for connections: each peer is in each list at most once, and is lost once.
        let peers = self.peers.len();
        let Self { wanted, meeting, tails, failed, free, .. } = self;
        for list in [wanted, meeting, tails, failed, free] {
            list.reserve(peers.saturating_sub(list.len()));
        }
        self.lines.reserve(peers.saturating_sub(self.lines.len()));
        self.arrived.reserve(self.held.len() + peers);
        Ok(Endpoint(index))
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
        let Some(known) = self.peers.get(to.0 as usize).and_then(Option::as_ref) else {
            return Err(SendError::Unreachable);
        };
        let (Way::Up, Some(line)) = (known.way, &known.line) else { return Err(self.not_up(to.0)) };
        let more = if shape.lane == Lane::Control { CONTROL } else { 0 };
        if line.out.len() >= (self.config.send_queue_frames + more) as usize {
            return Err(SendError::Busy);
        }
        let lane = if shape.len > self.config.short_bytes() { Lane::Bulk } else { shape.lane };
        let Some(slot) = self.slots.next(lane) else { return Err(SendError::Busy) };
        let room = self.place(slot).and_then(|at| self.region.pointer(at, shape.len as usize));
        let Some(room) = room else { return Err(SendError::TooLong) };
        let extra = u32::from_le_bytes([shape.tag, shape.header, 0, 0]);
        let ticket = Ticket { endpoint: to, position: 0, len: shape.len, extra };
        self.granted = Some((ticket, slot));
        // SAFETY: within the region, and the device has told that it is done with the slot, which it gets by `commit` only.
        Ok(unsafe { Grant::new(room.as_ptr(), shape.len as usize, ticket) })
    }

    #[inline]
    fn commit(&mut self, ticket: Ticket) -> Sent {
        let Some((granted, slot)) = self.granted.take() else { return Sent::Done };
        let Some(at) = self.place(slot).filter(|_| granted == ticket) else { return Sent::Done };
        let endpoint = ticket.endpoint.0;
        let few = self.slots.are_few();
        let known = self.peers.get_mut(endpoint as usize).and_then(Option::as_mut);
        let Some(line) = known.and_then(|known| known.line.as_mut()) else { return Sent::Done };
        if !self.slots.take(slot) {
            return Sent::Done; // not to be: nobody else takes slots in between
        }
        let signaled = few || line.out.silent() + 1 >= self.config.signal_every;
        let id = Id::Send { endpoint, number: line.out.next() }.word();
        if let Err(why) = line.pair.send(id, ticket.extra, at, ticket.len, signaled) {
            log::debug!("verbs: a frame is refused: {why}");
            self.slots.give_back(slot);
            if !self.failed.contains(&endpoint) {
                self.failed.push(endpoint);
            }
            return Sent::Done;
        }
        line.out.posted(slot, signaled);
        self.counters.inline += u64::from(ticket.len <= line.pair.inline());
        if signaled {
            self.counters.signaled += 1;
        } else {
            self.counters.unsignaled += 1;
            self.has_tail(endpoint);
        }
        Sent::Done
    }

    /// Not before the peer's device has all of it: what is under way when the queue pair goes is lost.
    fn drained(&self, to: Endpoint) -> bool {
        let known = self.peers.get(to.0 as usize).and_then(Option::as_ref);
        known.and_then(|known| known.line.as_ref()).is_none_or(|line| line.out.is_empty())
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Event> {
        self.progress(now)
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        let Some((buffer, held)) = self.held(frame) else { return 0 };
        let count = (held.len as usize).saturating_sub(at).min(into.len());
        let start =
            self.layout.received.at(buffer).and_then(|start| self.region.pointer(start.checked_add(at)?, count));
        let Some(start) = start else { return 0 };
        // SAFETY: within the region, of a buffer that is the reader's until it is released: the device does not write to it.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(start.as_ptr(), count) };
        count
    }

    #[inline]
    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, _cookie: Cookie) -> Delivery {
        if let Some((buffer, held)) = self.held(frame) {
            let len = (held.len as usize).saturating_sub(skip);
            let start = self.layout.received.at(buffer).and_then(|at| self.region.pointer(at.checked_add(skip)?, len));
            if let Some(start) = start {
                // SAFETY: the bytes are within the region, of a buffer that is the reader's until it is released; the caller
                // vouches for the sink, which is not the rail's memory.
                unsafe { sink.unpack(start.as_ptr(), len) };
            }
        }
        self.release(frame);
        Delivery::Done
    }

    #[inline]
    fn release(&mut self, frame: FrameId) {
        if let Some((buffer, _)) = self.held(frame) {
            self.held[buffer as usize] = None;
            self.held_count -= 1;
            self.post_again(buffer);
        }
    }

    fn poll_at(&self) -> Option<Instant> {
        [self.tail_at, self.next_hello, self.beat_at, self.leaving.look_at()].into_iter().flatten().min()
    }

    fn arm(&mut self) -> bool {
        if let Err(why) = self.completions.wake() {
            log::warn!("verbs: the device does not wake: {why}");
            return false;
        }
        // What came before that wakes nobody.
        self.armed = true;
        self.gather_all();
        self.post_used();
        self.arrived.is_empty() && self.slots.works.has_told_all() && !self.has_to_set_right()
    }
}

impl towline_core::rail::DeviceMemory for Rail {
    unsafe fn register(&mut self, base: *mut u8, len: usize, access: Access) -> Result<(Region, Key), NativeError> {
        // SAFETY: passed on from the caller.
        unsafe { self.register_memory(base, len, access) }
    }

    fn deregister(&mut self, region: Region) {
        self.registered.remove(&region.0);
    }

    unsafe fn perform(&mut self, on: Endpoint, native: &Native, cookie: Cookie) -> Result<Option<u64>, NativeError> {
        // SAFETY: passed on from the caller.
        unsafe { self.perform_on(on, native, cookie) }
    }
}

impl towline_core::rail::Liveness for Rail {
    fn give_up(&mut self, to: Endpoint, what: GiveUp) -> bool {
        if what == GiveUp::Peer {
            self.forget(to.0, false);
        }
        what == GiveUp::Peer
    }
}

impl towline_core::rail::FastPath for Rail {}
impl towline_core::rail::RequestCache for Rail {}
impl towline_core::rail::SingleCopy for Rail {}
impl towline_core::rail::Failover for Rail {}

impl Rail {
    /// Where a slot is.
    #[inline]
    fn place(&self, slot: Slot) -> Option<usize> {
        self.layout.of_slot(slot)
    }

    /// The buffer of a frame that the reader holds.
    #[inline]
    fn held(&self, frame: FrameId) -> Option<(u32, Held)> {
        let buffer = u32::try_from(frame.0).ok()?;
        Some((buffer, (*self.held.get(buffer as usize)?)?))
    }

    /// Forgets a peer, with a good-bye or without.
    fn forget(&mut self, endpoint: u32, bye: bool) {
        if self.known(endpoint).is_none() {
            return;
        }
        if bye {
            self.say_last(endpoint, Stage::Bye);
        }
        self.hang_up(endpoint);
        self.leave_lists(endpoint);
        self.slots.works.forget(endpoint);
        let mut arrived = std::mem::take(&mut self.arrived);
        arrived.forget(endpoint, |buffer| self.post_again(buffer));
        self.arrived = arrived;
        for buffer in 0..self.held.len() {
            if self.held[buffer].is_some_and(|held| held.endpoint == endpoint) {
                self.release(FrameId(buffer as u64));
            }
        }
        if let Some(known) = self.peers[endpoint as usize].take() {
            self.ranks.remove(&known.card.rank);
        }
        self.free.push(endpoint);
    }

    /// Why a peer that is known takes no frames.
    #[cold]
    pub(crate) fn not_up(&mut self, endpoint: u32) -> SendError {
        let Some(known) = self.known(endpoint) else { return SendError::Unreachable };
        match known.way {
            Way::Gone => SendError::Unreachable,
            Way::Unused => {
                known.way = Way::Wanted;
                self.wanted.push(endpoint);
                SendError::Busy
            }
            Way::Wanted | Way::Meeting | Way::Up => SendError::Busy,
        }
    }
}
