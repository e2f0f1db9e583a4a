//! The rail trait: adding peers, sending and reading.

use towline_core::convertor::Span;
use towline_core::rail::{
    Attributes, Cookie, Delivery, DeviceMemory, Endpoint, Event, Failover, FastPath, FrameId, GiveUp, Grant, HEAD,
    Lane, Liveness, Peer, Rail as RailTrait, RequestCache, SendError, Sent, Shape, SingleCopy, Ticket, Unreachable,
};
use towline_core::time::Instant;
use towline_crypt::{MESSAGE, TAG};
use towline_net::{Identity, Member, random, route};

use crate::config::MAX_DATAGRAM;
use crate::rail::Rail;
use crate::rail::peer::{ConnState, PeerEntry};
use crate::session::handshake::SessionHandshake;
use crate::wire::card;
use crate::wire::datagram::{Content, INNER, PREFIX, SEALED, START, inner_prefix, prefix_start, sealed_prefix};
use crate::wire::hello::{Hello, Stage};

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
        let (job, link, rank) = (self.config.job, self.config.link, card.rank);
        self.peers.check("udp", Member { job, link, rank: self.config.rank }, card.member())?;
        let candidates = route::candidates(&self.own, self.host, link, &card);
        if candidates.is_empty() {
            return Err(Unreachable::NoNetwork);
        }
        let index = self.peers.next_endpoint()?;
        let nonce = random::bytes().map_err(|why| {
            log::error!("udp link {link}: the system gives no random bytes: {why}");
            Unreachable::System
        })?;
        let (from, from_instance) = (self.config.rank, self.instance);
        let base = Hello {
            link,
            stage: Stage::Challenge,
            signs: self.signs,
            encrypted: self.encrypts && self.config.encrypt.applies(card.host == self.host),
            encrypt: self.config.encrypt,
            identity: Identity { job, from, to: rank, from_instance, to_instance: card.instance },
            index,
            nonce: [0; 16],
            echo: [0; 16],
            keys: [0; MESSAGE],
        };
        self.forget_goodbyes(rank);
        let entry = PeerEntry {
            peer,
            rank,
            candidates,
            closed: 0,
            handshake: SessionHandshake::new(base, nonce),
            remote: None,
            state: ConnState::Unused,
            renewal: None,
            answered_foreign: None,
            forwarded,
            port_check: None,
        };
        self.peers.add(rank, entry)?;
        self.reserve_lists();
        Ok(Endpoint(index))
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        self.remove(endpoint.0, true);
    }

    #[inline]
    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        if shape.len > self.attributes.max_send_size || usize::from(shape.header) > HEAD.min(shape.len as usize) {
            return Err(SendError::TooLong);
        }
        let Some(entry) = self.peers.get(to.0) else { return Err(SendError::Unreachable) };
        let (ConnState::Established, Some(session)) = (entry.state, entry.handshake.session()) else {
            return Err(self.not_established(to.0));
        };
        let content = Content::Frame { tag: shape.tag, header: shape.header };
        let (len, at) = match &session.encryption {
            None => (PREFIX + shape.len as usize, PREFIX),
            Some(encryption) if encryption.next_number >= MAX_SEALED => return Err(SendError::Busy), // until there are new keys
            Some(_) => (PREFIX + SEALED + shape.len as usize, PREFIX + INNER),
        };
        let start = prefix_start(content, session.index);
        let Some(room) = self.outbox.room(shape.lane, len) else { return Err(SendError::Busy) };
        if at == PREFIX {
            room[..START].copy_from_slice(&start);
        } else {
            room[PREFIX..at].copy_from_slice(&inner_prefix(content));
        }
        let ticket = Ticket { endpoint: to, position: 0, len: shape.len, extra: shape.lane as u32 };
        self.granted = Some(ticket);
        // SAFETY: the room is free, and stays free until `commit`.
        Ok(unsafe { Grant::new(room[at..].as_mut_ptr(), shape.len as usize, ticket) })
    }

    #[inline]
    fn commit(&mut self, ticket: Ticket) -> Sent {
        let granted = self.granted.take().filter(|granted| *granted == ticket);
        let session = self.peers.get_mut(ticket.endpoint.0).and_then(|entry| entry.handshake.session_mut());
        let (Some(_), Some(session)) = (granted, session) else { return Sent::Done };
        let sealed = if session.encryption.is_some() { SEALED } else { 0 };
        let len = PREFIX + sealed + ticket.len as usize;
        let Some(room) = self.outbox.granted(len) else { return Sent::Done };
        let (prefix, frame) = room.split_at_mut(PREFIX);
        let mut renews = false;
        if let Some(encryption) = &mut session.encryption {
            let number = encryption.next_number;
            prefix.copy_from_slice(&sealed_prefix(session.index, number));
            let plain = &frame[..frame.len() - TAG];
            let count = encryption.cipher.seal_as(number, plain, &mut self.scratch);
            if count != frame.len() {
                return Sent::Done; // cannot happen, as no frame is too long
            }
            frame.copy_from_slice(&self.scratch[..count]);
            encryption.next_number += 1;
            renews = encryption.next_number >= self.config.renew_after_datagrams;
        } else if let Some((start, proof)) = prefix.split_first_chunk_mut::<START>() {
            proof.copy_from_slice(&session.outbound.proof(start, frame));
        }
        let first = self.outbox.is_empty();
        self.outbox.stage(ticket.endpoint.0, len);
        if renews {
            self.renew(ticket.endpoint.0);
        }
        let short = ticket.extra != Lane::Bulk as u32 && first && self.sent_at_once < self.config.frames_at_once;
        // The outbox is also flushed if another frame of this length does not fit into the same message.
        if short || self.outbox.waiting() + len > MAX_DATAGRAM as usize {
            self.sent_at_once += u32::from(short);
            self.flush_outbox();
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
            // SAFETY: the caller vouches for the sink, which does not overlap the memory of the rail.
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
        // Frames that the socket or the pacing has held back wait for their time.
        if !self.outbox.is_empty() && self.send_retry_at.is_none() {
            self.flush_outbox();
        }
    }

    fn poll_at(&self) -> Option<Instant> {
        [self.next_hello, self.next_port_check, self.send_retry_at].into_iter().flatten().min()
    }

    fn arm(&mut self) -> bool {
        if !self.events.is_empty() || !self.requested.is_empty() || !self.closing.is_empty() {
            return false;
        }
        if !self.outbox.is_empty() && self.send_retry_at.is_none() {
            return false;
        }
        self.is_drained()
    }
}

impl Liveness for Rail {
    fn give_up(&mut self, to: Endpoint, what: GiveUp) -> bool {
        if what == GiveUp::Peer {
            self.remove(to.0, false);
        }
        what == GiveUp::Peer
    }

    fn ask_host(&mut self, of: Endpoint) -> Option<Instant> {
        self.probe_host(of.0)
    }
}

impl FastPath for Rail {}
impl RequestCache for Rail {}
impl SingleCopy for Rail {}
impl DeviceMemory for Rail {}
impl Failover for Rail {}

/// Maximum number of datagrams under one key: AES-GCM allows somewhat more (RFC 8446).
const MAX_SEALED: u64 = 1 << 24;

impl Rail {
    /// Reserves room for one more peer in all lists, so that nothing is allocated later. Each peer is in each list at most once,
    /// has one silence event at a time, and is lost once.
    fn reserve_lists(&mut self) {
        let peers = self.peers.endpoints() as usize;
        let Self { requested, connecting, renewing, closing, checked_ports, .. } = self;
        for list in [requested, connecting, renewing, closing, checked_ports] {
            list.reserve(peers - list.len());
        }
        self.hosts.reserve(peers);
        self.goodbyes.reserve(peers.saturating_sub(self.goodbyes.len()));
        self.events.reserve(2 * peers);
    }

    /// Why nothing can be sent to a known peer now. The first use of a peer requests a session.
    #[cold]
    fn not_established(&mut self, endpoint: u32) -> SendError {
        match self.peers.get(endpoint).map(|entry| entry.state) {
            Some(ConnState::Unused) => {
                if !self.requested.contains(&endpoint) {
                    self.requested.push(endpoint);
                }
                SendError::Busy
            }
            Some(ConnState::Connecting(_) | ConnState::Established) => SendError::Busy,
            Some(ConnState::Closing | ConnState::Lost) | None => SendError::Unreachable,
        }
    }
}
