//! The state of a context: one address in the job, its engine, and the way to its launcher. Used by one thread.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use towline_core::btl::selection::{Candidate, Report};
use towline_core::mtl::{Comm, Failure, Refusal};
use towline_core::rail::Peer;

use crate::engine::Engine;
use crate::errors::error::Error;
use crate::job::launcher::Launch;
use crate::settings::config::{Config, Tunable};
use crate::threads::levels::{Lock, Sharing};
use crate::values::address::{Address, Grid};
use crate::values::message::Status;

/// Shared by everything that belongs to a context.
pub(crate) struct State<L: Sharing> {
    pub engine: L::Cell,
    /// Where it stands among all.
    pub grid: Grid,
    pub launch: Arc<Launch>,
    pub config: Config,
    pub tunables: Vec<Tunable>,
    /// For each address, in order of their numbers, what came of each transport.
    pub choices: Mutex<Vec<Vec<Candidate>>>,
    /// The names under which the cards of the rails in use are published, in their order.
    pub names: Vec<String>,
    /// Transports that do not work here, and why.
    pub failures: Vec<(String, String)>,
    /// What is to be told of the progress thread.
    pub attended: Option<String>,
    pub finished: AtomicBool,
}

impl<L: Sharing> State<L> {
    /// Runs what users have to do with requests that are over: wakers, and the end of buffers.
    #[inline]
    pub fn settle(&self) {
        self.engine.settle();
    }

    /// Makes progress once. Tells how many events there were.
    pub fn progress(&self) -> u32 {
        let events = self.engine.hold().poll();
        self.settle();
        events
    }

    pub fn report(&self) -> Vec<String> {
        let engine = self.engine.hold();
        let line = |(number, rails): (usize, &Vec<Candidate>)| {
            let choice = Report { peer: Peer(number as u32), rails };
            format!("{choice}{}", engine.mtl.rails().long_messages(rails))
        };
        let choices = self.choices.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = choices.iter().enumerate().map(line);
        let failures = self.failures.iter().map(|(name, why)| format!("{name} does not work here: {why}"));
        failures.chain(lines).chain(self.attended.clone()).collect()
    }
}

/// A communicator's place in a context, for those who translate peers into its ranks.
pub(crate) struct Place<L: Sharing> {
    pub context: L::Ref,
    pub comm: Comm,
    /// How many ranks it has, and which peers they are.
    pub size: u32,
    pub ranks: Ranks,
}

/// Which peers the ranks of a communicator are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ranks {
    /// Rank r is peer r.
    Peers,
    /// The rank is the number of the address.
    Everyone,
    /// The engine keeps a table.
    Table,
}

impl<L: Sharing> Clone for Place<L> {
    fn clone(&self) -> Self {
        Self { context: self.context.clone(), ..*self }
    }
}

impl<L: Sharing> Place<L> {
    /// The rank of a peer.
    #[inline]
    pub fn rank_of(&self, engine: &Engine, peer: Peer) -> u32 {
        if self.ranks == Ranks::Peers { peer.0 } else { self.rank_elsewhere(engine, peer).unwrap_or(peer.0) }
    }

    fn rank_elsewhere(&self, engine: &Engine, peer: Peer) -> Option<u32> {
        match self.ranks {
            Ranks::Everyone => Some(self.context.grid.number_of(peer)),
            _ => engine.mtl.rank_of(self.comm, peer),
        }
    }

    /// The rank of an address, if it is in the communicator.
    pub fn rank_at(&self, address: Address) -> Option<u32> {
        let grid = self.context.grid;
        let peer = grid.peer(grid.number(address)?);
        match self.ranks {
            Ranks::Peers => (peer.0 < self.size).then_some(peer.0),
            _ => self.rank_elsewhere(&self.context.engine.hold(), peer),
        }
    }

    /// The address of a rank, if the communicator has it.
    pub fn address(&self, rank: u32) -> Option<Address> {
        let grid = self.context.grid;
        if rank >= self.size {
            return None;
        }
        let number = match self.ranks {
            Ranks::Everyone => rank,
            Ranks::Peers => grid.number_of(Peer(rank)),
            Ranks::Table => {
                let engine = self.context.engine.hold();
                let (_, table) = engine.groups.iter().find(|(comm, _)| *comm == self.comm)?;
                grid.number_of(Peer(*table.peers().get(rank as usize)?))
            }
        };
        Some(grid.address(number))
    }

    /// The peer of a rank, if the communicator has it.
    pub fn peer(&self, rank: u32) -> Option<Peer> {
        let grid = self.context.grid;
        Some(grid.peer(grid.number(self.address(rank)?)?))
    }

    #[inline]
    pub fn status(&self, engine: &Engine, status: towline_core::mtl::Status) -> Status {
        Status { source: self.rank_of(engine, status.peer), tag: status.tag, bytes: status.delivered }
    }

    /// What a receive or send ended with.
    #[inline]
    pub fn outcome(
        &self,
        engine: &Engine,
        outcome: Result<towline_core::mtl::Status, Failure>,
    ) -> Result<Status, Error> {
        match outcome {
            Ok(status) => Ok(self.status(engine, status)),
            Err(failure) => Err(self.failure(engine, failure)),
        }
    }

    #[cold]
    pub fn failure(&self, engine: &Engine, failure: Failure) -> Error {
        let rank = |peer| self.rank_of(engine, peer);
        match failure {
            Failure::Truncated(status) => Error::Truncated {
                source: rank(status.peer),
                tag: status.tag,
                sent: status.received,
                delivered: status.delivered,
            },
            Failure::Cancelled => Error::Cancelled,
            Failure::PeerFailed(peer) => Error::PeerFailed { rank: rank(peer) },
            Failure::Restarted(peer) => Error::Restarted { rank: rank(peer) },
            Failure::NotReady(peer) => Error::NotReady { rank: rank(peer) },
            Failure::NoCommunicator(peer) => Error::NoCommunicator { rank: rank(peer) },
            _ => Error::Finished,
        }
    }

    /// What to say of a peer that was lost.
    #[cold]
    pub fn lost(&self, engine: &Engine, peer: Peer) -> Error {
        let rank = self.rank_of(engine, peer);
        let back = engine.mtl.excluded(self.comm, towline_core::mtl::Source::Rank(rank)).is_some();
        if back { Error::Restarted { rank } } else { Error::PeerFailed { rank } }
    }

    /// Why an operation with `other` was not accepted.
    #[cold]
    pub fn refusal(&self, engine: &Engine, refusal: Refusal, other: Option<u32>) -> Error {
        match (refusal, other) {
            (Refusal::Busy, _) => Error::Busy,
            (Refusal::PeerFailed(peer) | Refusal::NoPeer(peer), _) => {
                Error::PeerFailed { rank: self.rank_of(engine, peer) }
            }
            (Refusal::Restarted(peer), _) => Error::Restarted { rank: self.rank_of(engine, peer) },
            (_, Some(rank)) if rank >= self.size => Error::NoSuchRank { rank, size: self.size },
            _ => Error::Finished,
        }
    }
}

/// Calls what must not unwind, because an operation under way still has the address of memory that is only borrowed: a
/// logger or somebody's rail that panics ends the process then.
#[inline]
pub(crate) fn no_unwind<T>(call: impl FnOnce() -> T) -> T {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            eprintln!("towline: a panic while messages use borrowed memory: the process ends");
            std::process::abort();
        }
    }
    let bomb = Bomb;
    let result = call();
    std::mem::forget(bomb);
    result
}
