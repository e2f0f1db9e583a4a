//! Communicators: a context and the peers that its ranks stand for.

use core::fmt;
use core::marker::PhantomData;

use zerocopy::FromZeros;

use crate::pool::Handle;
use crate::rail::Peer;

/// Names a communicator until it is deleted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Comm(pub(super) Handle);

/// Which peers a communicator's ranks are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group<'m> {
    /// Rank r is peer r.
    World {
        /// How many ranks there are.
        size: u32,
    },
    /// Rank r is peer `table[r]`. The table is the caller's, for as long as the engine's memory.
    Table(&'m [u32]),
}

/// A communicator was not made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum CommError {
    /// As many communicators as were set up exist already.
    Full,
    /// A communicator with that context exists already.
    ContextTaken,
    /// The rank is not in the group.
    RankOutside,
}

impl fmt::Display for CommError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "all communicators are taken: delete some, or set up with more",
            Self::ContextTaken => "a communicator with that context exists already",
            Self::RankOutside => "the own rank is not in the group",
        })
    }
}

impl core::error::Error for CommError {}

/// What is kept of a communicator.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(super) struct CommState<'m> {
    pub context: u32,
    pub rank: u32,
    /// Ranks that are the peers of the same number: all of a world, none where there is a table.
    world: u32,
    /// Entries of the table.
    len: u32,
    /// How many peers had come back when it was made.
    made_at: u32,
    /// Its ranks are whoever is at their places now.
    lasting: bool,
    /// Null for the world.
    table: *const u32,
    /// A member that failed, as its peer plus one; 0 for none.
    broken: u32,
    /// The same until it is acknowledged.
    pub failed: u32,
    memory: PhantomData<&'m [u32]>,
}

impl<'m> CommState<'m> {
    /// `made_at`: how many peers have come back so far; `None` of a communicator that is always of who is there.
    pub fn new(context: u32, group: Group<'m>, rank: u32, made_at: Option<u32>) -> Result<Self, CommError> {
        let (size, table) = match group {
            Group::World { size } => (size, core::ptr::null()),
            Group::Table(table) => (table.len().min(u32::MAX as usize) as u32, table.as_ptr()),
        };
        if rank >= size {
            return Err(CommError::RankOutside);
        }
        let (world, len) = if table.is_null() { (size, 0) } else { (0, size) };
        let (made_at, lasting) = (made_at.unwrap_or(0), made_at.is_none());
        Ok(Self { context, rank, world, len, made_at, lasting, table, broken: 0, failed: 0, memory: PhantomData })
    }

    /// Whether a member may be none any more; `returned`: how many peers have come back so far.
    #[inline]
    pub const fn is_aged(&self, returned: u32) -> bool {
        !self.lasting && self.made_at != returned
    }

    /// Whether a member is none any more though it is there, because what was there as this was made was lost. It came back as the
    /// `came_back`-th, or never did: 0.
    #[inline]
    pub const fn excludes(&self, came_back: u32) -> bool {
        !self.lasting && came_back > self.made_at
    }

    /// A member failed.
    pub fn fail(&mut self, peer: Peer) {
        self.broken = peer.0.wrapping_add(1);
        self.failed = self.broken;
    }

    /// Whether it is this member that failed last, as far as is known.
    pub fn misses(&self, peer: Peer) -> bool {
        let link = peer.0.wrapping_add(1);
        self.broken == link || self.failed == link
    }

    /// The member that failed last is back; `other` is not.
    pub fn restore(&mut self, peer: Peer, other: Option<Peer>) {
        let (link, other) = (peer.0.wrapping_add(1), other.map_or(0, |other| other.0.wrapping_add(1)));
        if self.broken == link {
            self.broken = other;
        }
        // Whether that one was acknowledged nobody knows any more: to be told once more is better than never.
        if self.failed == link {
            self.failed = other;
        }
    }

    /// The peers of all ranks.
    pub fn members(&self) -> impl Iterator<Item = Peer> + use<'m> {
        let table = self.table().iter().map(|peer| Peer(*peer));
        (0..self.world).map(Peer).chain(table)
    }

    /// The member that failed last.
    pub fn broken(&self) -> Option<Peer> {
        self.broken.checked_sub(1).map(Peer)
    }

    /// The same, unless that was acknowledged.
    pub fn failed(&self) -> Option<Peer> {
        self.failed.checked_sub(1).map(Peer)
    }

    /// Ranks that are the peers of the same number.
    pub const fn world(&self) -> u32 {
        self.world
    }

    /// The peer of a rank.
    #[inline]
    pub fn peer(&self, rank: u32) -> Option<Peer> {
        if rank < self.world {
            return Some(Peer(rank));
        }
        self.table().get(rank as usize).map(|peer| Peer(*peer))
    }

    /// The rank of a peer: constant time in the world, a search elsewhere.
    pub fn rank_of(&self, peer: Peer) -> Option<u32> {
        if self.table.is_null() {
            return (peer.0 < self.world).then_some(peer.0);
        }
        self.table().iter().position(|other| *other == peer.0).map(|rank| rank as u32)
    }

    fn table(&self) -> &'m [u32] {
        if self.table.is_null() {
            return &[];
        }
        // SAFETY: pointer and length are those of a slice that lives for 'm (see `new`); zeroed memory has a null
        // pointer, which was seen above.
        unsafe { core::slice::from_raw_parts(self.table, self.len as usize) }
    }
}

// SAFETY: the address is that of a shared slice of plain integers, which may be read from any thread.
unsafe impl Send for CommState<'_> {}
