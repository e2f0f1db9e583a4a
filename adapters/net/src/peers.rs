//! The peers of a rail: by endpoint, which is an index, and by rank.

use std::collections::HashMap;

use towline_core::rail::Unreachable;

/// A member of a job as its card names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The job.
    pub job: u64,
    /// The number of the link, which is the same at both ends.
    pub link: u8,
    /// The rank.
    pub rank: u32,
}

/// The peers of a rail. An endpoint is the index of a peer here; the endpoint of a removed peer is given out again.
///
/// The table grows when a peer is added, and never allocates otherwise. `P` is the rail's state of one peer.
///
/// ```
/// use towline_net::PeerTable;
///
/// let mut peers = PeerTable::new(100);
/// let endpoint = peers.add(7, "state")?;
/// assert_eq!((peers.endpoint_of(7), peers.get(endpoint)), (Some(endpoint), Some(&"state")));
/// assert_eq!(peers.remove(endpoint), Some("state"));
/// assert_eq!(peers.endpoint_of(7), None);
/// # Ok::<(), towline_core::rail::Unreachable>(())
/// ```
#[derive(Debug)]
pub struct PeerTable<P> {
    slots: Vec<Option<Slot<P>>>,
    /// Slots without a peer.
    free: Vec<u32>,
    /// Endpoints by rank.
    endpoints: HashMap<u32, u32>,
    /// Endpoints are below this number.
    limit: u32,
}

#[derive(Debug)]
struct Slot<P> {
    rank: u32,
    peer: P,
}

impl<P> PeerTable<P> {
    /// An empty table for at most `limit` peers.
    pub fn new(limit: u32) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), endpoints: HashMap::new(), limit }
    }

    /// Checks that the owner of a card can be added: it belongs to the same job and link as this rail, it is not this rail, and
    /// it was not added before. `transport` is for the log.
    ///
    /// # Errors
    /// [`Unreachable::BadCard`] for another job or link, and for a rank that was added before. [`Unreachable::NoNetwork`] for
    /// this rail's own card, since messages of a rank to itself take the loopback rail.
    pub fn check(&self, transport: &str, own: Member, peer: Member) -> Result<(), Unreachable> {
        let (link, rank) = (own.link, peer.rank);
        if (peer.job, peer.link) != (own.job, link) {
            log::warn!("{transport} link {link}: the card of rank {rank} belongs to another job or link");
            return Err(Unreachable::BadCard);
        }
        if rank == own.rank {
            return Err(Unreachable::NoNetwork);
        }
        if self.endpoints.contains_key(&rank) {
            log::warn!("{transport} link {link}: rank {rank} was added before");
            return Err(Unreachable::BadCard);
        }
        Ok(())
    }

    /// The endpoint that the next peer gets.
    ///
    /// # Errors
    /// [`Unreachable::Full`] where the table has as many peers as it may have.
    pub fn next_endpoint(&self) -> Result<u32, Unreachable> {
        let next = self.free.last().copied().or_else(|| u32::try_from(self.slots.len()).ok());
        next.filter(|next| *next < self.limit).ok_or(Unreachable::Full)
    }

    /// Adds a peer, which gets the [next](Self::next_endpoint) endpoint. No peer of that rank may be in the table
    /// ([`check`](Self::check)).
    ///
    /// # Errors
    /// As [`next_endpoint`](Self::next_endpoint).
    pub fn add(&mut self, rank: u32, peer: P) -> Result<u32, Unreachable> {
        let endpoint = self.next_endpoint()?;
        let slot = Some(Slot { rank, peer });
        match self.slots.get_mut(endpoint as usize) {
            Some(free) => *free = slot,
            None => {
                self.slots.push(slot);
                self.free.reserve(self.slots.len()); // so that `remove` does not allocate
            }
        }
        self.free.pop_if(|free| *free == endpoint);
        self.endpoints.insert(rank, endpoint);
        Ok(endpoint)
    }

    /// Removes a peer and returns its state.
    pub fn remove(&mut self, endpoint: u32) -> Option<P> {
        let Slot { rank, peer } = self.slots.get_mut(endpoint as usize)?.take()?;
        self.endpoints.remove(&rank);
        self.free.push(endpoint);
        Some(peer)
    }

    /// The peer at an endpoint.
    #[inline]
    pub fn get(&self, endpoint: u32) -> Option<&P> {
        self.slots.get(endpoint as usize)?.as_ref().map(|slot| &slot.peer)
    }

    /// The peer at an endpoint, to be changed.
    #[inline]
    pub fn get_mut(&mut self, endpoint: u32) -> Option<&mut P> {
        self.slots.get_mut(endpoint as usize)?.as_mut().map(|slot| &mut slot.peer)
    }

    /// The endpoint of a rank.
    pub fn endpoint_of(&self, rank: u32) -> Option<u32> {
        self.endpoints.get(&rank).copied()
    }

    /// The rank at an endpoint.
    pub fn rank_of(&self, endpoint: u32) -> Option<u32> {
        self.slots.get(endpoint as usize)?.as_ref().map(|slot| slot.rank)
    }

    /// How many endpoints have been given out so far. Each endpoint is below this number; some may have no peer now.
    pub fn endpoints(&self) -> u32 {
        self.slots.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_given_out_again_and_at_most_as_many_as_allowed() {
        let mut peers = PeerTable::new(2);
        assert_eq!((peers.add(10, 'a'), peers.add(11, 'b')), (Ok(0), Ok(1)));
        assert_eq!(peers.add(12, 'c'), Err(Unreachable::Full));
        assert_eq!((peers.remove(0), peers.remove(0)), (Some('a'), None));
        assert_eq!((peers.endpoint_of(10), peers.rank_of(0), peers.get(0)), (None, None, None));
        assert_eq!(peers.add(12, 'c'), Ok(0));
        assert_eq!((peers.endpoint_of(12), peers.rank_of(0), peers.endpoints()), (Some(0), Some(12), 2));
        assert_eq!(peers.get(0), Some(&'c'));
        assert_eq!(peers.get_mut(1), Some(&mut 'b'));
    }

    #[test]
    fn only_new_members_of_the_same_job_and_link_are_added() {
        let mut peers = PeerTable::new(9);
        let own = Member { job: 1, link: 2, rank: 3 };
        let peer = Member { rank: 4, ..own };
        assert_eq!(peers.check("tcp", own, peer), Ok(()));
        assert_eq!(peers.check("tcp", own, own), Err(Unreachable::NoNetwork));
        for other in [Member { job: 2, ..peer }, Member { link: 1, ..peer }] {
            assert_eq!(peers.check("tcp", own, other), Err(Unreachable::BadCard));
        }
        peers.add(4, ()).unwrap();
        assert_eq!(peers.check("tcp", own, peer), Err(Unreachable::BadCard));
    }
}
