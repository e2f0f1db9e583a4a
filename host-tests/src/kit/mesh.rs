//! A mesh of rails under test. One thread drives all of them.

use std::collections::HashMap;
use std::thread;

use towline_core::convertor::Span;
use towline_core::rail::{
    Attributes, Cookie, Delivery, Endpoint, Event, FastPath, Frame, FullRail, HEAD, Lane, Lost, Peer, Rail, SendError,
    Sent, Shape,
};
use towline_core::time::Instant;

use towline_dpu::Matching;

use super::wait_limit::WaitLimit;

/// A setup, which makes the rails to test.
pub trait Setup {
    /// The kind of rail.
    type Rail: FullRail;

    /// Makes `count` rails that can reach each other and know no peer yet.
    fn rails(&mut self, count: usize) -> Vec<Self::Rail>;

    /// Number of rails of each node of a transport. Each call of [`rails`](Self::rails) makes one for every node.
    fn links(&self) -> usize {
        1
    }

    /// Devices that match the messages of the nodes of a transport in the place of their engines: one for each node, or none.
    fn devices(&mut self, _count: usize) -> Vec<Matching> {
        Vec::new()
    }

    /// The time for the next poll. It is called before each round of polls, so virtual time may advance here.
    fn now(&mut self) -> Instant;

    /// Ends a rail, as the end of its process would. Returns `false` if other rails cannot lose a rail of this kind.
    fn leave(&mut self, rail: Self::Rail) -> bool {
        drop(rail);
        true
    }

    /// The longest header that frames of these rails may have.
    fn longest_header(&self) -> usize {
        HEAD
    }

    /// Whether the wait handle of `rail` is ready. `None` if the rail has none.
    fn ready(&mut self, _rail: &Self::Rail) -> Option<bool> {
        None
    }
}

/// A received frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// The sender.
    pub from: Peer,
    /// Its active-message tag.
    pub tag: u8,
    /// Number of bytes that came with the event.
    pub valid: usize,
    /// The whole frame.
    pub bytes: Vec<u8>,
}

/// One rail of the mesh, and its events so far.
pub struct End<R> {
    /// The rail itself.
    pub rail: R,
    /// Its endpoints, by the number of the other end. The one for itself is never used.
    pub endpoints: Vec<Endpoint>,
    /// Received frames, in the order of their completion.
    pub received: Vec<Received>,
    /// Cookies of [`Event::Sent`].
    pub sent: Vec<Cookie>,
    /// Peers that were lost.
    pub lost: Vec<(Peer, Lost)>,
    pending: HashMap<u64, Received>,
    cookies: u64,
}

/// A mesh: rails that know each other, and their setup.
pub struct Mesh<S: Setup> {
    /// The setup.
    pub setup: S,
    /// The ends.
    pub ends: Vec<End<S::Rail>>,
}

/// The tag of no frame.
const NO_TAG: u8 = 0xfe;

/// The name of an end. It differs from endpoint numbers, so that mixing them up is noticed.
pub fn peer(end: usize) -> Peer {
    Peer(end as u32 * 3 + 5)
}

impl<S: Setup> Mesh<S> {
    /// `count` ends, each of which has added all the others.
    pub fn new(mut setup: S, count: usize) -> Self {
        let rails = setup.rails(count);
        assert_eq!(rails.len(), count, "the setup made another number of rails than was asked for");
        let ends = rails.into_iter().map(|rail| End {
            rail,
            endpoints: vec![Endpoint(u32::MAX); count],
            received: vec![],
            sent: vec![],
            lost: vec![],
            pending: HashMap::new(),
            cookies: 1 << 32,
        });
        let mut mesh = Self { setup, ends: ends.collect() };
        for one in 0..count {
            for other in 0..one {
                mesh.introduce(one, other);
                mesh.introduce(other, one);
            }
        }
        mesh
    }

    /// Adds end `other` as a peer of end `one`.
    pub fn introduce(&mut self, one: usize, other: usize) {
        let card = self.ends[other].rail.card().to_vec();
        let added = self.ends[one].rail.add_peer(peer(other), &card);
        self.ends[one].endpoints[other] = added.expect("rails of one setup reach each other");
    }

    /// The attributes of the rails.
    pub fn attributes(&self) -> Attributes {
        *self.ends[0].rail.attributes()
    }

    /// The longest frame of a lane.
    pub fn limit(&self, lane: Lane) -> usize {
        match lane {
            Lane::Control | Lane::Eager => self.attributes().eager_limit as usize,
            Lane::Bulk => self.attributes().max_send_size as usize,
        }
    }

    /// Polls one end. The event is not handled. The ends with odd numbers are polled as an engine does it, so not if the rail says
    /// that it is idle.
    pub fn poll(&mut self, end: usize) -> Option<Event> {
        let now = self.setup.now();
        let rail = &mut self.ends[end].rail;
        if end % 2 == 1 && rail.poll_short(NO_TAG).is_none() && rail.is_idle() {
            return None;
        }
        rail.poll(now)
    }

    /// Polls every end once, and handles the events. Returns whether there was one.
    pub fn round(&mut self) -> bool {
        let mut any = false;
        for end in 0..self.ends.len() {
            any |= self.step(end);
        }
        any
    }

    /// Polls one end, and handles the event. Returns whether there was one.
    pub fn step(&mut self, end: usize) -> bool {
        let event = self.poll(end);
        if let Some(event) = event {
            self.ends[end].take(event);
        }
        event.is_some()
    }

    /// Polls all ends until `done`.
    ///
    /// # Panics
    /// If this does not happen in time.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let mut wait_limit = WaitLimit::default();
        while !done(self) {
            let came = self.round();
            assert!(!wait_limit.expired(came), "this did not happen in time: {what}");
        }
    }

    /// Polls all ends until there are no more events.
    pub fn run_until_idle(&mut self) {
        let mut idle = 0;
        self.until("the rails become idle", |mesh| {
            idle = if mesh.round() { 0 } else { idle + 1 };
            idle > 2000
        });
    }

    /// Sends one frame through a grant, with one attempt.
    ///
    /// # Errors
    /// The error of the rail.
    pub fn try_send(&mut self, from: usize, to: usize, shape: Shape, bytes: &[u8]) -> Result<Sent, SendError> {
        let end = &mut self.ends[from];
        let endpoint = end.endpoints[to];
        let mut grant = end.rail.reserve(endpoint, shape)?;
        assert_eq!(grant.room(), shape.len as usize, "a grant has the room that was asked for");
        let (header, body) = bytes.split_at(usize::from(shape.header));
        grant.write(0, header);
        grant.write(header.len(), body);
        let ticket = grant.finish();
        Ok(end.rail.commit(ticket))
    }

    /// Sends one frame through a grant, and polls while the rail is busy.
    pub fn send(&mut self, from: usize, to: usize, lane: Lane, tag: u8, header: usize, bytes: &[u8]) {
        let shape = Shape { tag, lane, header: header as u8, len: bytes.len() as u32 };
        self.until("a frame is accepted", |mesh| match mesh.try_send(from, to, shape, bytes) {
            Ok(sent) => {
                assert_ne!(sent, Sent::InPlace, "a grant has no body to leave in place");
                true
            }
            Err(SendError::Busy) => false,
            Err(error) => panic!("{error}"),
        });
    }

    /// Polls one end until it reports a frame, which is not handled. The other ends run as usual.
    pub fn frame(&mut self, end: usize) -> Frame {
        let mut wait_limit = WaitLimit::default();
        loop {
            for other in (0..self.ends.len()).filter(|other| *other != end) {
                self.step(other);
            }
            let event = self.poll(end);
            assert!(!wait_limit.expired(event.is_some()), "no frame arrived in time");
            match event {
                Some(Event::Frame(frame)) => return frame,
                Some(event) => self.ends[end].take(event),
                None => thread::yield_now(),
            }
        }
    }

    /// Polls until a held frame has arrived completely, and copies it. Other frames that arrive are handled.
    pub fn read_all(&mut self, end: usize, frame: &Frame) -> Vec<u8> {
        let mut bytes = vec![0; frame.len as usize];
        let mut wait_limit = WaitLimit::default();
        loop {
            let count = self.ends[end].rail.read(frame.id, 0, &mut bytes);
            assert!(count <= bytes.len());
            if count == bytes.len() {
                return bytes;
            }
            let came = self.round();
            assert!(!wait_limit.expired(came), "the body of a frame did not arrive in time");
        }
    }
}

impl<R: FullRail> End<R> {
    /// A cookie that was not used before.
    pub fn cookie(&mut self) -> Cookie {
        self.cookies += 1;
        Cookie(self.cookies)
    }

    /// Handles an event.
    pub fn take(&mut self, event: Event) {
        match event {
            Event::Frame(frame) => self.take_frame(&frame),
            Event::Sent(cookie) => self.sent.push(cookie),
            Event::Delivered(cookie) => {
                let received = self
                    .pending
                    .remove(&cookie.0)
                    .expect("a delivery is reported only once, and only if it was pending");
                self.received.push(received);
            }
            Event::Lost(peer, why) | Event::Down(peer, why) => self.lost.push((peer, why)),
            Event::Up(peer) => self.lost.retain(|(lost, _)| *lost != peer),
            Event::Silent(..) | Event::Performed(..) => {}
            Event::Migrated(_, frame) => self.take_frame(&frame),
        }
    }

    /// Receives a frame: the head from the event, the rest by a delivery.
    pub fn take_frame(&mut self, frame: &Frame) {
        let (len, valid) = (frame.len as usize, usize::from(frame.valid));
        assert!(valid <= len.min(HEAD), "more valid bytes than the frame or its head has");
        let mut bytes = vec![0; len];
        bytes[..valid].copy_from_slice(frame.head());
        let mut received = Received { from: frame.from, tag: frame.tag, valid, bytes };
        if frame.is_whole() {
            assert_eq!(valid, len, "a frame as short as a head comes whole");
            self.received.push(received);
            return;
        }
        let cookie = self.cookie();
        let rest = &mut received.bytes[valid..];
        let sink = Span::contiguous(rest.as_mut_ptr(), rest.len());
        // SAFETY: the sink is in the vector's heap memory, which stays put and untouched in `pending` until `Delivered`.
        match unsafe { self.rail.deliver(frame.id, valid, sink, cookie) } {
            Delivery::Done => self.received.push(received),
            Delivery::Pending => drop(self.pending.insert(cookie.0, received)),
        }
    }

    /// Number of deliveries that are not complete.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }
}
