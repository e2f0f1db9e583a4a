//! Who is known to a rail, and how it stands with each.

use std::collections::HashMap;
use std::net::SocketAddr;

use socket2::SockAddr;
use towline_core::rail::Peer;
use towline_core::time::Instant;

use crate::rail::liveness::Doubt;
use crate::session::handshake::Meeting;

/// A peer that was added.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) peer: Peer,
    pub(crate) rank: u32,
    /// Addresses to try.
    pub(crate) candidates: Vec<SocketAddr>,
    /// Of the candidates, those whose port is closed: a bit for each.
    pub(crate) closed: u32,
    pub(crate) meeting: Meeting,
    /// Where its last session came from.
    pub(crate) remote: Option<SockAddr>,
    pub(crate) way: Way,
    /// While a session is made beside the one that there is: hellos that wait for an answer.
    pub(crate) again: Option<Call>,
    /// When a hello of anybody but itself was last answered, while there is a session.
    pub(crate) answered: Option<Instant>,
    /// Its card says that what is sent there is passed on by another.
    pub(crate) forwarded: bool,
    /// Its port was reported closed, which may not be so.
    pub(crate) doubt: Option<Doubt>,
}

impl Known {
    /// Something came that only the peer can have said.
    #[inline]
    pub(crate) fn proved(&mut self) {
        if let Some(doubt) = &mut self.doubt {
            doubt.refuted();
            if self.way == Way::Closing {
                self.way = Way::Up;
            }
        }
    }
}

/// How it stands with a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Not used yet.
    Unused,
    /// We say hello, until it answers.
    Calling(Call),
    /// Frames can travel.
    Up,
    /// Its port is closed: it is lost once what it sent before is looked at.
    Closing,
    /// No way any more.
    Gone,
}

/// Hellos that wait for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    /// How many were said.
    pub(crate) said: u32,
    pub(crate) next: Instant,
    /// For all of them.
    pub(crate) deadline: Instant,
}

/// The peers by endpoint.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    places: Vec<Option<Known>>,
    /// Places without a peer.
    free: Vec<u32>,
    ranks: HashMap<u32, u32>,
}

impl Peers {
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    #[inline]
    pub(crate) fn get(&self, endpoint: u32) -> Option<&Known> {
        self.places.get(endpoint as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, endpoint: u32) -> Option<&mut Known> {
        self.places.get_mut(endpoint as usize)?.as_mut()
    }

    pub(crate) fn of_rank(&self, rank: u32) -> Option<u32> {
        self.ranks.get(&rank).copied()
    }

    /// The endpoint that the next peer gets; `None` where there are too many.
    pub(crate) fn next(&self) -> Option<u32> {
        self.free.last().copied().or_else(|| u32::try_from(self.places.len()).ok().filter(|next| *next != u32::MAX))
    }

    /// Adds a peer as the [next](Self::next) endpoint.
    pub(crate) fn add(&mut self, known: Known) {
        let Some(endpoint) = self.next() else { return };
        self.ranks.insert(known.rank, endpoint);
        if self.free.pop().is_none() {
            self.places.push(None);
        }
        if let Some(place) = self.places.get_mut(endpoint as usize) {
            *place = Some(known);
        }
    }

    pub(crate) fn remove(&mut self, endpoint: u32) {
        if let Some(known) = self.places.get_mut(endpoint as usize).and_then(Option::take) {
            self.ranks.remove(&known.rank);
            self.free.push(endpoint);
        }
    }

    /// Where frames to an endpoint go.
    #[inline]
    pub(crate) fn remote(&self, endpoint: u32) -> Option<&SockAddr> {
        self.get(endpoint).filter(|known| known.way == Way::Up)?.remote.as_ref()
    }
}
