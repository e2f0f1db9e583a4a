//! Two rails with a relay between them.

use std::net::UdpSocket;

use towline_core::rail::Lane;
use towline_net::Encrypt;
use towline_udp::Config;

use super::{Limit, Pair};

/// Whether a datagram from a rail is lost.
type Loses = fn(&mut Relayed, usize, &[u8]) -> bool;

/// Two rails that send to each other through a relay that the test controls.
pub struct Relayed {
    pub pair: Pair,
    /// The addresses at which rail 0 and rail 1 reach each other.
    pub sockets: [UdpSocket; 2],
    /// All datagrams that came from each rail.
    pub recorded: [Vec<Vec<u8>>; 2],
    /// Which datagrams are lost.
    pub loses: Option<Loses>,
    pub lost: u32,
}

impl Relayed {
    pub fn new(change: impl Fn(&mut Config)) -> Self {
        let sockets = [0, 1].map(|_| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        });
        // Datagrams for rail 1 go to the socket of rail 0.
        let published = [sockets[1].local_addr().unwrap(), sockets[0].local_addr().unwrap()];
        let pair = Pair::new(|config| {
            config.advertise = Some(published[config.rank as usize]);
            config.segmentation = false;
            change(config);
        });
        Self { pair, sockets, recorded: Default::default(), loses: None, lost: 0 }
    }

    /// A pair with a session, where one frame has arrived each way.
    pub fn connected(encrypt: Encrypt) -> Self {
        Self::connected_with(|config| config.encrypt = encrypt)
    }

    /// The same with other settings.
    pub fn connected_with(change: impl Fn(&mut Config)) -> Self {
        let mut relayed = Self::new(change);
        for from in 0..2 {
            relayed.send(from, b"first");
        }
        relayed.until("a frame each way", |it| it.pair.got.iter().all(|got| got.len() == 1));
        relayed.pair.got = Default::default();
        relayed
    }

    /// Takes the datagrams that came from rail `from`, without passing them on.
    pub fn take(&mut self, from: usize) -> Vec<Vec<u8>> {
        let mut all = vec![];
        let mut bytes = [0; 1 << 16];
        while let Ok(len) = self.sockets[from].recv(&mut bytes) {
            all.push(bytes[..len].to_vec());
        }
        self.recorded[from].extend_from_slice(&all);
        all
    }

    pub fn pass(&self, from: usize, bytes: &[u8]) {
        let to = self.pair.rails[1 - from].address();
        self.sockets[1 - from].send_to(bytes, to).unwrap();
    }

    pub fn relay(&mut self) {
        for from in 0..2 {
            for bytes in self.take(from) {
                if self.loses.is_none_or(|loses| !loses(self, from, &bytes)) {
                    self.pass(from, &bytes);
                }
            }
        }
        self.pair.poll(0);
        self.pair.poll(1);
    }

    pub fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let (mut rounds, limit) = (0u32, Limit::new());
        while !done(self) {
            limit.check(format_args!("{what}: {:?}", self.pair.rails[1].counters()));
            self.relay();
            rounds = rounds.saturating_add(1);
            if rounds > 1000 {
                std::thread::yield_now();
            }
        }
    }

    pub fn send(&mut self, from: usize, bytes: &[u8]) {
        let limit = Limit::new();
        while self.pair.try_send(from, Lane::Eager, bytes).is_err() {
            limit.check(format_args!("room for a frame"));
            self.relay();
        }
    }

    /// The datagram of one message of rail 0, which the relay does not pass on.
    pub fn intercept(&mut self, message: &[u8]) -> Vec<u8> {
        self.send(0, message);
        let mut datagrams = vec![];
        while datagrams.is_empty() {
            self.pair.poll(0);
            datagrams = self.take(0);
        }
        assert_eq!(datagrams.len(), 1);
        datagrams.swap_remove(0)
    }
}
