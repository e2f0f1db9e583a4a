//! A communicator's handle to its context. It translates between the engine's peers and the communicator's ranks.

use towline_core::mtl::{Comm, Failure, Refusal};
use towline_core::rail::{Lost, Peer};

use crate::context::state::ContextState;
use crate::engine::Engine;
use crate::errors::error::Error;
use crate::threads::levels::Sharing;
use crate::threads::lock::EngineLock;
use crate::values::address::Address;
use crate::values::message::Status;

/// The context id of the communicator of all ranks.
pub(crate) const WORLD_ID: u32 = towline_bootstrap::report::WORLD;
/// The context id of the communicator of all contexts of all ranks. Communicators that are made later have higher ids.
pub(crate) const ALL_CONTEXTS_ID: u32 = towline_bootstrap::report::ALL_CONTEXTS;

/// A communicator in a context.
pub(crate) struct CommHandle<L: Sharing> {
    pub context: L::Ref<ContextState<L>>,
    pub comm: Comm,
    /// How many ranks the communicator has.
    pub size: u32,
    /// The peers of these ranks.
    pub rank_map: RankMap,
    /// The communicator lives as long as the world: a rank that refuses its messages has finished.
    pub lasting: bool,
    /// The largest tag of programs in it.
    pub tag_max: u32,
}

/// Which peer a rank of a communicator is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RankMap {
    /// Rank r is peer r.
    Peers,
    /// The rank is the number of the address.
    AllContexts,
    /// The engine keeps a table.
    Table,
}

impl<L: Sharing> Clone for CommHandle<L> {
    fn clone(&self) -> Self {
        Self { context: self.context.clone(), ..*self }
    }
}

impl<L: Sharing> CommHandle<L> {
    /// The rank of a peer.
    #[inline]
    pub fn rank_of(&self, engine: &Engine, peer: Peer) -> u32 {
        if self.rank_map == RankMap::Peers { peer.0 } else { self.look_up_rank(engine, peer).unwrap_or(peer.0) }
    }

    fn look_up_rank(&self, engine: &Engine, peer: Peer) -> Option<u32> {
        match self.rank_map {
            RankMap::AllContexts => Some(self.context.grid.number_of(peer)),
            _ => engine.mtl.rank_of(self.comm, peer),
        }
    }

    /// The rank of an address, if the communicator includes it.
    pub fn rank_at(&self, address: Address) -> Option<u32> {
        let grid = self.context.grid;
        let peer = grid.peer(grid.number(address)?);
        match self.rank_map {
            RankMap::Peers => (peer.0 < self.size).then_some(peer.0),
            _ => self.look_up_rank(&self.context.engine.lock(), peer),
        }
    }

    /// The address of a rank, if the communicator has it.
    pub fn address(&self, rank: u32) -> Option<Address> {
        let grid = self.context.grid;
        if rank >= self.size {
            return None;
        }
        let number = match self.rank_map {
            RankMap::AllContexts => rank,
            RankMap::Peers => grid.number_of(Peer(rank)),
            RankMap::Table => {
                let engine = self.context.engine.lock();
                let (_, table) = engine.rank_tables.iter().find(|(comm, _)| *comm == self.comm)?;
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

    /// The outcome of a receive or send.
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

    /// The error of an operation that failed.
    #[cold]
    pub fn failure(&self, engine: &Engine, failure: Failure) -> Error {
        if let Err(forked) = self.context.check_process() {
            return forked;
        }
        let rank = |peer| self.rank_of(engine, peer);
        match failure {
            Failure::Truncated(status) => Error::Truncated {
                source: rank(status.peer),
                tag: status.tag,
                sent: status.received,
                delivered: status.delivered,
            },
            Failure::Cancelled => Error::Cancelled,
            Failure::PeerFailed(peer) => self.failed(engine, peer),
            Failure::PeerClosed { peer, tag, bytes } => self.finished(engine, peer, Some(tag), bytes),
            Failure::Restarted(peer) => Error::Restarted { rank: rank(peer) },
            Failure::NotReady(peer) => Error::NotReady { rank: rank(peer) },
            Failure::NoCommunicator(status) if self.lasting => {
                self.finished(engine, status.peer, Some(status.tag), Some(status.received))
            }
            Failure::DeviceFailed => Error::DeviceFailed,
            Failure::MessagesLost(peer) => Error::MessagesLost { rank: rank(peer) },
            Failure::TooLong => Error::TooLong,
            Failure::BadMemory => Error::BadMemory,
            Failure::Aborted(status) => Error::Aborted { rank: rank(status.peer) },
            Failure::NoCommunicator(status) => Error::NoCommunicator { rank: rank(status.peer) },
            _ => Error::Finished,
        }
    }

    /// The error for a peer that was lost.
    #[cold]
    pub fn peer_lost(&self, engine: &Engine, peer: Peer) -> Error {
        if let Err(forked) = self.context.check_process() {
            return forked;
        }
        let rank = self.rank_of(engine, peer);
        let restarted = engine.mtl.excluded(self.comm, towline_core::mtl::Source::Rank(rank)).is_some();
        match engine.mtl.why_lost(peer) {
            _ if restarted => Error::Restarted { rank },
            Some(Lost::Closed) => self.finished(engine, peer, None, None),
            _ => self.failed(engine, peer),
        }
    }

    /// The error for a peer that failed. The launcher learns of it.
    #[cold]
    pub fn failed(&self, engine: &Engine, peer: Peer) -> Error {
        let rank = self.rank_of(engine, peer);
        if engine.mtl.why_lost(peer) == Some(Lost::NoRoom) {
            engine.warn(); // the program may end before this rank is idle
            return Error::NoSharedMemory { rank };
        }
        if engine.mtl.why_lost(peer) == Some(Lost::DeviceFailed) {
            return Error::DeviceFailed; // nothing is known of the rank
        }
        self.note_lost(peer);
        Error::PeerFailed { rank }
    }

    /// The error for a peer that has ended normally. The launcher learns of it.
    #[cold]
    fn finished(&self, engine: &Engine, peer: Peer, tag: Option<u32>, bytes: Option<u64>) -> Error {
        self.note_lost(peer);
        let tag = tag.filter(|tag| *tag != towline_core::pml::matching::ANY);
        Error::PeerFinished { rank: self.rank_of(engine, peer), tag, bytes }
    }

    fn note_lost(&self, peer: Peer) {
        let grid = self.context.grid;
        self.context.launcher.note_lost_peer(grid.address(grid.number_of(peer)).rank);
    }

    /// The error for an operation with rank `other` that the engine did not accept.
    #[cold]
    pub fn refusal(&self, engine: &Engine, refusal: Refusal, other: Option<u32>) -> Error {
        if let Err(forked) = self.context.check_process() {
            return forked;
        }
        match (refusal, other) {
            (Refusal::Busy, _) => Error::Busy,
            (Refusal::DeviceFailed, _) => Error::DeviceFailed,
            (Refusal::TooLong, _) => Error::TooLong,
            (Refusal::PeerFailed(peer) | Refusal::NoPeer(peer), _) => self.failed(engine, peer),
            (Refusal::PeerClosed(peer), _) => self.finished(engine, peer, None, None),
            (Refusal::Restarted(peer), _) => Error::Restarted { rank: self.rank_of(engine, peer) },
            (_, Some(rank)) if rank >= self.size => Error::NoSuchRank { rank, size: self.size },
            _ => Error::Finished,
        }
    }
}
