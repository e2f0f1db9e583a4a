//! Two rails with somebody on the way between them.

use std::net::UdpSocket;

use towline_core::rail::Lane;
use towline_net::Encrypt;
use towline_udp::Config;

use super::Pair;

/// Whether what came from a rail is lost.
type Loses = fn(&mut Tapped, usize, &[u8]) -> bool;

/// Two rails that send to each other by a relay, which a test plays.
pub struct Tapped {
    pub pair: Pair,
    /// Where rail 0 and rail 1 think that the other one is.
    pub sockets: [UdpSocket; 2],
    /// All that came from either.
    pub heard: [Vec<Vec<u8>>; 2],
    /// Which of them are lost.
    pub loses: Option<Loses>,
    pub lost: u32,
}

impl Tapped {
    pub fn new(change: impl Fn(&mut Config)) -> Self {
        let sockets = [0, 1].map(|_| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        });
        // Who wants to reach rail 1 sends to the socket that rail 0 has.
        let told = [sockets[1].local_addr().unwrap(), sockets[0].local_addr().unwrap()];
        let pair = Pair::new(|config| {
            config.advertise = Some(told[config.rank as usize]);
            config.segmentation = false;
            change(config);
        });
        Self { pair, sockets, heard: Default::default(), loses: None, lost: 0 }
    }

    /// Both ends have met, and one message has come each way.
    pub fn met(encrypt: Encrypt) -> Self {
        Self::met_with(|config| config.encrypt = encrypt)
    }

    /// The same with other settings.
    pub fn met_with(change: impl Fn(&mut Config)) -> Self {
        let mut tapped = Self::new(change);
        for from in 0..2 {
            tapped.send(from, b"first");
        }
        tapped.until("the first", |it| it.pair.got.iter().all(|got| got.len() == 1));
        tapped.pair.got = Default::default();
        tapped
    }

    /// Takes what came from rail `from`, without passing it on.
    pub fn hear(&mut self, from: usize) -> Vec<Vec<u8>> {
        let mut all = vec![];
        let mut bytes = [0; 1 << 16];
        while let Ok(len) = self.sockets[from].recv(&mut bytes) {
            all.push(bytes[..len].to_vec());
        }
        self.heard[from].extend_from_slice(&all);
        all
    }

    pub fn pass(&self, from: usize, bytes: &[u8]) {
        let to = self.pair.rails[1 - from].address();
        self.sockets[1 - from].send_to(bytes, to).unwrap();
    }

    pub fn relay(&mut self) {
        for from in 0..2 {
            for bytes in self.hear(from) {
                if self.loses.is_none_or(|loses| !loses(self, from, &bytes)) {
                    self.pass(from, &bytes);
                }
            }
        }
        self.pair.poll(0);
        self.pair.poll(1);
    }

    pub fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        for round in 0..400_000 {
            if done(self) {
                return;
            }
            self.relay();
            if round > 1000 {
                std::thread::yield_now();
            }
        }
        panic!("waited in vain: {what}: {:?}", self.pair.rails[1].counters());
    }

    pub fn send(&mut self, from: usize, bytes: &[u8]) {
        for _ in 0..400_000 {
            if self.pair.try_send(from, Lane::Eager, bytes).is_ok() {
                return;
            }
            self.relay();
        }
        panic!("no room");
    }

    /// The datagram of one message of rail 0, which the relay keeps.
    pub fn caught(&mut self, message: &[u8]) -> Vec<u8> {
        self.send(0, message);
        let mut caught = vec![];
        while caught.is_empty() {
            self.pair.poll(0);
            caught = self.hear(0);
        }
        assert_eq!(caught.len(), 1);
        caught.swap_remove(0)
    }
}
