//! Between ranks that connect by streams: cuts connections, freezes them in one direction or both, refuses new ones, delays.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::{Ports, hold, two_sets};
use crate::dice::Dice;

/// Bytes that a direction of a connection passes on at once at most.
const CHUNK: usize = 64 << 10;
/// A frozen direction looks so often whether its connection is there at all.
const LOOK: Duration = Duration::from_millis(100);

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
    cuts: AtomicU64,
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
}

impl Streams {
    /// Between so many ranks with so many links each.
    ///
    /// # Errors
    /// Where the system gives no sockets or threads.
    pub fn start(ranks: u32, links: u32, seed: u64) -> std::io::Result<Self> {
        let (real, told, listeners) = two_sets(ranks, links, TcpListener::bind)?;
        let gates = (0..listeners.len()).map(|_| Gate::default()).collect();
        let shared =
            Shared { gates: Mutex::new(gates), changed: Condvar::new(), cuts: AtomicU64::new(0), over: false.into() };
        let this = Self { real, told, shared: Arc::new(shared) };
        let mut dice = Dice::new(seed);
        for (place, listener) in listeners.into_iter().enumerate() {
            let (shared, dice) = (Arc::clone(&this.shared), dice.fork());
            let thread = std::thread::Builder::new().name(format!("relay to {place}"));
            thread.spawn(move || shared.listen(real, place, &listener, dice))?;
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

    /// How many connections were cut.
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::Relaxed)
    }

    /// Cuts all connections of a link, of all ranks, in the middle of whatever they carry. New ones are let through.
    pub fn cut(&self, link: u32) {
        self.each(link, |gate| self.shared.cut(gate));
    }

    /// Refuses new connections of a link, and cuts those that are there; or lets them through again.
    pub fn refuse(&self, link: u32, refused: bool) {
        self.each(link, |gate| {
            gate.refuses = refused;
            if refused {
                self.shared.cut(gate);
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
        hold(&self.shared.gates).iter_mut().for_each(|gate| self.shared.cut(gate));
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

    fn cut(&self, gate: &mut Gate) {
        for (_, ends) in gate.open.drain(..) {
            self.cuts.fetch_add(1, Ordering::Relaxed);
            // One that has ended by itself cannot be.
            ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
        }
    }

    fn listen(self: &Arc<Self>, real: Ports, place: usize, listener: &TcpListener, mut dice: Dice) {
        while let Ok((caller, _)) = listener.accept() {
            if self.over() {
                return;
            }
            if hold(&self.gates)[place].refuses {
                continue;
            }
            let Ok(rank) = TcpStream::connect((Ipv4Addr::LOCALHOST, real.first + place as u16)) else { continue };
            let _ = self.pair(place, [caller, rank], [dice.fork(), dice.fork()]);
        }
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
        let mut gates = hold(&self.gates);
        loop {
            let gate = &gates[place];
            if self.over() || !gate.open.iter().any(|(open, _)| *open == number) {
                return None;
            }
            if !gate.frozen[direction] {
                return Some(gate.most_delay);
            }
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
        relay.refuse(1, false);
        let (mut caller, mut rank) = meet();
        pass(&mut caller, &mut rank);
        drop(rank);
        assert!(ended(&mut caller));
    }
}
