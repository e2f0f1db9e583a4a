//! What an engine is doing: the operations in progress, and the messages that no receive has taken. For reports to users. Each
//! listing is a walk over a pool of bounded size, and changes nothing. None of this is on the path of a message.

use crate::pml::engine::Pml;
use crate::pml::matching::{ANY, INTERNAL_TAGS, Pattern};
use crate::pml::rails::Rails;
use crate::pml::requests::request::Request;
use crate::pml::requests::state::{Phase, RECEIVE, RequestState, SYNCHRONOUS};
use crate::pml::unexpected::state::{EnvelopeStage, Unexpected};
use crate::rail::Peer;
use crate::rma::Operation;

/// The kind of an operation in progress.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Kind {
    /// A send.
    Send,
    /// A send that is complete only when a receive has matched it.
    SynchronousSend,
    /// A receive.
    Receive,
}

/// How far an operation in progress is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Stage {
    /// A send of which nothing has left: it waits for credit of the peer, for room on the rails, or for earlier messages.
    Held,
    /// A receive that no message has matched, or a send whose match is not known: the peer may have no receive for it.
    Unmatched,
    /// The operation has matched, or needs no match any more. Its bytes are on their way.
    Moving,
}

/// An operation in progress: see [`Pml::operations`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct InProgress {
    /// Its request.
    pub request: Request,
    /// Its kind.
    pub kind: Kind,
    /// How far it is.
    pub stage: Stage,
    /// The other side. `None`: a receive from any source that has not matched.
    pub peer: Option<Peer>,
    /// The context of its communicator.
    pub context: u32,
    /// Its tag. `None`: a receive of any tag that has not matched.
    pub tag: Option<u32>,
    /// Bytes of the message. Of a receive that has not matched: the room for it.
    pub bytes: u64,
    /// Bytes that were handed to rails, or that have arrived.
    pub moved: u64,
}

/// A message that has arrived, and that no receive has taken: see [`Pml::unreceived`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Unreceived {
    /// The sender.
    pub peer: Peer,
    /// The context of its communicator.
    pub context: u32,
    /// Its tag.
    pub tag: u32,
    /// Bytes of the message.
    pub bytes: u64,
    /// A matched probe has taken the message, and it was not received since.
    pub taken: bool,
}

impl Unreceived {
    /// Whether the message is one of the user's own protocols, such as collectives, and not one that a receive of any tag takes.
    pub const fn is_internal(&self) -> bool {
        self.tag >= INTERNAL_TAGS
    }
}

impl<R: Rails> Pml<'_, R> {
    /// The sends and receives in progress, in no order. Operations that are over are not among them, even if their outcome was
    /// not taken yet.
    pub fn operations(&self) -> impl Iterator<Item = InProgress> {
        (0..self.requests.touched()).filter_map(|slot| {
            let state = self.requests.at(slot)?;
            in_progress(Request(self.requests.handle(slot)?), state)
        })
    }

    /// The messages that have arrived, and that no receive has taken, in no order. A message whose sender holds it back for lack
    /// of credit has not arrived.
    pub fn unreceived(&self) -> impl Iterator<Item = Unreceived> {
        (0..self.envelopes.touched()).filter_map(|slot| unreceived(self.envelopes.at(slot)?))
    }

    /// Whether a message that `pattern` accepts has arrived. Unlike [`iprobe`](Self::iprobe), it does not ask senders that hold
    /// messages back.
    pub fn has_unexpected(&self, pattern: &Pattern) -> bool {
        self.matcher.unexpected_len() != 0 && self.matcher.find_unexpected(pattern).is_some()
    }

    /// Whether a message was sent to a peer since it was added, or is about to be.
    pub fn has_sent(&self, to: Peer) -> bool {
        let first = self.config.first_sequence as u32;
        self.peers.get(to.0 as usize).is_some_and(|peer| peer.credit.next_out != first || peer.held.first().is_some())
    }

    /// The one-sided operations of this side whose end was not reported yet, and the peer of each.
    pub fn one_sided_operations(&self) -> impl Iterator<Item = (Operation, Peer)> {
        self.rma.in_progress()
    }
}

fn in_progress(request: Request, state: &RequestState) -> Option<InProgress> {
    let receive = state.flags & RECEIVE != 0;
    let kind = match (receive, state.flags & SYNCHRONOUS != 0) {
        (true, _) => Kind::Receive,
        (false, true) => Kind::SynchronousSend,
        (false, false) => Kind::Send,
    };
    let stage = match state.phase {
        // A message that a matched probe took is no operation before it is received: see `unreceived`.
        Phase::Done | Phase::Taken | Phase::OffloadedMessage => return None,
        Phase::Held => Stage::Held,
        // The device does not tell how far an operation is.
        Phase::Waiting | Phase::Posted | Phase::Offloaded => Stage::Unmatched,
        Phase::Streaming | Phase::Leaving | Phase::Receiving | Phase::Responding => Stage::Moving,
    };
    let posted = state.is_unmatched_receive();
    let named = |word: u32| if posted && word == ANY { None } else { Some(word) };
    Some(InProgress {
        request,
        kind,
        stage,
        peer: named(state.peer).map(Peer),
        context: state.context,
        tag: named(state.tag),
        bytes: if posted { state.span.len() } else { state.total },
        moved: if posted { 0 } else { state.moved },
    })
}

fn unreceived(envelope: &Unexpected) -> Option<Unreceived> {
    let taken = match envelope.stage {
        EnvelopeStage::Queued | EnvelopeStage::OutOfOrder => false,
        EnvelopeStage::Taken => true,
        EnvelopeStage::Broken | EnvelopeStage::Claimed | EnvelopeStage::Refused => return None,
    };
    let Unexpected { peer, context, tag, total, .. } = *envelope;
    Some(Unreceived { peer: Peer(peer), context, tag, bytes: total, taken })
}
