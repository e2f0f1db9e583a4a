//! A context: one address in the job, its engine and its job's launcher. Used by one thread.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towline_bootstrap::Job;
use towline_core::btl::Peer;
use towline_core::btl::selection::{Candidate, Report};
use towline_core::mtl::{Comm, Failure, Refusal};

use crate::engine::{Done, Engine};
use crate::error::Error;
use crate::message::Status;
use crate::tunables::{Config, Tunable};

/// Shared by everything that belongs to a context.
pub(crate) struct Context {
    pub engine: RefCell<Engine>,
    pub job: RefCell<Job>,
    pub config: Config,
    pub tunables: Vec<Tunable>,
    /// For each rank, what came of each transport.
    pub choices: Vec<Vec<Candidate>>,
    /// Transports that do not work here, and why.
    pub failures: Vec<(String, String)>,
    pub finished: Cell<bool>,
}

impl Context {
    /// Runs what users have to do with requests that are over: wakers, and the end of buffers.
    #[inline]
    pub fn settle(&self) {
        if !self.engine.borrow().beside.entries.is_empty() {
            self.settle_all();
        }
    }

    #[cold]
    fn settle_all(&self) {
        loop {
            // The engine is free again before code of users runs: it may use the context.
            let done = self.engine.borrow_mut().next_done();
            match done {
                Some(Done::Wake(waker)) => waker.wake(),
                Some(Done::Free(orphan)) => drop(orphan),
                None => return,
            }
        }
    }

    /// Makes progress once. Tells how many events there were.
    pub fn progress(&self) -> u32 {
        let events = self.engine.borrow_mut().poll();
        self.settle();
        events
    }

    pub fn report(&self) -> Vec<String> {
        let line = |(rank, rails): (usize, &Vec<Candidate>)| Report { peer: Peer(rank as u32), rails }.to_string();
        let lines = self.choices.iter().enumerate().map(line);
        let failures = self.failures.iter().map(|(name, why)| format!("{name} does not work here: {why}"));
        failures.chain(lines).collect()
    }
}

/// A communicator's place in a context, for those who translate peers into its ranks.
#[derive(Clone)]
pub(crate) struct Place {
    pub context: Rc<Context>,
    pub comm: Comm,
    /// Ranks of the communicator, and whether rank r is peer r.
    pub size: u32,
    pub identity: bool,
}

impl Place {
    /// The rank of a peer.
    #[inline]
    pub fn rank_of(&self, engine: &Engine, peer: Peer) -> u32 {
        if self.identity { peer.0 } else { engine.mtl.rank_of(self.comm, peer).unwrap_or(peer.0) }
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
    fn failure(&self, engine: &Engine, failure: Failure) -> Error {
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
            Failure::NotReady(peer) => Error::NotReady { rank: rank(peer) },
            Failure::NoCommunicator(peer) => Error::NoCommunicator { rank: rank(peer) },
            _ => Error::Finished,
        }
    }

    /// Why an operation with `other` was not accepted.
    #[cold]
    pub fn refusal(&self, engine: &Engine, refusal: Refusal, other: Option<u32>) -> Error {
        match (refusal, other) {
            (Refusal::Busy, _) => Error::Busy,
            (Refusal::PeerFailed(peer) | Refusal::NoPeer(peer), _) => {
                Error::PeerFailed { rank: self.rank_of(engine, peer) }
            }
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
