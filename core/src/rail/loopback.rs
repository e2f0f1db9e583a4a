//! The loopback rail: rails inside one thread, connected by a mesh of queues in memory that the caller provides.
//!
//! A process sends to itself by this rail, and the contexts of one firmware program or of one test send to each other. It is
//! also the simplest complete rail: read it before you write another.
//!
//! ```
//! use towline_core::arena::Arena;
//! use towline_core::rail::{Event, Lane, Peer, Rail, Shape, loopback::Hub};
//! use towline_core::time::Instant;
//!
//! let mut block = [0u8; 4096];
//! let hub = Hub::new(&mut Arena::new(&mut block), 2, 4, 128).unwrap();
//! let (mut left, mut right) = (hub.rail(0).unwrap(), hub.rail(1).unwrap());
//! let to_right = left.add_peer(Peer(1), right.card()).unwrap();
//! right.add_peer(Peer(0), left.card()).unwrap();
//!
//! let mut grant = left.reserve(to_right, Shape { tag: 0x80, lane: Lane::Eager, header: 2, len: 5 }).unwrap();
//! grant.write(0, b"hello");
//! let ticket = grant.finish();
//! left.commit(ticket);
//! let Some(Event::Frame(frame)) = right.poll(Instant::ZERO) else { panic!() };
//! assert_eq!((frame.from, frame.tag, frame.head()), (Peer(0), 0x80, &b"hello"[..]));
//! ```

use core::cell::Cell;

use zerocopy::FromZeros;

use crate::arena::{Arena, OutOfMemory};
use crate::convertor::Span;
use crate::rail::attributes::{AcceleratorLimits, Attributes, Capabilities, EXCLUSIVITY_HIGH};
use crate::rail::native::OneSided;
use crate::rail::{
    Cookie, Delivery, DeviceMemory, Endpoint, Event, Failover, FastPath, Frame, FrameId, Grant, HEAD, Lane, Liveness,
    Peer, Rail as RailTrait, RequestCache, SendError, Sent, Shape, SingleCopy, Ticket, Unreachable,
};
use crate::time::Instant;

/// Slots of each queue that only control frames may take.
const CONTROL_SLOTS: u32 = 2;
/// Bytes before a frame in its slot: length, tag, and padding that keeps frames aligned.
const PREFIX: usize = 8;

/// All queues of a mesh: one for each ordered pair of ends, also from each end to itself.
#[derive(Debug)]
pub struct Hub<'m> {
    queues: &'m [Queue],
    /// The [`Peer`] number that each end has given to each other end, plus one; 0: none. There is a row for each end.
    names: &'m [Cell<u32>],
    memory: *mut u8,
    ends: u32,
    slots: u32,
    slot_bytes: usize,
    attributes: Attributes,
}

/// One queue. Positions count up and wrap; `tail - head` slots are full.
#[derive(FromZeros, Debug)]
struct Queue {
    head: Cell<u32>,
    tail: Cell<u32>,
}

impl<'m> Hub<'m> {
    /// A mesh of `ends` rails, whose queues hold `slots` frames of up to `frame` bytes each. `slots` is rounded up to a power
    /// of two, and is at least 4, two of them for control frames alone. A frame has at least [`HEAD`] bytes.
    ///
    /// # Errors
    /// [`OutOfMemory`] where the arena is too small; [`Hub::cost`] returns the size that it needs.
    pub fn new(arena: &mut Arena<'m>, ends: u32, slots: u32, frame: u32) -> Result<Self, OutOfMemory> {
        let slots = slots.clamp(CONTROL_SLOTS + 1, 1 << 24).next_power_of_two();
        let slot_bytes = Self::slot_bytes(frame);
        let pairs = (ends as usize).saturating_mul(ends as usize);
        let queues = arena.table(pairs)?;
        let names = arena.table(pairs)?;
        let words = pairs.saturating_mul(slots as usize).saturating_mul(slot_bytes / 8);
        let memory = arena.table::<u64>(words)?.as_mut_ptr().cast();
        let attributes = Self::attributes(frame);
        Ok(Self { queues, names, memory, ends, slots, slot_bytes, attributes })
    }

    /// The attributes of the rails of a mesh with frames of up to `frame` bytes.
    pub const fn attributes(frame: u32) -> Attributes {
        let frame = (Self::slot_bytes(frame) - PREFIX) as u32;
        Attributes {
            name: "loopback",
            capabilities: Capabilities::SEND,
            exclusivity: EXCLUSIVITY_HIGH,
            latency: 0,
            bandwidth: 10_000,
            eager_limit: frame,
            rendezvous_eager_limit: 0,
            min_fragment: frame / 2,
            max_send_size: frame,
            cache_size: 0,
            cache_bytes: 0,
            accelerator: AcceleratorLimits::NONE,
            frames_kept: 1,
            one_sided: OneSided::NONE,
        }
    }

    /// How many bytes a mesh takes from an arena at most.
    pub const fn cost(ends: u32, slots: u32, frame: u32) -> usize {
        let slots = if slots <= CONTROL_SLOTS { CONTROL_SLOTS + 1 } else { slots }.next_power_of_two();
        let pairs = (ends as usize).saturating_mul(ends as usize);
        let memory = pairs.saturating_mul(slots as usize).saturating_mul(Self::slot_bytes(frame));
        Arena::cost::<Queue>(pairs) + Arena::cost::<Cell<u32>>(pairs) + memory.saturating_add(8)
    }

    const fn slot_bytes(frame: u32) -> usize {
        let frame = if (frame as usize) < HEAD { HEAD } else { frame as usize };
        PREFIX + frame.next_multiple_of(8)
    }

    /// The rail of the end with number `end`; `None`: there is no such end. To be called once per end: two rails of one end
    /// would take each other's frames.
    pub fn rail(&self, end: u32) -> Option<Rail<'_>> {
        (end < self.ends).then_some(Rail { hub: self, me: end, card: end.to_le_bytes(), held: None, turn: 0 })
    }

    /// Whether no frame waits in the mesh.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.head.get() == queue.tail.get())
    }

    fn pair(&self, from: u32, to: u32) -> usize {
        from as usize * self.ends as usize + to as usize
    }

    /// The start of the slot at position `at` of a queue.
    fn slot(&self, pair: usize, at: u32) -> *mut u8 {
        let slot = pair * self.slots as usize + (at & (self.slots - 1)) as usize;
        self.memory.wrapping_add(slot * self.slot_bytes)
    }
}

/// One end of a [`Hub`].
#[derive(Debug)]
pub struct Rail<'h> {
    hub: &'h Hub<'h>,
    me: u32,
    card: [u8; 4],
    /// The end whose oldest frame the reader holds.
    held: Option<u32>,
    /// The end from which the next poll begins.
    turn: u32,
}

impl Rail<'_> {
    /// The queue from `from` to here, and the slot of its oldest frame.
    fn oldest(&self, from: u32) -> Option<(&Queue, *mut u8)> {
        let pair = self.hub.pair(from, self.me);
        let queue = self.hub.queues.get(pair)?;
        (queue.head.get() != queue.tail.get()).then(|| (queue, self.hub.slot(pair, queue.head.get())))
    }

    /// The held frame: its queue, its bytes and their number.
    fn held(&self, frame: FrameId) -> Option<(&Queue, *const u8, usize)> {
        let from = self.held.filter(|from| u64::from(*from) == frame.0)?;
        let (queue, slot) = self.oldest(from)?;
        // SAFETY: the slot is full, so its prefix was written by `reserve` and the frame by its grant.
        let len = unsafe { slot.cast::<u32>().read() };
        Some((queue, slot.wrapping_add(PREFIX), len as usize))
    }
}

impl RailTrait for Rail<'_> {
    fn attributes(&self) -> &Attributes {
        &self.hub.attributes
    }

    fn card(&self) -> &[u8] {
        &self.card
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        let end = u32::from_le_bytes(card.try_into().map_err(|_| Unreachable::BadCard)?);
        if end >= self.hub.ends {
            return Err(Unreachable::OtherProcess);
        }
        let name = self.hub.names.get(self.hub.pair(self.me, end)).ok_or(Unreachable::Full)?;
        name.set(peer.0.wrapping_add(1));
        Ok(Endpoint(end))
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        if endpoint.0 >= self.hub.ends {
            return;
        }
        if let Some(name) = self.hub.names.get(self.hub.pair(self.me, endpoint.0)) {
            name.set(0);
        }
        if let Some(queue) = self.hub.queues.get(self.hub.pair(endpoint.0, self.me)) {
            queue.head.set(queue.tail.get());
        }
        if self.held == Some(endpoint.0) {
            self.held = None;
        }
    }

    #[inline]
    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        let hub = self.hub;
        if shape.len as usize > hub.slot_bytes - PREFIX || usize::from(shape.header) > HEAD {
            return Err(SendError::TooLong);
        }
        if to.0 >= hub.ends {
            return Err(SendError::Unreachable);
        }
        let pair = hub.pair(self.me, to.0);
        let queue = hub.queues.get(pair).ok_or(SendError::Unreachable)?;
        if hub.names.get(pair).is_none_or(|name| name.get() == 0) {
            return Err(SendError::Unreachable); // the peer was never added here, or was deleted
        }
        let kept = if shape.lane == Lane::Control { 0 } else { CONTROL_SLOTS };
        let tail = queue.tail.get();
        if tail.wrapping_sub(queue.head.get()) >= hub.slots - kept {
            return Err(SendError::Busy);
        }
        let slot = hub.slot(pair, tail);
        // SAFETY: the slot is free, in the hub's memory, and aligned to 8. Only one thread uses the hub, since `Cell` is not
        // `Sync`.
        unsafe {
            slot.cast::<u32>().write(shape.len);
            slot.add(4).write(shape.tag);
        }
        let ticket = Ticket { endpoint: to, position: u64::from(tail), len: shape.len, extra: 0 };
        // SAFETY: the slot has room for `len` bytes after its prefix, as checked above, and stays free until `commit`.
        Ok(unsafe { Grant::new(slot.add(PREFIX), shape.len as usize, ticket) })
    }

    #[inline]
    fn commit(&mut self, ticket: Ticket) -> Sent {
        if ticket.endpoint.0 < self.hub.ends
            && let Some(queue) = self.hub.queues.get(self.hub.pair(self.me, ticket.endpoint.0))
        {
            queue.tail.set((ticket.position as u32).wrapping_add(1));
        }
        Sent::Done
    }

    fn drained(&self, _to: Endpoint) -> bool {
        true
    }

    #[inline]
    fn poll(&mut self, _now: Instant) -> Option<Event> {
        if self.held.is_some() {
            return None;
        }
        for _ in 0..self.hub.ends {
            let from = self.turn;
            self.turn = if from + 1 < self.hub.ends { from + 1 } else { 0 };
            let Some((queue, slot)) = self.oldest(from) else { continue };
            let name = self.hub.names.get(self.hub.pair(self.me, from)).map_or(0, Cell::get);
            if name == 0 {
                continue; // the peer was not added here yet: its frames wait
            }
            let mut head = [0; HEAD];
            // SAFETY: the slot is full and at least PREFIX + HEAD bytes long.
            let (len, tag) = unsafe {
                core::ptr::copy_nonoverlapping(slot.add(PREFIX), head.as_mut_ptr(), HEAD);
                (slot.cast::<u32>().read(), slot.add(4).read())
            };
            let valid = (len as usize).min(HEAD) as u8;
            if len as usize <= HEAD {
                queue.head.set(queue.head.get().wrapping_add(1));
            } else {
                self.held = Some(from);
            }
            let from_peer = Peer(name.wrapping_sub(1));
            return Some(Event::Frame(Frame { id: FrameId(u64::from(from)), from: from_peer, tag, valid, len, head }));
        }
        None
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        let Some((_, bytes, len)) = self.held(frame) else { return 0 };
        let count = len.saturating_sub(at).min(into.len());
        // SAFETY: `at + count` is within the frame; `into` is not in the hub's memory, which no slice reaches.
        unsafe { core::ptr::copy_nonoverlapping(bytes.wrapping_add(at), into.as_mut_ptr(), count) };
        count
    }

    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, _cookie: Cookie) -> Delivery {
        if let Some((_, bytes, len)) = self.held(frame) {
            // SAFETY: the frame is readable from `skip` to its end; the caller guarantees that the sink is valid.
            unsafe { sink.unpack(bytes.wrapping_add(skip), len.saturating_sub(skip)) };
        }
        self.release(frame);
        Delivery::Done
    }

    fn release(&mut self, frame: FrameId) {
        if let Some((queue, ..)) = self.held(frame) {
            queue.head.set(queue.head.get().wrapping_add(1));
            self.held = None;
        }
    }

    fn poll_at(&self) -> Option<Instant> {
        None
    }

    fn arm(&mut self) -> bool {
        self.is_idle()
    }
}

impl FastPath for Rail<'_> {
    #[inline]
    fn is_idle(&mut self) -> bool {
        (0..self.hub.ends).all(|from| self.oldest(from).is_none())
    }
}
impl RequestCache for Rail<'_> {}
impl SingleCopy for Rail<'_> {}
impl DeviceMemory for Rail<'_> {}
impl Failover for Rail<'_> {}
impl Liveness for Rail<'_> {}
