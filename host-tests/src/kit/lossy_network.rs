//! A network that loses, duplicates, reorders and corrupts datagrams, by seed. It consists of sockets on the loopback
//! interface, through which rails send to each other.

use std::net::{SocketAddr, UdpSocket};

use crate::random::Random;

/// Most datagrams that are taken from each socket at a time.
const BATCH: usize = 64;

/// The faults of datagrams, each per mille.
#[derive(Clone, Copy, Default, Debug)]
pub struct Faults {
    /// It is lost.
    pub lose: u32,
    /// It arrives twice.
    pub duplicate: u32,
    /// It arrives some turns later.
    pub delay: u32,
    /// One bit of it is flipped.
    pub corrupt: u32,
}

/// The network. It has one socket for each rail: datagrams to that socket are forwarded to the rail, from the socket of
/// the sender.
pub struct LossyNetwork {
    ends: Vec<(UdpSocket, Option<SocketAddr>)>,
    faults: Faults,
    random: Random,
    /// Delayed datagrams: turns to wait, sender, receiver, and bytes.
    late: Vec<(u64, usize, usize, Vec<u8>)>,
    /// Number of lost, duplicated, delayed and corrupted datagrams.
    pub done: [u64; 4],
}

impl LossyNetwork {
    /// A network of `count` rails.
    ///
    /// # Panics
    /// If this host has no loopback interface.
    pub fn new(count: usize, faults: Faults, seed: u64) -> Self {
        let socket = || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a loopback");
            socket.set_nonblocking(true).expect("an option");
            (socket, None)
        };
        Self {
            ends: (0..count).map(|_| socket()).collect(),
            faults,
            random: Random::new(seed),
            late: vec![],
            done: [0; 4],
        }
    }

    /// The address at which other rails send to this one.
    ///
    /// # Panics
    /// If there is no such rail.
    pub fn address(&self, rail: usize) -> SocketAddr {
        self.ends[rail].0.local_addr().expect("a bound socket")
    }

    /// Sets the address of the rail itself.
    pub fn connect(&mut self, rail: usize, at: SocketAddr) {
        self.ends[rail].1 = Some(at);
    }

    /// Changes the faults.
    pub fn set(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Forwards the datagrams that have arrived.
    pub fn forward_all(&mut self) {
        let mut late = std::mem::take(&mut self.late);
        late.retain_mut(|(turns, from, to, bytes)| {
            *turns -= 1;
            if *turns == 0 {
                self.forward(*from, *to, bytes);
            }
            *turns != 0
        });
        self.late = late;
        let mut bytes = [0; 1 << 16];
        for to in 0..self.ends.len() {
            for _ in 0..BATCH {
                let Ok((len, sender)) = self.ends[to].0.recv_from(&mut bytes) else { break };
                let Some(from) = self.ends.iter().position(|(_, at)| *at == Some(sender)) else { continue };
                self.decide(from, to, &mut bytes[..len]);
            }
        }
    }

    fn decide(&mut self, from: usize, to: usize, bytes: &mut [u8]) {
        let Faults { lose, duplicate, delay, corrupt } = self.faults;
        let [lose, duplicate, delay, corrupt] =
            [lose, duplicate, delay, corrupt].map(|chance| self.random.chance(chance));
        for (done, it) in self.done.iter_mut().zip([lose, duplicate, delay, corrupt]) {
            *done += u64::from(it);
        }
        if lose {
            return;
        }
        if corrupt && !bytes.is_empty() {
            let bit = self.random.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        if duplicate {
            self.forward(from, to, bytes);
        }
        if delay {
            self.late.push((1 + self.random.below(20), from, to, bytes.to_vec()));
        } else {
            self.forward(from, to, bytes);
        }
    }

    fn forward(&self, from: usize, to: usize, bytes: &[u8]) {
        if let Some(at) = self.ends[to].1 {
            // A closed port is not an error of the network.
            let _ = self.ends[from].0.send_to(bytes, at);
        }
    }
}
