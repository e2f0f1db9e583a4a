//! Two rails in one process, polled in turns.
#![allow(dead_code)] // each test program uses its part

pub mod relayed;

use std::thread;
use std::time::{Duration, Instant as Clock};

use towline_core::rail::{Endpoint, Event, Lane, Lost, Peer, Rail as _, SendError, Shape};
use towline_core::time::Instant;
use towline_udp::{Config, JobKey, Rail};

pub const KEY: JobKey = JobKey::new([9; 32]);
pub const TAG: u8 = 0x80;
/// How long a wait goes on without an event before it fails. It is long, since this thread may be late.
const PATIENCE: Duration = Duration::from_secs(300);

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

pub fn config(rank: u32) -> Config {
    let mut config = Config::new(0x70B, rank, KEY);
    config.within_host = true;
    config.idle_interval_polls = 1;
    config
}

pub struct Pair {
    pub rails: [Rail; 2],
    pub to: [Endpoint; 2],
    pub got: [Vec<Vec<u8>>; 2],
    pub lost: [Vec<Lost>; 2],
    start: Clock,
}

impl Pair {
    /// Two rails that are added to each other.
    pub fn new(change: impl Fn(&mut Config)) -> Self {
        let rails = [0, 1].map(|rank| {
            let mut config = config(rank);
            change(&mut config);
            Rail::new(config).expect("this host has a loopback")
        });
        let mut pair = Self {
            rails,
            to: [Endpoint(u32::MAX); 2],
            got: Default::default(),
            lost: Default::default(),
            start: Clock::now(),
        };
        for own in 0..2 {
            let card = pair.rails[1 - own].card().to_vec();
            pair.to[own] = pair.rails[own].add_peer(Peer(7), &card).expect("the same host");
        }
        pair
    }

    /// Two rails with a session.
    pub fn connected(change: impl Fn(&mut Config)) -> Self {
        let mut pair = Self::new(change);
        pair.send(0, b"hello");
        pair.send(1, b"hello");
        pair.until("a frame each way", |pair| pair.got.iter().all(|got| got.len() == 1));
        pair.got = Default::default();
        pair
    }

    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    /// Polls one rail. Returns whether there was an event.
    pub fn poll(&mut self, own: usize) -> bool {
        let now = self.now();
        match self.rails[own].poll(now) {
            None => return false,
            Some(Event::Frame(frame)) => {
                let mut bytes = frame.head().to_vec();
                if !frame.is_whole() {
                    bytes.resize(frame.len as usize, 0);
                    assert_eq!(self.rails[own].read(frame.id, 0, &mut bytes), bytes.len());
                    self.rails[own].release(frame.id);
                }
                self.got[own].push(bytes);
            }
            Some(Event::Lost(peer, why)) => {
                assert_eq!(peer, Peer(7));
                self.lost[own].push(why);
            }
            Some(Event::Silent(peer, _)) => assert_eq!(peer, Peer(7)), // its port was reported closed
            Some(event) => panic!("{event:?}"),
        }
        true
    }

    pub fn try_send(&mut self, from: usize, lane: Lane, bytes: &[u8]) -> Result<(), SendError> {
        let shape = Shape { tag: TAG, lane, header: bytes.len().min(8) as u8, len: bytes.len() as u32 };
        let mut grant = self.rails[from].reserve(self.to[from], shape)?;
        grant.write(0, bytes);
        let ticket = grant.finish();
        self.rails[from].commit(ticket);
        Ok(())
    }

    pub fn send(&mut self, from: usize, bytes: &[u8]) {
        self.until("room", |pair| match pair.try_send(from, Lane::Eager, bytes) {
            Ok(()) => true,
            Err(why) => {
                assert_eq!(why, SendError::Busy);
                false
            }
        });
    }

    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let (mut idle, mut limit) = (0u32, Limit::new());
        while !done(self) {
            if self.poll(0) | self.poll(1) {
                (idle, limit) = (0, Limit::new());
            }
            limit.check(format_args!("{what}"));
            idle = idle.saturating_add(1);
            if idle > 100 {
                thread::yield_now();
            }
        }
    }

    /// Polls both rails until no event comes for a while.
    pub fn settle(&mut self) {
        let mut idle = 0;
        while idle < 500 {
            idle = if self.poll(0) | self.poll(1) { 0 } else { idle + 1 };
        }
    }

    /// Checks that a frame arrives each way.
    pub fn assert_connected(&mut self) {
        self.got = Default::default();
        self.send(0, b"still there?");
        self.send(1, b"yes, and you?");
        self.until("an exchange", |pair| pair.got.iter().all(|got| !got.is_empty()));
        assert_eq!(self.got, [vec![b"yes, and you?".to_vec()], vec![b"still there?".to_vec()]]);
        assert!(self.lost.iter().all(Vec::is_empty));
    }
}
