//! The rail.

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::convertor::{Span, copy_slice};
use towline_core::rail::attributes::{AcceleratorLimits, Attributes, Capabilities, EXCLUSIVITY_LOW};
use towline_core::rail::native::OneSided;
use towline_core::rail::{
    Cookie, Delivery, DeviceMemory, Endpoint, Event, Failover, FastPath, Frame, FrameId, Grant, HEAD, Lane, Liveness,
    Peer, Rail as RailTrait, RequestCache, SendError, Sent, Shape, SingleCopy, Ticket, Unreachable,
};
use towline_core::time::Instant;

use crate::address::Address;
use crate::counters::Counters;
use crate::interface::Interface;
use crate::peers::Peers;
use crate::received::{PREFIX, Received};

/// The version of datagrams.
const VERSION: u8 = 1;
/// Most datagrams that one poll drops.
const DROPS: usize = 16;
/// Datagrams that only control frames may take, of an interface that takes at least twice as many.
const CONTROL_ROOM: usize = 2;

/// Limits of a rail.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Most peers.
    pub peers: u32,
    /// Most frames that the reader may hold. At least 1.
    pub held: u32,
    /// The rank of the rail by latency, in nanoseconds.
    pub latency: u32,
    /// The bandwidth in megabytes per second.
    pub bandwidth: u32,
}

/// A rail over an interface. It is used by one thread at a time.
#[derive(Debug)]
pub struct Rail<'m, I> {
    interface: I,
    attributes: Attributes,
    address: Address,
    peers: Peers<'m>,
    received: Received<'m>,
    /// The datagram that is being written.
    outgoing: &'m mut [u8],
    counters: Counters,
}

impl<'m, I: Interface> Rail<'m, I> {
    /// The bytes that a rail over an interface with datagrams of up to `longest` bytes takes from an arena.
    pub const fn bytes(config: &Config, longest: usize) -> usize {
        Peers::cost(config.peers)
            .saturating_add(Received::cost(
                if config.held == 0 { 2 } else { config.held.saturating_add(1) },
                Self::room(longest),
            ))
            .saturating_add(Arena::cost::<u8>(Self::room(longest)))
    }

    /// The room for a datagram.
    const fn room(longest: usize) -> usize {
        if longest < HEAD + PREFIX { HEAD + PREFIX } else { longest }
    }

    /// The attributes of a rail over an interface with datagrams of up to `longest` bytes.
    pub const fn attributes_of(config: &Config, longest: usize) -> Attributes {
        let most = longest.saturating_sub(PREFIX);
        let frame = if most > u16::MAX as usize { u16::MAX as u32 } else { most as u32 };
        Attributes {
            name: "datagram",
            capabilities: Capabilities::SEND.union(Capabilities::NEED_ACK).union(Capabilities::NEED_CSUM),
            exclusivity: EXCLUSIVITY_LOW,
            latency: config.latency,
            bandwidth: if config.bandwidth == 0 { 1 } else { config.bandwidth },
            eager_limit: frame,
            rendezvous_eager_limit: 0,
            min_fragment: frame,
            max_send_size: frame,
            cache_size: 0,
            cache_bytes: 0,
            accelerator: AcceleratorLimits::NONE,
            frames_kept: if config.held == 0 { 1 } else { config.held },
            one_sided: OneSided::NONE,
        }
    }

    /// A rail over an interface, with tables from `arena`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(interface: I, config: &Config, arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        let longest = interface.longest();
        let attributes = Self::attributes_of(config, longest);
        Ok(Self {
            address: interface.address(),
            peers: Peers::new(arena, config.peers)?,
            // One more than the reader may hold: a short frame is read from a slot that the reader does not hold.
            received: Received::new(arena, attributes.frames_kept.saturating_add(1), Self::room(longest))?,
            outgoing: arena.table(Self::room(longest))?,
            attributes,
            interface,
            counters: Counters::default(),
        })
    }

    /// The interface.
    pub const fn interface(&self) -> &I {
        &self.interface
    }

    /// Ends the rail, and returns the interface.
    pub fn into_interface(self) -> I {
        self.interface
    }

    /// Counts of datagrams since set-up.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Reads the datagram in a slot. Returns `None` if it is dropped.
    fn accept(&mut self, slot: FrameId, len: usize, from: &Address) -> Option<Frame> {
        let Some(peer) = self.peers.of(from) else {
            self.counters.strangers = self.counters.strangers.wrapping_add(1);
            return None;
        };
        let limit = self.attributes.max_send_size as usize;
        // The slot is held for as long as it takes to read it.
        self.received.hold(slot, peer, len.saturating_sub(PREFIX));
        let frame = self.received.prefixed(slot).and_then(|(prefix, bytes)| {
            let [version, tag, low, high] = *prefix;
            let len = usize::from(u16::from_le_bytes([low, high]));
            let frame = bytes.get(..len).filter(|_| version == VERSION && len <= limit)?;
            let mut head = [0; HEAD];
            copy_slice(&mut head, frame);
            Some(Frame { id: slot, from: peer, tag, valid: len.min(HEAD) as u8, len: len as u32, head })
        });
        match &frame {
            Some(frame) if !frame.is_whole() => self.received.hold(slot, peer, frame.len as usize),
            _ => self.received.release(slot),
        }
        let count = if frame.is_some() { &mut self.counters.received } else { &mut self.counters.malformed };
        *count = count.wrapping_add(1);
        frame
    }
}

impl<I: Interface> RailTrait for Rail<'_, I> {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        self.address.card()
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        self.peers.add(peer, Address::of_card(card).ok_or(Unreachable::BadCard)?)
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        if let Some(peer) = self.peers.remove(endpoint) {
            self.received.release_all(peer);
        }
    }

    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        if shape.len > self.attributes.max_send_size || usize::from(shape.header) > HEAD {
            return Err(SendError::TooLong);
        }
        if self.peers.address(to).is_none() {
            return Err(SendError::Unreachable);
        }
        let kept = if shape.lane == Lane::Control { 0 } else { CONTROL_ROOM.min(self.interface.capacity() / 2) };
        if self.interface.room() <= kept {
            return Err(SendError::Busy);
        }
        let len = shape.len as usize;
        let room = self.outgoing.get_mut(PREFIX..).and_then(|rest| rest.get_mut(..len)).ok_or(SendError::TooLong)?;
        let ticket = Ticket { endpoint: to, position: 0, len: shape.len, extra: shape.tag.into() };
        // SAFETY: the room has `len` bytes, and is the rail's own. The grant borrows the rail.
        Ok(unsafe { Grant::new(room.as_mut_ptr(), len, ticket) })
    }

    fn commit(&mut self, ticket: Ticket) -> Sent {
        let [low, high] = (ticket.len as u16).to_le_bytes();
        if let Some(prefix) = self.outgoing.first_chunk_mut() {
            *prefix = [VERSION, ticket.extra as u8, low, high];
        }
        let datagram = self.outgoing.get(..PREFIX.saturating_add(ticket.len as usize));
        if let (Some(address), Some(datagram)) = (self.peers.address(ticket.endpoint), datagram) {
            self.interface.send(address, datagram);
            self.counters.sent = self.counters.sent.wrapping_add(1);
        }
        Sent::Done
    }

    fn drained(&self, _to: Endpoint) -> bool {
        true
    }

    fn poll(&mut self, _now: Instant) -> Option<Event> {
        if self.received.held() >= self.attributes.frames_kept as usize {
            return None;
        }
        for _ in 0..DROPS {
            let (slot, memory) = self.received.free()?;
            let (len, from) = self.interface.receive(memory)?;
            if let Some(frame) = self.accept(slot, len, &from) {
                return Some(Event::Frame(frame));
            }
        }
        None
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        let rest = self.received.bytes(frame).and_then(|bytes| bytes.get(at..)).unwrap_or_default();
        copy_slice(into, rest)
    }

    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, _cookie: Cookie) -> Delivery {
        if let Some(rest) = self.received.bytes(frame).and_then(|bytes| bytes.get(skip..)) {
            // SAFETY: `rest` is readable, and the caller guarantees that the sink is valid.
            unsafe { sink.unpack(rest.as_ptr(), rest.len()) };
        }
        self.received.release(frame);
        Delivery::Done
    }

    fn release(&mut self, frame: FrameId) {
        self.received.release(frame);
    }

    fn poll_at(&self) -> Option<Instant> {
        None
    }

    fn arm(&mut self) -> bool {
        !self.interface.has_arrived()
    }
}

impl<I: Interface> FastPath for Rail<'_, I> {}
impl<I: Interface> RequestCache for Rail<'_, I> {}
impl<I: Interface> SingleCopy for Rail<'_, I> {}
impl<I: Interface> DeviceMemory for Rail<'_, I> {}
impl<I: Interface> Failover for Rail<'_, I> {}
impl<I: Interface> Liveness for Rail<'_, I> {}
