//! The messages that no receive takes any more, at the end of a process: they are taken out of the device, and counted. So a sender that
//! waits for a receive goes on.

use std::time::{Duration, Instant};

use towline_core::convertor::Span;
use towline_core::pml::matching::ANY;
use towline_core::pml::{self, RefusedMessages};
use towline_core::rail::Peer;
use towline_window::completion::{self, Done};

use crate::errors::Refusal;
use crate::matching::{Matching, Owner};
use crate::pipeline::length_of;
use crate::transport::{Comm, Message, Request, Transport};

/// The time between two looks for messages while a process waits for the others: a look asks the device once for each communicator.
const LOOK: Duration = Duration::from_millis(1);

impl Matching {
    /// The program receives nothing any more. From now on, messages of users that find no receive are taken out of the device while this
    /// makes progress.
    pub fn refuse_unexpected(&mut self) {
        if self.unreceived.looked.is_none() {
            self.unreceived.looked = Some(Instant::now());
            self.add_deleted();
            self.take_unreceived();
        }
    }

    /// Gives the device the communicators again that were deleted last, as far as it has room for them. Messages that have come after
    /// their end, and that nobody can receive, would stay in the device, and keep those behind them in the devices of their senders.
    fn add_deleted(&mut self) {
        while let Some(members) = self.unreceived.deleted.pop_back() {
            let rank = members.peers.iter().position(|peer| Some(*peer) == self.own);
            let comm = rank.map(|rank| self.transport.add_comm(members.context, &members.peers, rank as u32));
            match comm {
                Some(Ok(comm)) => drop(self.members.insert(comm.0, members)),
                Some(Err(Refusal::Lost(_) | Refusal::Device(completion::Failure::Full))) => return,
                Some(Err(_)) | None => {} // a member was lost
            }
        }
    }

    /// The messages that were taken out since [`refuse_unexpected`](Self::refuse_unexpected), and those that are in the device now. Messages
    /// that came over other transports are not among them.
    pub fn refused_messages(&mut self) -> Option<RefusedMessages> {
        if self.unreceived.is_looking() {
            self.take_unreceived();
        }
        self.unreceived.summary
    }

    /// Looks for messages if it is time for that.
    pub(crate) fn look_for_unreceived(&mut self) {
        if self.unreceived.looked.is_some_and(|looked| looked.elapsed() >= LOOK) {
            self.take_unreceived();
        }
    }

    fn take_unreceived(&mut self) {
        self.unreceived.looked = Some(Instant::now());
        while let Some(message) = self.unreceived.waiting.pop_front() {
            if let Some(message) = self.receive_nothing(message) {
                self.unreceived.waiting.push_front(message);
                return;
            }
        }
        let comms: Vec<u32> = self.members.keys().copied().collect();
        for comm in comms {
            // Any tag is any tag of users.
            while let Ok(Some(found)) = self.find(comm, ANY, ANY, false) {
                if self.takeover.has_receive_for(comm, &found) {
                    break;
                }
                let (message, found) = match self.find(comm, ANY, ANY, true) {
                    Ok(Some(found)) => (Some(Message(found.value)), found),
                    // Messages that the program has taken out have all places of the device.
                    Err(pml::Refusal::Busy) if self.drop_found(comm, &found) => (None, found),
                    _ => break,
                };
                let peer = Peer(self.peer_of(comm, found.rank));
                let context = self.members.get(&comm).map_or(0, |members| members.context);
                let summary = self.unreceived.summary.get_or_insert(RefusedMessages {
                    count: 0,
                    bytes: 0,
                    largest: 0,
                    peer,
                    tag: found.tag,
                    context,
                });
                let len = length_of(found.received);
                (summary.count, summary.bytes) = (summary.count + 1, summary.bytes.saturating_add(len));
                if len > summary.largest {
                    (summary.largest, summary.peer) = (len, peer);
                    (summary.tag, summary.context) = (found.tag, context);
                }
                if let Some(message) = message.and_then(|message| self.receive_nothing(message)) {
                    self.unreceived.waiting.push_back(message);
                    return;
                }
            }
        }
    }

    /// Receives a message that was taken out into no memory. Returns it if there is no room now.
    fn receive_nothing(&mut self, message: Message) -> Option<Message> {
        // SAFETY: nothing is written.
        let begun = self.drop_by(|transport| unsafe { transport.imrecv_part(&message, Span::EMPTY, 0) });
        if begun { None } else { Some(message) }
    }

    /// The same for a message that is the first one of its sender with its tag. Returns whether there was room.
    fn drop_found(&mut self, comm: u32, found: &Done) -> bool {
        let envelope = (found.rank, found.tag);
        // SAFETY: nothing is written.
        let begun = self.drop_by(|transport| unsafe { transport.irecv_found(Comm(comm), envelope, Span::EMPTY, 0) });
        if begun {
            self.note_taken(self.peer_of(comm, found.rank));
        }
        begun
    }

    /// Begins such a receive. Returns whether there was room.
    fn drop_by(&mut self, begin: impl Fn(&mut Transport) -> Result<Request, Refusal>) -> bool {
        let mut begun = begin(&mut self.transport);
        if begun == Err(Refusal::Busy) && self.make_room() {
            begun = begin(&mut self.transport);
        }
        match begun {
            Ok(request) => self.owners.add(request.0, Owner::Dropped),
            Err(Refusal::Busy) => return false,
            Err(_) => {} // the device has failed
        }
        true
    }
}
