//! The rail trait: adding peers, sending and reading.

use std::os::fd::AsRawFd;

use towline_core::convertor::Span;
use towline_core::rail::{
    Attributes, COPIED, Cookie, Delivery, DeviceMemory, Endpoint, Event, Failover, FastPath, FrameId, GiveUp, Grant,
    HEAD, Lane, Liveness, Peer, Rail as RailTrait, RequestCache, SendError, Sent, Shape, SingleCopy, Ticket,
    Unreachable, send_by_grant,
};
use towline_core::time::Instant;
use towline_net::card::Card;
use towline_net::{Member, PeerTable, route};

use crate::rail::peer::{ConnState, PeerEntry};
use crate::rail::{Granted, Rail};
use crate::stream::outbox::{Flush, Outbox, Queue, QueuedFrame};
use crate::system::epoll::Interest;
use crate::system::socket::{Transfer, piece};
use crate::wire::framing::{PREFIX, encode};

impl RailTrait for Rail {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        &self.card
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        let card = Card::decode(card)?;
        let link = self.config.link;
        let own = Member { job: self.config.job, link, rank: self.config.rank };
        self.peers.check("tcp", own, card.member())?;
        let candidates = route::candidates(&self.own, self.host, link, &card);
        if candidates.is_empty() {
            log::warn!("tcp link {link}: no route to rank {}: {:?} from {:?}", card.rank, card.addresses, self.own);
            return Err(Unreachable::NoNetwork);
        }
        let entry = PeerEntry {
            peer,
            rank: card.rank,
            instance: card.instance,
            host: card.host,
            candidates,
            state: ConnState::Unused,
            ready: false,
            sending: false,
        };
        let endpoint = self.peers.add(card.rank, entry)?;
        for list in [&mut self.ready, &mut self.sending, &mut self.requested] {
            list.reserve(self.peers.endpoints() as usize);
        }
        self.arbitrate_waiting(endpoint);
        Ok(Endpoint(endpoint))
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        self.send_goodbye(endpoint.0);
        self.remove(endpoint.0);
    }

    #[inline]
    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        self.check(shape)?;
        let Some(outbox) = outbox(&mut self.peers, to) else { return Err(self.not_connected(to)) };
        let queue = queue(shape.lane);
        if !outbox.has_slot(queue) {
            return Err(SendError::Busy);
        }
        let len = PREFIX + shape.len as usize;
        let (frame, base) = if len <= outbox.max_staged(queue) {
            let (start, base) = outbox.room(queue, len).ok_or(SendError::Busy)?;
            (QueuedFrame::Staged { start, len: len as u32 }, base)
        } else {
            let control = queue == Queue::Control;
            let (slot, base) = self.buffers.peek(control, outbox.packed).ok_or(SendError::Busy)?;
            (QueuedFrame::Packed { slot, len: len as u32 }, base)
        };
        let prefix = encode(shape.len, shape.tag, shape.header);
        let position = match frame {
            QueuedFrame::Packed { slot, .. } => 1 << 32 | u64::from(slot),
            QueuedFrame::Staged { start, .. } | QueuedFrame::InPlace { start, .. } => u64::from(start),
        };
        let ticket = Ticket { endpoint: to, position, len: shape.len, extra: queue as u32 };
        self.granted = Some(Granted { ticket, queue, frame });
        // SAFETY: the `len` bytes from `base` on are free in a ring or a pack buffer, and stay free until `commit`.
        unsafe {
            base.cast::<[u8; PREFIX]>().write_unaligned(prefix);
            Ok(Grant::new(base.add(PREFIX), shape.len as usize, ticket))
        }
    }

    #[inline]
    fn commit(&mut self, ticket: Ticket) -> Sent {
        let Some(granted) = self.granted.take().filter(|granted| granted.ticket == ticket) else { return Sent::Done };
        let Some(outbox) = outbox(&mut self.peers, ticket.endpoint) else {
            return Sent::Done; // lost meanwhile; the loss was or will be reported
        };
        let (base, len) = match granted.frame {
            QueuedFrame::Staged { start, len } | QueuedFrame::InPlace { start, len, .. } => {
                (outbox.at(granted.queue, start), len)
            }
            QueuedFrame::Packed { slot, len } => (self.buffers.at(slot), len),
        };
        // SAFETY: the grant consists of the `len` bytes from `base` on.
        unsafe { self.send_or_queue(ticket.endpoint, granted.queue, granted.frame, base, len as usize) }
    }

    #[inline]
    unsafe fn send(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        let whole = header.len() as u64 + body.len() == u64::from(shape.len);
        if body.len() > COPIED
            && body.len() >= u64::from(self.config.in_place_from_bytes)
            && whole
            && let Some((base, len)) = body.as_contiguous()
        {
            // SAFETY: the caller guarantees that the body is valid until its completion is reported.
            return unsafe { self.send_in_place(to, shape, header, Body { base, len, summed: false }, cookie) };
        }
        if whole && PREFIX + shape.len as usize <= self.config.control_staging_bytes as usize / 2 {
            // SAFETY: the caller guarantees that the body is valid until this returns.
            return unsafe { self.send_short(to, shape, header, body) };
        }
        // SAFETY: the caller guarantees that the body is valid until this returns.
        unsafe { send_by_grant(self, to, shape, header, body) }
    }

    unsafe fn send_summed(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        if body.len() > COPIED
            && body.len() >= u64::from(self.config.splice_from_bytes)
            && header.len() as u64 + body.len() == u64::from(shape.len)
            && let Some((base, len)) = body.as_contiguous()
        {
            // SAFETY: the caller guarantees that the body is valid until its completion is reported.
            return unsafe { self.send_in_place(to, shape, header, Body { base, len, summed: true }, cookie) };
        }
        // SAFETY: passed on from the caller.
        unsafe { self.send(to, shape, header, body, cookie) }
    }

    fn drained(&self, to: Endpoint) -> bool {
        match self.peers.get(to.0) {
            Some(PeerEntry { state: ConnState::Connected(connection), .. }) => connection.outbox.is_empty(),
            _ => true,
        }
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Event> {
        self.progress(now)
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        if self.held.map(u64::from) != Some(frame.0) {
            return 0;
        }
        match self.peers.get(frame.0 as u32) {
            Some(PeerEntry { state: ConnState::Connected(connection), .. }) => connection.inbox.read(at, into),
            _ => 0,
        }
    }

    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery {
        // SAFETY: the caller guarantees that the sink is valid until the delivery is reported.
        unsafe { self.finish_held(frame, skip, sink, Some(cookie)) }
    }

    fn release(&mut self, frame: FrameId) {
        // SAFETY: an empty sink is never written to.
        unsafe { self.finish_held(frame, usize::MAX, Span::EMPTY, None) };
    }

    fn poll_at(&self) -> Option<Instant> {
        if self.requested.is_empty() && self.events.is_empty() { self.next_deadline } else { Some(self.now) }
    }

    fn arm(&mut self) -> bool {
        if !self.events.is_empty() || !self.ready.is_empty() || !self.requested.is_empty() {
            return false;
        }
        for at in 0..self.sending.len() {
            let Some(PeerEntry { state: ConnState::Connected(connection), .. }) =
                self.sending.get(at).and_then(|endpoint| self.peers.get_mut(*endpoint))
            else {
                continue;
            };
            if !connection.watches_writes {
                connection.watches_writes = true;
                let socket = connection.socket.as_raw_fd();
                if self.epoll.change(socket, Interest::ReadWrite, connection.token).is_err() {
                    return false;
                }
            }
        }
        self.poll_epoll() == 0
    }
}

impl Liveness for Rail {
    fn give_up(&mut self, to: Endpoint, what: GiveUp) -> bool {
        if what == GiveUp::Peer {
            self.shut_down(to.0);
            self.remove(to.0);
        }
        what == GiveUp::Peer
    }
}

impl FastPath for Rail {
    /// Without a connection or a deadline, most polls are left out: one in some asks epoll for new connections.
    #[inline]
    fn is_idle(&mut self) -> bool {
        let idle = self.has_nothing_to_do();
        self.polls += u32::from(idle);
        idle
    }
}
impl RequestCache for Rail {}
impl SingleCopy for Rail {}
impl DeviceMemory for Rail {}
impl Failover for Rail {}

impl Rail {
    /// Sends a frame that fits into any ring, as `reserve` and `commit` do but without a grant.
    ///
    /// # Safety
    /// The body is readable and does not change until this returns. It is as long as the shape says.
    #[inline]
    unsafe fn send_short(&mut self, to: Endpoint, shape: Shape, header: &[u8], body: Span) -> Result<Sent, SendError> {
        self.check(shape)?;
        if header.len() != usize::from(shape.header) {
            return Err(SendError::TooLong);
        }
        let Some(outbox) = outbox(&mut self.peers, to) else { return Err(self.not_connected(to)) };
        let queue = queue(shape.lane);
        if !outbox.has_slot(queue) {
            return Err(SendError::Busy);
        }
        let len = PREFIX + shape.len as usize;
        let (start, base) = outbox.room(queue, len).ok_or(SendError::Busy)?;
        self.granted = None; // an older grant may have the same bytes of the ring
        // SAFETY: the `len` bytes of the ring from `base` on are free; prefix, header and body together have `len` bytes.
        unsafe {
            base.cast::<[u8; PREFIX]>().write_unaligned(encode(shape.len, shape.tag, shape.header));
            std::ptr::copy_nonoverlapping(header.as_ptr(), base.add(PREFIX), header.len());
            body.pack(base.add(PREFIX + header.len()), shape.len as usize - header.len());
            Ok(self.send_or_queue(to, queue, QueuedFrame::Staged { start, len: len as u32 }, base, len))
        }
    }

    /// Sends a frame at once if no other one waits, otherwise queues it.
    ///
    /// # Safety
    /// The frame consists of the `len` bytes from `base` on, which `frame` describes.
    #[inline]
    unsafe fn send_or_queue(
        &mut self,
        to: Endpoint,
        queue: Queue,
        frame: QueuedFrame,
        base: *mut u8,
        len: usize,
    ) -> Sent {
        let Some(PeerEntry { state: ConnState::Connected(connection), .. }) = self.peers.get_mut(to.0) else {
            return Sent::Done;
        };
        let mut sent = 0;
        let (mut channel, _, outbox) = connection.parts();
        if outbox.is_empty() {
            // SAFETY: the caller guarantees that the bytes are valid.
            let moved = unsafe { channel.send(base, len) };
            outbox.record_waits = channel.has_unsent_record();
            match moved {
                Transfer::Bytes(bytes) if bytes == len => {
                    if !outbox.record_waits {
                        return Sent::Done;
                    }
                    self.mark_sending(to.0);
                    return Sent::Staged;
                }
                Transfer::Bytes(bytes) => sent = bytes as u32,
                Transfer::WouldBlock | Transfer::End | Transfer::Forged => {}
                Transfer::Broken(_) => {
                    connection.outbox.broken = true;
                    connection.inbox.more = true;
                    self.mark_ready(to.0);
                    return Sent::Done; // the next polls report the loss
                }
            }
        }
        if let QueuedFrame::Packed { slot, .. } = frame {
            self.buffers.take(slot);
            connection.outbox.packed += 1;
        }
        connection.outbox.push(queue, frame, sent);
        self.mark_sending(to.0);
        Sent::Staged
    }

    /// Checks that a frame is within the limits of its lane.
    #[inline]
    fn check(&self, shape: Shape) -> Result<(), SendError> {
        let limit = match shape.lane {
            Lane::Bulk => self.attributes.max_send_size,
            Lane::Control | Lane::Eager => self.attributes.eager_limit,
        };
        let fits = shape.len <= limit && usize::from(shape.header) <= HEAD && u32::from(shape.header) <= shape.len;
        if fits { Ok(()) } else { Err(SendError::TooLong) }
    }

    /// Sends header and body without staging the body. The part that the kernel does not accept now waits in the user's memory. A
    /// body with a checksum may be spliced.
    ///
    /// # Safety
    /// The body is readable and does not change until its completion is reported.
    unsafe fn send_in_place(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Body,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        self.check(shape)?;
        if header.len() != usize::from(shape.header) {
            return Err(SendError::TooLong);
        }
        self.granted = None; // an older grant may have the same bytes of the ring
        let Some(PeerEntry { state: ConnState::Connected(connection), .. }) = self.peers.get_mut(to.0) else {
            return Err(self.not_connected(to));
        };
        let (mut channel, inbox, outbox) = connection.parts();
        if outbox.broken {
            return Err(SendError::Unreachable);
        }
        let queue = queue(shape.lane);
        let len = PREFIX + header.len();
        if !outbox.has_slot(queue) || !outbox.has_in_place_slot() {
            return Err(SendError::Busy);
        }
        let (start, base) = outbox.room(queue, len).ok_or(SendError::Busy)?;
        // SAFETY: the `len` bytes of the ring from `base` on are free.
        unsafe {
            base.cast::<[u8; PREFIX]>().write_unaligned(encode(shape.len, shape.tag, shape.header));
            std::ptr::copy_nonoverlapping(header.as_ptr(), base.add(PREFIX), header.len());
        }
        let summed = body.summed && channel.records.is_none();
        if summed {
            self.pipe.prepare(body.len, &mut self.counters);
        }
        let route = if !outbox.is_empty() {
            InPlaceRoute::Queue
        } else if summed && body.len >= self.pipe.threshold(channel.token) {
            InPlaceRoute::Splice
        } else {
            InPlaceRoute::Direct
        };
        let (body_base, body_len) = (body.base, body.len as u32);
        let frame = QueuedFrame::InPlace { start, len: len as u32, body: body_base, body_len, summed, cookie };
        match route {
            InPlaceRoute::Queue => outbox.push(queue, frame, 0),
            InPlaceRoute::Splice => {
                outbox.push(queue, frame, 0);
                match outbox.flush(&mut channel, &mut self.buffers, &mut self.pipe, &mut self.counters, |_| {}) {
                    Flush::Empty => return Ok(Sent::Done),
                    Flush::Full => {}
                    Flush::Broken(_) => {
                        inbox.more = true;
                        self.mark_ready(to.0);
                        return Ok(Sent::InPlace); // until the loss is reported
                    }
                }
            }
            InPlaceRoute::Direct => {
                let mut pieces = [piece(base, len), piece(body.base, body.len)];
                // SAFETY: both pieces are readable; the caller vouches for the second one.
                let moved = unsafe { channel.send_pieces(&mut pieces) };
                outbox.record_waits = channel.has_unsent_record();
                match moved {
                    Transfer::Bytes(bytes) if bytes == len + body.len => {
                        if !outbox.record_waits {
                            return Ok(Sent::Done);
                        }
                        self.mark_sending(to.0);
                        return Ok(Sent::Staged); // the body was copied into a record, so its memory is free
                    }
                    Transfer::Bytes(bytes) => outbox.push(queue, frame, bytes as u32),
                    Transfer::WouldBlock | Transfer::End | Transfer::Forged => outbox.push(queue, frame, 0),
                    Transfer::Broken(_) => {
                        outbox.broken = true;
                        inbox.more = true;
                        self.mark_ready(to.0);
                        return Err(SendError::Unreachable);
                    }
                }
            }
        }
        self.mark_sending(to.0);
        Ok(Sent::InPlace)
    }

    /// Why nothing can be sent to a peer now. The first use of a peer requests a connection.
    #[cold]
    fn not_connected(&mut self, to: Endpoint) -> SendError {
        let Some(entry) = self.peers.get_mut(to.0) else { return SendError::Unreachable };
        match entry.state {
            ConnState::Unused => {
                entry.state = ConnState::Requested;
                self.requested.push_back(to.0);
                SendError::Busy
            }
            ConnState::Requested | ConnState::Connecting(_) => SendError::Busy,
            ConnState::Connected(_) | ConnState::Lost => SendError::Unreachable,
        }
    }

    /// Delivers the held frame from `skip` on, and releases it.
    ///
    /// # Safety
    /// The sink is writable until the delivery is reported.
    unsafe fn finish_held(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Option<Cookie>) -> Delivery {
        // If the connection broke, the frame is gone, and the event that reports the loss may still wait in the queue.
        let Some(endpoint) = self.held.filter(|held| u64::from(*held) == frame.0) else { return Delivery::Pending };
        self.held = None;
        let Some(connection) = self.connection(endpoint) else { return Delivery::Pending };
        // SAFETY: the caller guarantees that the sink is valid.
        let done = unsafe { connection.inbox.deliver(skip, sink, cookie) };
        if !done || connection.records.as_ref().is_some_and(|records| records.holds_input()) {
            // The rest of the frame is still missing; or the frame filled the staging buffer, and the bytes behind it lie in
            // records that were read already, so that epoll does not report them.
            connection.inbox.more = true;
        }
        if connection.inbox.more || connection.inbox.has_staged() {
            self.mark_ready(endpoint);
        }
        if done { Delivery::Done } else { Delivery::Pending }
    }
}

/// A body in the user's memory.
#[derive(Clone, Copy, Debug)]
struct Body {
    base: *mut u8,
    len: usize,
    /// Whether it has a checksum, so that its receiver can tell if it changed on the way.
    summed: bool,
}

/// How a frame with a body in the user's memory is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InPlaceRoute {
    /// At once, by one system call.
    Direct,
    /// At once, and the body through the pipe.
    Splice,
    /// Later, as other frames wait.
    Queue,
}

/// The outbox of a connected peer.
#[inline]
fn outbox(peers: &mut PeerTable<PeerEntry>, endpoint: Endpoint) -> Option<&mut Outbox> {
    match &mut peers.get_mut(endpoint.0)?.state {
        ConnState::Connected(connection) if !connection.outbox.broken => Some(&mut connection.outbox),
        _ => None,
    }
}

const fn queue(lane: Lane) -> Queue {
    match lane {
        Lane::Control => Queue::Control,
        Lane::Eager | Lane::Bulk => Queue::Main,
    }
}
