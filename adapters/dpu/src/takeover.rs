//! Posted receives that the host has taken over from a device whose tables or memory are full.
//!
//! The messages stay in the device. The host asks it for the messages that these receives accept, and gives each message to the
//! receive that was posted first among those that accept it. So no message is lost or overtaken. The device has no posted receive
//! meanwhile, so no receive has two owners. When the last of them has matched, new receives go to the device again.

use std::collections::VecDeque;

use towline_core::convertor::Span;
use towline_core::pml::Request as EngineRequest;
use towline_core::pml::matching::{ANY, INTERNAL_TAGS};
use towline_core::pml::offload::Operation;
use towline_window::completion::{Done, Failure};

use crate::errors::Refusal;
use crate::transport::{Message, Source, Tag, Transport};

/// A receive.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    /// The engine's request.
    pub request: EngineRequest,
    /// The communicator.
    pub comm: u32,
    /// The rank of the sender, or any.
    source: u32,
    /// The peer that has this rank, or any.
    pub peer: u32,
    /// The tag, or any.
    tag: u32,
    /// Its memory.
    pub sink: Span,
    /// Its number in the order in which receives were posted.
    pub number: u64,
}

impl Posted {
    /// The sender from which it takes.
    pub const fn source(&self) -> Source {
        if self.source == ANY { Source::Any } else { Source::Rank(self.source) }
    }

    /// The rank of the only sender from which it takes, if there is only one.
    pub const fn source_rank(&self) -> Option<u32> {
        if self.source == ANY { None } else { Some(self.source) }
    }

    /// The tags that it takes.
    pub const fn tag(&self) -> Tag {
        if self.tag == ANY { Tag::Any } else { Tag::Is(self.tag) }
    }

    /// Whether it accepts the message that a probe in its communicator has found.
    const fn accepts(&self, found: &Done) -> bool {
        let source = self.source == ANY || self.source == found.rank;
        let tag = if self.tag == ANY { found.tag < INTERNAL_TAGS } else { self.tag == found.tag };
        source && tag
    }

    /// Whether it accepts the same messages.
    const fn is_like(&self, other: &Self) -> bool {
        self.comm == other.comm && self.source == other.source && self.tag == other.tag
    }
}

/// A message that was found for a receive.
#[derive(Debug)]
pub struct Taken {
    /// The message, which was taken out of the device's queue. `None`: it is there, since the device has no place for one more message
    /// that was taken out. It is the first one with this rank and tag.
    pub message: Option<Message>,
    /// The rank of its sender, or any if that does not matter.
    pub rank: u32,
    /// Its tag, or any if that does not matter.
    pub tag: u32,
    /// Its length in bytes.
    pub len: u64,
}

/// What happens to a receive next.
#[derive(Debug)]
pub enum Next {
    /// It gets a message.
    Message(Posted, Taken),
    /// It fails.
    Failed(Posted, Failure),
}

/// The receives that the host has taken over.
#[derive(Debug, Default)]
pub struct Takeover {
    /// In the order in which they were posted.
    posted: VecDeque<Posted>,
    /// Receives with their messages, for which the device has no room yet.
    waiting: VecDeque<(Posted, Taken)>,
    posted_ever: u64,
    count: u32,
    /// The device has told that it does not reach the device of a peer.
    pub is_cut_off: bool,
}

impl Takeover {
    /// Whether the host has receives.
    pub fn is_active(&self) -> bool {
        !self.waiting.is_empty() || !self.posted.is_empty()
    }

    /// How often it began. It wraps.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// A new receive.
    pub const fn posted(&mut self, operation: &Operation, sink: Span) -> Posted {
        self.posted_ever += 1;
        let Operation { request, comm, rank, peer, tag } = *operation;
        Posted { request, comm, source: rank, peer, tag, sink, number: self.posted_ever }
    }

    /// The host takes these receives over.
    pub fn begin(&mut self, receives: Vec<Posted>) {
        self.count = self.count.wrapping_add(1);
        self.posted = receives.into();
    }

    /// Whether a receive is posted that accepts a message of a communicator.
    pub fn has_receive_for(&self, comm: u32, found: &Done) -> bool {
        self.posted.iter().any(|posted| posted.comm == comm && posted.accepts(found))
    }

    /// Posts one more receive.
    pub fn post(&mut self, posted: Posted) {
        self.posted.push_back(posted);
    }

    /// The message stays taken until the device has room for it.
    pub fn wait(&mut self, posted: Posted, message: Taken) {
        self.waiting.push_back((posted, message));
    }

    /// The device has no room for the message of this receive yet, which is in its queue.
    pub fn post_again(&mut self, posted: Posted) {
        let place = self.posted.partition_point(|other| other.number < posted.number);
        self.posted.insert(place, posted);
    }

    /// The next receive that waits with its message.
    pub fn next_waiting(&mut self) -> Option<(Posted, Taken)> {
        self.waiting.pop_front()
    }

    /// The device has no room for the message of this receive yet. It is again the next one.
    pub fn wait_again(&mut self, posted: Posted, message: Taken) {
        self.waiting.push_front((posted, message));
    }

    /// The next receive that has a message, or that fails. `may_fail`: a receive fails if the device has lost its peer. Otherwise the
    /// rails find that out.
    /// `Err`: the device refuses to look now, so there may be messages.
    pub fn next(&mut self, device: &mut Transport, may_fail: bool) -> Result<Option<Next>, Refusal> {
        for place in 0..self.posted.len() {
            let posted = self.posted[place];
            // A receive like an earlier one has no message either.
            if self.posted.iter().take(place).any(|earlier| earlier.is_like(&posted)) {
                continue;
            }
            match probe(device, &posted, false) {
                Ok(Some(found)) => {
                    let (posted, message) = self.take(device, place, found)?;
                    return Ok(Some(Next::Message(posted, message)));
                }
                Ok(None) => {}
                Err(Refusal::Device(why @ (Failure::PeerFailed | Failure::PeerFinished))) if may_fail => {
                    self.posted.remove(place);
                    return Ok(Some(Next::Failed(posted, why)));
                }
                // If the way to the sender's device is broken, its messages will come by the rails.
                Err(Refusal::Device(Failure::PeerFailed | Failure::PeerFinished)) => {}
                Err(Refusal::Device(Failure::Unreachable)) => self.is_cut_off = true,
                Err(why) => return Err(why),
            }
        }
        Ok(None)
    }

    /// Takes the message for the receive at this place, or another message for an earlier receive that accepts this one too: it may
    /// have arrived after the earlier receive was looked at.
    fn take(&mut self, device: &mut Transport, mut place: usize, mut found: Done) -> Result<(Posted, Taken), Refusal> {
        while let Some(earlier) = (0..place).find(|earlier| {
            let other = &self.posted[*earlier];
            other.comm == self.posted[place].comm && other.accepts(&found)
        }) {
            place = earlier;
            // The message that it accepts has arrived, so the device finds that one or an earlier one.
            found = probe(device, &self.posted[place], false)?.ok_or(Refusal::Busy)?;
        }
        let (message, found) = match probe(device, &self.posted[place], true) {
            // The program has taken messages out, and waits for others.
            Err(Refusal::Device(Failure::Full)) => (None, found),
            taken => taken?.map(|taken| (Some(Message(taken.value)), taken)).ok_or(Refusal::Busy)?,
        };
        let posted = self.posted.remove(place).ok_or(Refusal::Busy)?;
        let Done { rank, tag, received: len, .. } = found;
        Ok((posted, Taken { message, rank, tag, len }))
    }

    /// Cancels a receive. Returns whether the host has it.
    pub fn cancel(&mut self, request: EngineRequest) -> bool {
        let place = self.posted.iter().position(|posted| posted.request == request);
        place.is_some_and(|place| self.posted.remove(place).is_some())
    }

    /// Ends the receives of a communicator that have no message, and returns their requests.
    pub fn delete(&mut self, comm: u32) -> Vec<EngineRequest> {
        let (ended, stay): (Vec<_>, Vec<_>) = self.posted.drain(..).partition(|posted| posted.comm == comm);
        self.posted = stay.into();
        ended.into_iter().map(|posted| posted.request).collect()
    }

    /// Takes back the receive that was posted first.
    pub fn take_first(&mut self) -> Option<Posted> {
        self.posted.pop_front()
    }

    /// Ends the receives whose messages wait in the device, and returns their requests.
    pub fn end_waiting(&mut self) -> Vec<EngineRequest> {
        self.waiting.drain(..).map(|(posted, _)| posted.request).collect()
    }

    /// Ends all receives, and returns their requests.
    pub fn end(&mut self) -> Vec<EngineRequest> {
        let waiting = self.end_waiting();
        self.posted.drain(..).map(|posted| posted.request).chain(waiting).collect()
    }
}

/// The first message in the device that a receive accepts.
fn probe(device: &mut Transport, posted: &Posted, take: bool) -> Result<Option<Done>, Refusal> {
    device.probe_words(posted.comm, posted.source, posted.tag, take)
}
