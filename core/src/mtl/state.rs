//! The state of a communicator.

use core::marker::PhantomData;

use zerocopy::FromZeros;

use super::communicator::Group;
use super::errors::CommError;
use crate::list::OptSlot;
use crate::pml::offload::ENABLED;
use crate::rail::Peer;

/// The state of a communicator.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(super) struct CommState<'m> {
    pub context: u32,
    pub rank: u32,
    /// The number of ranks for which rank r is peer r: all ranks of a [`Group::World`], 0 for a [`Group::Table`].
    world: u32,
    /// The number of entries of the table. 0 without a table.
    len: u32,
    /// Number of peers that had rejoined when the communicator was made.
    made_at: u32,
    /// Each rank is the peer that has the rank's place now, even if it has rejoined since.
    lasting: bool,
    /// A device matches its messages.
    is_offloaded: bool,
    /// A device has matched its messages, and they go by the rails now.
    has_left: bool,
    /// The device's number of it.
    offloaded: u32,
    /// The peers of the table ascend, so a rank is found by halving the table.
    ascends: bool,
    /// The peer of each rank. Null for a [`Group::World`].
    table: *const u32,
    /// The peer of the member that failed last.
    last_failed: OptSlot,
    /// The same, but none once the failure is acknowledged.
    unacknowledged: OptSlot,
    memory: PhantomData<&'m [u32]>,
}

impl<'m> CommState<'m> {
    /// `made_at`: how many peers have rejoined so far. `None`: a lasting communicator, in which each rank is the peer that has
    /// its place now.
    pub fn new(context: u32, group: Group<'m>, rank: u32, made_at: Option<u32>) -> Result<Self, CommError> {
        let (size, table, ascends) = match group {
            Group::World { size } => (size, core::ptr::null(), true),
            Group::Table(table) => {
                let size = table.len().min(u32::MAX as usize) as u32;
                (size, table.as_ptr(), table.is_sorted_by(|one, next| one < next))
            }
        };
        if rank >= size {
            return Err(CommError::RankOutside);
        }
        let (world, len) = if table.is_null() { (size, 0) } else { (0, size) };
        let (made_at, lasting) = (made_at.unwrap_or(0), made_at.is_none());
        Ok(Self {
            context,
            rank,
            world,
            len,
            made_at,
            lasting,
            is_offloaded: false,
            has_left: false,
            offloaded: 0,
            ascends,
            table,
            last_failed: OptSlot::NONE,
            unacknowledged: OptSlot::NONE,
            memory: PhantomData,
        })
    }

    /// Whether each rank is the peer that has the rank's place now.
    pub const fn is_lasting(&self) -> bool {
        self.lasting
    }

    /// A device matches its messages, under this number.
    pub const fn offload(&mut self, number: u32) {
        (self.is_offloaded, self.offloaded) = (true, number);
    }

    /// The device's number of it, if a device matches its messages.
    #[inline]
    pub const fn offloaded(&self) -> Option<u32> {
        if ENABLED && self.is_offloaded { Some(self.offloaded) } else { None }
    }

    /// The device matches its messages no more.
    pub const fn leave_device(&mut self) {
        (self.has_left, self.is_offloaded) = (self.is_offloaded || self.has_left, false);
    }

    /// The device's number of it, if it was made there.
    pub const fn on_device(&self) -> Option<u32> {
        if ENABLED && (self.is_offloaded || self.has_left) { Some(self.offloaded) } else { None }
    }

    /// Whether a member may have been replaced. `rejoined`: how many peers have rejoined so far.
    #[inline]
    pub const fn is_aged(&self, rejoined: u32) -> bool {
        !self.lasting && self.made_at != rejoined
    }

    /// Whether a peer that has a member's place is not the member. `rejoined`: the number of the peer's last rejoin, 0 if it
    /// never rejoined. A peer that rejoined after the communicator was made is another process.
    #[inline]
    pub const fn excludes(&self, rejoined: u32) -> bool {
        !self.lasting && rejoined > self.made_at
    }

    /// Notes that a member failed.
    pub fn fail(&mut self, peer: Peer) {
        self.last_failed = OptSlot::some(peer.0);
        self.unacknowledged = self.last_failed;
    }

    /// Whether this member is noted as the one that failed last.
    pub fn misses(&self, peer: Peer) -> bool {
        self.last_failed.is(peer.0) || self.unacknowledged.is(peer.0)
    }

    /// Notes that the member that failed last has rejoined. `other`: another failed member that has not.
    pub fn restore(&mut self, peer: Peer, other: Option<Peer>) {
        let other = other.map_or(OptSlot::NONE, |other| OptSlot::some(other.0));
        if self.last_failed.is(peer.0) {
            self.last_failed = other;
        }
        // It is unknown whether the failure of `other` was acknowledged. It is better to report it twice than never.
        if self.unacknowledged.is(peer.0) {
            self.unacknowledged = other;
        }
    }

    /// Notes that the caller knows of the failures so far.
    pub fn acknowledge(&mut self) {
        self.unacknowledged = OptSlot::NONE;
    }

    /// The peers of all ranks.
    pub fn members(&self) -> impl Iterator<Item = Peer> + use<'m> {
        let table = self.table().iter().map(|peer| Peer(*peer));
        (0..self.world).map(Peer).chain(table)
    }

    /// The member that failed last.
    pub fn broken(&self) -> Option<Peer> {
        self.last_failed.get().map(Peer)
    }

    /// The member that failed last, unless its failure was acknowledged.
    pub fn failed(&self) -> Option<Peer> {
        self.unacknowledged.get().map(Peer)
    }

    /// The number of ranks for which rank r is peer r.
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

    /// The rank of a peer. Constant time in a world, logarithmic if the peers of the table ascend, and a search otherwise.
    pub fn rank_of(&self, peer: Peer) -> Option<u32> {
        if self.table.is_null() {
            return (peer.0 < self.world).then_some(peer.0);
        }
        let rank = if self.ascends {
            self.table().binary_search(&peer.0).ok()
        } else {
            self.table().iter().position(|other| *other == peer.0)
        };
        rank.map(|rank| rank as u32)
    }

    fn table(&self) -> &'m [u32] {
        if self.table.is_null() {
            return &[];
        }
        // SAFETY: pointer and length are those of a slice that lives for 'm (see `new`). Zeroed memory has a null pointer, which
        // is excluded above.
        unsafe { core::slice::from_raw_parts(self.table, self.len as usize) }
    }
}

// SAFETY: the address is that of a shared slice of plain integers, which may be read from any thread.
unsafe impl Send for CommState<'_> {}
