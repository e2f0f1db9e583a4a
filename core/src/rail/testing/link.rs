//! A link over a simulated cable, which fails and is restored when a test says so. It keeps the guarantees of links in the
//! simplest form, without timers and checksums. Each link has two ends. A cable counts the pieces that are put on it and taken
//! off, so that a test can let it fail at every step.

use std::{
    boxed::Box, cell::RefCell, collections::BTreeMap, collections::HashSet, collections::VecDeque, rc::Rc, vec::Vec,
};

use crate::convertor::Span;
use crate::rail::*;
use crate::time::Instant;

/// Longer bodies are sent in place, unless a test wants them copied. No eager body is so long.
const COPIED: u64 = 72;
/// The number of the first frame: it wraps soon.
const FIRST: u32 = u32::MAX - 3;
/// After this many polls without an acknowledgement of the oldest frame, all frames are sent again.
const AGAIN: u32 = 24;

/// A piece on a cable. A frame longer than [`HEAD`](crate::rail::HEAD) is two pieces, and is usable in part when the first
/// has arrived.
#[derive(Clone, Debug)]
enum Piece {
    Start { number: u32, origin: Option<Origin>, shape: Shape, bytes: Vec<u8> },
    Rest { number: u32 },
    Ack { number: u32 },
    Bye,
}

/// The failure of a cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkFailure {
    /// Whether pieces to end 0, and to end 1, are lost from now on.
    pub directions: [bool; 2],
    /// Whether pieces in flight are lost, too.
    pub loses_in_flight: bool,
    /// Whether sends are refused before the link is reported down. Otherwise they are accepted and lost.
    pub refuses_sends: bool,
    /// After how many polls end 0, and end 1, report the link down.
    pub polls_until_down: [u32; 2],
}

impl LinkFailure {
    pub const CLEAN: Self =
        Self { directions: [true; 2], loses_in_flight: true, refuses_sends: false, polls_until_down: [0; 2] };
}

#[derive(Debug, Default)]
struct Cable {
    to: [VecDeque<Piece>; 2],
    failure: Option<LinkFailure>,
}

/// All cables between two hosts.
#[derive(Debug, Default)]
pub struct Net {
    cables: Vec<Cable>,
    /// How many pieces were put on any cable or taken off.
    pub steps: u64,
    /// The planned failures: step, cable, and its failure.
    pub plan: Vec<(u64, usize, LinkFailure)>,
    /// Pieces are taken in a random order, from this state of the generator.
    pub shuffle: Option<u64>,
    /// A cable that carries no pieces to an end, and that end.
    pub stalled: Option<(usize, usize)>,
}

impl Net {
    pub fn fail_link(&mut self, cable: usize, failure: LinkFailure) {
        let cable = &mut self.cables[cable];
        cable.failure = Some(failure);
        if failure.loses_in_flight {
            (0..2).filter(|to| failure.directions[*to]).for_each(|to| cable.to[to].clear());
        }
    }

    pub fn restore(&mut self, cable: usize) {
        self.cables[cable].failure = None;
    }

    fn step(&mut self) {
        self.steps += 1;
        while let Some(at) = self.plan.iter().position(|(step, ..)| *step <= self.steps) {
            let (_, cable, failure) = self.plan.swap_remove(at);
            self.fail_link(cable, failure);
        }
    }

    fn put(&mut self, cable: usize, to: usize, piece: Piece) {
        self.step();
        let cable = &mut self.cables[cable];
        if !cable.failure.is_some_and(|failure| failure.directions[to]) {
            cable.to[to].push_back(piece);
        }
    }

    fn take(&mut self, cable: usize, to: usize) -> Option<Piece> {
        if self.cables[cable].to[to].is_empty() || self.stalled == Some((cable, to)) {
            return None;
        }
        self.step();
        let pieces = &mut self.cables[cable].to[to];
        let at = match &mut self.shuffle {
            None => 0,
            Some(state) => {
                *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (*state >> 33) as usize % pieces.len().max(1)
            }
        };
        pieces.remove(at) // lost if this step has broken the cable
    }
}

#[derive(Debug)]
struct HeldFrame {
    number: u32,
    origin: Option<Origin>,
    shape: Shape,
    header: [u8; LINKED_HEAD],
    copied: Box<[u8]>,
    /// The body's memory: `copied`, or the user's.
    body: Span,
    cookie: Option<Cookie>,
}

impl HeldFrame {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header[..self.shape.header as usize].to_vec();
        let at = bytes.len();
        bytes.resize(self.shape.len as usize, 0);
        // SAFETY: the body is this link's own copy, or the user keeps it until the frame is acknowledged or has migrated.
        unsafe { self.body.pack(bytes[at..].as_mut_ptr(), bytes.len() - at) };
        bytes
    }
}

#[derive(Debug)]
struct PendingDelivery {
    origin: Option<Origin>,
    bytes: Vec<u8>,
    whole: bool,
    wanted: Option<(usize, Span, Cookie)>,
}

/// One end of a cable.
#[derive(Debug)]
pub struct Link {
    net: Rc<RefCell<Net>>,
    cable: usize,
    end: usize,
    pub attributes: Attributes,
    card: [u8; 1],
    /// How many frames may be unacknowledged, and how many more of the control lane.
    pub window: usize,
    /// Longer bodies are sent in place.
    pub copied: u64,
    /// The longest frame of each lane.
    pub longest: [u32; 3],
    /// How many deliveries were begun here, and handed over to another link.
    pub handed_over: u32,
    /// The other end, and its id.
    peer: Option<(Peer, u8)>,
    down: bool,
    closed: bool,
    failed_polls: u32,
    idle: u32,
    next: u32,
    unacked: VecDeque<HeldFrame>,
    pending: BTreeMap<u32, PendingDelivery>,
    received: HashSet<u32>,
    granted: Option<(Shape, Box<[u8]>)>,
}

/// `count` links between two hosts, for each host its ends of them.
pub fn links(count: usize) -> (Rc<RefCell<Net>>, [Vec<Link>; 2]) {
    let net = Rc::new(RefCell::new(Net::default()));
    net.borrow_mut().cables.resize_with(count, Cable::default);
    let ends = [0, 1].map(|end| (0..count).map(|cable| Link::new(&net, cable, end)).collect());
    (net, ends)
}

impl Link {
    fn new(net: &Rc<RefCell<Net>>, cable: usize, end: usize) -> Self {
        let attributes = Attributes {
            name: "link",
            capabilities: Capabilities::SEND | Capabilities::SEND_INPLACE | Capabilities::FAILOVER_SUPPORT,
            // No two links have the same limits.
            eager_limit: [96, 120, 90][cable % 3],
            rendezvous_eager_limit: 40,
            max_send_size: [200, 160, 240][cable % 3],
            latency: [10, 10, 20][cable % 3],
            frames_kept: 16,
            ..crate::rail::loopback::Hub::attributes(128)
        };
        Self {
            net: net.clone(),
            cable,
            end,
            attributes,
            card: [100 * end as u8 + cable as u8],
            window: 4,
            copied: COPIED,
            longest: [0; 3],
            handed_over: 0,
            peer: None,
            down: false,
            closed: false,
            failed_polls: 0,
            idle: 0,
            next: FIRST,
            unacked: VecDeque::new(),
            pending: BTreeMap::new(),
            received: HashSet::new(),
            granted: None,
        }
    }

    /// Frames that this end has sent.
    pub fn sent(&self) -> u32 {
        self.next.wrapping_sub(FIRST)
    }

    /// Frames and deliveries that are not finished.
    pub fn unfinished(&self) -> usize {
        self.unacked.len() + self.pending.values().filter(|pending| pending.wanted.is_some()).count()
    }

    fn put(&self, piece: Piece) {
        self.net.borrow_mut().put(self.cable, 1 - self.end, piece);
    }

    fn launch(&self, unacked: &HeldFrame) {
        let (number, bytes) = (unacked.number, unacked.bytes());
        let long = bytes.len() > HEAD;
        self.put(Piece::Start { number, origin: unacked.origin, shape: unacked.shape, bytes });
        if long {
            self.put(Piece::Rest { number });
        }
    }

    fn check(&self, shape: Shape) -> Result<(), SendError> {
        let failure = self.net.borrow().cables[self.cable].failure;
        if self.peer.is_none() || self.down || failure.is_some_and(|failure| failure.refuses_sends) {
            return Err(SendError::Unreachable);
        }
        let limit = if shape.lane == Lane::Bulk { self.attributes.max_send_size } else { self.attributes.eager_limit };
        if shape.len > limit || shape.header as usize > LINKED_HEAD {
            return Err(SendError::TooLong);
        }
        let window = if shape.lane == Lane::Control { 2 * self.window } else { self.window };
        if self.unacked.len() >= window { Err(SendError::Busy) } else { Ok(()) }
    }

    fn keep(&mut self, unacked: HeldFrame) {
        self.next = self.next.wrapping_add(1);
        let longest = &mut self.longest[unacked.shape.lane as usize];
        *longest = unacked.shape.len.max(*longest);
        self.launch(&unacked);
        self.unacked.push_back(unacked);
    }

    /// Counts a frame as received, and acknowledges it.
    fn receive(&mut self, number: u32) {
        self.pending.remove(&number);
        self.received.insert(number);
        self.put(Piece::Ack { number });
    }

    fn take_in(&mut self, piece: Piece) -> Option<Event> {
        let (from, _) = self.peer?;
        match piece {
            Piece::Start { number, .. } if self.received.contains(&number) => {
                self.put(Piece::Ack { number });
                None
            }
            Piece::Start { number, .. } if self.pending.contains_key(&number) => None,
            Piece::Start { number, origin, shape, bytes } => {
                let mut head = [0; HEAD];
                let valid = bytes.len().min(HEAD);
                head[..valid].copy_from_slice(&bytes[..valid]);
                let frame = Frame {
                    id: FrameId(number.into()),
                    from,
                    tag: shape.tag,
                    valid: valid as u8,
                    len: bytes.len() as u32,
                    head,
                };
                if frame.is_whole() {
                    self.receive(number);
                } else {
                    self.pending.insert(number, PendingDelivery { origin, bytes, whole: false, wanted: None });
                }
                Some(origin.map_or(Event::Frame(frame), |origin| Event::Migrated(origin, frame)))
            }
            Piece::Rest { number } => {
                let pending = self.pending.get_mut(&number)?;
                pending.whole = true;
                let (skip, sink, cookie) = pending.wanted?;
                // SAFETY: the caller of `deliver` keeps the sink until the end of the delivery is reported.
                unsafe { sink.unpack(pending.bytes[skip..].as_ptr(), pending.bytes.len() - skip) };
                self.receive(number);
                Some(Event::Delivered(cookie))
            }
            Piece::Ack { number } => {
                let at = self.unacked.iter().position(|unacked| unacked.number == number)?;
                if at == 0 {
                    self.idle = 0;
                }
                self.unacked.remove(at)?.cookie.map(Event::Sent)
            }
            Piece::Bye => {
                (self.closed, self.down) = (true, true);
                Some(Event::Down(from, Lost::Closed))
            }
        }
    }
}

impl Rail for Link {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        &self.card
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        let (net, cable, end) = (self.net.clone(), self.cable, self.end);
        *self = Self { attributes: self.attributes, ..Self::new(&net, cable, end) };
        self.peer = Some((peer, card[0]));
        Ok(Endpoint(7 + self.cable as u32))
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        assert_eq!(endpoint.0, 7 + self.cable as u32);
        assert!(self.peer.take().is_some(), "deleted twice");
        self.unacked.clear();
        self.pending.clear();
        self.put(Piece::Bye);
    }

    fn reserve(&mut self, _: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        self.check(shape)?;
        let ticket = Ticket { endpoint: Endpoint(0), position: 0, len: shape.len, extra: 0 };
        let (_, room) = self.granted.insert((shape, std::vec![0; shape.len as usize].into()));
        // SAFETY: the room is this link's own, and stays until the ticket is committed or another grant is given.
        Ok(unsafe { Grant::new(room.as_mut_ptr(), room.len(), ticket) })
    }

    fn commit(&mut self, _: Ticket) -> Sent {
        let (shape, copied) = self.granted.take().expect("a grant");
        let mut header = [0; LINKED_HEAD];
        let (own, rest) = copied.split_at(shape.header as usize);
        header[..own.len()].copy_from_slice(own);
        let body = Span::of(rest);
        self.keep(HeldFrame { number: self.next, origin: None, shape, header, copied, body, cookie: None });
        Sent::Done
    }

    unsafe fn send(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        let origin = Origin { link: self.card[0], number: self.next };
        // SAFETY: passed on from the caller.
        let sent = unsafe { self.send_migrated(to, origin, shape, header, body, Some(cookie)) }?;
        Ok(sent)
    }

    fn drained(&self, _: Endpoint) -> bool {
        self.unacked.is_empty()
    }

    fn poll(&mut self, _: Instant) -> Option<Event> {
        let Some((from, _)) = self.peer else {
            self.net.borrow_mut().take(self.cable, self.end); // for the end that was there before
            return None;
        };
        let failure = self.net.borrow().cables[self.cable].failure;
        match failure {
            Some(failure) if !self.down => {
                self.failed_polls += 1;
                if self.failed_polls > failure.polls_until_down[self.end] {
                    self.down = true;
                    return Some(Event::Down(from, Lost::TimedOut));
                }
            }
            Some(_) => {}
            None if self.down && !self.closed => {
                self.down = false;
                self.failed_polls = 0;
                self.unacked.iter().for_each(|unacked| self.launch(unacked));
                return Some(Event::Up(from));
            }
            None => self.failed_polls = 0,
        }
        self.idle += 1;
        if self.idle > AGAIN && !self.down && !self.unacked.is_empty() {
            self.idle = 0;
            self.unacked.iter().for_each(|unacked| self.launch(unacked));
        }
        loop {
            let piece = self.net.borrow_mut().take(self.cable, self.end)?;
            if let Some(event) = self.take_in(piece) {
                return Some(event);
            }
        }
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        let Some(pending) = self.pending.get(&(frame.0 as u32)) else { return 0 };
        let rest = pending.bytes.get(at..if pending.whole { pending.bytes.len() } else { HEAD }).unwrap_or_default();
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        len
    }

    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery {
        let number = frame.0 as u32;
        let pending = self.pending.get_mut(&number).expect("a frame that is held");
        assert!(pending.wanted.is_none());
        if !pending.whole {
            pending.wanted = Some((skip, sink, cookie));
            return Delivery::Pending;
        }
        // SAFETY: as promised to this function.
        unsafe { sink.unpack(pending.bytes[skip..].as_ptr(), pending.bytes.len() - skip) };
        self.receive(number);
        Delivery::Done
    }

    fn release(&mut self, frame: FrameId) {
        assert!(self.pending.contains_key(&(frame.0 as u32)));
        self.receive(frame.0 as u32);
    }

    fn poll_at(&self) -> Option<Instant> {
        None
    }

    fn arm(&mut self) -> bool {
        let net = self.net.borrow();
        let stalled = net.stalled == Some((self.cable, self.end));
        self.unacked.is_empty() && (stalled || net.cables[self.cable].to[self.end].is_empty())
    }
}

impl Failover for Link {
    unsafe fn send_migrated(
        &mut self,
        _: Endpoint,
        origin: Origin,
        shape: Shape,
        bytes: &[u8],
        body: Span,
        cookie: Option<Cookie>,
    ) -> Result<Sent, SendError> {
        assert_eq!(bytes.len() as u64 + body.len(), u64::from(shape.len));
        self.check(shape)?;
        let own = origin == Origin { link: self.card[0], number: self.next };
        let mut header = [0; LINKED_HEAD];
        header[..bytes.len()].copy_from_slice(bytes);
        let in_place = cookie.is_some() && body.len() > self.copied;
        let mut copied: Box<[u8]> = std::vec![0; if in_place { 0 } else { body.len() as usize }].into();
        // SAFETY: the caller guarantees that the body is valid until this returns.
        unsafe { body.pack(copied.as_mut_ptr(), copied.len()) };
        let body = if in_place { body } else { Span::of(&copied) };
        self.keep(HeldFrame {
            number: self.next,
            origin: (!own).then_some(origin),
            shape,
            header,
            copied,
            body,
            cookie: cookie.filter(|_| in_place),
        });
        Ok(if in_place { Sent::InPlace } else { Sent::Done })
    }

    fn next_unacked(&self, _: Endpoint) -> Option<UnackedFrame> {
        let unacked = self.unacked.front().filter(|_| self.down)?;
        let origin = unacked.origin.unwrap_or(Origin { link: self.card[0], number: unacked.number });
        Some(UnackedFrame {
            origin,
            shape: unacked.shape,
            header: unacked.header,
            body: unacked.body,
            cookie: unacked.cookie,
        })
    }

    fn migrated(&mut self, to: Endpoint, origin: Origin) {
        assert_eq!(self.next_unacked(to).map(|orphan| orphan.origin), Some(origin));
        let mut gone = self.unacked.pop_front().expect("the migrated frame");
        gone.copied.fill(0xee); // no one may use it any more
    }

    fn claim(&mut self, _: Endpoint, origin: Origin) -> Option<Claim> {
        let (_, id) = self.peer?;
        let is =
            |number: u32, pending: &PendingDelivery| pending.origin.unwrap_or(Origin { link: id, number }) == origin;
        let begun = self.pending.iter().find(|(number, pending)| is(**number, pending) && pending.wanted.is_some());
        if let Some(number) = begun.map(|(number, _)| *number) {
            let (skip, sink, cookie) = self.pending.remove(&number)?.wanted?;
            self.received.insert(number);
            self.handed_over += 1;
            return Some(Claim::Awaited { skip, sink, cookie });
        }
        if origin.link != id {
            return None;
        }
        Some(if self.received.insert(origin.number) { Claim::New } else { Claim::Duplicate })
    }
}

impl FastPath for Link {}
impl RequestCache for Link {}
impl SingleCopy for Link {}
impl DeviceMemory for Link {}
impl Liveness for Link {}
