//! The rail trait, and with it the message path.

use towline_core::convertor::Span;
use towline_core::rail::native::{Key, Native, NativeError, Region};
use towline_core::rail::{
    Attributes, Cookie, Copied, Delivery, DeviceMemory, Endpoint, Event, Failover, FastPath, Frame, FrameId, GiveUp,
    Grant, HEAD, Lane, Liveness, Lost, Peer, Rail as RailTrait, RemoteBuffer, RequestCache, SendError, Sent, Shape,
    Short, SingleCopy, Ticket, Unreachable, send_by_grant,
};
use towline_core::rma::Access;
use towline_core::time::Instant;

use super::held_frames::HeldFrames;
use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::prefetch::{prefetch_ahead, prefetch_for_answer};
use super::ring_pair::{EAGER, RingPair};
use super::state::Rail;
use crate::ring::{MIN_SHORT, PREFIX, PendingFrame, ProtocolViolation, ReceivedFrame, SLOT, meta, slots_for};
use crate::segment::slots::Slots;

impl Rail {
    /// Takes the next frame of an incoming ring, if there is one and it may be held.
    pub(super) fn take(&mut self, ring: u32) -> Option<Event> {
        if self.held.is_full() {
            return None;
        }
        let RingPair { incoming, outgoing } = self.rings.get_mut(ring as usize)?;
        let pending = incoming.receiver.peek(&incoming.slots)?;
        let received = match incoming.receiver.take(pending) {
            Ok(Some(received)) => received,
            Ok(None) => return self.take_after_padding(ring),
            Err(ProtocolViolation) => return self.protocol_violation(ring),
        };
        prefetch_for_answer(outgoing, slots_for(received.len));
        let frame = frame_of(&mut self.held, incoming, ring, received);
        // A frame in one slot has been copied, so the slot may be returned.
        if incoming.held == 0 && incoming.receiver.return_credit(&incoming.slots, incoming.receiver.position()) {
            self.credit_returned(ring);
        }
        Some(Event::Frame(frame))
    }
}

/// Sends a frame of `len` bytes in `slots` slots, which `write` writes. Returns whether there was room for it.
///
/// # Safety
/// There is a ring, whose longest frame has `len` bytes at least. The slots have room for them.
#[inline(always)]
unsafe fn send_in(outgoing: &mut Outgoing, slots: u32, len: u32, tag: u8, write: impl FnOnce(&mut Grant<'_>)) -> bool {
    let Some(position) = outgoing.sender.reserve(slots, outgoing.reserved) else { return false };
    let (frame, ticket) =
        (outgoing.slots.frame(position), Ticket { endpoint: Endpoint(0), position: 0, len: 0, extra: 0 });
    // SAFETY: as in `reserve`. The ticket is not used.
    write(&mut unsafe { Grant::new(frame, len as usize, ticket) });
    // SAFETY: the ring owns the mapping, which stays until this function returns.
    let first = unsafe { Slots::header_of(frame) };
    outgoing.sender.publish_at(&outgoing.slots, position, first, slots, meta(len, tag));
    prefetch_ahead(outgoing, frame, position, slots);
    true
}

/// The frame that was taken from an incoming ring. It is held if it is longer than its first slot; there must be room for it.
#[inline(always)]
fn frame_of(held: &mut HeldFrames, incoming: &mut Incoming, ring: u32, received: ReceivedFrame) -> Frame {
    let ReceivedFrame { position, len, tag } = received;
    // SAFETY: the ring owns the mapping, which stays until this function returns.
    let head = unsafe { Slots::head(incoming.slots.frame(position)) };
    let (mut id, mut valid) = (FrameId(0), len as u8);
    if len as usize > HEAD {
        incoming.held += 1;
        (id, valid) = (held.hold(ring, position, len), HEAD as u8);
    }
    Frame { id, from: incoming.peer, tag, valid, len, head }
}

impl Rail {
    /// [`send`](RailTrait::send) for any frame.
    ///
    /// # Safety
    /// As for that.
    #[inline(never)]
    unsafe fn send_any(&mut self, to: Endpoint, shape: Shape, header: &[u8], body: Span) -> Result<Sent, SendError> {
        // SAFETY: passed on from the caller.
        unsafe { send_by_grant(self, to, shape, header, body) }
    }
}

impl RailTrait for Rail {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        &self.identity.card_bytes
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        self.add(peer, card)
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        self.delete(endpoint);
    }

    #[inline]
    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        let class = usize::from(shape.lane == Lane::Bulk);
        if let Some(outgoing) = self.rings.get_mut(to.0 as usize * 2 + class).map(|ring| &mut ring.outgoing)
            && shape.len < outgoing.len_bound
            && usize::from(shape.header) <= HEAD
        {
            let reserved = if shape.lane == Lane::Control { 0 } else { outgoing.reserved };
            if let Some(position) = outgoing.sender.reserve(slots_for(shape.len), reserved) {
                let extra = u32::from(shape.tag) | (class as u32) << 8;
                let ticket = Ticket { endpoint: to, position: u64::from(position), len: shape.len, extra };
                // SAFETY: the sender reserved these slots, which hold the prefix and `len` bytes and do not run over the
                // ring's end; the receiver leaves them alone until `commit`, and if it does not, only its data suffers.
                return Ok(unsafe { Grant::new(outgoing.slots.frame(position), shape.len as usize, ticket) });
            }
        }
        self.reserve_slowly(to, shape)
    }

    #[inline]
    fn commit(&mut self, ticket: Ticket) -> Sent {
        let class = (ticket.extra >> 8 & 1) as usize;
        if let Some(outgoing) =
            self.rings.get_mut(ticket.endpoint.0 as usize * 2 + class).map(|ring| &mut ring.outgoing)
            && ticket.position as u32 == outgoing.sender.position()
        {
            let slots = slots_for(ticket.len);
            outgoing.sender.publish(&outgoing.slots, slots, meta(ticket.len, ticket.extra as u8));
            let position = ticket.position as u32;
            prefetch_ahead(outgoing, outgoing.slots.frame(position), position, slots);
            if outgoing.receiver_may_sleep() {
                self.wake_for_frame(ticket.endpoint.0);
            }
        }
        Sent::Done
    }

    #[inline]
    unsafe fn send(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        _cookie: Cookie,
    ) -> Result<Sent, SendError> {
        // Most frames: what `reserve` and `commit` do, without looking anything up twice.
        if shape.lane == Lane::Eager
            && let Some(outgoing) = self.rings.get_mut(to.0 as usize * 2).map(|ring| &mut ring.outgoing)
            && shape.len < outgoing.len_bound
            && usize::from(shape.header) <= HEAD
        {
            let write = |grant: &mut Grant<'_>| {
                grant.write(0, header);
                // SAFETY: passed on from the caller.
                unsafe { grant.gather(header.len(), body) };
            };
            // SAFETY: there is a ring, since some length is permitted.
            if unsafe { send_in(outgoing, slots_for(shape.len), shape.len, shape.tag, write) } {
                if outgoing.receiver_may_sleep() {
                    self.wake_for_frame(to.0);
                }
                return Ok(Sent::Done);
            }
        }
        // SAFETY: passed on from the caller.
        unsafe { self.send_any(to, shape, header, body) }
    }

    fn drained(&self, _to: Endpoint) -> bool {
        true // a frame in the ring does not need this rail any more
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        let Some(polls_left) = self.schedule.polls_left.checked_sub(1) else { return self.end_turn(now) };
        self.schedule.polls_left = polls_left;
        self.poll_rings()
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        let Some((from, len)) = self.held_frame(frame) else { return 0 };
        let count = len.saturating_sub(at).min(into.len());
        // SAFETY: `at + count` is within the frame, which lies in the mapping; `into` does not, since no slice reaches there.
        unsafe { core::ptr::copy_nonoverlapping(from.wrapping_add(at), into.as_mut_ptr(), count) };
        count
    }

    #[inline]
    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, _cookie: Cookie) -> Delivery {
        if let Some((from, len)) = self.held_frame(frame)
            && skip < len
        {
            // SAFETY: the frame lies in the mapping and is readable from `skip` to its end; the caller guarantees that the sink
            // is valid.
            unsafe { sink.unpack(from.wrapping_add(skip), len - skip) };
        }
        self.release(frame);
        Delivery::Done
    }

    #[inline]
    fn release(&mut self, frame: FrameId) {
        let Some(held) = self.held.remove(frame) else { return };
        let Some(incoming) = self.rings.get_mut(held.ring as usize).map(|ring| &mut ring.incoming) else { return };
        incoming.held -= 1;
        let read_to = incoming.receiver.position();
        let free_to = if incoming.held == 0 { read_to } else { self.held.oldest(held.ring, read_to) };
        if incoming.receiver.return_credit(&incoming.slots, free_to) {
            self.credit_returned(held.ring);
        }
    }

    fn poll_at(&self) -> Option<Instant> {
        (self.has_peers_to_watch() || self.waiting.owes_wakes).then_some(self.next_liveness_check)
    }

    fn wake_on_demand(&mut self, on: bool) {
        self.wake_on_demand = on;
    }

    fn signal(&mut self, to: Endpoint) {
        self.wake(to.0);
    }

    fn arm(&mut self) -> bool {
        self.announce_sleep()
    }
}

impl FastPath for Rail {
    #[inline(always)]
    unsafe fn send_now(&mut self, to: Endpoint, tag: u8, header: [u64; 3], body: Span) -> Result<Sent, SendError> {
        let len = (size_of_val(&header) as u32).wrapping_add(body.len() as u32);
        let Some(outgoing) = self.rings.get_mut(to.0 as usize * 2).map(|ring| &mut ring.outgoing) else {
            return Err(SendError::Unreachable);
        };
        if len >= outgoing.len_bound {
            return Err(SendError::Busy); // the ring is still to be made, or the frame is too long: `reserve` tells
        }
        // Short frames are worth code of their own, which knows that they are in one slot.
        let write = |grant: &mut Grant<'_>| {
            grant.write_words(0, header);
            // SAFETY: passed on from the caller.
            unsafe { grant.gather(size_of_val(&header), body) };
        };
        let sent = if len as usize <= SLOT - PREFIX {
            // SAFETY: there is a ring, since some length is permitted.
            unsafe { send_in(outgoing, 1, len, tag, write) }
        } else {
            // SAFETY: as above.
            unsafe { send_in(outgoing, slots_for(len), len, tag, write) }
        };
        if !sent {
            return Err(SendError::Busy);
        }
        if outgoing.receiver_may_sleep() {
            self.wake_for_frame(to.0);
        }
        Ok(Sent::Done)
    }

    #[inline(always)]
    fn poll_short(&mut self, tag: u8) -> Option<Short> {
        let (left, over) = self.schedule.polls_left.overflowing_sub(1);
        self.schedule.polls_left = left;
        if over {
            self.schedule.polls_left = 0;
            return None;
        }
        let RingPair { incoming, outgoing } = self.rings.get_mut(self.schedule.fast_ring as usize)?;
        let position = incoming.receiver.position();
        let frame = incoming.slots.frame(position);
        // SAFETY: the ring owns the mapping, which stays until this function returns.
        let pending = PendingFrame::look(position, unsafe { Slots::header_of(frame) })?;
        let len = incoming.receiver.take_short(pending, tag)?;
        prefetch_for_answer(outgoing, 1);
        // SAFETY: as above.
        let header = unsafe { Slots::first_words(frame) };
        let (from, body) = (incoming.peer, frame.wrapping_add(size_of_val(&header)).cast_const());
        // SAFETY: a frame that `take_short` yields has 24 to 56 bytes, all in one slot, which is ours until it is returned.
        Some(unsafe { Short::new(from, header, body, len as usize) })
    }

    #[inline(always)]
    fn poll_eager(&mut self, tag: u8) -> Option<Short> {
        let ring = self.schedule.fast_ring as usize;
        // `poll_again` would hold the frame. Long messages come by rings of the other class, in frames of other kinds. At the end
        // of a turn `poll` has more to do.
        if ring % 2 != EAGER || self.held.is_full() || self.schedule.polls_left == 0 {
            return None;
        }
        let RingPair { incoming, outgoing } = self.rings.get_mut(ring)?;
        let pending = incoming.receiver.peek(&incoming.slots)?;
        let frame = incoming.slots.frame(incoming.receiver.position());
        let len = incoming.receiver.take_long(pending, tag)?;
        // SAFETY: the ring owns the mapping, which stays until this function returns.
        let header = unsafe { Slots::first_words(frame) };
        let (from, body) = (incoming.peer, frame.wrapping_add(size_of_val(&header)).cast_const());
        prefetch_for_answer(outgoing, slots_for(len.wrapping_add(MIN_SHORT)));
        // SAFETY: a frame that `take_long` yields has 24 bytes or more and lies within the ring. Its slots are ours until they are
        // returned, which happens in later calls.
        Some(unsafe { Short::new(from, header, body, len as usize) })
    }

    #[inline]
    fn poll_copied(&mut self, except: u8, into: &mut [u8]) -> Option<Copied> {
        let ring = self.schedule.fast_ring;
        // At the end of a turn `poll` has more to do. The slots of a held frame are returned before those of later frames.
        let polls_left = self.schedule.polls_left.checked_sub(1)?;
        let RingPair { incoming, outgoing } = self.rings.get_mut(ring as usize)?;
        let pending = incoming.receiver.peek(&incoming.slots)?;
        if ring as usize % 2 != EAGER || incoming.held != 0 {
            return None;
        }
        let ReceivedFrame { position, len, tag } = incoming.receiver.take_fitting(pending, except, into.len())?;
        self.schedule.polls_left = polls_left;
        prefetch_for_answer(outgoing, slots_for(len));
        let frame = incoming.slots.frame(position);
        match into.first_chunk_mut::<HEAD>() {
            // SAFETY: the ring owns the mapping, which stays until this function returns.
            Some(head) if len as usize <= HEAD => *head = unsafe { Slots::head(frame) },
            // SAFETY: the frame lies within the ring, as was checked; `into` has room for it, and is not in the mapping, since no
            // slice reaches there.
            _ => unsafe { core::ptr::copy_nonoverlapping(frame, into.as_mut_ptr(), len as usize) },
        }
        let from = incoming.peer;
        if incoming.receiver.return_credit(&incoming.slots, incoming.receiver.position()) {
            self.credit_returned(ring);
        }
        Some(Copied { from, tag, len })
    }

    fn poll_again(&mut self) -> Option<Frame> {
        let ring = self.schedule.fast_ring;
        let incoming = self.rings.get_mut(ring as usize).map(|ring| &mut ring.incoming)?;
        let received = incoming.receiver.last_taken(&incoming.slots)?;
        if received.len as usize > HEAD && self.held.is_full() {
            return None; // only a hostile peer makes a short frame look like a long one
        }
        Some(frame_of(&mut self.held, incoming, ring, received))
    }

    #[inline]
    fn is_idle(&mut self) -> bool {
        let Some(polls_left) = self.schedule.polls_left.checked_sub(1) else { return false };
        if !self.rings_are_idle() {
            return false;
        }
        self.schedule.polls_left = polls_left;
        true
    }
}

impl SingleCopy for Rail {
    fn expose(&mut self, to: Endpoint, body: &Span) -> Option<RemoteBuffer> {
        self.expose_to(to, body)
    }

    unsafe fn read_exposed(&mut self, from: Endpoint, buffer: &RemoteBuffer, sink: Span) -> bool {
        // SAFETY: passed on from the caller.
        unsafe { self.read_exposed_by(from, buffer, sink) }
    }

    fn read_limit(&self, from: Endpoint) -> u64 {
        self.read_limit_of(from)
    }

    fn revoke_exposed(&mut self) {
        self.revoke_all();
    }
}

impl DeviceMemory for Rail {
    unsafe fn register(&mut self, base: *mut u8, len: usize, access: Access) -> Result<(Region, Key), NativeError> {
        self.regions.register(base, len, access)
    }

    fn deregister(&mut self, region: Region) {
        self.regions.deregister(region);
    }

    unsafe fn perform(&mut self, on: Endpoint, native: &Native, _cookie: Cookie) -> Result<Option<u64>, NativeError> {
        // SAFETY: passed on from the caller.
        unsafe { self.perform_on(on, native) }
    }
}

impl RequestCache for Rail {}
impl Failover for Rail {}
impl Liveness for Rail {
    fn give_up(&mut self, to: Endpoint, what: GiveUp) -> bool {
        if what == GiveUp::Peer {
            self.give_up_peer(to.0);
            self.del_peer(to);
        }
        what == GiveUp::Peer
    }

    fn end_after_frames(&mut self, of: Endpoint, why: Lost) -> bool {
        self.end_after_frames_of(of.0, why)
    }

    fn has_closed(&mut self, of: Endpoint) -> bool {
        self.has_closed_after_frames(of.0)
    }
}
