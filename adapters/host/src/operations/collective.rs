//! What all ranks of a communicator do together: barrier, broadcast, and making further communicators.

use towline_core::convertor::Span;
use towline_core::mtl::{Failure, Group, Mode, Sending};
use towline_core::time::Instant;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::context::handle::RankMap;
use crate::errors::error::Error;
use crate::operations::communicator::{Communicator, OwnedCommunicator};
use crate::threads::levels::Threads;
use crate::threads::lock::{EngineGuard, EngineLock};
use crate::values::message::{Source, TAG_MAX, Tag};
use crate::waiting::no_unwind::no_unwind;

/// Tags of the library, above those of programs.
const BARRIER: u32 = TAG_MAX + 0x100;
const BROADCAST: u32 = TAG_MAX + 0x200;
const GATHER: u32 = TAG_MAX + 0x300;
const FINISH: u32 = TAG_MAX + 0x400;

impl<L: Threads> Communicator<L> {
    /// Waits until all ranks have come here. Takes as many rounds as the size has binary digits.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] where a rank that this one hears from or tells was lost. Who has to do with neither does not hear
    /// of it, and nobody waits for ever.
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.barrier()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn barrier(&self) -> Result<(), Error> {
        let mut well = Ok(());
        for (round, dest, source) in self.rounds() {
            let (source, tag) = (Source::Rank(source), Tag::Is(BARRIER + round));
            // SAFETY: empty spans stand for no memory.
            let heard = unsafe { self.exchange(Span::EMPTY, dest, BARRIER + round, Span::EMPTY, source, tag, false) };
            // Whatever came of this round, others wait for this rank in the next.
            well = well.and(heard.map(|_| ()));
        }
        well
    }

    /// The rounds of a dissemination barrier: number, whom to tell, whom to hear.
    fn rounds(&self) -> impl Iterator<Item = (u32, u32, u32)> + use<L> {
        let (rank, size) = (u64::from(self.rank), u64::from(self.handle.size));
        (0..u32::BITS).map_while(move |round| {
            let step = 1u64 << round;
            let dest = ((rank + step) % size) as u32;
            let source = ((rank + size - step % size) % size) as u32;
            (step < size).then_some((round, dest, source))
        })
    }

    /// Gives `data` of rank `root` to all. All give a `data` of the same length. Goes along a tree.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`] for a wrong root, [`Error::Truncated`] where lengths differ, [`Error::PeerFailed`] where a rank
    /// that the data comes by was lost: what `data` holds then is not said. Nobody waits for ever.
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
        self.pass_on(root, data, Ok(()))
    }

    /// The same; with an error, this rank has nothing to give, but plays its part, so that nobody waits for it.
    fn pass_on<T>(&self, root: u32, data: &mut T, mut well: Result<(), Error>) -> Result<(), Error>
    where
        T: FromBytes + IntoBytes + Immutable + ?Sized,
    {
        let size = self.handle.size;
        // Ranks counted from the root; each hears from the one without its lowest set bit.
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
            let heard = unsafe { self.recv_any_tag(Source::Rank(parent), Tag::Is(BROADCAST), sink) };
            // Nothing at all comes from a parent that has nothing to give.
            let whole = heard.and_then(|status| match status.bytes {
                0 if len != 0 => Err(self.missed(parent)),
                _ => Ok(()),
            });
            well = well.and(whole);
        }
        let mut lost = Ok(()); // a child that is lost is no reason to let the others wait
        while bit > 1 {
            bit >>= 1;
            if from_root + bit < size {
                let bytes = if well.is_ok() { Span::of(data.as_bytes()) } else { Span::EMPTY };
                // SAFETY: `data` is borrowed until this returns.
                let told = unsafe { self.send_span(rank(from_root + bit), BROADCAST, Mode::Standard, bytes) };
                lost = lost.and(told);
            }
        }
        well.and(lost)
    }

    /// Why `parent` has nothing to give: a rank that failed, as far as this one knows.
    fn missed(&self, parent: u32) -> Error {
        let engine = self.handle.context.engine.lock();
        let broken = engine.mtl.broken(self.handle.comm);
        broken.map_or(Error::PeerFailed { rank: parent }, |peer| self.handle.peer_lost(&engine, peer))
    }

    /// A communicator of the same ranks, whose messages are apart from those of this one. All ranks call it.
    ///
    /// # Errors
    /// [`Error::Communicator`] where there are too many, [`Error::PeerFailed`].
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

    /// Communicators of those ranks that give the same `color`, in the order of their `key`, then of their rank here.
    /// All ranks call it; one that gives no color gets no communicator.
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
        /// What each rank says, and rank 0 tells all. Ranks may be of different byte order.
        #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
        #[repr(C)]
        struct Word {
            colored: U32,
            color: U32,
            key: U32,
            next_context_id: U32,
            number: U32,
        }
        let context = &self.handle.context;
        let next_context_id = context.engine.lock().next_context_id;
        let number = context.grid.own_number();
        let mine = Word {
            colored: u32::from(color.is_some()).into(),
            color: color.unwrap_or(0).into(),
            key: key.into(),
            next_context_id: next_context_id.into(),
            number: number.into(),
        };
        let mut words = vec![mine; self.handle.size as usize];
        let mut well = Ok(());
        if self.rank == 0 {
            for (rank, word) in words.iter_mut().enumerate().skip(1) {
                let sink = Span::contiguous(std::ptr::from_mut(word).cast(), size_of::<Word>());
                // SAFETY: the word is borrowed until this returns, and any bytes make one.
                let heard = unsafe { self.recv_any_tag(Source::Rank(rank as u32), Tag::Is(GATHER), sink) };
                well = well.and(heard.map(|_| ()));
            }
        } else {
            // SAFETY: the word lives until this returns.
            well = unsafe { self.send_span(0, GATHER, Mode::Standard, Span::of(mine.as_bytes())) };
        }
        self.pass_on(0, &mut words[..], well)?;
        // One context for all colors: groups without a common rank share no message.
        let next = words.iter().map(|word| word.next_context_id.get()).max().unwrap_or(next_context_id);
        context.engine.lock().next_context_id = next + 1;
        let Some(color) = color else { return Ok(None) };
        let mut members: Vec<(u32, u32, u32)> = words
            .iter()
            .zip(0..)
            .filter(|(word, _)| word.colored.get() != 0 && word.color.get() == color)
            .map(|(word, rank)| (word.key.get(), rank, word.number.get()))
            .collect();
        members.sort_unstable();
        let rank = members.iter().position(|(_, rank, _)| *rank == self.rank).unwrap_or(0) as u32;
        let peers = members.iter().map(|(_, _, number)| context.grid.peer(*number).0);
        self.make(next, peers.collect(), rank).map(Some)
    }

    /// Gives as many bytes of each rank to all, in their order. All ranks call it.
    pub(crate) fn all_tell(&self, mine: &[u8]) -> Result<Vec<u8>, Error> {
        let mut all = vec![0; mine.len() * self.handle.size as usize];
        let mut well = Ok(());
        if self.rank == 0 {
            for (rank, place) in (0..).zip(all.chunks_exact_mut(mine.len())) {
                if rank == 0 {
                    place.copy_from_slice(mine);
                    continue;
                }
                let sink = Span::contiguous(place.as_mut_ptr(), place.len());
                // SAFETY: the memory lives until this returns.
                let heard = unsafe { self.recv_any_tag(Source::Rank(rank), Tag::Is(GATHER), sink) };
                well = well.and(heard.map(|_| ()));
            }
        } else {
            // SAFETY: the memory is borrowed until this returns.
            well = unsafe { self.send_span(0, GATHER, Mode::Standard, Span::of(mine)) };
        }
        self.pass_on(0, &mut all[..], well)?;
        Ok(all)
    }

    fn make(&self, id: u32, peers: Box<[u32]>, rank: u32) -> Result<OwnedCommunicator<L>, Error> {
        let context = &self.handle.context;
        let mut engine = context.engine.lock();
        let size = peers.len() as u32;
        let identity = size == context.grid.ranks && peers.iter().zip(0..).all(|(peer, rank)| *peer == rank);
        let (made, ranks) = if identity {
            (engine.mtl.add_comm(id, Group::World { size }, rank), RankMap::Peers)
        } else {
            (engine.add_table_comm(id, peers, rank, false), RankMap::Table)
        };
        drop(engine);
        let comm = made.map_err(Error::Communicator)?;
        Ok(OwnedCommunicator(Self::new(L::Ref::clone(context), comm, rank, size, ranks, id)))
    }

    /// The barrier at the end: until `deadline`, or until those that this rank hears from are lost. Messages of this rank
    /// have left when it is over. Tells whether all went well.
    pub(crate) fn finish_barrier(&self, deadline: Instant) -> bool {
        let mut engine = self.handle.context.engine.lock();
        let engine = &mut engine;
        let mut well = true;
        for (round, dest, source) in self.rounds() {
            let (comm, tag) = (self.handle.comm, FINISH + round);
            no_unwind(|| {
                let source = towline_core::mtl::Source::Rank(source);
                // SAFETY: empty spans stand for no memory.
                let receive = unsafe { engine.mtl.irecv(comm, source, towline_core::mtl::Tag::Is(tag), Span::EMPTY) };
                // Nobody goes before his word was taken: with several links one may be seen to close before another is read.
                // SAFETY: as above.
                let send = unsafe { engine.mtl.isend(comm, dest, tag, Mode::Synchronous, Span::EMPTY) };
                let send = match send {
                    Ok(Sending::Pending(request)) => Some(request),
                    Ok(Sending::Complete) => None,
                    Err(_) => {
                        well = false;
                        None
                    }
                };
                let (receive, send) = (receive.ok().map(|it| (it, false)), send.map(|it| (it, true)));
                for (request, sending) in receive.into_iter().chain(send) {
                    match engine.wait_until(request, deadline) {
                        // Who has taken it may be gone before its answer is read. Whether all came is told by what is
                        // received.
                        Some(Err(Failure::PeerFailed(_))) if sending => {}
                        Some(outcome) => well &= outcome.is_ok(),
                        None => {
                            well = false;
                            engine.mtl.cancel(request);
                            engine.mtl.pml().detach(request);
                        }
                    }
                }
            });
        }
        well
    }
}
