//! A relay between ranks that send datagrams. It loses, duplicates and delays them, and so reorders them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Ports, lock, reserve_ports};
use crate::random::Random;

/// Longest sleep of a thread while nothing arrives.
const PAUSE: Duration = Duration::from_millis(20);

/// The faults of datagrams, each per mille.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DatagramFaults {
    /// It is lost.
    pub lose: u32,
    /// It arrives twice.
    pub duplicate: u32,
    /// It arrives later, by up to [`most_delay`](Self::most_delay), and others arrive before it.
    pub delay: u32,
    /// The longest delay.
    pub most_delay: Duration,
}

/// Counts of datagrams.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DatagramCounts {
    /// All datagrams.
    pub seen: u64,
    /// Datagrams that were lost.
    pub lost: u64,
    /// Datagrams that were duplicated.
    pub duplicated: u64,
    /// Datagrams that were delayed.
    pub delayed: u64,
    /// Datagrams that were lost in a partition.
    pub cut_off: u64,
}

/// A relay of datagrams, with a socket for each link of each rank.
#[derive(Debug)]
pub struct Datagrams {
    real: Ports,
    advertised: Ports,
    shared: Arc<Relay>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Relay {
    sockets: Vec<UdpSocket>,
    stopped: AtomicBool,
    state: Mutex<RelayState>,
}

#[derive(Debug)]
struct RelayState {
    faults: DatagramFaults,
    counts: DatagramCounts,
    /// Partitioned pairs: the sender, and the receiver.
    partitioned: HashSet<(u32, u32)>,
    /// Links that are cut.
    cut: HashSet<u32>,
    /// Number of datagrams lost in each partition.
    cut_off: HashMap<(u32, u32), u64>,
    random: Random,
}

impl Datagrams {
    /// Starts a relay between `ranks` ranks with `links` links each.
    ///
    /// # Errors
    /// If the system gives no sockets or threads.
    pub fn start(ranks: u32, links: u32, seed: u64) -> std::io::Result<Self> {
        let (real, advertised, sockets) = reserve_ports(ranks, links, UdpSocket::bind)?;
        let state = RelayState {
            faults: DatagramFaults::default(),
            counts: DatagramCounts::default(),
            partitioned: HashSet::new(),
            cut: HashSet::new(),
            cut_off: HashMap::new(),
            random: Random::new(seed),
        };
        let shared = Arc::new(Relay { sockets, stopped: AtomicBool::new(false), state: Mutex::new(state) });
        let mut this = Self { real, advertised, shared: Arc::clone(&shared), threads: Vec::new() };
        for to in 0..shared.sockets.len() {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name(format!("relay to {to}"));
            this.threads.push(thread.spawn(move || shared.run(real, to))?);
        }
        Ok(this)
    }

    /// The ports that ranks use.
    pub const fn real(&self) -> Ports {
        self.real
    }

    /// The ports that ranks advertise.
    pub const fn advertised(&self) -> Ports {
        self.advertised
    }

    /// Changes the faults.
    pub fn set(&self, faults: DatagramFaults) {
        lock(&self.shared.state).faults = faults;
    }

    /// Begins or ends a partition from one rank to another, in this direction only.
    pub fn partition(&self, from: u32, to: u32, partitioned: bool) {
        let partitions = &mut lock(&self.shared.state).partitioned;
        if partitioned {
            partitions.insert((from, to))
        } else {
            partitions.remove(&(from, to))
        };
    }

    /// Blocks or unblocks all datagrams from and to the ports of a link, of all ranks.
    pub fn cut(&self, link: u32, on: bool) {
        let cut = &mut lock(&self.shared.state).cut;
        if on {
            cut.insert(link)
        } else {
            cut.remove(&link)
        };
    }

    /// How many datagrams from one rank to another were lost because of their partition.
    pub fn cut_off(&self, from: u32, to: u32) -> u64 {
        lock(&self.shared.state).cut_off.get(&(from, to)).copied().unwrap_or(0)
    }

    /// The counts so far.
    pub fn counts(&self) -> DatagramCounts {
        lock(&self.shared.state).counts
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A delayed datagram: when it is due, its number, its socket, and its bytes.
type Late = Reverse<(Instant, u64, usize, Vec<u8>)>;

impl Relay {
    /// Forwards datagrams for one link of one rank.
    fn run(&self, real: Ports, to: usize) {
        let (mut late, mut number) = (BinaryHeap::<Late>::new(), 0);
        let mut bytes = vec![0; 1 << 16];
        while !self.stopped.load(Ordering::Relaxed) {
            let now = Instant::now();
            while late.peek().is_some_and(|Reverse((due, ..))| *due <= now) {
                if let Some(Reverse((_, _, from, bytes))) = late.pop() {
                    self.forward(real, from, to, &bytes);
                }
            }
            let pause = late.peek().map_or(PAUSE, |Reverse((due, ..))| due.saturating_duration_since(now).min(PAUSE));
            // A time-out of zero would mean no time-out.
            let _ = self.sockets[to].set_read_timeout(Some(pause.max(Duration::from_millis(1))));
            let Ok((len, sender)) = self.sockets[to].recv_from(&mut bytes) else { continue };
            let Some(from) = sender.port().checked_sub(real.first).map(usize::from) else { continue };
            if from >= self.sockets.len() {
                continue;
            }
            let bytes = &bytes[..len];
            let (passed, delays) = self.decide(real, from, to);
            if passed {
                self.forward(real, from, to, bytes);
            }
            for delay in delays.into_iter().flatten() {
                number += 1;
                late.push(Reverse((Instant::now() + delay, number, from, bytes.to_vec())));
            }
        }
    }

    /// Whether a datagram is forwarded at once, and the delays of further copies.
    fn decide(&self, real: Ports, from: usize, to: usize) -> (bool, [Option<Duration>; 2]) {
        let rank = |place: usize| (place / usize::from(real.links)) as u32;
        let mut state = lock(&self.state);
        let link = |place: usize| (place % usize::from(real.links)) as u32;
        let RelayState { faults, counts, partitioned, cut, cut_off, random } = &mut *state;
        counts.seen += 1;
        let pair = (rank(from), rank(to));
        if partitioned.contains(&pair) {
            *cut_off.entry(pair).or_default() += 1;
        }
        if partitioned.contains(&pair) || cut.contains(&link(from)) || cut.contains(&link(to)) {
            counts.cut_off += 1;
            return (false, [None; 2]);
        }
        if random.chance(faults.lose) {
            counts.lost += 1;
            return (false, [None; 2]);
        }
        let span = |random: &mut Random| Duration::from_micros(random.below(faults.most_delay.as_micros() as u64 + 1));
        let duplicate = random.chance(faults.duplicate).then(|| span(random));
        let delay = random.chance(faults.delay).then(|| span(random));
        counts.duplicated += u64::from(duplicate.is_some());
        counts.delayed += u64::from(delay.is_some());
        (delay.is_none(), [duplicate, delay])
    }

    fn forward(&self, real: Ports, from: usize, to: usize, bytes: &[u8]) {
        let at = (std::net::Ipv4Addr::LOCALHOST, real.first + to as u16);
        // A closed port is not an error of the relay. The thread that reads the sender's socket gets its error.
        let _ = self.sockets[from].send_to(bytes, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_lost_duplicated_and_partitioned_in_one_direction() {
        let relay = Datagrams::start(2, 1, 7).unwrap();
        let socket = |rank| UdpSocket::bind(("127.0.0.1", relay.real().of(rank))).unwrap();
        let (a, b) = (socket(0), socket(1));
        let say = |from: &UdpSocket, to: u32, word: u8| from.send_to(&[word], relay.advertised().address(to)).unwrap();
        let hear = |at: &UdpSocket, word: u8| {
            let mut into = [0; 8];
            let (len, from) = at.recv_from(&mut into).unwrap();
            assert_eq!(into[..len], [word]);
            from
        };
        say(&a, 1, 1);
        assert_eq!(
            hear(&b, 1),
            relay.advertised().address(0),
            "the datagram seems to come from the address that the sender advertises"
        );
        relay.set(DatagramFaults { duplicate: 1000, ..DatagramFaults::default() });
        say(&a, 1, 2);
        hear(&b, 2);
        hear(&b, 2);
        relay.set(DatagramFaults::default());
        relay.partition(0, 1, true);
        say(&a, 1, 3);
        say(&b, 0, 4);
        hear(&a, 4);
        // Another thread handles that direction.
        while relay.cut_off(0, 1) == 0 {
            std::thread::yield_now();
        }
        relay.partition(0, 1, false);
        relay.set(DatagramFaults { lose: 1000, ..DatagramFaults::default() });
        say(&a, 1, 5);
        while relay.counts().lost + relay.counts().cut_off < 2 {
            std::thread::yield_now();
        }
        relay.set(DatagramFaults { delay: 1000, most_delay: Duration::from_millis(5), ..DatagramFaults::default() });
        say(&a, 1, 6);
        hear(&b, 6);
        let DatagramCounts { lost, duplicated, delayed, cut_off, .. } = relay.counts();
        assert_eq!([lost, duplicated, delayed, cut_off], [1; 4]);
        assert_eq!([relay.cut_off(0, 1), relay.cut_off(1, 0)], [1, 0]);
    }
}
