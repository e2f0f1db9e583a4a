//! Between ranks that connect by streams: cuts connections, freezes them in one direction or both, refuses new ones, delays.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::{Ports, hold, two_sets};
use crate::dice::Dice;

/// Bytes that a direction of a connection passes on at once at most.
const CHUNK: usize = 64 << 10;
/// A frozen direction looks so often whether its connection is there at all.
const LOOK: Duration = Duration::from_millis(100);
/// A listener that gets no connection tries again after so long.
const NAP: Duration = Duration::from_millis(10);

/// A direction of connections that lead to a rank: the one who connected speaks to that rank, or hears it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Towards {
    /// What goes to the rank whose port it is.
    Rank,
    /// What goes to the one who connected.
    Caller,
    /// Both.
    Both,
}

/// What befell connections.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Befallen {
    /// Connections that came about.
    pub connections: u64,
    /// Connections that were cut.
    pub cut: u64,
    /// Callers that were refused.
    pub refused: u64,
    /// Chunks that came.
    pub chunks: u64,
    /// Chunks that were held back since their direction was frozen.
    pub held: u64,
    /// Chunks that were delayed.
    pub delayed: u64,
}

impl std::ops::AddAssign for Befallen {
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
    told: Ports,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    gates: Mutex<Vec<Gate>>,
    changed: Condvar,
    over: std::sync::atomic::AtomicBool,
}

/// What goes for all connections to one link of one rank.
#[derive(Default, Debug)]
struct Gate {
    /// Towards the rank, towards the caller.
    frozen: [bool; 2],
    refuses: bool,
    /// Each chunk waits for up to so long.
    most_delay: Duration,
    open: Vec<(u64, [TcpStream; 2])>,
    next: u64,
    befallen: Befallen,
}

impl Streams {
    /// Between so many ranks with so many links each.
    ///
    /// # Errors
    /// Where the system gives no sockets or threads.
    pub fn start(ranks: u32, links: u32, seed: u64) -> std::io::Result<Self> {
        let (real, told, listeners) = two_sets(ranks, links, TcpListener::bind)?;
        let gates = (0..listeners.len()).map(|_| Gate::default()).collect();
        let shared = Shared { gates: Mutex::new(gates), changed: Condvar::new(), over: false.into() };
        let this = Self { real, told, shared: Arc::new(shared) };
        let mut dice = Dice::new(seed);
        for (place, listener) in listeners.into_iter().enumerate() {
            let (shared, dice) = (Arc::clone(&this.shared), dice.fork());
            let thread = std::thread::Builder::new().name(format!("relay to {place}"));
            thread.spawn(move || shared.listen(real, place, || listener.accept(), dice))?;
        }
        Ok(this)
    }

    /// The ports that ranks are to use.
    pub const fn real(&self) -> Ports {
        self.real
    }

    /// The ports that they are to advertise.
    pub const fn told(&self) -> Ports {
        self.told
    }

    /// What befell the connections of a link, of all ranks.
    pub fn befallen(&self, link: u32) -> Befallen {
        let (mut sum, links) = (Befallen::default(), usize::from(self.real.links));
        hold(&self.shared.gates).iter().skip(link as usize).step_by(links).for_each(|gate| sum += gate.befallen);
        sum
    }

    /// What befell all connections.
    pub fn all(&self) -> Befallen {
        let mut sum = Befallen::default();
        hold(&self.shared.gates).iter().for_each(|gate| sum += gate.befallen);
        sum
    }

    /// How many connections were cut.
    pub fn cuts(&self) -> u64 {
        self.all().cut
    }

    /// Cuts all connections of a link, of all ranks, in the middle of whatever they carry. New ones are let through.
    pub fn cut(&self, link: u32) {
        self.each(link, Shared::cut);
    }

    /// Refuses new connections of a link, and cuts those that are there; or lets them through again.
    pub fn refuse(&self, link: u32, refused: bool) {
        self.each(link, |gate| {
            gate.refuses = refused;
            if refused {
                Shared::cut(gate);
            }
        });
    }

    /// Holds back what goes by a link's connections, without a word; or lets it through again.
    pub fn freeze(&self, link: u32, towards: Towards, frozen: bool) {
        self.each(link, |gate| {
            if towards != Towards::Caller {
                gate.frozen[0] = frozen;
            }
            if towards != Towards::Rank {
                gate.frozen[1] = frozen;
            }
        });
    }

    /// Delays each chunk of a link's connections for up to so long.
    pub fn delay(&self, link: u32, most: Duration) {
        self.each(link, |gate| gate.most_delay = most);
    }

    fn each(&self, link: u32, mut change: impl FnMut(&mut Gate)) {
        let links = usize::from(self.real.links);
        hold(&self.shared.gates).iter_mut().skip(link as usize).step_by(links).for_each(&mut change);
        self.shared.changed.notify_all();
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        hold(&self.shared.gates).iter_mut().for_each(Shared::cut);
        self.shared.changed.notify_all();
        let ports = self.told.first..self.told.first + hold(&self.shared.gates).len() as u16;
        // Those who wait for a caller get one.
        ports.for_each(|port| drop(TcpStream::connect((Ipv4Addr::LOCALHOST, port))));
    }
}

impl Shared {
    fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn cut(gate: &mut Gate) {
        for (_, ends) in gate.open.drain(..) {
            gate.befallen.cut += 1;
            // One that has ended by itself cannot be.
            ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
        }
    }

    fn listen<Accept>(self: &Arc<Self>, real: Ports, place: usize, accept: Accept, mut dice: Dice)
    where
        Accept: Fn() -> std::io::Result<(TcpStream, SocketAddr)>,
    {
        while !self.over() {
            // A caller that has gone again, or a want of descriptors, is not the end of all who call later.
            let Ok((caller, _)) = accept() else {
                std::thread::sleep(NAP);
                continue;
            };
            if self.over() || self.refuses(place) {
                continue;
            }
            let Ok(rank) = TcpStream::connect((Ipv4Addr::LOCALHOST, real.first + place as u16)) else { continue };
            let _ = self.pair(place, [caller, rank], [dice.fork(), dice.fork()]);
        }
    }

    /// Whether a caller is refused.
    fn refuses(&self, place: usize) -> bool {
        let gate = &mut hold(&self.gates)[place];
        gate.befallen.refused += u64::from(gate.refuses);
        gate.refuses
    }

    /// Passes on what comes by a new connection, in both directions.
    fn pair(self: &Arc<Self>, place: usize, [caller, rank]: [TcpStream; 2], dice: [Dice; 2]) -> std::io::Result<()> {
        for end in [&caller, &rank] {
            end.set_nodelay(true)?;
        }
        let kept = [caller.try_clone()?, rank.try_clone()?];
        let ways = [(caller.try_clone()?, rank.try_clone()?), (rank, caller)];
        let number = {
            let gate = &mut hold(&self.gates)[place];
            gate.next += 1;
            gate.befallen.connections += 1;
            gate.open.push((gate.next, kept));
            gate.next
        };
        for (direction, ((from, to), dice)) in ways.into_iter().zip(dice).enumerate() {
            let shared = Arc::clone(self);
            std::thread::Builder::new().spawn(move || shared.pump((place, number, direction), from, to, dice))?;
        }
        Ok(())
    }

    fn pump(&self, of: (usize, u64, usize), mut from: TcpStream, mut to: TcpStream, mut dice: Dice) {
        let mut bytes = vec![0; CHUNK];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            let Some(most_delay) = self.may_pass(of) else { break };
            if !most_delay.is_zero() {
                std::thread::sleep(Duration::from_micros(dice.below(most_delay.as_micros() as u64 + 1)));
            }
            if to.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
        // One end's end is the other's.
        for end in [&from, &to] {
            let _ = end.shutdown(Shutdown::Both);
        }
        let (place, number, _) = of;
        hold(&self.gates)[place].open.retain(|(open, _)| *open != number);
    }

    /// Waits while a direction is frozen; how long each chunk may be delayed. `None`: the connection was cut.
    fn may_pass(&self, (place, number, direction): (usize, u64, usize)) -> Option<Duration> {
        let (mut gates, mut held) = (hold(&self.gates), false);
        gates[place].befallen.chunks += 1;
        loop {
            let gate = &mut gates[place];
            if self.over() || !gate.open.iter().any(|(open, _)| *open == number) {
                return None;
            }
            if !gate.frozen[direction] {
                gate.befallen.delayed += u64::from(!gate.most_delay.is_zero());
                return Some(gate.most_delay);
            }
            gate.befallen.held += u64::from(!std::mem::replace(&mut held, true));
            let waited = self.changed.wait_timeout(gates, LOOK);
            gates = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
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
            let caller = TcpStream::connect(("127.0.0.1", relay.told().of(0) + 1)).unwrap();
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
        relay.freeze(1, Towards::Rank, true);
        pass(&mut rank, &mut caller);
        caller.write_all(b"late").unwrap();
        rank.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(rank.read(&mut [0; 4]).is_err_and(|why| why.kind() == std::io::ErrorKind::WouldBlock));
        rank.set_read_timeout(None).unwrap();
        relay.freeze(1, Towards::Rank, false);
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
        let mut refused = TcpStream::connect(("127.0.0.1", relay.told().of(0) + 1)).unwrap();
        assert!(ended(&mut refused));
        let Befallen { connections, cut, refused, held, .. } = relay.befallen(1);
        assert_eq!([connections, cut, refused, held], [2, 2, 1, 1]);
        assert_eq!(relay.befallen(0), Befallen::default());
        relay.refuse(1, false);
        let (mut caller, mut rank) = meet();
        pass(&mut caller, &mut rank);
        drop(rank);
        assert!(ended(&mut caller));
    }

    #[test]
    fn a_call_that_fails_is_not_the_end_of_a_listener() {
        let rank = TcpListener::bind("127.0.0.1:0").unwrap();
        let told = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = told.local_addr().unwrap();
        // Nobody is there yet: that fails.
        told.set_nonblocking(true).unwrap();
        let gates = Mutex::new(vec![Gate::default()]);
        let shared = Arc::new(Shared { gates, changed: Condvar::new(), over: false.into() });
        let (failed, failing) = std::sync::mpsc::channel();
        let listener = {
            let (shared, real) = (Arc::clone(&shared), Ports { first: rank.local_addr().unwrap().port(), links: 1 });
            let accept = move || told.accept().inspect_err(|_| failed.send(()).unwrap_or_default());
            std::thread::spawn(move || shared.listen(real, 0, accept, Dice::new(7)))
        };
        failing.recv().unwrap();
        let mut caller = TcpStream::connect(at).unwrap();
        caller.write_all(b"word").unwrap();
        let mut into = [0; 4];
        // Without a listener the connection is reset, and none comes here.
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
        shared.over.store(true, Ordering::Relaxed);
        listener.join().unwrap();
    }
}
