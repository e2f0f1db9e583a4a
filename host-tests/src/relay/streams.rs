//! A relay between ranks that connect by streams. It cuts connections, freezes them in one direction or both, refuses
//! new ones, and delays data.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::{Ports, lock, reserve_ports};
use crate::random::Random;

/// Most bytes that one direction of a connection forwards at once.
const CHUNK: usize = 64 << 10;
/// Interval at which a frozen direction checks whether its connection still exists.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Pause of a listener after a failed accept.
const PAUSE: Duration = Duration::from_millis(10);

/// A direction of connections to a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Data to the rank whose port it is.
    ToRank,
    /// Data to the caller, which has connected.
    ToCaller,
    /// Both directions.
    Both,
}

/// Counts of connections.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct StreamCounts {
    /// Connections that were made.
    pub connections: u64,
    /// Connections that were cut.
    pub cut: u64,
    /// Callers that were refused.
    pub refused: u64,
    /// Chunks of data that arrived.
    pub chunks: u64,
    /// Chunks that were held back, since their direction was frozen.
    pub held: u64,
    /// Chunks that were delayed.
    pub delayed: u64,
}

impl std::ops::AddAssign for StreamCounts {
    fn add_assign(&mut self, other: Self) {
        self.connections += other.connections;
        self.cut += other.cut;
        self.refused += other.refused;
        self.chunks += other.chunks;
        self.held += other.held;
        self.delayed += other.delayed;
    }
}

/// A relay of streams, with a port for each link of each rank.
#[derive(Debug)]
pub struct Streams {
    real: Ports,
    advertised: Ports,
    shared: Arc<Relay>,
}

#[derive(Debug)]
struct Relay {
    controls: Mutex<Vec<LinkControl>>,
    changed: Condvar,
    stopped: std::sync::atomic::AtomicBool,
}

/// The control of all connections to one link of one rank.
#[derive(Default, Debug)]
struct LinkControl {
    /// To the rank, and to the caller.
    frozen: [bool; 2],
    refuses: bool,
    /// The longest delay of a chunk.
    most_delay: Duration,
    open: Vec<(u64, [TcpStream; 2])>,
    next: u64,
    counts: StreamCounts,
}

impl Streams {
    /// Starts a relay between `ranks` ranks with `links` links each.
    ///
    /// # Errors
    /// If the system gives no sockets or threads.
    pub fn start(ranks: u32, links: u32, seed: u64) -> std::io::Result<Self> {
        let (real, advertised, listeners) = reserve_ports(ranks, links, TcpListener::bind)?;
        let controls = (0..listeners.len()).map(|_| LinkControl::default()).collect();
        let shared = Relay { controls: Mutex::new(controls), changed: Condvar::new(), stopped: false.into() };
        let this = Self { real, advertised, shared: Arc::new(shared) };
        let mut random = Random::new(seed);
        for (place, listener) in listeners.into_iter().enumerate() {
            let (shared, random) = (Arc::clone(&this.shared), random.fork());
            let thread = std::thread::Builder::new().name(format!("relay to {place}"));
            thread.spawn(move || shared.listen(real, place, || listener.accept(), random))?;
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

    /// The counts of a link, summed over all ranks.
    pub fn link_counts(&self, link: u32) -> StreamCounts {
        let (mut sum, links) = (StreamCounts::default(), usize::from(self.real.links));
        lock(&self.shared.controls).iter().skip(link as usize).step_by(links).for_each(|control| sum += control.counts);
        sum
    }

    /// The counts of all connections.
    pub fn counts(&self) -> StreamCounts {
        let mut sum = StreamCounts::default();
        lock(&self.shared.controls).iter().for_each(|control| sum += control.counts);
        sum
    }

    /// Number of connections that were cut.
    pub fn cuts(&self) -> u64 {
        self.counts().cut
    }

    /// Cuts all connections of a link, of all ranks, also in the middle of a message. New connections are accepted.
    pub fn cut(&self, link: u32) {
        self.for_link(link, Relay::cut);
    }

    /// Refuses new connections of a link and cuts the existing ones, or accepts connections again.
    pub fn refuse(&self, link: u32, refused: bool) {
        self.for_link(link, |control| {
            control.refuses = refused;
            if refused {
                Relay::cut(control);
            }
        });
    }

    /// Freezes the connections of a link in a direction, or unfreezes them.
    pub fn freeze(&self, link: u32, towards: Direction, frozen: bool) {
        self.for_link(link, |control| {
            if towards != Direction::ToCaller {
                control.frozen[0] = frozen;
            }
            if towards != Direction::ToRank {
                control.frozen[1] = frozen;
            }
        });
    }

    /// Delays each chunk of a link's connections by up to `most`.
    pub fn delay(&self, link: u32, most: Duration) {
        self.for_link(link, |control| control.most_delay = most);
    }

    fn for_link(&self, link: u32, mut change: impl FnMut(&mut LinkControl)) {
        let links = usize::from(self.real.links);
        lock(&self.shared.controls).iter_mut().skip(link as usize).step_by(links).for_each(&mut change);
        self.shared.changed.notify_all();
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        lock(&self.shared.controls).iter_mut().for_each(Relay::cut);
        self.shared.changed.notify_all();
        let ports = self.advertised.first..self.advertised.first + lock(&self.shared.controls).len() as u16;
        // Threads that wait for a caller get one.
        ports.for_each(|port| drop(TcpStream::connect((Ipv4Addr::LOCALHOST, port))));
    }
}

impl Relay {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn cut(control: &mut LinkControl) {
        for (_, ends) in control.open.drain(..) {
            control.counts.cut += 1;
            // Fails if the connection has already ended.
            ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
        }
    }

    fn listen<Accept>(self: &Arc<Self>, real: Ports, place: usize, accept: Accept, mut random: Random)
    where
        Accept: Fn() -> std::io::Result<(TcpStream, SocketAddr)>,
    {
        while !self.is_stopped() {
            // A caller that has disappeared, or a lack of descriptors, must not stop the listener.
            let Ok((caller, _)) = accept() else {
                std::thread::sleep(PAUSE);
                continue;
            };
            if self.is_stopped() || self.refuses(place) {
                continue;
            }
            let Ok(rank) = TcpStream::connect((Ipv4Addr::LOCALHOST, real.first + place as u16)) else { continue };
            let _ = self.pair(place, [caller, rank], [random.fork(), random.fork()]);
        }
    }

    /// Whether a new caller is refused.
    fn refuses(&self, place: usize) -> bool {
        let control = &mut lock(&self.controls)[place];
        control.counts.refused += u64::from(control.refuses);
        control.refuses
    }

    /// Forwards a new connection, in both directions.
    fn pair(
        self: &Arc<Self>,
        place: usize,
        [caller, rank]: [TcpStream; 2],
        random: [Random; 2],
    ) -> std::io::Result<()> {
        for end in [&caller, &rank] {
            end.set_nodelay(true)?;
        }
        let kept = [caller.try_clone()?, rank.try_clone()?];
        let directions = [(caller.try_clone()?, rank.try_clone()?), (rank, caller)];
        let number = {
            let control = &mut lock(&self.controls)[place];
            control.next += 1;
            control.counts.connections += 1;
            control.open.push((control.next, kept));
            control.next
        };
        for (direction, ((from, to), random)) in directions.into_iter().zip(random).enumerate() {
            let shared = Arc::clone(self);
            std::thread::Builder::new().spawn(move || shared.forward((place, number, direction), from, to, random))?;
        }
        Ok(())
    }

    fn forward(&self, of: (usize, u64, usize), mut from: TcpStream, mut to: TcpStream, mut random: Random) {
        let mut bytes = vec![0; CHUNK];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            let Some(most_delay) = self.wait_until_open(of) else { break };
            if !most_delay.is_zero() {
                std::thread::sleep(Duration::from_micros(random.below(most_delay.as_micros() as u64 + 1)));
            }
            if to.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
        // The end of one connection also ends the other.
        for end in [&from, &to] {
            let _ = end.shutdown(Shutdown::Both);
        }
        let (place, number, _) = of;
        lock(&self.controls)[place].open.retain(|(open, _)| *open != number);
    }

    /// Waits while a direction is frozen. Returns the longest delay of a chunk, or `None` if the connection was cut.
    fn wait_until_open(&self, (place, number, direction): (usize, u64, usize)) -> Option<Duration> {
        let (mut controls, mut held) = (lock(&self.controls), false);
        controls[place].counts.chunks += 1;
        loop {
            let control = &mut controls[place];
            if self.is_stopped() || !control.open.iter().any(|(open, _)| *open == number) {
                return None;
            }
            if !control.frozen[direction] {
                control.counts.delayed += u64::from(!control.most_delay.is_zero());
                return Some(control.most_delay);
            }
            control.counts.held += u64::from(!std::mem::replace(&mut held, true));
            let waited = self.changed.wait_timeout(controls, CHECK_INTERVAL);
            controls = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_cut_refused_and_frozen_in_one_direction() {
        let relay = Streams::start(1, 2, 7).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", relay.real().of(0) + 1)).unwrap();
        let meet = || {
            let caller = TcpStream::connect(("127.0.0.1", relay.advertised().of(0) + 1)).unwrap();
            (caller, listener.accept().unwrap().0)
        };
        let pass = |from: &mut TcpStream, to: &mut TcpStream| {
            from.write_all(b"word").unwrap();
            let mut into = [0; 4];
            to.read_exact(&mut into).unwrap();
            assert_eq!(into, *b"word");
        };
        let ended = |end: &mut TcpStream| !matches!(end.read(&mut [0]), Ok(1..));
        let (mut caller, mut rank) = meet();
        pass(&mut caller, &mut rank);
        pass(&mut rank, &mut caller);
        relay.freeze(1, Direction::ToRank, true);
        pass(&mut rank, &mut caller);
        caller.write_all(b"late").unwrap();
        // Another thread holds the bytes back.
        while relay.link_counts(1).held == 0 {
            std::thread::yield_now();
        }
        rank.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        // A system call with a time limit may be interrupted when another thread starts a process.
        let nothing = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::Interrupted];
        let waited = rank.read(&mut [0; 4]).map_err(|why| why.kind());
        assert!(waited.is_err_and(|why| nothing.contains(&why)), "{waited:?}");
        rank.set_read_timeout(None).unwrap();
        relay.freeze(1, Direction::ToRank, false);
        let mut into = [0; 4];
        rank.read_exact(&mut into).unwrap();
        assert_eq!(into, *b"late");
        relay.cut(0); // another link
        pass(&mut caller, &mut rank);
        relay.cut(1);
        assert!(ended(&mut caller) && ended(&mut rank));
        assert_eq!(relay.cuts(), 1);
        let (mut caller, mut rank) = meet();
        pass(&mut caller, &mut rank);
        relay.refuse(1, true);
        assert!(ended(&mut caller) && ended(&mut rank));
        let mut refused = TcpStream::connect(("127.0.0.1", relay.advertised().of(0) + 1)).unwrap();
        assert!(ended(&mut refused));
        let StreamCounts { connections, cut, refused, held, .. } = relay.link_counts(1);
        assert_eq!([connections, cut, refused, held], [2, 2, 1, 1]);
        assert_eq!(relay.link_counts(0), StreamCounts::default());
        relay.refuse(1, false);
        let (mut caller, mut rank) = meet();
        pass(&mut caller, &mut rank);
        drop(rank);
        assert!(ended(&mut caller));
    }

    #[test]
    fn a_failed_accept_does_not_stop_a_listener() {
        let rank = TcpListener::bind("127.0.0.1:0").unwrap();
        let advertised = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = advertised.local_addr().unwrap();
        // There is no caller yet, so the first accept fails.
        advertised.set_nonblocking(true).unwrap();
        let controls = Mutex::new(vec![LinkControl::default()]);
        let shared = Arc::new(Relay { controls, changed: Condvar::new(), stopped: false.into() });
        let (failed, failing) = std::sync::mpsc::channel();
        let listener = {
            let (shared, real) = (Arc::clone(&shared), Ports { first: rank.local_addr().unwrap().port(), links: 1 });
            let accept = move || advertised.accept().inspect_err(|_| failed.send(()).unwrap_or_default());
            std::thread::spawn(move || shared.listen(real, 0, accept, Random::new(7)))
        };
        failing.recv().unwrap();
        let mut caller = TcpStream::connect(at).unwrap();
        caller.write_all(b"word").unwrap();
        let mut into = [0; 4];
        // Without a listener the connection would be reset, and no bytes would come back.
        caller.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        let answer = std::thread::spawn(move || {
            let mut end = rank.accept().unwrap().0;
            end.read_exact(&mut into).unwrap();
            end.write_all(&into).unwrap();
        });
        let mut back = [0; 4];
        caller.read_exact(&mut back).unwrap();
        assert_eq!(back, *b"word");
        answer.join().unwrap();
        shared.stopped.store(true, Ordering::Relaxed);
        listener.join().unwrap();
    }
}
