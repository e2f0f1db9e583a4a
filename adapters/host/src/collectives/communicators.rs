//! Making further communicators. All ranks get the communicator, or all get an error.

use towline_core::mtl::{Comm, CommError, Group};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::context::handle::RankMap;
use crate::context::state::ContextState;
use crate::errors::error::Error;
use crate::operations::communicator::{Communicator, OwnedCommunicator};
use crate::threads::levels::Threads;
use crate::threads::lock::EngineLock;
use crate::values::shortage::Shortage;

/// The arguments of one rank to [`Communicator::split`], and what it can offer. Ranks may differ in byte order.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SplitEntry {
    /// [`Shortage::code`].
    shortage: U32,
    has_color: U32,
    color: U32,
    key: U32,
    /// The lowest context id that is free at this rank.
    next_context_id: U32,
}

impl SplitEntry {
    fn has_color(&self, color: u32) -> bool {
        self.has_color.get() != 0 && self.color.get() == color
    }
}

impl<L: Threads> Communicator<L> {
    /// Makes a communicator of the same ranks: `MPI_Comm_dup`. Its messages are separate from those of this communicator. All
    /// ranks call it.
    ///
    /// # Errors
    /// Either all ranks make the communicator, or none: if a rank has no room for it, that rank gets [`Error::Communicator`], and
    /// the others get [`Error::NoRoom`], which names that rank. [`Error::PeerFailed`] and [`Error::NoPart`] if a rank was lost;
    /// if it is lost during the call, the call may succeed at some ranks and fail at others. No rank waits forever.
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
    /// As [`dup`](Self::dup), for all colors together.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let parity = world.split(Some(world.rank() % 2), world.rank())?.unwrap();
    /// assert_eq!(parity.rank(), world.rank() / 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn split(&self, color: Option<u32>, key: u32) -> Result<Option<OwnedCommunicator<L>>, Error> {
        self.split_if(true, color, key)
    }

    /// Takes part in [`dup`](Self::dup) or [`split`](Self::split) of all ranks, for a caller that has no room for a communicator of
    /// its own, such as a binding without a free handle: no rank makes one. Returns the error of this rank.
    ///
    /// ```
    /// use towline::{CommError, Error};
    ///
    /// let world = towline::init()?;
    /// assert_eq!(world.refuse_comm_raw(), Error::Communicator(CommError::Full));
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn refuse_comm_raw(&self) -> Error {
        self.split_if(false, Some(0), self.rank).map_or_else(|error| error, |_| Error::Communicator(CommError::Full))
    }

    fn split_if(&self, has_room: bool, color: Option<u32>, key: u32) -> Result<Option<OwnedCommunicator<L>>, Error> {
        let context = &self.handle.context;
        for attempt in 0.. {
            let place = match has_room {
                true => Place::<L>::reserve(context, color.is_some()),
                false => Err(Shortage::Communicators),
            };
            let next_context_id = context.engine.lock().next_context_id;
            let shortage = place.as_ref().err().copied();
            // Threads whose attempts ended with the same context id try different ones.
            let ahead = if attempt == 0 { 0 } else { attempt * (self.context_id % 64) };
            let mine = SplitEntry {
                shortage: Shortage::code(shortage.or((next_context_id == u32::MAX).then_some(Shortage::ContextIds)))
                    .into(),
                has_color: u32::from(color.is_some()).into(),
                color: color.unwrap_or(0).into(),
                key: key.into(),
                next_context_id: next_context_id.saturating_add(ahead).into(),
            };
            let made = self.agree(mine.as_bytes(), None).and_then(|bytes| self.make(place, color, &bytes));
            // A rank with an error tells the others. Other threads may have taken the context id at some rank: all then try again.
            let taken = matches!(made, Err(Error::Communicator(CommError::ContextTaken)));
            let error = made.as_ref().err().filter(|_| !taken).cloned();
            if !self.agree(&[u8::from(taken)], error)?.contains(&1) {
                return made;
            }
        }
        Err(Error::Finished)
    }

    /// The context id that no rank has used yet. One for all colors: groups without a common rank share no message.
    fn agreed_id(&self, entries: &[SplitEntry]) -> Result<u32, Error> {
        for (rank, entry) in (0..).zip(entries) {
            match Shortage::of_code(entry.shortage.get()) {
                None => {}
                Some(Shortage::Communicators) if rank == self.rank => return Err(Error::Communicator(CommError::Full)),
                Some(why) => return Err(Error::NoRoom { rank, why }),
            }
        }
        let id = entries.iter().map(|entry| entry.next_context_id.get()).max().unwrap_or(u32::MAX);
        let mut engine = self.handle.context.engine.lock();
        // If this is the last id, all ranks make this communicator and none after it.
        engine.next_context_id = engine.next_context_id.max(id.saturating_add(1));
        Ok(id)
    }

    /// Makes the communicator of this rank's color, if it has one and no rank lacks anything.
    fn make(
        &self,
        mut place: Result<Place<'_, L>, Shortage>,
        color: Option<u32>,
        entries: &[u8],
    ) -> Result<Option<OwnedCommunicator<L>>, Error> {
        let entries = <[SplitEntry]>::ref_from_bytes(entries).map_err(|_| Error::Finished)?;
        let id = self.agreed_id(entries)?;
        let Some(color) = color else { return Ok(None) };
        let context = &self.handle.context;
        let with_color = (0..).zip(entries).filter(|(_, entry)| entry.has_color(color));
        let mut members: Vec<(u32, u32)> = with_color.map(|(rank, entry)| (entry.key.get(), rank)).collect();
        members.sort_unstable();
        let rank = members.iter().position(|(_, rank)| *rank == self.rank).unwrap_or(0) as u32;
        let peers: Option<Box<[u32]>> =
            members.iter().map(|(_, rank)| self.handle.peer(*rank).map(|peer| peer.0)).collect();
        let peers = peers.ok_or(Error::Finished)?;
        let size = peers.len() as u32;
        let identity = size == context.grid.ranks && peers.iter().zip(0..).all(|(peer, rank)| *peer == rank);
        let mut engine = context.engine.lock();
        if place.as_mut().is_ok_and(|place| place.0.take().is_some()) {
            engine.reserved_comms -= 1; // the communicator takes the place
        }
        let (made, rank_map): (Result<Comm, _>, _) = if identity {
            (engine.mtl.add_comm(id, Group::World { size }, rank), RankMap::Peers)
        } else {
            (engine.add_table_comm(id, peers, rank, false), RankMap::Table)
        };
        drop(engine);
        let comm = made.map_err(Error::Communicator)?;
        Ok(Some(OwnedCommunicator(Self::new(L::Ref::clone(context), comm, rank, size, rank_map, id))))
    }
}

/// A place for one more communicator. It is kept for this rank until it is dropped.
struct Place<'a, L: Threads>(Option<&'a ContextState<L>>);

impl<'a, L: Threads> Place<'a, L> {
    /// Reserves a place, if one is needed.
    fn reserve(context: &'a ContextState<L>, needed: bool) -> Result<Self, Shortage> {
        if !needed {
            return Ok(Self(None));
        }
        let mut engine = context.engine.lock();
        if engine.reserved_comms >= engine.mtl.free_comms() {
            return Err(Shortage::Communicators);
        }
        engine.reserved_comms += 1;
        Ok(Self(Some(context)))
    }
}

impl<L: Threads> Drop for Place<'_, L> {
    fn drop(&mut self) {
        if let Some(context) = self.0 {
            context.engine.lock().reserved_comms -= 1;
        }
    }
}
