//! The simulated rail.

use std::cmp::Reverse;

use towline_core::convertor::{Span, transfer};
use towline_core::rail::native::{Key, Native, NativeError, Region};
use towline_core::rail::{
    AcceleratorLimits, Attributes, Capabilities, Cookie, Delivery, Endpoint, Event, Frame, FrameId, Grant, HEAD, Lane,
    Lost, Peer, REMOTE_BUFFER_BYTES, Rail, RemoteBuffer, SendError, Sent, Shape, Ticket, Unreachable,
};
use towline_core::rail::{COPIED, DeviceMemory, Failover, FastPath, Liveness, RequestCache, SingleCopy};
use towline_core::rma::Access;
use towline_core::time::Instant;

use super::endpoint::{Exposed, HostState, KnownPeer, PendingEvent};
use super::faults::PlantedBug;
use super::net::Net;
use super::packet::Packet;
use super::state::NetworkState;

impl Net {
    /// The rails of one node, in the order of their parameters. Must be called once for each node.
    pub fn rails(&self, node: u32) -> Vec<SimRail> {
        let count = self.0.borrow().rail_params.len() as u32;
        (0..count).map(|rail| SimRail::new(self.clone(), node, rail)).collect()
    }

    /// Restarts a node. Returns its new rails.
    pub fn revive(&self, node: u32) -> Vec<SimRail> {
        self.0.borrow_mut().revive(node);
        self.rails(node)
    }
}

/// The content of a prepared request.
const PREPARED: [u8; 24] = *b"prepared for this rail..";

/// Bytes of a card: node, rail, incarnation.
const CARD: usize = 12;

/// A rail of one node of a [`Net`].
///
/// ```
/// use towline_core::rail::{Event, Lane, Peer, Rail, Shape};
/// use towline_core::time::Instant;
/// use towline_host_tests::random::Random;
/// use towline_host_tests::sim::network::{Net, faults::{Faults, RailParams}};
///
/// let net = Net::new(2, vec![RailParams::default()], Faults::default(), Random::new(1));
/// let (mut left, mut right) = (net.rails(0).remove(0), net.rails(1).remove(0));
/// let to_right = left.add_peer(Peer(1), right.card()).unwrap();
/// right.add_peer(Peer(0), left.card()).unwrap();
/// let mut grant = left.reserve(to_right, Shape { tag: 0x80, lane: Lane::Eager, header: 2, len: 5 }).unwrap();
/// grant.write(0, b"hello");
/// let ticket = grant.finish();
/// left.commit(ticket);
///
/// assert!(right.poll(Instant::ZERO).is_none(), "it is still in flight");
/// let arrival = right.poll_at().unwrap();
/// let Some(Event::Frame(frame)) = right.poll(arrival) else { panic!() };
/// assert_eq!(frame.head(), b"hello");
/// ```
pub struct SimRail {
    net: Net,
    node: u32,
    rail: u32,
    card: [u8; CARD],
    attributes: Attributes,
    /// The frame that is being written: its shape, and its bytes.
    draft: Option<Shape>,
    room: Vec<u8>,
}

impl SimRail {
    pub(super) fn new(net: Net, node: u32, rail: u32) -> Self {
        let state = net.0.borrow();
        let params = state.rail_params[rail as usize];
        let faults = &state.faults;
        let incarnation = state.incarnation(node).unwrap_or(0);
        let mut capabilities = Capabilities::SEND;
        capabilities.set(Capabilities::SEND_INPLACE, faults.in_place != 0);
        capabilities.set(Capabilities::PUT, params.device.put.limit != 0);
        capabilities.set(Capabilities::GET, params.device.get.limit != 0);
        capabilities.set(Capabilities::NEED_ACK | Capabilities::NEED_CSUM, params.datagrams);
        let attributes = Attributes {
            name: "sim",
            capabilities,
            exclusivity: towline_core::rail::attributes::EXCLUSIVITY_DEFAULT,
            latency: params.latency,
            bandwidth: params.bandwidth,
            eager_limit: params.eager_limit,
            rendezvous_eager_limit: params.rendezvous_eager_limit,
            min_fragment: params.min_fragment,
            max_send_size: params.max_send_size,
            cache_size: 4,
            cache_bytes: 24,
            accelerator: AcceleratorLimits::NONE,
            frames_kept: params.frames_kept,
            one_sided: params.device,
        };
        let room = vec![0; params.eager_limit.max(params.max_send_size) as usize];
        drop(state);
        let mut card = [0; CARD];
        card[..4].copy_from_slice(&node.to_le_bytes());
        card[4..8].copy_from_slice(&rail.to_le_bytes());
        card[8..].copy_from_slice(&incarnation.to_le_bytes());
        Self { net, node, rail, card, attributes, draft: None, room }
    }

    /// Disappears without closing. All other ends report the loss some time later.
    pub fn leave(self) {
        let mut state = self.net.0.borrow_mut();
        for other in (0..state.nodes()).filter(|other| *other != self.node) {
            state.cut(self.node, other, self.rail);
        }
    }

    /// Checks whether a frame is accepted now.
    fn check_admission(&self, state: &mut NetworkState, to: Endpoint, shape: Shape) -> Result<(), SendError> {
        let limit = if shape.lane == Lane::Bulk { self.attributes.max_send_size } else { self.attributes.eager_limit };
        if shape.len > limit || usize::from(shape.header) > HEAD {
            return Err(SendError::TooLong);
        }
        if to.0 >= state.nodes() || state.end(self.node, self.rail).peers[to.0 as usize].is_none() {
            return Err(SendError::Unreachable);
        }
        let (now, slots) = (state.now, state.rail_params[self.rail as usize].slots);
        let link = state.path(self.node, to.0, self.rail);
        if link.used[shape.lane as usize] >= slots {
            state.counts.busy_for_room += 1;
            return Err(SendError::Busy);
        }
        if link.refuses_until > now {
            state.counts.busy_by_chance += 1;
            return Err(SendError::Busy);
        }
        if state.random.chance(state.faults.busy) {
            let pause = state.random.below(state.faults.busy_for + 1);
            state.path(self.node, to.0, self.rail).refuses_until = now + pause;
            state.counts.busy_by_chance += 1;
            return Err(SendError::Busy);
        }
        Ok(())
    }

    fn submit(
        &self,
        state: &mut NetworkState,
        to: Endpoint,
        shape: Shape,
        bytes: Vec<u8>,
        in_place: Option<(Span, Cookie)>,
    ) -> Sent {
        let left_in_place = in_place.is_some();
        state.counts.in_place += u64::from(left_in_place);
        let id = state.id();
        let session = state.end(self.node, self.rail).peers[to.0 as usize].and_then(|named| named.session);
        let packet = Packet {
            id,
            session,
            from: self.node,
            to: to.0,
            rail: self.rail,
            tag: shape.tag,
            lane: shape.lane,
            header: shape.header,
            bytes,
            in_place,
            body_at: 0,
            sink: None,
            copy: false,
            held: false,
        };
        match (state.accept(packet), left_in_place) {
            (_, true) => Sent::InPlace,
            (true, false) => Sent::Done,
            (false, false) => Sent::Staged,
        }
    }

    /// The next event that is due at this end.
    fn next_event(&self, state: &mut NetworkState) -> Option<Event> {
        let now = state.now;
        loop {
            let keep = self.attributes.frames_kept;
            let end = state.end(self.node, self.rail);
            let arrival = end.inbox.peek().map(|next| next.0.0).filter(|at| *at <= now && end.held < keep);
            let event = end.events.peek().map(|next| next.0.0).filter(|at| *at <= now);
            match (arrival, event) {
                (None, None) => return None,
                (Some(arrival), event) if event.is_none_or(|event| arrival <= event) => {
                    let Reverse((when, id, at)) = end.inbox.pop()?;
                    match self.receive_frame(state, at) {
                        Ok(Some(frame)) => return Some(Event::Frame(frame)),
                        Ok(None) => {}
                        Err(()) => state.end(self.node, self.rail).waiting.push((when, id, at)),
                    }
                }
                _ => {
                    let Reverse((.., later)) = end.events.pop()?;
                    if let Some(event) = self.report(state, later) {
                        return Some(event);
                    }
                }
            }
        }
    }

    /// Receives a frame. `None` if it is dropped. An error while its sender is not known at this end.
    fn receive_frame(&self, state: &mut NetworkState, at: u32) -> Result<Option<Frame>, ()> {
        let from_node = state.packet(at).from;
        let named = state.end(self.node, self.rail).peers[from_node as usize];
        if state.rail_params[self.rail as usize].datagrams {
            if named.is_none() {
                state.discard(at);
                return Ok(None);
            }
        } else {
            let (theirs, here) = (state.packet(at).session, named.and_then(|named| named.session));
            let closed = theirs < Some(state.path(from_node, self.node, self.rail).session);
            if theirs < here || (closed && theirs != here) {
                state.discard(at);
                return Ok(None);
            }
            if theirs != here {
                return Err(());
            }
        }
        let Some(KnownPeer { peer: from, .. }) = named else { return Err(()) };
        state.copy_body(at);
        let now = state.now;
        let packet = state.packet(at);
        let (id, len, header, tag, copy) = (packet.id, packet.bytes.len(), packet.header, packet.tag, packet.copy);
        let whole = len <= HEAD;
        state.trace("got ", state.find(id << 32 | u64::from(at)).ok_or(())?);
        let packet = state.packet(at);
        let valid = if whole || packet.body_at <= now { len.min(HEAD) } else { usize::from(header) };
        let mut head = [0xee; HEAD];
        head[..valid].copy_from_slice(&packet.bytes[..valid]);
        let link = state.path(from_node, self.node, self.rail);
        if !copy {
            let overtaken = id < link.latest;
            link.latest = link.latest.max(id);
            state.counts.reordered += u64::from(overtaken);
        }
        if whole {
            state.discard(at);
        } else {
            state.packet(at).held = true;
            state.end(self.node, self.rail).held += 1;
        }
        let id = FrameId(id << 32 | u64::from(at));
        Ok(Some(Frame { id, from, tag, valid: valid as u8, len: len as u32, head }))
    }

    /// Converts a pending event. `None` if it concerns a peer that has been deleted meanwhile.
    fn report(&self, state: &mut NetworkState, later: PendingEvent) -> Option<Event> {
        match later {
            PendingEvent::Delivered(at) => {
                let planted = state.faults.planted;
                let packet = state.packet(at);
                let (sink, skip, cookie) = packet.sink.take()?;
                let bytes = packet.bytes.get(skip..).unwrap_or(&[]);
                if planted != Some(PlantedBug::SinkUnwritten) {
                    // SAFETY: the caller of the delivery keeps the sink writable until its end is reported; the packet does not
                    // overlap it.
                    unsafe { sink.unpack(bytes.as_ptr(), bytes.len()) };
                }
                state.discard(at);
                Some(Event::Delivered(cookie))
            }
            PendingEvent::Sent { node, epoch, cookie } => {
                (state.end(self.node, self.rail).epochs[node as usize] == epoch).then_some(Event::Sent(Cookie(cookie)))
            }
            PendingEvent::FalseRefusal { node, epoch } => {
                let end = state.end(self.node, self.rail);
                let named = end.peers[node as usize].filter(|_| end.epochs[node as usize] == epoch)?;
                Some(Event::Silent(named.peer, None))
            }
            PendingEvent::Performed(number) => state.complete_operation(number),
            PendingEvent::Lost { node, epoch } => {
                let end = state.end(self.node, self.rail);
                if end.epochs[node as usize] != epoch {
                    return None;
                }
                end.epochs[node as usize] += 1; // no later event of this epoch may follow
                let named = end.peers[node as usize].take()?;
                Some(Event::Lost(named.peer, Lost::Broken))
            }
        }
    }
}

impl Rail for SimRail {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        &self.card
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        let card: [u8; CARD] = card.try_into().map_err(|_| Unreachable::BadCard)?;
        let [node, rail, incarnation] =
            [0, 4, 8].map(|at| u32::from_le_bytes(std::array::from_fn(|byte| card[at + byte])));
        let mut state = self.net.0.borrow_mut();
        if node >= state.nodes() || rail != self.rail {
            return Err(Unreachable::NoNetwork);
        }
        if state.is_rail_missing(self.node, node, rail) && state.faults.planted != Some(PlantedBug::MissingRailUsed) {
            state.counts.fewer_rails += 1;
            return Err(Unreachable::NoNetwork);
        }
        let there = state.incarnation(node) == Some(incarnation)
            && ![self.node, node].iter().any(|node| state.is_in_outage(*node, rail));
        state.known_incarnations.insert((self.node, node), incarnation);
        let reached = there || node == self.node || state.rail_params[rail as usize].datagrams;
        let session = state.path(self.node, node, rail).session;
        state.counts.reconnected += u64::from(reached && session != 0);
        let end = state.end(self.node, self.rail);
        end.peers[node as usize] = Some(KnownPeer { peer, session: reached.then_some(session), incarnation });
        end.hosts[node as usize] = HostState::default();
        let waiting = std::mem::take(&mut end.waiting);
        end.inbox.extend(waiting.into_iter().map(Reverse));
        if !reached {
            state.report_lost(self.node, node, rail);
        }
        Ok(Endpoint(node))
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        let mut state = self.net.0.borrow_mut();
        if endpoint.0 >= state.nodes() {
            return;
        }
        // A connection that the peer has made since then is another one.
        let session = state.path(self.node, endpoint.0, self.rail).session;
        let known = state.end(self.node, self.rail).peers[endpoint.0 as usize];
        let up_to = known.and_then(|named| named.session).unwrap_or(session.saturating_sub(1));
        state.purge(endpoint.0, self.node, self.rail, up_to);
        // Frames in flight to the peer still arrive, if their bodies have been copied.
        state.copy_bodies(self.node, endpoint.0, self.rail);
        let end = state.end(self.node, self.rail);
        end.peers[endpoint.0 as usize] = None;
        end.epochs[endpoint.0 as usize] += 1;
        if known.is_some_and(|named| named.session == Some(session)) {
            state.close(self.node, endpoint.0, self.rail);
        }
    }

    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        self.check_admission(&mut self.net.0.borrow_mut(), to, shape)?;
        self.room[..shape.len as usize].fill(0xdd);
        self.draft = Some(shape);
        let ticket = Ticket { endpoint: to, position: 0, len: shape.len, extra: 0 };
        // SAFETY: the room is at least as long as either limit, which `admit` checked, and belongs to this rail.
        Ok(unsafe { Grant::new(self.room.as_mut_ptr(), shape.len as usize, ticket) })
    }

    fn commit(&mut self, ticket: Ticket) -> Sent {
        let shape = self.draft.take().expect("a ticket is committed once, and is the last one given");
        assert_eq!(shape.len, ticket.len, "a ticket of another grant");
        let bytes = self.room[..shape.len as usize].to_vec();
        self.submit(&mut self.net.0.borrow_mut(), ticket.endpoint, shape, bytes, None)
    }

    unsafe fn send(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        assert_eq!((header.len() as u64 + body.len(), header.len()), (shape.len.into(), shape.header.into()));
        let state = &mut *self.net.0.borrow_mut();
        self.check_admission(state, to, shape)?;
        if body.len() > COPIED && state.random.chance(state.faults.in_place) {
            return Ok(self.submit(state, to, shape, header.to_vec(), Some((body, cookie))));
        }
        let mut bytes = vec![0xdd; shape.len as usize];
        bytes[..header.len()].copy_from_slice(header);
        let rest = &mut bytes[header.len()..];
        // SAFETY: the caller guarantees that the body is valid until this returns; the new vector is elsewhere.
        unsafe { body.pack(rest.as_mut_ptr(), rest.len()) };
        Ok(self.submit(state, to, shape, bytes, None))
    }

    fn drained(&self, to: Endpoint) -> bool {
        let mut state = self.net.0.borrow_mut();
        let staged: Vec<u32> = state.end(self.node, self.rail).outbox.iter().copied().collect();
        staged.into_iter().all(|at| state.packet(at).to != to.0)
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        let mut state = self.net.0.borrow_mut();
        state.advance(now.as_nanos());
        if state.is_rail_stalled(self.node, self.rail) {
            state.counts.stalled_polls += 1;
            return None;
        }
        for _ in 0..4 {
            let Some(at) = state.end(self.node, self.rail).outbox.pop_front() else { break };
            state.launch(at);
        }
        self.next_event(&mut state)
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        let state = self.net.0.borrow();
        let Some(packet) = state.find(frame.0).filter(|packet| packet.held) else { return 0 };
        let there = if packet.body_at <= state.now { packet.bytes.len() } else { usize::from(packet.header) };
        let part = packet.bytes.get(at..there).unwrap_or(&[]);
        let count = part.len().min(into.len());
        into[..count].copy_from_slice(&part[..count]);
        count
    }

    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery {
        let mut state = self.net.0.borrow_mut();
        // If the connection broke, the frame is gone, and the report of the loss is still to come.
        let Some(packet) = state.find(frame.0).filter(|packet| packet.held) else { return Delivery::Pending };
        let (at, body_at) = (frame.0 as u32, packet.body_at);
        let body = packet.bytes.get(skip..).unwrap_or(&[]);
        if body_at <= state.now {
            // SAFETY: the caller guarantees that the sink is valid. It cannot be in the packet's own memory.
            unsafe { sink.unpack(body.as_ptr(), body.len()) };
            state.discard(at);
            return Delivery::Done;
        }
        // A part is written at once, to detect a reader that accesses the sink too early.
        // SAFETY: the caller guarantees that the sink is valid. It cannot be in the packet's own memory.
        unsafe { sink.unpack(body.as_ptr(), body.len() / 3) };
        state.counts.pending_deliveries += 1;
        let packet = state.packet(at);
        packet.sink = Some((sink, skip, cookie));
        packet.held = false;
        let end = state.end(self.node, self.rail);
        end.held -= 1;
        state.report_at(body_at, self.node, self.rail, PendingEvent::Delivered(at));
        Delivery::Pending
    }

    fn release(&mut self, frame: FrameId) {
        let mut state = self.net.0.borrow_mut();
        if state.find(frame.0).is_some_and(|packet| packet.held) {
            state.discard(frame.0 as u32);
        }
    }

    fn poll_at(&self) -> Option<Instant> {
        let mut state = self.net.0.borrow_mut();
        let keep = self.attributes.frames_kept;
        state.end(self.node, self.rail).next_at(keep).map(Instant::from_nanos)
    }

    fn arm(&mut self) -> bool {
        let now = self.net.0.borrow().now;
        self.poll_at().is_none_or(|at| at.as_nanos() > now)
    }
}

impl RequestCache for SimRail {
    fn request_init(&mut self, extra: &mut [u8]) {
        assert_eq!(extra.len(), self.attributes.cache_bytes as usize);
        assert_ne!(extra, PREPARED, "a request was prepared twice");
        extra.copy_from_slice(&PREPARED);
        let mut state = self.net.0.borrow_mut();
        state.counts.prepared += 1;
        state.prepared[self.node as usize] += 1;
    }

    fn request_fini(&mut self, extra: &mut [u8]) {
        assert_eq!(extra, PREPARED, "a request was released that was never prepared");
        extra.fill(0);
        let mut state = self.net.0.borrow_mut();
        state.counts.unprepared += 1;
        state.prepared[self.node as usize] -= 1;
    }

    unsafe fn send_request(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
        extra: Option<&mut [u8]>,
    ) -> Result<Sent, SendError> {
        let mut state = self.net.0.borrow_mut();
        match extra {
            Some(extra) => {
                assert_eq!(extra, PREPARED, "a cached request is prepared");
                state.counts.cached += 1;
            }
            None => state.counts.uncached += 1,
        }
        drop(state);
        // SAFETY: passed on from the caller.
        unsafe { self.send(to, shape, header, body, cookie) }
    }
}

impl SingleCopy for SimRail {
    fn expose(&mut self, to: Endpoint, body: &Span) -> Option<RemoteBuffer> {
        let mut state = self.net.0.borrow_mut();
        let known = to.0 < state.nodes() && state.end(self.node, self.rail).peers[to.0 as usize].is_some();
        let permille = state.faults.expose;
        if !known || permille == 0 || !state.random.chance(permille) {
            return None;
        }
        state.counts.exposed += 1;
        let epoch = state.end(self.node, self.rail).epochs[to.0 as usize];
        let session = state.path(self.node, to.0, self.rail).session;
        let (from, rail) = (self.node, self.rail);
        state.exposed_buffers.push(Exposed { from, to: to.0, rail, epoch, session, body: *body, revoked: false });
        let mut buffer = [0x55; REMOTE_BUFFER_BYTES];
        buffer[..8].copy_from_slice(&(state.exposed_buffers.len() as u64).to_le_bytes());
        Some(RemoteBuffer(buffer))
    }

    unsafe fn read_exposed(&mut self, from: Endpoint, buffer: &RemoteBuffer, sink: Span) -> bool {
        let mut state = self.net.0.borrow_mut();
        let number = u64::from_le_bytes(std::array::from_fn(|byte| buffer.0[byte]));
        let exposed =
            (number as usize).checked_sub(1).and_then(|at| state.exposed_buffers.get(at).copied()).filter(|exposed| {
                let between = (exposed.from, exposed.to, exposed.rail) == (from.0, self.node, self.rail);
                between && !exposed.revoked && sink.len() <= exposed.body.len()
            });
        let refuses = state.faults.unreadable;
        let refused = refuses != 0 && state.random.chance(refuses);
        // After the loss of a peer its memory may have changed.
        let exposed = exposed.filter(|exposed| {
            !refused
                && state.end(exposed.from, self.rail).epochs[self.node as usize] == exposed.epoch
                && state.path(exposed.from, self.node, self.rail).session == exposed.session
        });
        let Some(exposed) = exposed else {
            state.counts.unreadable += 1;
            // The read may have begun.
            let begun = [0xbb; 64];
            // SAFETY: the caller guarantees that the sink is valid.
            unsafe { sink.unpack(begun.as_ptr(), begun.len()) };
            return false;
        };
        state.counts.read_exposed += 1;
        // SAFETY: the caller guarantees that the sink is valid. The owner of the exposed body keeps it until the end is reported,
        // or until the owner deletes this peer.
        unsafe { transfer(exposed.body, sink) };
        true
    }

    fn read_limit(&self, from: Endpoint) -> u64 {
        let mut state = self.net.0.borrow_mut();
        let known = from.0 < state.nodes() && state.end(self.node, self.rail).peers[from.0 as usize].is_some();
        if known && state.faults.expose != 0 { 1000 } else { 0 }
    }

    fn revoke_exposed(&mut self) {
        let mut state = self.net.0.borrow_mut();
        let own = |exposed: &&mut Exposed| (exposed.from, exposed.rail) == (self.node, self.rail);
        state.exposed_buffers.iter_mut().filter(own).for_each(|exposed| exposed.revoked = true);
    }
}

impl DeviceMemory for SimRail {
    unsafe fn register(&mut self, base: *mut u8, len: usize, access: Access) -> Result<(Region, Key), NativeError> {
        self.net.0.borrow_mut().register(self.node, self.rail, base, len, access)
    }

    fn deregister(&mut self, region: Region) {
        self.net.0.borrow_mut().deregister(region);
    }

    unsafe fn perform(&mut self, on: Endpoint, native: &Native, cookie: Cookie) -> Result<Option<u64>, NativeError> {
        // SAFETY: passed on from the caller.
        unsafe { self.net.0.borrow_mut().perform(self.node, self.rail, on, native, cookie) }
    }
}

impl Liveness for SimRail {
    fn ask_host(&mut self, of: Endpoint) -> Option<Instant> {
        let mut state = self.net.0.borrow_mut();
        if of.0 >= state.nodes() {
            return None;
        }
        state.ask_host(self.node, of.0, self.rail).map(Instant::from_nanos)
    }
}

impl FastPath for SimRail {}
impl Failover for SimRail {}
