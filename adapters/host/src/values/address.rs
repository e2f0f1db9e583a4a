//! Addresses of contexts, and their numberings.

use std::fmt;

use towline_core::rail::Peer;

/// The address of a context in its job: the rank of its process, and its index among the contexts of that process. Both count
/// from 0.
///
/// ```
/// use towline::Address;
///
/// assert_eq!(Address::from(3), Address { rank: 3, index: 0 }); // a rank alone stands for its first context
/// assert_eq!(Address::from((3, 1)).to_string(), "rank 3, context 1");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// The rank of the process.
    pub rank: u32,
    /// The index of the context in the process.
    pub index: u32,
}

impl From<u32> for Address {
    fn from(rank: u32) -> Self {
        Self { rank, index: 0 }
    }
}

impl From<(u32, u32)> for Address {
    fn from((rank, index): (u32, u32)) -> Self {
        Self { rank, index }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}, context {}", self.rank, self.index)
    }
}

/// All addresses of a job, seen from one of them: a grid of ranks and contexts.
///
/// There are three numberings: the *address*; the *number*, on which all ranks agree, rank after rank (rails know each other by
/// it, and it is the rank in the communicator of all contexts); and the engine's own *peer*, in which the contexts of this index
/// come first, so that rank r of the world is peer r and no table is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grid {
    /// The address from which the grid is seen: that of this context.
    pub own: Address,
    /// How many ranks there are.
    pub ranks: u32,
    /// How many contexts each rank has. `ranks * contexts` does not overflow.
    pub contexts: u32,
}

impl Grid {
    /// How many addresses there are.
    pub const fn total(self) -> u32 {
        self.ranks * self.contexts
    }

    /// The number of this context.
    pub const fn own_number(self) -> u32 {
        self.own.rank * self.contexts + self.own.index
    }

    /// The number of an address, if it exists.
    pub fn number(self, address: Address) -> Option<u32> {
        (address.rank < self.ranks && address.index < self.contexts)
            .then(|| address.rank * self.contexts + address.index)
    }

    /// The address with a number below [`total`](Self::total).
    pub const fn address(self, number: u32) -> Address {
        Address { rank: number / self.contexts, index: number % self.contexts }
    }

    /// The peer with a number below [`total`](Self::total).
    pub const fn peer(self, number: u32) -> Peer {
        let Address { rank, index } = self.address(number);
        let distance = (index + self.contexts - self.own.index) % self.contexts;
        Peer(distance * self.ranks + rank)
    }

    /// The number of a peer of this engine.
    pub const fn number_of(self, peer: Peer) -> u32 {
        let (distance, rank) = (peer.0 / self.ranks, peer.0 % self.ranks);
        rank * self.contexts + (distance + self.own.index) % self.contexts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_one_number_and_one_peer() {
        for (ranks, contexts) in [(1, 1), (4, 1), (1, 3), (3, 4), (5, 2)] {
            for own in 0..ranks * contexts {
                let mut grid = Grid { own: Address { rank: 0, index: 0 }, ranks, contexts };
                grid.own = grid.address(own);
                assert_eq!(grid.own_number(), own);
                let mut peers: Vec<u32> = (0..grid.total()).map(|number| grid.peer(number).0).collect();
                for (number, peer) in (0..).zip(&peers) {
                    assert_eq!(grid.number_of(Peer(*peer)), number);
                    assert_eq!(grid.number(grid.address(number)), Some(number));
                }
                for rank in 0..ranks {
                    assert_eq!(grid.peer(rank * contexts + grid.own.index), Peer(rank), "the world needs no table");
                }
                peers.sort_unstable();
                assert!(peers.into_iter().eq(0..grid.total()));
                assert_eq!(grid.number(Address { rank: ranks, index: 0 }), None);
                assert_eq!(grid.number(Address { rank: 0, index: contexts }), None);
            }
        }
    }
}
