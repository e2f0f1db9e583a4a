//! Faulty networks between real processes: relays on the loopback interface. Each rank advertises a relay in place of
//! itself. The relays run in threads of the process that starts them, and end with it.
//!
//! The faults of a relay are chosen by seed, but their timing depends on the processes. So a seed repeats the kind of
//! faults, and not each single fault.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
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
/// From how many ports are chosen.
const RANGE: u16 = 22_000;

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

    /// Finds free ports, and binds them with `bind`. They are below the range from which systems choose ports. Each call in a
    /// process gets other ports, since those of an earlier call may be free until its ranks have started.
    fn reserve<T>(links: u16, count: u16, bind: impl Fn(SocketAddr) -> std::io::Result<T>) -> Option<(Self, Vec<T>)> {
        static FIRST: OnceLock<u64> = OnceLock::new();
        static TAKEN: AtomicU64 = AtomicU64::new(0);
        let seed = || u64::from(std::process::id()) << 32 | u64::from(clock_nanos());
        let start = FIRST.get_or_init(|| Random::new(seed()).between(0, u64::from(RANGE)));
        (0..200).find_map(|_| {
            let taken = TAKEN.fetch_add(count.into(), Ordering::Relaxed);
            let first = LOWEST + ((start + taken) % u64::from(RANGE - count)) as u16;
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
    use super::*;

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
