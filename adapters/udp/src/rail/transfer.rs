//! The rail trait: what is asked of a rail, but for polling.

use towline_core::convertor::Span;
use towline_core::rail::{
    Attributes, Cookie, Delivery, Endpoint, Event, FrameId, GiveUp, Grant, HEAD, Lane, Peer, Rail as RailTrait,
    SendError, Sent, Shape, Ticket, Unreachable,
};
use towline_core::time::Instant;
use towline_crypt::{MESSAGE, TAG};
use towline_net::route;

use crate::card;
use crate::config::MOST;
use crate::datagram::{INNER, PREFIX, SEALED, START, What, inner, sealed_start, start};
use crate::hello::{Hello, Stage};
use crate::rail::peer::{Known, Way};
use crate::rail::{Rail, draw};
use crate::session::handshake::Meeting;

impl RailTrait for Rail {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        &self.card
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        let forwarded = card::is_forwarded(card);
        let card = card::decode(card)?;
        let (link, rank) = (self.config.link, card.rank);
        if (card.job, card.link) != (self.config.job, link) || self.peers.of_rank(rank).is_some() {
            log::warn!("udp link {link}: the card of rank {rank} is of another job or link, or was added before");
            return Err(Unreachable::BadCard);
        }
        if rank == self.config.rank {
            return Err(Unreachable::NoNetwork); // a way to oneself is the loopback rail's
        }
        let candidates = route::candidates(&self.own, self.host, link, &card);
        if candidates.is_empty() {
            return Err(Unreachable::NoNetwork);
        }
        let index = self.peers.next().ok_or(Unreachable::Full)?;
        let mut nonce = [0; 16];
        draw(&mut nonce).map_err(|why| {
            log::error!("udp link {link}: no random bytes: {why}");
            Unreachable::System
        })?;
        let base = Hello {
            link,
            stage: Stage::Calls,
            signs: self.signs,
            encrypted: self.seals && self.config.encrypt.applies(card.host == self.host),
            encrypt: self.config.encrypt,
            job: self.config.job,
            from: self.config.rank,
            to: rank,
            from_instance: self.instance,
            to_instance: card.instance,
            index,
            nonce: [0; 16],
            echo: [0; 16],
            keys: [0; MESSAGE],
        };
        self.drop_last_words(rank);
        let meeting = Meeting::new(base, nonce);
        self.peers.add(Known {
            peer,
            rank,
            candidates,
            closed: 0,
            meeting,
            remote: None,
            way: Way::Unused,
            again: None,
            answered: None,
            forwarded,
            doubt: None,
        });
        // Nothing is allocated later on: each peer is in each list at most once, is told to be silent once at a time, and is lost
        // once.
        let peers = self.peers.len();
        let Self { wanted, calling, renewing, closing, doubted, .. } = self;
        for list in [wanted, calling, renewing, closing, doubted] {
            list.reserve(peers - list.len());
        }
        self.hosts.reserve(peers);
        self.last_words.reserve(peers.saturating_sub(self.last_words.len()));
        self.events.reserve(2 * peers);
        Ok(Endpoint(index))
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        self.forget(endpoint.0, true);
    }

    #[inline]
    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        if shape.len > self.attributes.max_send_size || usize::from(shape.header) > HEAD.min(shape.len as usize) {
            return Err(SendError::TooLong);
        }
        let Some(known) = self.peers.get(to.0) else { return Err(SendError::Unreachable) };
        let (Way::Up, Some(session)) = (known.way, known.meeting.session()) else { return Err(self.not_up(to.0)) };
        let what = What::Frame { tag: shape.tag, header: shape.header };
        let (len, at) = match &session.sealed {
            None => (PREFIX + shape.len as usize, PREFIX),
            Some(sealed) if sealed.next >= MOST_SEALED => return Err(SendError::Busy), // until there are new keys
            Some(_) => (PREFIX + SEALED + shape.len as usize, PREFIX + INNER),
        };
        let start = start(what, session.index);
        let Some(room) = self.outbox.room(shape.lane, len) else { return Err(SendError::Busy) };
        if at == PREFIX {
            room[..START].copy_from_slice(&start);
        } else {
            room[PREFIX..at].copy_from_slice(&inner(what));
        }
        let ticket = Ticket { endpoint: to, position: 0, len: shape.len, extra: shape.lane as u32 };
        self.granted = Some(ticket);
        // SAFETY: the room is free, and stays so until `commit`.
        Ok(unsafe { Grant::new(room[at..].as_mut_ptr(), shape.len as usize, ticket) })
    }

    #[inline]
    fn commit(&mut self, ticket: Ticket) -> Sent {
        let granted = self.granted.take().filter(|granted| *granted == ticket);
        let session = self.peers.get_mut(ticket.endpoint.0).and_then(|known| known.meeting.session_mut());
        let (Some(_), Some(session)) = (granted, session) else { return Sent::Done };
        let more = if session.sealed.is_some() { SEALED } else { 0 };
        let len = PREFIX + more + ticket.len as usize;
        let Some(room) = self.outbox.granted(len) else { return Sent::Done };
        let (prefix, frame) = room.split_at_mut(PREFIX);
        let mut renews = false;
        if let Some(sealed) = &mut session.sealed {
            prefix.copy_from_slice(&sealed_start(session.index, sealed.next));
            let plain = &frame[..frame.len() - TAG];
            let count = sealed.cipher.seal_as(sealed.next, plain, &mut self.scratch);
            if count != frame.len() {
                return Sent::Done; // not to be: no frame is too long
            }
            frame.copy_from_slice(&self.scratch[..count]);
            sealed.next += 1;
            renews = sealed.next >= self.config.renew_after_datagrams;
        } else if let Some((start, proof)) = prefix.split_first_chunk_mut::<START>() {
            proof.copy_from_slice(&session.out.proof(start, frame));
        }
        let first = self.outbox.is_empty();
        self.outbox.stage(ticket.endpoint.0, len);
        if renews {
            self.renew(ticket.endpoint.0);
        }
        let short = ticket.extra != Lane::Bulk as u32 && first && self.at_once < self.config.frames_at_once;
        // Or if another one as long would not go with the same message.
        if short || self.outbox.waiting() + len > MOST as usize {
            self.at_once += u32::from(short);
            self.push_out();
        }
        if self.outbox.is_empty() { Sent::Done } else { Sent::Staged }
    }

    fn drained(&self, to: Endpoint) -> bool {
        !self.outbox.has(to.0)
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Event> {
        self.progress(now)
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        let bytes = self.inbox.frame(frame).and_then(|bytes| bytes.get(at..)).unwrap_or_default();
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        count
    }

    #[inline]
    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, _cookie: Cookie) -> Delivery {
        if let Some(bytes) = self.inbox.frame(frame).and_then(|bytes| bytes.get(skip..)) {
            // SAFETY: the caller vouches for the sink, which is not the rail's memory.
            unsafe { sink.unpack(bytes.as_ptr(), bytes.len()) };
        }
        self.inbox.release(frame);
        Delivery::Done
    }

    #[inline]
    fn release(&mut self, frame: FrameId) {
        self.inbox.release(frame);
    }

    #[inline]
    fn flush(&mut self) {
        // What the socket did not take, or may not leave yet, waits for its time.
        if !self.outbox.is_empty() && self.send_again.is_none() {
            self.push_out();
        }
    }

    fn poll_at(&self) -> Option<Instant> {
        [self.next_hello, self.next_question, self.send_again].into_iter().flatten().min()
    }

    fn arm(&mut self) -> bool {
        if !self.events.is_empty() || !self.wanted.is_empty() || !self.closing.is_empty() {
            return false;
        }
        if !self.outbox.is_empty() && self.send_again.is_none() {
            return false;
        }
        self.look_for_more()
    }
}

impl towline_core::rail::Liveness for Rail {
    fn give_up(&mut self, to: Endpoint, what: GiveUp) -> bool {
        if what == GiveUp::Peer {
            self.forget(to.0, false);
        }
        what == GiveUp::Peer
    }

    fn ask_host(&mut self, of: Endpoint) -> Option<Instant> {
        self.knock(of.0)
    }
}

impl towline_core::rail::FastPath for Rail {}
impl towline_core::rail::RequestCache for Rail {}
impl towline_core::rail::SingleCopy for Rail {}
impl towline_core::rail::DeviceMemory for Rail {}
impl towline_core::rail::Failover for Rail {}

/// Datagrams under the same keys at the very most: AES-GCM is good for somewhat more (RFC 8446).
pub(crate) const MOST_SEALED: u64 = 1 << 24;

impl Rail {
    /// Forgets a peer, with a good-bye or without.
    fn forget(&mut self, endpoint: u32, bye: bool) {
        if self.peers.get(endpoint).is_none() {
            return;
        }
        if self.outbox.has(endpoint) {
            self.push_out();
        }
        if bye && let Some(word) = self.say_bye(endpoint) {
            self.keep_last_word(endpoint, word);
        }
        self.stop_asking(endpoint);
        self.outbox.forget(endpoint);
        self.inbox.forget(endpoint);
        self.leave_lists(endpoint);
        self.events.retain(|(of, _)| *of != endpoint);
        self.peers.remove(endpoint);
    }

    /// Asks for a session with new keys, by hellos until it is there; meanwhile the old one goes on.
    fn renew(&mut self, endpoint: u32) {
        if self.peers.get_mut(endpoint).is_some_and(|known| known.way == Way::Up && known.meeting.renew()) {
            self.say_again(endpoint, self.now);
        }
    }

    /// Why a peer that is known takes no frames.
    #[cold]
    fn not_up(&mut self, endpoint: u32) -> SendError {
        match self.peers.get(endpoint).map(|known| known.way) {
            Some(Way::Unused) => {
                if !self.wanted.contains(&endpoint) {
                    self.wanted.push(endpoint);
                }
                SendError::Busy
            }
            Some(Way::Calling(_) | Way::Up) => SendError::Busy,
            Some(Way::Closing | Way::Gone) | None => SendError::Unreachable,
        }
    }
}
