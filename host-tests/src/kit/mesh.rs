//! A mesh of rails under test, all driven by one thread.

use std::collections::HashMap;
use std::thread;

use towline_core::convertor::Span;
use towline_core::rail::{
    Attributes, Cookie, Delivery, Endpoint, Event, Frame, FullRail, HEAD, Lane, Lost, Peer, Rail, SendError, Sent,
    Shape,
};
use towline_core::time::Instant;

use super::wait_limit::WaitLimit;

/// Makes the rails that are tested.
pub trait Setup {
    /// The kind of rail.
    type Rail: FullRail;

    /// `count` rails that can reach each other, none of which knows a peer yet.
    fn rails(&mut self, count: usize) -> Vec<Self::Rail>;

    /// Rails that each node of a transport gets from this setup, by so many calls of [`rails`](Self::rails).
    fn links(&self) -> usize {
        1
    }

    /// The time that the next poll is told. Called once before each round of polls, so virtual time may move here.
    fn now(&mut self) -> Instant;

    /// Ends a rail as the end of its process would. `false` where no rail of this kind can be lost to the others.
    fn leave(&mut self, rail: Self::Rail) -> bool {
        drop(rail);
        true
    }

    /// The longest header that frames of these rails may have.
    fn longest_header(&self) -> usize {
        HEAD
    }

    /// Whether the wait handle of `rail` is ready; `None` where the rail has none.
    fn ready(&mut self, _rail: &Self::Rail) -> Option<bool> {
        None
    }
}

/// A frame that was taken in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// Who sent it.
    pub from: Peer,
    /// Its active-message tag.
    pub tag: u8,
    /// Bytes of it that came with the event.
    pub valid: usize,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// One rail of the mesh and what it reported so far.
pub struct End<R> {
    /// The rail itself.
    pub rail: R,
    /// Its endpoints, by number of the other end; its own is never used.
    pub to: Vec<Endpoint>,
    /// Frames taken in, in the order of their completion.
    pub got: Vec<Received>,
    /// Cookies of [`Event::Sent`].
    pub sent: Vec<Cookie>,
    /// Peers that were lost.
    pub lost: Vec<(Peer, Lost)>,
    pending: HashMap<u64, Received>,
    cookies: u64,
}

/// Rails that know each other, and the setup they came from.
pub struct Mesh<S: Setup> {
    /// The setup.
    pub setup: S,
    /// The ends.
    pub ends: Vec<End<S::Rail>>,
}

/// How the ends name each other: unlike endpoints, so that mixing them up shows.
pub fn peer(end: usize) -> Peer {
    Peer(end as u32 * 3 + 5)
}

impl<S: Setup> Mesh<S> {
    /// `count` ends, each of which has added all the others.
    pub fn new(mut setup: S, count: usize) -> Self {
        let rails = setup.rails(count);
        assert_eq!(rails.len(), count, "the setup gave another number of rails");
        let ends = rails.into_iter().map(|rail| End {
            rail,
            to: vec![Endpoint(u32::MAX); count],
            got: vec![],
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

    /// Adds `other` as a peer of `one`.
    pub fn introduce(&mut self, one: usize, other: usize) {
        let card = self.ends[other].rail.card().to_vec();
        let added = self.ends[one].rail.add_peer(peer(other), &card);
        self.ends[one].to[other] = added.expect("rails of one setup reach each other");
    }

    /// The promises of the rails.
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

    /// One event of one end, raw.
    pub fn poll(&mut self, end: usize) -> Option<Event> {
        let now = self.setup.now();
        self.ends[end].rail.poll(now)
    }

    /// Polls every end once and takes in what came; whether anything did.
    pub fn round(&mut self) -> bool {
        let mut any = false;
        for end in 0..self.ends.len() {
            any |= self.step(end);
        }
        any
    }

    /// Polls one end and takes in what came; whether anything did.
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
    /// If that does not come about.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let mut wait_limit = WaitLimit::default();
        while !done(self) {
            let came = self.round();
            assert!(!wait_limit.expired(came), "waited in vain: {what}");
        }
    }

    /// Polls all ends until nothing more comes.
    pub fn run_until_idle(&mut self) {
        let mut idle = 0;
        self.until("the rails fall silent", |mesh| {
            idle = if mesh.round() { 0 } else { idle + 1 };
            idle > 2000
        });
    }

    /// Sends one frame by way of a grant, once.
    ///
    /// # Errors
    /// What the rail answers.
    pub fn try_send(&mut self, from: usize, to: usize, shape: Shape, bytes: &[u8]) -> Result<Sent, SendError> {
        let end = &mut self.ends[from];
        let endpoint = end.to[to];
        let mut grant = end.rail.reserve(endpoint, shape)?;
        assert_eq!(grant.room(), shape.len as usize, "a grant has the room that was asked for");
        let (header, body) = bytes.split_at(usize::from(shape.header));
        grant.write(0, header);
        grant.write(header.len(), body);
        let ticket = grant.finish();
        Ok(end.rail.commit(ticket))
    }

    /// Sends one frame by way of a grant, and polls while the rail is busy.
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

    /// Polls one end until it names a frame, which is not taken in; the other ends run as usual.
    pub fn frame(&mut self, end: usize) -> Frame {
        let mut wait_limit = WaitLimit::default();
        loop {
            for other in (0..self.ends.len()).filter(|other| *other != end) {
                self.step(other);
            }
            let event = self.poll(end);
            assert!(!wait_limit.expired(event.is_some()), "waited in vain for a frame");
            match event {
                Some(Event::Frame(frame)) => return frame,
                Some(event) => self.ends[end].take(event),
                None => thread::yield_now(),
            }
        }
    }

    /// Polls until all of a held frame is in, and copies it out. Frames that come meanwhile are taken in.
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
            assert!(!wait_limit.expired(came), "waited in vain for the body of a frame");
        }
    }
}

impl<R: FullRail> End<R> {
    /// A cookie that was not used before.
    pub fn cookie(&mut self) -> Cookie {
        self.cookies += 1;
        Cookie(self.cookies)
    }

    /// Takes in what an event brings.
    pub fn take(&mut self, event: Event) {
        match event {
            Event::Frame(frame) => self.take_frame(&frame),
            Event::Sent(cookie) => self.sent.push(cookie),
            Event::Delivered(cookie) => {
                let received = self.pending.remove(&cookie.0).expect("a delivery that nobody asked for, or twice");
                self.got.push(received);
            }
            Event::Lost(peer, why) | Event::Down(peer, why) => self.lost.push((peer, why)),
            Event::Up(peer) => self.lost.retain(|(lost, _)| *lost != peer),
            Event::Silent(..) | Event::Performed(..) => {}
            Event::Migrated(_, frame) => self.take_frame(&frame),
        }
    }

    /// Takes in a frame: what came with the event from there, the rest by delivery behind it.
    pub fn take_frame(&mut self, frame: &Frame) {
        let (len, valid) = (frame.len as usize, usize::from(frame.valid));
        assert!(valid <= len.min(HEAD), "more valid bytes than the frame or its head has");
        let mut bytes = vec![0; len];
        bytes[..valid].copy_from_slice(frame.head());
        let mut received = Received { from: frame.from, tag: frame.tag, valid, bytes };
        if frame.is_whole() {
            assert_eq!(valid, len, "a frame as short as a head comes whole");
            self.got.push(received);
            return;
        }
        let cookie = self.cookie();
        let rest = &mut received.bytes[valid..];
        let sink = Span::contiguous(rest.as_mut_ptr(), rest.len());
        // SAFETY: the sink is in the vector's heap memory, which stays put and untouched in `pending` until `Delivered`.
        match unsafe { self.rail.deliver(frame.id, valid, sink, cookie) } {
            Delivery::Done => self.got.push(received),
            Delivery::Pending => drop(self.pending.insert(cookie.0, received)),
        }
    }

    /// Deliveries that were asked for and are not done.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }
}
