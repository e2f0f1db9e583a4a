//! The rail trait, over the connections.

use std::os::fd::AsRawFd;

use towline_core::convertor::Span;
use towline_core::rail::COPIED;
use towline_core::rail::{
    Attributes, Cookie, Delivery, Endpoint, Event, FrameId, GiveUp, Grant, HEAD, Lane, Peer, Rail as RailTrait,
    SendError, Sent, Shape, Ticket, Unreachable,
};
use towline_core::time::Instant;

use crate::framing::{PREFIX, encode};
use crate::rail::{Granted, PeerEntry, Rail, Way};
use crate::stream::outbox::{Flush, Outbox, Place, Queue};
use crate::system::socket::{Interest, Moved, piece};
use towline_net::card::Card;
use towline_net::route;

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
        if card.job != self.config.job || card.link != link {
            log::warn!("tcp link {link}: the card of rank {} is of another job or link", card.rank);
            return Err(Unreachable::BadCard);
        }
        if card.rank == self.config.rank {
            return Err(Unreachable::NoNetwork); // a connection to oneself is the loopback rail's
        }
        if self.ranks.contains_key(&card.rank) {
            log::warn!("tcp link {link}: rank {} was added before", card.rank);
            return Err(Unreachable::BadCard);
        }
        let candidates = route::candidates(&self.own, self.host, link, &card);
        if candidates.is_empty() {
            log::warn!("tcp link {link}: no way to rank {}: {:?} from {:?}", card.rank, card.addresses, self.own);
            return Err(Unreachable::NoNetwork);
        }
        let entry = PeerEntry {
            peer,
            rank: card.rank,
            instance: card.instance,
            host: card.host,
            candidates,
            way: Way::Unused,
            ready: false,
            sending: false,
        };
        let endpoint = match self.free.pop() {
            Some(free) => {
                self.peers[free as usize] = Some(entry);
                free
            }
            None => {
                let endpoint = u32::try_from(self.peers.len()).map_err(|_| Unreachable::Full)?;
                self.peers.push(Some(entry));
                endpoint
            }
        };
        self.ranks.insert(card.rank, endpoint);
        for line in [&mut self.ready, &mut self.sending, &mut self.wanted] {
            line.reserve(self.peers.len());
        }
        self.welcome(endpoint);
        Ok(Endpoint(endpoint))
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        self.say_goodbye(endpoint.0);
        self.forget(endpoint.0);
    }

    #[inline]
    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        self.check(shape)?;
        let Some(outbox) = outbox(&mut self.peers, to) else { return Err(self.not_up(to)) };
        let queue = queue(shape.lane);
        if !outbox.has_place(queue) {
            return Err(SendError::Busy);
        }
        let len = PREFIX + shape.len as usize;
        let (place, base) = if len <= outbox.longest(queue) {
            let (start, base) = outbox.room(queue, len).ok_or(SendError::Busy)?;
            (Place::Ring { start, len: len as u32 }, base)
        } else {
            let control = queue == Queue::Control;
            let (slot, base) = self.large.peek(control, outbox.large_held).ok_or(SendError::Busy)?;
            (Place::Large { slot, len: len as u32 }, base)
        };
        let prefix = encode(shape.len, shape.tag, shape.header);
        let position = match place {
            Place::Large { slot, .. } => 1 << 32 | u64::from(slot),
            Place::Ring { start, .. } | Place::Split { start, .. } => u64::from(start),
        };
        let ticket = Ticket { endpoint: to, position, len: shape.len, extra: queue as u32 };
        self.granted = Some(Granted { ticket, queue, place });
        // SAFETY: `len` bytes from `base` on are free in a ring or a large buffer, and stay so until `commit`.
        unsafe {
            base.cast::<[u8; PREFIX]>().write_unaligned(prefix);
            Ok(Grant::new(base.add(PREFIX), shape.len as usize, ticket))
        }
    }

    #[inline]
    fn commit(&mut self, ticket: Ticket) -> Sent {
        let Some(granted) = self.granted.take().filter(|granted| granted.ticket == ticket) else { return Sent::Done };
        let Some(outbox) = outbox(&mut self.peers, ticket.endpoint) else {
            return Sent::Done; // lost meanwhile: its loss was or will be reported
        };
        let (base, len) = match granted.place {
            Place::Ring { start, len } | Place::Split { start, len, .. } => (outbox.at(granted.queue, start), len),
            Place::Large { slot, len } => (self.large.at(slot), len),
        };
        // SAFETY: the grant's `len` bytes from `base` on.
        unsafe { self.launch(ticket.endpoint, granted.queue, granted.place, base, len as usize) }
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
            // SAFETY: the caller vouches for the body until it is told that it is sent.
            return unsafe { self.send_in_place(to, shape, header, (base, len), false, cookie) };
        }
        if whole && PREFIX + shape.len as usize <= self.config.control_staging_bytes as usize / 2 {
            // SAFETY: the caller vouches for the body until this returns.
            return unsafe { self.send_short(to, shape, header, body) };
        }
        let mut grant = self.reserve(to, shape)?;
        grant.write(0, header);
        // SAFETY: the caller vouches for the body until this returns.
        unsafe { grant.gather(header.len(), body) };
        let ticket = grant.finish();
        Ok(self.commit(ticket))
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
            // SAFETY: the caller vouches for the body until it is told that it is sent.
            return unsafe { self.send_in_place(to, shape, header, (base, len), true, cookie) };
        }
        // SAFETY: passed on from the caller.
        unsafe { self.send(to, shape, header, body, cookie) }
    }

    fn drained(&self, to: Endpoint) -> bool {
        match self.peers.get(to.0 as usize) {
            Some(Some(PeerEntry { way: Way::Up(stream), .. })) => stream.outbox.is_empty(),
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
        match self.peers.get(frame.0 as usize) {
            Some(Some(PeerEntry { way: Way::Up(stream), .. })) => stream.inbox.read(at, into),
            _ => 0,
        }
    }

    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery {
        // SAFETY: the caller vouches for the sink until it is told of the delivery.
        unsafe { self.finish_held(frame, skip, sink, Some(cookie)) }
    }

    fn release(&mut self, frame: FrameId) {
        // SAFETY: an empty sink is never written to.
        unsafe { self.finish_held(frame, usize::MAX, Span::EMPTY, None) };
    }

    fn poll_at(&self) -> Option<Instant> {
        if self.wanted.is_empty() && self.events.is_empty() { self.next_deadline } else { Some(self.now) }
    }

    fn arm(&mut self) -> bool {
        if !self.events.is_empty() || !self.ready.is_empty() || !self.wanted.is_empty() {
            return false;
        }
        for at in 0..self.sending.len() {
            let Some(PeerEntry { way: Way::Up(stream), .. }) =
                self.sending.get(at).and_then(|endpoint| entry(&mut self.peers, Endpoint(*endpoint)))
            else {
                continue;
            };
            if !stream.watches_writes {
                stream.watches_writes = true;
                if self.epoll.change(stream.socket.as_raw_fd(), Interest::ReadWrite, stream.word).is_err() {
                    return false;
                }
            }
        }
        self.look_around() == 0
    }
}

impl towline_core::rail::Liveness for Rail {
    fn give_up(&mut self, to: Endpoint, what: GiveUp) -> bool {
        if what == GiveUp::Peer {
            self.hang_up(to.0);
            self.forget(to.0);
        }
        what == GiveUp::Peer
    }
}

impl towline_core::rail::FastPath for Rail {}
impl towline_core::rail::RequestCache for Rail {}
impl towline_core::rail::SingleCopy for Rail {}
impl towline_core::rail::DeviceMemory for Rail {}
impl towline_core::rail::Failover for Rail {}

impl Rail {
    /// Sends a frame that fits any ring: as `reserve` and `commit` do, without a grant between them.
    ///
    /// # Safety
    /// The body is readable and unchanging until this returns, and as long as the shape says.
    #[inline]
    unsafe fn send_short(&mut self, to: Endpoint, shape: Shape, header: &[u8], body: Span) -> Result<Sent, SendError> {
        self.check(shape)?;
        if header.len() != usize::from(shape.header) {
            return Err(SendError::TooLong);
        }
        let Some(outbox) = outbox(&mut self.peers, to) else { return Err(self.not_up(to)) };
        let queue = queue(shape.lane);
        if !outbox.has_place(queue) {
            return Err(SendError::Busy);
        }
        let len = PREFIX + shape.len as usize;
        let (start, base) = outbox.room(queue, len).ok_or(SendError::Busy)?;
        self.granted = None; // an older grant may be of the same room
        // SAFETY: `len` free bytes of the ring from `base` on, which are prefix, header and body together.
        unsafe {
            base.cast::<[u8; PREFIX]>().write_unaligned(encode(shape.len, shape.tag, shape.header));
            std::ptr::copy_nonoverlapping(header.as_ptr(), base.add(PREFIX), header.len());
            body.pack(base.add(PREFIX + header.len()), shape.len as usize - header.len());
            Ok(self.launch(to, queue, Place::Ring { start, len: len as u32 }, base, len))
        }
    }

    /// Gives a frame to the kernel at once where none waits, else puts it in line.
    ///
    /// # Safety
    /// The frame is the `len` bytes from `base` on, which are at `place`.
    #[inline]
    unsafe fn launch(&mut self, to: Endpoint, queue: Queue, place: Place, base: *mut u8, len: usize) -> Sent {
        let Some(PeerEntry { way: Way::Up(stream), .. }) = entry(&mut self.peers, to) else { return Sent::Done };
        let mut sent = 0;
        let (mut channel, _, outbox) = stream.parts();
        if outbox.is_empty() {
            // SAFETY: the caller vouches for the bytes.
            let moved = unsafe { channel.send(base, len) };
            outbox.lags = channel.lags();
            match moved {
                Moved::Bytes(bytes) if bytes == len => {
                    if !outbox.lags {
                        return Sent::Done;
                    }
                    self.mark_sending(to.0);
                    return Sent::Staged;
                }
                Moved::Bytes(bytes) => sent = bytes as u32,
                Moved::Nothing | Moved::End | Moved::Forged => {}
                Moved::Broken(_) => {
                    stream.outbox.broken = true;
                    stream.inbox.more = true;
                    self.mark_ready(to.0);
                    return Sent::Done; // the loss is reported by the next polls
                }
            }
        }
        if let Place::Large { slot, .. } = place {
            self.large.take(slot);
            stream.outbox.large_held += 1;
        }
        stream.outbox.push(queue, place, sent);
        self.mark_sending(to.0);
        Sent::Staged
    }

    /// Whether a frame keeps the limits of its lane.
    #[inline]
    fn check(&self, shape: Shape) -> Result<(), SendError> {
        let limit = match shape.lane {
            Lane::Bulk => self.attributes.max_send_size,
            Lane::Control | Lane::Eager => self.attributes.eager_limit,
        };
        let fits = shape.len <= limit && usize::from(shape.header) <= HEAD && u32::from(shape.header) <= shape.len;
        if fits { Ok(()) } else { Err(SendError::TooLong) }
    }

    /// Sends header and body without copying the body; what the kernel does not take now waits where it lies. Of a summed one
    /// the kernel may take the memory itself.
    ///
    /// # Safety
    /// The body is readable and unchanging until it is reported as sent.
    unsafe fn send_in_place(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        (body, body_len): (*mut u8, usize),
        summed: bool,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        self.check(shape)?;
        if header.len() != usize::from(shape.header) {
            return Err(SendError::TooLong);
        }
        self.granted = None; // an older grant may be of the same room
        let Some(PeerEntry { way: Way::Up(stream), .. }) = entry(&mut self.peers, to) else {
            return Err(self.not_up(to));
        };
        let (mut channel, inbox, outbox) = stream.parts();
        if outbox.broken {
            return Err(SendError::Unreachable);
        }
        let queue = queue(shape.lane);
        let len = PREFIX + header.len();
        if !outbox.has_place(queue) || !outbox.has_in_place_room() {
            return Err(SendError::Busy);
        }
        let (start, base) = outbox.room(queue, len).ok_or(SendError::Busy)?;
        // SAFETY: `len` free bytes of the ring from `base` on.
        unsafe {
            base.cast::<[u8; PREFIX]>().write_unaligned(encode(shape.len, shape.tag, shape.header));
            std::ptr::copy_nonoverlapping(header.as_ptr(), base.add(PREFIX), header.len());
        }
        let summed = summed && channel.sealed.is_none();
        if summed {
            self.pipe.prepare(body_len, &mut self.counters);
        }
        let by_pipe = summed && body_len >= self.pipe.from(channel.word);
        let mut sent = 0;
        if outbox.is_empty() && !by_pipe {
            let mut pieces = [piece(base, len), piece(body, body_len)];
            // SAFETY: both pieces are readable, the second one by the caller's word.
            let moved = unsafe { channel.send_pieces(&mut pieces) };
            outbox.lags = channel.lags();
            match moved {
                Moved::Bytes(bytes) if bytes == len + body_len => {
                    if !outbox.lags {
                        return Ok(Sent::Done);
                    }
                    self.mark_sending(to.0);
                    return Ok(Sent::Staged); // sealed, so the body is free
                }
                Moved::Bytes(bytes) => sent = bytes as u32,
                Moved::Nothing | Moved::End | Moved::Forged => {}
                Moved::Broken(_) => {
                    outbox.broken = true;
                    inbox.more = true;
                    self.mark_ready(to.0);
                    return Err(SendError::Unreachable);
                }
            }
        }
        let place = Place::Split { start, len: len as u32, body, body_len: body_len as u32, summed, cookie };
        let alone = outbox.is_empty();
        outbox.push(queue, place, sent);
        if alone && by_pipe {
            match outbox.flush(&mut channel, &mut self.large, &mut self.pipe, &mut self.counters, |_| {}) {
                Flush::Empty => return Ok(Sent::Done),
                Flush::Full => {}
                Flush::Broken(_) => {
                    inbox.more = true;
                    self.mark_ready(to.0);
                    return Ok(Sent::InPlace); // until the loss is reported
                }
            }
        }
        self.mark_sending(to.0);
        Ok(Sent::InPlace)
    }

    /// Why nothing can be sent to a peer now; a first use makes it wanted.
    #[cold]
    fn not_up(&mut self, to: Endpoint) -> SendError {
        let Some(entry) = self.entry(to.0) else { return SendError::Unreachable };
        match entry.way {
            Way::Unused => {
                entry.way = Way::Wanted;
                self.wanted.push_back(to.0);
                SendError::Busy
            }
            Way::Wanted | Way::Connecting(_) => SendError::Busy,
            Way::Up(_) | Way::Gone => SendError::Unreachable,
        }
    }

    /// Sends the rest of the held frame on its way, and holds it no more.
    ///
    /// # Safety
    /// The sink is writable until the delivery is reported.
    unsafe fn finish_held(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Option<Cookie>) -> Delivery {
        let Some(endpoint) = self.held.filter(|held| u64::from(*held) == frame.0) else { return Delivery::Done };
        self.held = None;
        let Some(stream) = self.stream(endpoint) else { return Delivery::Done };
        // SAFETY: the caller vouches for the sink.
        let done = unsafe { stream.inbox.deliver(skip, sink, cookie) };
        if !done || stream.sealed.as_ref().is_some_and(|sealed| sealed.keeps()) {
            // The rest is on its way; or what came behind a frame that filled the staging buffer lies in records that were
            // read, of which the kernel tells nothing.
            stream.inbox.more = true;
        }
        if stream.inbox.more || stream.inbox.has_staged() {
            self.mark_ready(endpoint);
        }
        if done { Delivery::Done } else { Delivery::Pending }
    }
}

#[inline]
fn entry(peers: &mut [Option<PeerEntry>], endpoint: Endpoint) -> Option<&mut PeerEntry> {
    peers.get_mut(endpoint.0 as usize)?.as_mut()
}

/// The outbox of a peer that frames can travel to.
#[inline]
fn outbox(peers: &mut [Option<PeerEntry>], endpoint: Endpoint) -> Option<&mut Outbox> {
    match &mut entry(peers, endpoint)?.way {
        Way::Up(stream) if !stream.outbox.broken => Some(&mut stream.outbox),
        _ => None,
    }
}

const fn queue(lane: Lane) -> Queue {
    match lane {
        Lane::Control => Queue::Control,
        Lane::Eager | Lane::Bulk => Queue::Main,
    }
}
