//! Collective operations: barrier, broadcast, and making further communicators.

use towline_core::convertor::Span;
use towline_core::mtl::{Failure, Group, Mode, Refusal, Sending};
use towline_core::time::Instant;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::context::handle::RankMap;
use crate::errors::error::Error;
use crate::operations::communicator::{Communicator, OwnedCommunicator};
use crate::threads::levels::Threads;
use crate::threads::lock::{EngineGuard, EngineLock};
use crate::values::message::{Source, Tag};
use crate::values::tags::{AGREEMENT as GATHER, BARRIER, BROADCAST, FINISH_TAGS};
use crate::waiting::no_unwind::no_unwind;

/// The arguments of one rank to [`Communicator::split`]. Ranks may differ in byte order.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SplitEntry {
    has_color: U32,
    color: U32,
    key: U32,
    /// The lowest context id that is free at this rank.
    next_context_id: U32,
    /// The number of the rank's address.
    number: U32,
}

impl SplitEntry {
    fn new(color: Option<u32>, key: u32, next_context_id: u32, number: u32) -> Self {
        Self {
            has_color: u32::from(color.is_some()).into(),
            color: color.unwrap_or(0).into(),
            key: key.into(),
            next_context_id: next_context_id.into(),
            number: number.into(),
        }
    }

    fn has_color(&self, color: u32) -> bool {
        self.has_color.get() != 0 && self.color.get() == color
    }
}

impl<L: Threads> Communicator<L> {
    /// Waits until all ranks have called this: `MPI_Barrier`. It is a dissemination barrier, which takes `log2(size)` rounds,
    /// rounded up.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] if a rank was lost that this rank exchanges messages with in some round. The barrier may succeed at
    /// other ranks nevertheless, but no rank waits forever.
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.barrier()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn barrier(&self) -> Result<(), Error> {
        let mut outcome = Ok(());
        for (round, dest, source) in self.rounds() {
            let (source, tag) = (Source::Rank(source), Tag::Is(BARRIER + round));
            // SAFETY: empty spans stand for no memory.
            let received =
                unsafe { self.exchange(Span::EMPTY, dest, BARRIER + round, Span::EMPTY, source, tag, false) };
            // Even after an error in this round, the next round must run, since other ranks wait for this rank in it.
            outcome = outcome.and(received.map(|_| ()));
        }
        outcome
    }

    /// The rounds of a dissemination barrier: number, the rank to send to, the rank to receive from.
    fn rounds(&self) -> impl Iterator<Item = (u32, u32, u32)> + use<L> {
        let (rank, size) = (u64::from(self.rank), u64::from(self.handle.size));
        (0..u32::BITS).map_while(move |round| {
            let step = 1u64 << round;
            let dest = ((rank + step) % size) as u32;
            let source = ((rank + size - step % size) % size) as u32;
            (step < size).then_some((round, dest, source))
        })
    }

    /// Copies `data` of rank `root` to all ranks, along a binomial tree: `MPI_Bcast`. The length of `data` must be the same on
    /// all ranks.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`] if there is no such root, [`Error::Truncated`] if lengths differ, [`Error::PeerFailed`] if a rank on
    /// the data's path was lost. After an error the contents of `data` are unspecified. No rank waits forever.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut numbers = if world.rank() == 0 { [1.5f64, 2.5] } else { [0.0; 2] };
    /// world.broadcast(0, &mut numbers)?;
    /// assert_eq!(numbers, [1.5, 2.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn broadcast<T>(&self, root: u32, data: &mut T) -> Result<(), Error>
    where
        T: FromBytes + IntoBytes + Immutable + ?Sized,
    {
        let size = self.handle.size;
        if root >= size {
            return Err(Error::NoSuchRank { rank: root, size });
        }
        self.broadcast_result(root, data, Ok(()))
    }

    /// As [`broadcast`](Self::broadcast). If `outcome` is an error, this rank has no data to send. It then sends empty messages,
    /// so that no rank waits for it.
    fn broadcast_result<T>(&self, root: u32, data: &mut T, mut outcome: Result<(), Error>) -> Result<(), Error>
    where
        T: FromBytes + IntoBytes + Immutable + ?Sized,
    {
        let size = self.handle.size;
        // Ranks are counted from the root. Each rank receives from the rank whose number lacks the lowest set bit of its own
        // number.
        let (from_root, size) =
            ((u64::from(self.rank) + u64::from(size) - u64::from(root)) % u64::from(size), u64::from(size));
        let rank = |other: u64| ((other + u64::from(root)) % size) as u32;
        let mut bit = 1u64;
        while bit < size && from_root & bit == 0 {
            bit <<= 1;
        }
        if from_root != 0 {
            let parent = rank(from_root - bit);
            let bytes = data.as_mut_bytes();
            let len = bytes.len() as u64;
            let sink = Span::contiguous(bytes.as_mut_ptr(), bytes.len());
            // SAFETY: `data` is borrowed until this returns.
            let received = unsafe { self.recv_span_unchecked(Source::Rank(parent), Tag::Is(BROADCAST), sink) };
            // A parent that has no data sends an empty message.
            let complete = received.and_then(|status| match status.bytes {
                0 if len != 0 => Err(self.no_data_error(parent)),
                _ => Ok(()),
            });
            outcome = outcome.and(complete);
        }
        let mut sends = Ok(()); // the other children get their message even if one child is lost
        while bit > 1 {
            bit >>= 1;
            if from_root + bit < size {
                let bytes = if outcome.is_ok() { Span::of(data.as_bytes()) } else { Span::EMPTY };
                // SAFETY: `data` is borrowed until this returns.
                let sent = unsafe { self.send_span(rank(from_root + bit), BROADCAST, Mode::Standard, bytes) };
                sends = sends.and(sent);
            }
        }
        outcome.and(sends)
    }

    /// The error for a `parent` that has no data. It names a rank that failed, as far as this rank knows.
    fn no_data_error(&self, parent: u32) -> Error {
        let engine = self.handle.context.engine.lock();
        let failed = engine.mtl.broken(self.handle.comm);
        failed.map_or(Error::PeerFailed { rank: parent }, |peer| self.handle.peer_lost(&engine, peer))
    }

    /// Makes a communicator of the same ranks: `MPI_Comm_dup`. Its messages are separate from those of this communicator. All
    /// ranks call it.
    ///
    /// # Errors
    /// [`Error::Communicator`] if this rank has too many communicators; other ranks may have made theirs. [`Error::PeerFailed`]
    /// as for [`broadcast`](Self::broadcast).
    ///
    /// ```
    /// let world = towline::init()?;
    /// let other = world.dup()?;
    /// other.send(0, 1, b"there")?;
    /// assert_eq!(world.iprobe(0, 1)?, None);
    /// other.recv(0, 1, &mut [0u8; 5])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dup(&self) -> Result<OwnedCommunicator<L>, Error> {
        self.split(Some(0), self.rank).and_then(|made| made.ok_or(Error::Finished))
    }

    /// Makes communicators of the ranks that give the same `color`, ordered by `key` and then by rank here: `MPI_Comm_split`. All
    /// ranks call it. A rank that gives no color gets no communicator.
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    ///
    /// ```
    /// let world = towline::init()?;
    /// let parity = world.split(Some(world.rank() % 2), world.rank())?.unwrap();
    /// assert_eq!(parity.rank(), world.rank() / 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn split(&self, color: Option<u32>, key: u32) -> Result<Option<OwnedCommunicator<L>>, Error> {
        let context = &self.handle.context;
        let next_context_id = context.engine.lock().next_context_id;
        let mine = SplitEntry::new(color, key, next_context_id, context.grid.own_number());
        let bytes = self.all_gather(mine.as_bytes())?;
        let entries = <[SplitEntry]>::ref_from_bytes(&bytes).map_err(|_| Error::Finished)?;
        // One context id for all colors: groups without a common rank share no message.
        let id = entries.iter().map(|entry| entry.next_context_id.get()).max().unwrap_or(next_context_id);
        context.engine.lock().next_context_id = id + 1;
        let Some(color) = color else { return Ok(None) };
        let with_color = (0..).zip(entries).filter(|(_, entry)| entry.has_color(color));
        let mut members: Vec<(u32, u32, u32)> =
            with_color.map(|(rank, entry)| (entry.key.get(), rank, entry.number.get())).collect();
        members.sort_unstable();
        let rank = members.iter().position(|(_, rank, _)| *rank == self.rank).unwrap_or(0) as u32;
        let peers = members.iter().map(|(_, _, number)| context.grid.peer(*number).0);
        self.add_communicator(id, peers.collect(), rank).map(Some)
    }

    /// Collects the same number of bytes from each rank, and returns all of them in the order of the ranks: an allgather. All
    /// ranks call it.
    pub(crate) fn all_gather(&self, mine: &[u8]) -> Result<Vec<u8>, Error> {
        let mut all = vec![0; mine.len() * self.handle.size as usize];
        let mut outcome = Ok(());
        if self.rank == 0 {
            for (rank, part) in (0..).zip(all.chunks_exact_mut(mine.len())) {
                if rank == 0 {
                    part.copy_from_slice(mine);
                    continue;
                }
                let sink = Span::contiguous(part.as_mut_ptr(), part.len());
                // SAFETY: the memory lives until this returns.
                let received = unsafe { self.recv_span_unchecked(Source::Rank(rank), Tag::Is(GATHER), sink) };
                outcome = outcome.and(received.map(|_| ()));
            }
        } else {
            // SAFETY: the memory is borrowed until this returns.
            outcome = unsafe { self.send_span(0, GATHER, Mode::Standard, Span::of(mine)) };
        }
        self.broadcast_result(0, &mut all[..], outcome)?;
        Ok(all)
    }

    /// Adds a communicator of these peers, with this context as rank `rank`.
    fn add_communicator(&self, id: u32, peers: Box<[u32]>, rank: u32) -> Result<OwnedCommunicator<L>, Error> {
        let context = &self.handle.context;
        let mut engine = context.engine.lock();
        let size = peers.len() as u32;
        let identity = size == context.grid.ranks && peers.iter().zip(0..).all(|(peer, rank)| *peer == rank);
        let (made, rank_map) = if identity {
            (engine.mtl.add_comm(id, Group::World { size }, rank), RankMap::Peers)
        } else {
            (engine.add_table_comm(id, peers, rank, false), RankMap::Table)
        };
        drop(engine);
        let comm = made.map_err(Error::Communicator)?;
        Ok(OwnedCommunicator(Self::new(L::Ref::clone(context), comm, rank, size, rank_map, id)))
    }

    /// The barrier at the end. It waits until `deadline`, and not for ranks that are lost or have left. Afterwards the messages of
    /// this rank have been sent.
    pub(crate) fn finish_barrier(&self, deadline: Instant) -> FinishBarrier {
        let mut engine = self.handle.context.engine.lock();
        let mut barrier = FinishBarrier { timed_out: false, lost: Vec::new() };
        for (round, dest, source) in self.rounds() {
            self.finish_round(&mut engine, &mut barrier, FINISH_TAGS.start + round, dest, source, deadline);
        }
        barrier.lost.sort_unstable();
        barrier.lost.dedup();
        barrier
    }

    /// One round of [`finish_barrier`](Self::finish_barrier).
    fn finish_round(
        &self,
        engine: &mut impl EngineGuard,
        barrier: &mut FinishBarrier,
        tag: u32,
        dest: u32,
        source: u32,
        deadline: Instant,
    ) {
        use towline_core::mtl::{Source, Tag};
        let comm = self.handle.comm;
        no_unwind(|| {
            // SAFETY: empty spans stand for no memory.
            let receive = unsafe { engine.mtl.irecv(comm, Source::Rank(source), Tag::Is(tag), Span::EMPTY) };
            // A synchronous send: this rank does not end before its message was received. With several links, a peer may see one
            // link close before it reads the other. SAFETY: as above.
            let send = match unsafe { engine.mtl.isend(comm, dest, tag, Mode::Synchronous, Span::EMPTY) } {
                Ok(Sending::Pending(request)) => Some(request),
                Ok(Sending::Complete) => None,
                Err(refusal) => {
                    // A rank that has left receives nothing.
                    if !matches!(refusal, Refusal::PeerClosed(_)) {
                        barrier.lost.push(dest);
                    }
                    None
                }
            };
            let (receive, send) = (receive.ok().map(|it| (it, false)), send.map(|it| (it, true)));
            for (request, is_send) in receive.into_iter().chain(send) {
                match engine.wait_until(request, deadline) {
                    // The receiver may have ended before its answer is read. The received frames show whether all ranks came
                    // here.
                    Some(Err(_)) if is_send => {}
                    Some(Ok(_) | Err(Failure::PeerClosed { .. })) => {}
                    Some(Err(_)) => barrier.lost.push(source),
                    None => {
                        barrier.timed_out = true;
                        engine.mtl.cancel(request);
                        engine.mtl.pml().detach(request);
                    }
                }
            }
        });
    }
}

/// The outcome of the barrier at the end.
pub(crate) struct FinishBarrier {
    /// Some rank did not come in time.
    pub timed_out: bool,
    /// Ranks that were lost before they came, as far as this rank knows.
    pub lost: Vec<u32>,
}
