//! Faulty networks between real processes: relays on the loopback interface. Each rank advertises a relay in place of
//! itself. The relays run in threads of the process that starts them, and end with it.
//!
//! The faults of a relay are chosen by seed, but their timing depends on the processes. So a seed repeats the kind of
//! faults, and not each single fault.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::random::Random;

mod datagrams;
mod streams;

pub use datagrams::{DatagramCounts, DatagramFaults, Datagrams};
pub use streams::{Direction, StreamCounts, Streams};

/// Ports of the loopback interface for the links of some ranks: rank after rank, and link after link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ports {
    /// The first.
    pub first: u16,
    /// Links of each rank.
    pub links: u16,
}

/// The lowest port that is reserved.
const LOWEST: u16 = 10_000;
/// How many blocks of ports there are. They end below the range from which systems choose ports.
const BLOCKS: u16 = 40;
/// Number of ports of a block. The first one is bound while a process uses the block.
const BLOCK: u16 = 550;

/// The blocks of ports that this process uses. Ports for ranks are free until the ranks have started, so another process must not
/// choose from the same block.
#[derive(Debug)]
struct Blocks {
    claims: Vec<(TcpListener, u16)>,
    /// The block to try first.
    start: u16,
    /// The next port that is given out, and the end of its block.
    next: u16,
    end: u16,
    /// The next own block to use again, once no other one is left.
    again: usize,
}

impl Blocks {
    const fn new(start: u16) -> Self {
        Self { claims: Vec::new(), start, next: 0, end: 0, again: 0 }
    }

    /// The first of `count` ports that were not given out before, as far as there are any.
    fn take(&mut self, count: u16) -> Option<u16> {
        if self.end - self.next < count {
            let first = self.claim().or_else(|| self.own_again())?;
            (self.next, self.end) = (first + 1, first + BLOCK);
        }
        let first = self.next;
        self.next += count;
        Some(first)
    }

    /// The first port of a block that no process uses, which this process uses from now on.
    fn claim(&mut self) -> Option<u16> {
        (0..BLOCKS).find_map(|at| {
            let first = LOWEST + (self.start + at) % BLOCKS * BLOCK;
            let claim = TcpListener::bind((Ipv4Addr::LOCALHOST, first)).ok()?;
            self.claims.push((claim, first));
            Some(first)
        })
    }

    /// The first port of a block that this process uses already, each in turn.
    fn own_again(&mut self) -> Option<u16> {
        let (_, first) = self.claims.get(self.again % self.claims.len().max(1))?;
        self.again += 1;
        Some(*first)
    }
}

impl Ports {
    /// The first port of a rank.
    pub fn of(self, rank: u32) -> u16 {
        self.first + rank as u16 * self.links
    }

    /// All ports of a rank, in the form of a transport's setting.
    pub fn range(self, rank: u32) -> String {
        format!("{}-{}", self.of(rank), self.of(rank) + self.links - 1)
    }

    /// The address at which other ranks find a rank, if these are the ports of a relay.
    pub fn address(self, rank: u32) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.of(rank)))
    }

    /// Finds free ports, and binds them with `bind`. Each call in a process gets other ports, since those of an earlier call may
    /// be free until its ranks have started.
    fn reserve<T>(links: u16, count: u16, bind: impl Fn(SocketAddr) -> std::io::Result<T>) -> Option<(Self, Vec<T>)> {
        static USED: OnceLock<Mutex<Blocks>> = OnceLock::new();
        let seed = || u64::from(std::process::id()) << 32 | u64::from(clock_nanos());
        let used = USED.get_or_init(|| Mutex::new(Blocks::new(Random::new(seed()).below(BLOCKS.into()) as u16)));
        (0..200).find_map(|_| {
            let first = lock(used).take(count)?;
            let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let bound = (first..first + count).map(|port| bind(address(port))).collect::<Result<_, _>>().ok()?;
            Some((Self { first, links }, bound))
        })
    }
}

fn clock_nanos() -> u32 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.subsec_nanos())
}

/// Chooses free ports for the ranks, and ports for the relay. Returns both, and the sockets bound to the relay's ports.
fn reserve_ports<T>(
    ranks: u32,
    links: u32,
    bind: impl Fn(SocketAddr) -> std::io::Result<T>,
) -> std::io::Result<(Ports, Ports, Vec<T>)> {
    let count = u16::try_from(ranks * links).ok().filter(|count| *count <= 500);
    let count = count.ok_or(std::io::ErrorKind::InvalidInput)?;
    let links = links as u16;
    let taken = || std::io::Error::from(std::io::ErrorKind::AddrInUse);
    let (advertised, held) = Ports::reserve(links, count, bind).ok_or_else(taken)?;
    let both = |at| Ok((TcpListener::bind(at)?, UdpSocket::bind(at)?));
    let probing = lock(&PROBING);
    let (real, free) = Ports::reserve(links, count, both).ok_or_else(taken)?;
    drop(free);
    drop(probing);
    Ok((real, advertised, held))
}

/// Held while ports for ranks are probed, and while a process is started.
static PROBING: Mutex<()> = Mutex::new(());

/// Starts a process while no ports are being probed. A new process holds copies of all sockets until it runs its program. With a
/// copy of a probing socket, it would keep the port from the rank that the port is for.
pub fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let _probing = lock(&PROBING);
    command.spawn()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    /// Two sets of blocks, as two processes have them, with the same block to try first.
    #[test]
    fn two_processes_get_different_ports() {
        let (mut one, mut other) = (Blocks::new(BLOCKS - 1), Blocks::new(BLOCKS - 1));
        let mut given = std::collections::HashSet::new();
        for _ in 0..3 {
            for blocks in [&mut one, &mut other] {
                let first = blocks.take(200).unwrap();
                assert!((first..first + 200).all(|port| given.insert(port)), "{first} was given out before");
                assert!(first > LOWEST && first + 200 <= LOWEST + BLOCKS * BLOCK);
            }
        }
        // Where all blocks are in use.
        let own: Vec<u16> = one.claims.iter().map(|(_, first)| *first).collect();
        assert_eq!([(); 3].map(|()| one.own_again().unwrap()), [own[0], own[1], own[0]]);
        assert_eq!(Blocks::new(0).own_again(), None);
    }

    #[test]
    fn reserved_ports_are_free_although_processes_are_started() {
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        assert!(spawn(&mut Command::new("true")).unwrap().wait().unwrap().success());
                    }
                });
            }
            for _ in 0..200 {
                let (real, _, _held) = reserve_ports(2, 2, TcpListener::bind).unwrap();
                for rank in 0..2 {
                    let taken = TcpListener::bind(real.address(rank)).and_then(|_| UdpSocket::bind(real.address(rank)));
                    done.store(taken.is_err(), Ordering::Relaxed);
                    taken.unwrap();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
