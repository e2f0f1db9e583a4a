//! Several rails in one process, polled in turns, and a peer whose messages the test writes itself.
#![allow(dead_code)] // each test program uses its part

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration as Wait, Instant as Clock};

use towline_core::rail::{Endpoint, Event, FastPath as _, Frame, Lane, Lost, Peer, Rail as _, SendError, Shape};
use towline_core::time::Instant;
use towline_net::Identity;
use towline_net::card::{Card, CardAddress};
use towline_tcp::hello::{HELLO, Hello, PROOF, Role, Transcript, VERDICT, Verdict};
use towline_tcp::{Config, Encrypt, JobKey, Rail};

pub const JOB: u64 = 0x70B;
pub const TAG: u8 = 0x80;
/// How long a wait goes on without an event before it fails. It is long, since another thread or the kernel may be late.
const PATIENCE: Wait = Wait::from_secs(300);

/// The limit of a wait. It only ends a test that hangs.
pub struct Limit(Clock);

impl Limit {
    pub fn new() -> Self {
        Self(Clock::now())
    }

    pub fn check(&self, what: std::fmt::Arguments<'_>) {
        assert!(self.0.elapsed() < PATIENCE, "this did not happen in time: {what}");
    }
}

pub fn key() -> JobKey {
    JobKey::new([9; 32])
}

pub fn config(rank: u32) -> Config {
    let mut config = Config::new(JOB, rank, key());
    config.filter.include = vec!["lo".into()];
    config.epoll_interval_polls = 3; // so that connections are noticed after few polls
    config
}

pub fn rail(rank: u32) -> Rail {
    Rail::new(config(rank)).expect("this host has a loopback")
}

/// An event that a test looks at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Observed {
    Frame(Peer, Vec<u8>),
    Lost(Peer, Lost),
}

/// Rails that are polled in turns. The test sets their time.
pub struct World {
    pub rails: Vec<Rail>,
    pub observed: Vec<Vec<Observed>>,
    pub now: Instant,
    idle: u32,
}

impl World {
    pub fn new(rails: Vec<Rail>) -> Self {
        let observed = rails.iter().map(|_| vec![]).collect();
        Self { rails, observed, now: Instant::from_nanos(1), idle: 0 }
    }

    /// Adds each rail to each other one, with its index as the peer.
    pub fn with_peers(rails: Vec<Rail>) -> (Self, Vec<Vec<Endpoint>>) {
        let mut world = Self::new(rails);
        let count = world.rails.len();
        let mut endpoints = vec![vec![Endpoint(u32::MAX); count]; count];
        for (one, row) in endpoints.iter_mut().enumerate() {
            for (other, place) in row.iter_mut().enumerate().filter(|(other, _)| *other != one) {
                let card = world.rails[other].card().to_vec();
                *place = world.rails[one].add_peer(Peer(other as u32), &card).expect("same host");
            }
        }
        (world, endpoints)
    }

    /// Polls one rail once, as an engine does it. A long frame is read when all of it has arrived.
    pub fn poll(&mut self, at: usize) -> Option<Event> {
        if self.rails[at].is_idle() {
            return None;
        }
        let event = self.rails[at].poll(self.now)?;
        self.idle = 0;
        match event {
            Event::Frame(frame) if frame.is_whole() => {
                self.observed[at].push(Observed::Frame(frame.from, frame.head().to_vec()));
            }
            Event::Frame(frame) => {
                let bytes = self.read_all(at, &frame);
                self.rails[at].release(frame.id);
                self.observed[at].push(Observed::Frame(frame.from, bytes));
            }
            Event::Lost(peer, why) => self.observed[at].push(Observed::Lost(peer, why)),
            _ => {}
        }
        Some(event)
    }

    fn read_all(&mut self, at: usize, frame: &Frame) -> Vec<u8> {
        let mut bytes = vec![0; frame.len as usize];
        let limit = Limit::new();
        while self.rails[at].read(frame.id, 0, &mut bytes) != bytes.len() {
            limit.check(format_args!("a body arrives"));
            for other in 0..self.rails.len() {
                assert!(self.rails[other].poll(self.now).is_none_or(|event| matches!(event, Event::Sent(_))));
            }
        }
        bytes
    }

    /// Polls all rails once. Of many idle rounds, each eighth waits up to a millisecond for the kernel.
    pub fn round(&mut self) {
        self.idle = self.idle.wrapping_add(1);
        for at in 0..self.rails.len() {
            self.poll(at);
        }
        if self.idle > 8 && self.idle.is_multiple_of(8) {
            self.wait_for_kernel();
        }
    }

    /// Waits up to a millisecond for the kernel.
    fn wait_for_kernel(&mut self) {
        let mut handles: Vec<libc::pollfd> = self.rails.iter().map(handle).collect();
        // SAFETY: the argument is a slice of descriptors.
        unsafe { libc::poll(handles.as_mut_ptr(), handles.len() as u64, 1) };
    }

    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        self.idle = 0;
        let mut limit = Limit::new();
        while !done(self) {
            self.round();
            if self.idle == 0 {
                limit = Limit::new();
            }
            limit.check(format_args!("{what}; observed {:?}", self.observed));
        }
    }

    /// Sends a short frame, polling all rails while there is no room.
    pub fn send(&mut self, from: usize, to: Endpoint, bytes: &[u8]) {
        self.until("room for a frame", |world| try_send(&mut world.rails[from], to, bytes).expect("reachable"));
    }

    /// Checks that no peer was lost, and drops the observed events.
    pub fn assert_no_peer_lost(&mut self) {
        for seen in &mut self.observed {
            assert!(!seen.iter().any(|it| matches!(it, Observed::Lost(..))), "{seen:?}");
            seen.clear();
        }
    }
}

fn handle(rail: &Rail) -> libc::pollfd {
    libc::pollfd { fd: rail.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

/// Sends one frame. `false`: there is no room, or the connection is not established yet.
pub fn try_send(rail: &mut Rail, to: Endpoint, bytes: &[u8]) -> Result<bool, SendError> {
    let header = bytes.len().min(8) as u8;
    let shape = Shape { tag: TAG, lane: Lane::Eager, header, len: bytes.len() as u32 };
    match rail.reserve(to, shape) {
        Ok(mut grant) => {
            grant.write(0, bytes);
            let ticket = grant.finish();
            rail.commit(ticket);
            Ok(true)
        }
        Err(SendError::Busy) => Ok(false),
        Err(error) => Err(error),
    }
}

pub fn card(rail: &Rail) -> Card {
    Card::decode(rail.card()).expect("its own card")
}

pub fn address(rail: &Rail) -> SocketAddr {
    let entry = card(rail).addresses[0];
    SocketAddr::new(entry.address, entry.port)
}

/// A rank whose messages the test writes itself.
pub struct ManualPeer {
    pub rank: u32,
    pub instance: u64,
    pub key: JobKey,
}

impl ManualPeer {
    pub fn new(rank: u32) -> Self {
        Self { rank, instance: 0x1A57, key: key() }
    }

    /// The card of this rank, with `at` as its addresses.
    pub fn card(&self, at: &[SocketAddr], like: &Rail) -> Vec<u8> {
        let addresses = at.iter().map(|it| CardAddress { address: it.ip(), prefix: 8, port: it.port() }).collect();
        Card { rank: self.rank, instance: self.instance, addresses, ..card(like) }.encode()
    }

    pub fn hello(&self, to: &Rail) -> Hello {
        let to = card(to);
        Hello {
            role: Role::Initiator,
            link: to.link,
            encrypted: false,
            encrypt: Encrypt::Off,
            identity: Identity {
                job: to.job,
                from: self.rank,
                to: to.rank,
                from_instance: self.instance,
                to_instance: to.instance,
            },
            host: to.host,
            nonce: [0x5A; 32],
            keys: [0; 48],
        }
    }

    /// Connects and exchanges hellos. Checks the acceptor's proof, and returns the stream and the transcript.
    pub fn begin_handshake(&self, world: &mut World, at: usize) -> (TcpStream, Transcript) {
        let hello = self.hello(&world.rails[at]).encode();
        let mut stream = connect(&world.rails[at]);
        stream.write_all(&hello).expect("room");
        let answer = read_exactly::<{ HELLO + PROOF }>(world, &mut stream).expect("an answer");
        let (acceptor, proof) = answer.split_first_chunk::<HELLO>().expect("long enough");
        let transcript = Transcript { initiator: hello, acceptor: *acceptor };
        let proof: &[u8; PROOF] = proof.try_into().expect("long enough");
        assert!(transcript.proves(&key(), Role::Acceptor, proof), "the acceptor knows the key");
        (stream, transcript)
    }

    /// Establishes a connection.
    pub fn join(&self, world: &mut World, at: usize) -> TcpStream {
        let (mut stream, transcript) = self.begin_handshake(world, at);
        stream.write_all(&transcript.proof(&self.key, Role::Initiator)).expect("room");
        let verdict = read_exactly::<VERDICT>(world, &mut stream).expect("a verdict");
        assert_eq!(transcript.read_verdict(&self.key, &verdict), Some(Verdict::Accepted));
        stream
    }
}

pub fn connect(to: &Rail) -> TcpStream {
    let stream = TcpStream::connect(address(to)).expect("a listener");
    stream.set_nodelay(true).expect("an option");
    stream.set_read_timeout(Some(Wait::from_millis(1))).expect("an option");
    stream
}

/// Reads exactly `N` bytes while the rails are polled; `None` at the end of the stream.
pub fn read_exactly<const N: usize>(world: &mut World, stream: &mut TcpStream) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let mut at = 0;
    let limit = Limit::new();
    loop {
        match stream.read(&mut bytes[at..]) {
            Ok(0) => return None,
            Ok(count) => at += count,
            // A read with a time limit is also interrupted when its process is stopped for a while.
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(_) => return None,
        }
        limit.check(format_args!("{N} bytes arrive"));
        if at == N {
            return Some(bytes);
        }
        world.round();
    }
}

/// Waits until the other end closes the connection.
pub fn assert_closed(world: &mut World, stream: &mut TcpStream) {
    assert_eq!(read_exactly::<512>(world, stream), None);
}
